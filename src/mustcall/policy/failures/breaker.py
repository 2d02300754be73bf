"""When the circuit of a failing upstream opens, and when it closes again: a circuit breaker as one table.

It knows states and events, not what a failure is (`policy.failures.backoff` decides that) nor where the breaker is
kept. Time comes in as `now`; any clock that does not run backwards will do, and one that jumps back only makes the wait
longer.

    closed ──tripped──▶ open ──cooled──▶ half-open ──succeeded──▶ closed
                          ▲                  │
                          └──────failed──────┘
"""

from enum import StrEnum

import msgspec

__all__ = [
    "TABLE",
    "Breaker",
    "BreakerEvent",
    "BreakerRule",
    "BreakerState",
    "CallHealth",
    "admit",
    "record",
    "wait_left",
]


class BreakerState(StrEnum):
    """Whether calls go through."""

    CLOSED = "closed"  # all do
    OPEN = "open"  # none does
    HALF_OPEN = "half_open"  # one at a time does, to see


class BreakerEvent(StrEnum):
    """What can happen to a breaker."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # a failure that does not reach the threshold
    TRIPPED = "tripped"  # the failure that does
    COOLED = "cooled"  # the cool-down has passed


class CallHealth(StrEnum):
    """How an admitted call ended, as far as the upstream's health goes."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"  # cancelled, or refused for the caller's own fault


#: Every state meets every event. Late news of calls that began before the breaker opened does not close it again:
#: only a call let through to see does.
TABLE: dict[tuple[BreakerState, BreakerEvent], BreakerState] = {
    (BreakerState.CLOSED, BreakerEvent.SUCCEEDED): BreakerState.CLOSED,
    (BreakerState.CLOSED, BreakerEvent.FAILED): BreakerState.CLOSED,
    (BreakerState.CLOSED, BreakerEvent.TRIPPED): BreakerState.OPEN,
    (BreakerState.CLOSED, BreakerEvent.COOLED): BreakerState.CLOSED,
    (BreakerState.OPEN, BreakerEvent.SUCCEEDED): BreakerState.OPEN,
    (BreakerState.OPEN, BreakerEvent.FAILED): BreakerState.OPEN,
    (BreakerState.OPEN, BreakerEvent.TRIPPED): BreakerState.OPEN,
    (BreakerState.OPEN, BreakerEvent.COOLED): BreakerState.HALF_OPEN,
    (BreakerState.HALF_OPEN, BreakerEvent.SUCCEEDED): BreakerState.CLOSED,
    (BreakerState.HALF_OPEN, BreakerEvent.FAILED): BreakerState.OPEN,
    (BreakerState.HALF_OPEN, BreakerEvent.TRIPPED): BreakerState.OPEN,
    (BreakerState.HALF_OPEN, BreakerEvent.COOLED): BreakerState.HALF_OPEN,
}


class BreakerRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number of consecutive failures that open a breaker (0: never), and the seconds it stays open."""

    failures: int = 5
    cool_down: float = 30.0


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream's breaker. `since` is when it opened, or when the call that is out to see was let through."""

    state: BreakerState = BreakerState.CLOSED
    #: Failures in a row.
    failures: int = 0
    since: float = 0.0
    #: Whether a call is out to see how the upstream does.
    probing: bool = False


def admit(breaker: Breaker, rule: BreakerRule, now: float) -> tuple[Breaker, bool]:
    """Return the breaker and whether a call may start now. A closed breaker comes back as the same object.

    A call that is out to see and is never heard of again does not shut the door for good: after another cool-down
    the next one is let through.
    """
    if breaker.state is BreakerState.CLOSED:
        return breaker, True
    if wait_left(breaker, rule, now) > 0:
        return breaker, False
    state = TABLE[breaker.state, BreakerEvent.COOLED]
    return Breaker(state=state, failures=breaker.failures, since=now, probing=True), True


def record(breaker: Breaker, rule: BreakerRule, end: CallHealth, now: float) -> Breaker:
    """Return the breaker after a call ended; the same object if nothing changed."""
    if end is CallHealth.UNKNOWN:
        return msgspec.structs.replace(breaker, probing=False) if breaker.probing else breaker
    if end is CallHealth.SUCCEEDED:
        event, failures = BreakerEvent.SUCCEEDED, 0 if breaker.state is BreakerState.CLOSED else breaker.failures
    else:
        failures = breaker.failures + 1
        tripped = 0 < rule.failures <= failures
        event = BreakerEvent.TRIPPED if tripped else BreakerEvent.FAILED
    state = TABLE[breaker.state, event]
    if state is breaker.state:
        return breaker if failures == breaker.failures else msgspec.structs.replace(breaker, failures=failures)
    if state is BreakerState.CLOSED:
        return Breaker()
    return Breaker(state=state, failures=failures, since=now)


def wait_left(breaker: Breaker, rule: BreakerRule, now: float) -> float:
    """Return the seconds until a call may be let through; 0 if one may now."""
    if breaker.state is BreakerState.CLOSED or (breaker.state is BreakerState.HALF_OPEN and not breaker.probing):
        return 0.0
    return max(0.0, rule.cool_down - (now - breaker.since))
