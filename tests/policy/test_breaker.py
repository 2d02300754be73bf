"""The circuit breaker as a table."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.policy.failures.breaker import (
    TABLE,
    Breaker,
    BreakerEvent,
    BreakerRule,
    BreakerState,
    CallHealth,
    admit,
    record,
    wait_left,
)

RULE = BreakerRule(failures=3, cool_down=10.0)


def after(*ends: CallHealth, rule: BreakerRule = RULE, now: float = 0.0) -> Breaker:
    """A breaker after calls that ended so."""
    breaker = Breaker()
    for end in ends:
        breaker = record(breaker, rule, end, now)
    return breaker


OPENED = after(*[CallHealth.FAILED] * 3, now=100.0)


def test_the_table_is_whole() -> None:
    """Every state meets every event."""
    assert set(TABLE) == {(state, event) for state in BreakerState for event in BreakerEvent}


def test_failures_in_a_row_open_it() -> None:
    """At the threshold no call goes through any more, and before it every one does."""
    two = after(*[CallHealth.FAILED] * 2)
    assert (two.state, admit(two, RULE, 0.0)) == (BreakerState.CLOSED, (two, True))
    assert (OPENED.state, OPENED.since) == (BreakerState.OPEN, 100.0)
    assert admit(OPENED, RULE, 100.0) == (OPENED, False)


def test_a_success_starts_the_count_anew() -> None:
    """Only failures in a row count; calls that tell nothing do not."""
    mixed = (
        CallHealth.FAILED,
        CallHealth.FAILED,
        CallHealth.SUCCEEDED,
        CallHealth.FAILED,
        CallHealth.UNKNOWN,
        CallHealth.FAILED,
    )
    assert after(*mixed) == Breaker(failures=2)


def test_a_healthy_breaker_is_the_same_object() -> None:
    """Success on a closed breaker changes nothing, so nothing has to be written."""
    breaker = Breaker()
    assert record(breaker, RULE, CallHealth.SUCCEEDED, 5.0) is breaker
    assert record(breaker, RULE, CallHealth.UNKNOWN, 5.0) is breaker
    assert admit(breaker, RULE, 5.0)[0] is breaker


@pytest.mark.parametrize(("now", "left", "admitted"), [(100.0, 10.0, False), (109.0, 1.0, False), (110.0, 0.0, True)])
def test_the_cool_down(now: float, left: float, admitted: bool) -> None:
    """An open breaker lets one call through when the cool-down has passed, and can say when that is."""
    assert wait_left(OPENED, RULE, now) == left
    assert admit(OPENED, RULE, now)[1] is admitted


def test_one_call_is_let_through_to_see() -> None:
    """Half open, further calls wait until the first is back."""
    half, first = admit(OPENED, RULE, 110.0)
    again, second = admit(half, RULE, 111.0)
    assert (half.state, first, second) == (BreakerState.HALF_OPEN, True, False)
    assert again is half
    assert wait_left(half, RULE, 111.0) == 9.0


def test_its_success_closes_and_its_failure_opens() -> None:
    """One good call is enough to trust again, one bad call to wait a whole cool-down more."""
    half, _ = admit(OPENED, RULE, 110.0)
    assert record(half, RULE, CallHealth.SUCCEEDED, 112.0) == Breaker()
    reopened = record(half, RULE, CallHealth.FAILED, 112.0)
    assert (reopened.state, reopened.since, reopened.probing) == (BreakerState.OPEN, 112.0, False)


def test_a_call_that_is_never_heard_of_again_does_not_shut_the_door() -> None:
    """A cancelled look frees the place at once, a lost one after another cool-down."""
    half, _ = admit(OPENED, RULE, 110.0)
    freed = record(half, RULE, CallHealth.UNKNOWN, 111.0)
    assert admit(freed, RULE, 111.0)[1]
    assert wait_left(freed, RULE, 111.0) == 0.0
    assert not admit(half, RULE, 119.9)[1]
    assert admit(half, RULE, 120.0)[1]


def test_late_news_does_not_close_an_open_breaker() -> None:
    """A call that began before the breaker opened tells nothing about now, nor does it make the wait longer."""
    assert record(OPENED, RULE, CallHealth.SUCCEEDED, 101.0) == OPENED
    assert record(OPENED, RULE, CallHealth.FAILED, 101.0).since == 100.0


def test_0_failures_is_never() -> None:
    """A threshold of 0 turns the breaker off."""
    assert after(*[CallHealth.FAILED] * 50, rule=BreakerRule(failures=0)).state is BreakerState.CLOSED


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([*CallHealth, None]), st.integers(0, 20)), max_size=40), st.integers(1, 4))
def test_no_run_of_events_gets_stuck(steps: list[tuple[CallHealth | None, int]], failures: int) -> None:
    """Whatever happens, at most one call is out to see, and a cool-down later a call is admitted."""
    rule, breaker, now = BreakerRule(failures=failures, cool_down=10.0), Breaker(), 0.0
    for end, seconds in steps:
        now += seconds
        before = breaker
        if end is None:
            breaker, admitted = admit(breaker, rule, now)
            assert admitted == (wait_left(before, rule, now) == 0.0)
        else:
            breaker = record(breaker, rule, end, now)
        assert not breaker.probing or breaker.state is BreakerState.HALF_OPEN
        assert 0.0 <= wait_left(breaker, rule, now) <= rule.cool_down
        assert admit(breaker, rule, now + rule.cool_down)[1]
