"""Rule 111 as pure decisions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import ErrorInfo
from mustcall.policy.failures.backoff import Backoff, is_transient, retry_after


def error(status: int, message: str = "", kind: str | None = None, code: str = "x") -> ErrorInfo:
    """An upstream's error."""
    return ErrorInfo(message=message, status=status, code=code, type=kind)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
def test_transient_statuses(status: int) -> None:
    """Rule 111: overload, server errors and timeouts are worth another try."""
    assert is_transient(error(status, "busy"))


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 409, 413, 422, 501])
def test_permanent_statuses(status: int) -> None:
    """Rule 111: auth and other 4xx are not."""
    assert not is_transient(error(status, "no"))


@pytest.mark.parametrize(
    "failure",
    [
        error(429, "You exceeded your current quota, please check your plan"),
        error(429, "no", kind="insufficient_quota"),
        error(429, "no", code="insufficient_quota"),
        error(500, "This model's maximum context length is 8192 tokens"),
        error(429, "Your credit balance is too low"),
    ],
)
def test_quota_and_context_are_permanent(failure: ErrorInfo) -> None:
    """Rule 111: an empty account or a full context does not get better by waiting."""
    assert not is_transient(failure)


def test_waits_double_up_to_the_cap() -> None:
    """Rule 111: without advice the waits are 0.5, 1, 2, 4, 8, 8 s, each between half and whole."""
    backoff = Backoff(retries=6)
    assert [backoff.wait(n, None, 1.0) for n in range(1, 7)] == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    assert [backoff.wait(n, None, 0.0) for n in range(1, 4)] == [0.25, 0.5, 1.0]


def test_no_wait_after_the_last_retry() -> None:
    """Rule 111: two retries are two retries."""
    backoff = Backoff(retries=2)
    assert backoff.wait(2, None, 0.5) is not None
    assert backoff.wait(3, None, 0.5) is None
    assert backoff.wait(3, 0.1, 0.5) is None
    assert Backoff(retries=0).wait(1, None, 0.5) is None


def test_advice_is_followed_unless_too_long() -> None:
    """Rule 111: Retry-After is honoured exactly, and handed to the caller when it is longer than we wait."""
    backoff = Backoff(retries=1, longest_wait=30)
    assert backoff.wait(1, 7.5, 0.9) == 7.5
    assert backoff.wait(1, 30.0, 0.9) == 30.0
    assert backoff.wait(1, 30.5, 0.9) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Sun, 15 Nov 2026 00:00:10 GMT"}, 10.0),
        ({"retry-after": "Sun, 15 Nov 2026 00:00:00 GMT"}, 0.0),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_retry_after_forms(headers: dict[str, str], seconds: float | None) -> None:
    """Rule 111: seconds, milliseconds and dates are read; anything else is no advice."""
    midnight = 1_794_700_800.0  # 2026-11-15 00:00:00 UTC
    assert retry_after(headers, midnight) == seconds


@given(st.text(), st.text(), st.floats(allow_nan=False))
def test_any_header_is_harmless(value: str, other: str, now: float) -> None:
    """Rule 111: whatever an upstream writes there gives a wait of at least 0, or none."""
    wait = retry_after({"retry-after": value, "retry-after-ms": other}, now)
    assert wait is None or wait >= 0
