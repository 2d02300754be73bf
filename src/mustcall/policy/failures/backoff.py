"""Which upstream failures are worth another try, and how long to wait before it (rule 111).

One predicate decides everywhere. Randomness and the time of day come in as arguments.
"""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import msgspec

from mustcall.core.errors import ErrorInfo
from mustcall.policy.failures.rejection import Rejection, classify_rejection
from mustcall.wire.overflow import is_overflow

__all__ = ["Backoff", "is_transient", "retry_after"]

_TRANSIENT_STATUSES = frozenset({408, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})

#: Words in an error's type, code or message that mean waiting will not help, whatever the status.
_PERMANENT_WORDS = (
    "insufficient_quota",
    "exceeded your current quota",
    "billing",
    "credit balance",
)


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how patiently to try again. Waits double from `base` seconds up to `cap`."""

    retries: int = 2
    base: float = 0.5
    cap: float = 8.0
    #: A longer Retry-After than this is the caller's to wait for, not ours.
    longest_wait: float = 30.0

    def wait(self, attempt: int, asked: float | None, jitter: float) -> float | None:
        """Return the seconds to wait before attempt number `attempt` + 1, None if it is not to be made.

        `attempt` counts from 1, `asked` is what the upstream asked for, `jitter` is a random number in [0, 1).
        """
        if attempt > self.retries:
            return None
        if asked is not None:
            return asked if asked <= self.longest_wait else None
        longest = min(self.cap, self.base * 2.0 ** (attempt - 1))
        return longest * (0.5 + jitter / 2)


def is_transient(error: ErrorInfo) -> bool:
    """Tell whether the same request may well succeed a little later."""
    if error.status not in _TRANSIENT_STATUSES:
        return False
    if classify_rejection(error) is Rejection.GENERATION:
        return False  # what the model wrote is in it, to be judged like a reply (rule 128)
    said = f"{error.type} {error.code} {error.message}".lower()
    return not any(word in said for word in _PERMANENT_WORDS) and not is_overflow(said)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the wait an upstream asks for: `retry-after-ms`, seconds, or a date; None if it asks for none.

    `headers` has lower-case names; `now` is in Unix seconds.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None:
        return max(0.0, seconds)
    if value is None:
        return None
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number == number and number != float("inf") else None  # noqa: PLR0124  NaN is no number
