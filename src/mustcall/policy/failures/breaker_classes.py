"""Which failures of an upstream a breaker counts, and under which class.

A class is a way to fail that says something about the next call: an upstream that is overloaded may be well reachable,
so each has its own breaker. Whether a failure is the upstream's at all is what `policy.failures.backoff` says of it
(rule 111); a caller's fault, a quota and a wrong key count for nothing.
"""

from enum import StrEnum

from mustcall.core.errors import ErrorInfo, UpstreamGarbage, UpstreamTimeout, UpstreamUnavailable
from mustcall.policy.failures.backoff import is_transient

__all__ = ["FailureClass", "failure_of", "is_healthy"]


class FailureClass(StrEnum):
    """How an upstream failed."""

    CONNECTION = "connection"  # not reached, reset, or cut off
    TIMEOUT = "timeout"
    THROTTLED = "throttled"  # 429
    OVERLOADED = "overloaded"  # 503, 529
    SERVER = "server"  # any other 5xx
    GARBAGE = "garbage"  # an answer that is not the wire's


_BY_CODE = {
    UpstreamUnavailable.code: FailureClass.CONNECTION,
    UpstreamTimeout.code: FailureClass.TIMEOUT,
    UpstreamGarbage.code: FailureClass.GARBAGE,
}
_BY_STATUS = {
    408: FailureClass.TIMEOUT,
    504: FailureClass.TIMEOUT,
    522: FailureClass.TIMEOUT,
    524: FailureClass.TIMEOUT,
    429: FailureClass.THROTTLED,
    503: FailureClass.OVERLOADED,
    529: FailureClass.OVERLOADED,
}


#: Refusals that tell nothing of an upstream's health, and nothing against it: keys, quotas, payment.
_NO_NEWS = frozenset({401, 402, 403, 429})


def failure_of(error: ErrorInfo) -> FailureClass | None:
    """Return the class of a failure, None for one that says nothing about the upstream's health."""
    own = _BY_CODE.get(error.code)
    if own is not None:
        return own
    return _BY_STATUS.get(error.status, FailureClass.SERVER) if is_transient(error) else None


def is_healthy(error: ErrorInfo) -> bool:
    """Tell whether a refusal is a sign of health: one for the request's own fault is an answer like any other."""
    return failure_of(error) is None and error.status not in _NO_NEWS
