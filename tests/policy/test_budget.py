"""Rules 93 to 98 as pure arithmetic."""

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.reply import Usage
from mustcall.policy.limits.budget import (
    BudgetKind,
    CapMode,
    Caps,
    Charge,
    CostCap,
    NextCall,
    Price,
    Spending,
    TurnCap,
    charge_for,
    check,
    has_time,
    next_call,
    release,
    reserve,
    settle,
    weigh_turn,
)

PRICE = Price(input=3.0, output=15.0, cached=0.3, cache_write=3.75)


def account(cost: float = 0.0, tokens: int = 0, egress: int = 0, started: float = 0.0, calls: int = 0) -> Spending:
    """A session that has spent this much."""
    return Spending(started=started, spent=Charge(cost_usd=cost, tokens=tokens, egress_bytes=egress, calls=calls))


@pytest.mark.parametrize(
    ("caps", "spending", "now", "kind"),
    [
        (Caps(cost_usd=1.0), account(cost=0.999), 0.0, None),
        (Caps(cost_usd=1.0), account(cost=1.0), 0.0, BudgetKind.COST),
        (Caps(tokens=100), account(tokens=99), 0.0, None),
        (Caps(tokens=100), account(tokens=100), 0.0, BudgetKind.TOKENS),
        (Caps(seconds=60), account(started=10.0), 69.9, None),
        (Caps(seconds=60), account(started=10.0), 70.0, BudgetKind.TIME),
        (Caps(calls=3), account(calls=2), 0.0, None),
        (Caps(calls=3), account(calls=3), 0.0, BudgetKind.CALLS),
        (Caps(egress_bytes=10), account(egress=9), 0.0, None),
        (Caps(egress_bytes=10), account(egress=10), 0.0, BudgetKind.EGRESS),
        (Caps(), account(cost=1e9, tokens=10**12, egress=10**12), 1e12, None),
    ],
)
def test_caps_trip_when_reached(caps: Caps, spending: Spending, now: float, kind: BudgetKind | None) -> None:
    """Rule 94: cost, tokens and time trip at >=, and 0 is off."""
    trip = check(caps, spending, now)
    assert (trip.error_kind if trip is not None else None) is kind


def test_a_trip_says_all_of_rule_94() -> None:
    """Rule 94: a trip has error, error_code, error_kind, operator_hint and transient."""
    trip = check(Caps(cost_usd=0.5), account(cost=0.75), 0.0)
    assert trip is not None
    assert trip.details() == {
        "error": "the session's cost cap is reached: 0.75 of 0.5 US dollars",
        "error_code": "session_cost_cap",
        "error_kind": "cost",
        "operator_hint": "raise cost_usd in the caps, or start a new session",
        "transient": False,
    }
    assert msgspec.json.decode(msgspec.json.encode(trip.details())) == trip.details()


def test_what_is_in_flight_counts() -> None:
    """Rule 94: usage in flight counts, and a trip that only it causes may pass."""
    caps, expected = Caps(tokens=100), Charge(tokens=60)
    one = reserve(account(tokens=40), expected)
    trip = check(caps, one, 0.0)
    assert trip is not None
    assert trip.transient
    assert "wait for running calls" in trip.operator_hint
    assert check(caps, settle(one, expected, Charge(tokens=10)), 0.0) is None
    assert check(caps, release(one, expected), 0.0) is None
    spent = check(caps, settle(one, expected, Charge(tokens=60)), 0.0)
    assert spent is not None
    assert not spent.transient


def test_every_call_of_a_session_is_summed() -> None:
    """Rule 93: inner calls, retries and tool traffic count toward the same session."""
    spending = account()
    for charge in (Charge(cost_usd=0.1, tokens=5), Charge(egress_bytes=7), Charge(cost_usd=0.2, estimated=True)):
        spending = settle(reserve(spending, Charge()), Charge(), charge)
    assert spending.spent == Charge(cost_usd=0.1 + 0.2, tokens=5, egress_bytes=7, estimated=True)
    assert (spending.running, spending.in_flight) == (0, Charge())


def test_round_caps_are_met_by_round_sums() -> None:
    """Rule 94: ten times 0.1 reaches 1.0, whatever floats make of it."""
    total = 0.0
    for _ in range(10):
        total += 0.1  # `sum` adds more exactly since Python 3.12
    assert total < 1.0
    assert check(Caps(cost_usd=1.0), account(cost=total), 0.0) is not None


def test_cost_of_a_reply() -> None:
    """Rule 93: input, cached, newly cached and output tokens each have their price; cached ones are part of input."""
    usage = Usage(input_tokens=1_000_000, output_tokens=100_000, cached_tokens=400_000, cache_write_tokens=100_000)
    charge = charge_for(usage, PRICE)
    assert charge.cost_usd == pytest.approx(0.5 * 3.0 + 0.4 * 0.3 + 0.1 * 3.75 + 0.1 * 15.0)
    assert (charge.tokens, charge.estimated) == (1_100_000, False)
    plain = charge_for(usage, Price(input=3.0, output=15.0))
    assert plain.cost_usd == pytest.approx(3.0 + 1.5)


@pytest.mark.parametrize(
    ("usage", "price", "tokens"),
    [(None, PRICE, 0), (None, None, 0), (Usage(input_tokens=3, output_tokens=4), None, 7)],
)
def test_what_is_not_known_costs_nothing_and_says_so(usage: Usage | None, price: Price | None, tokens: int) -> None:
    """Rule 98: an unknown price or usage gives cost 0 with `estimated`."""
    assert charge_for(usage, price) == Charge(tokens=tokens, estimated=True)


def test_long_prompts_have_their_own_price() -> None:
    """Rule 93: a call whose input is above the provider's line costs the long price, all of it."""
    price = Price(input=1, output=2, long_above=100, long=Price(input=3, output=4))
    assert charge_for(Usage(input_tokens=100, output_tokens=10), price).cost_usd == pytest.approx(120e-6)
    assert charge_for(Usage(input_tokens=101, output_tokens=10), price).cost_usd == pytest.approx(343e-6)


@pytest.mark.parametrize(
    ("mode", "observed", "exceeded", "blocked"),
    [
        (CapMode.WARN, 0.9, False, False),
        (CapMode.WARN, 1.0, True, False),
        (CapMode.ENFORCE, 0.9, False, False),
        (CapMode.ENFORCE, 1.0, True, True),
        (CapMode.OFF, 5.0, False, False),
    ],
)
def test_a_turns_cost_cap(mode: CapMode, observed: float, exceeded: bool, blocked: bool) -> None:
    """Rule 95: warn reports, enforce blocks, off does neither."""
    expected = CostCap(cap_usd=1.0, observed_usd=observed, mode=mode, exceeded=exceeded, blocked=blocked)
    assert weigh_turn(TurnCap(cost_usd=1.0, mode=mode), observed) == expected


def test_the_default_mode_is_warn_and_0_is_no_cap() -> None:
    """Rule 95: warn is the default; a cap of 0 is never exceeded."""
    assert weigh_turn(TurnCap(cost_usd=1.0), 2.0).mode is CapMode.WARN
    assert not weigh_turn(TurnCap(mode=CapMode.ENFORCE), 2.0).exceeded


@pytest.mark.parametrize(
    ("mode", "observed", "granted", "expected"),
    [
        (CapMode.ENFORCE, 0.5, False, NextCall.GO),
        (CapMode.ENFORCE, 1.0, False, NextCall.FINAL_ROUND),
        (CapMode.ENFORCE, 1.0, True, NextCall.STOP),
        (CapMode.WARN, 9.0, False, NextCall.GO),
        (CapMode.OFF, 9.0, False, NextCall.GO),
    ],
)
def test_enforce_grants_one_final_round(mode: CapMode, observed: float, granted: bool, expected: NextCall) -> None:
    """Rule 95: enforce refuses the next inner call and grants one final round."""
    assert next_call(TurnCap(cost_usd=1.0, mode=mode), observed, final_granted=granted) is expected


@pytest.mark.parametrize(("now", "expected"), [(98.9, True), (99.0, True), (99.1, False), (101.0, False)])
def test_no_attempt_starts_too_late(now: float, expected: bool) -> None:
    """Rule 97: an attempt starts only with at least the minimum time left."""
    assert has_time(100.0, now, 1.0) is expected


COUNTS = st.integers(-(10**20), 10**20)
MONEY = st.floats(allow_nan=True, allow_infinity=True)


@settings(deadline=None)
@given(st.builds(Usage, input_tokens=COUNTS, output_tokens=COUNTS, cached_tokens=COUNTS, cache_write_tokens=COUNTS))
def test_odd_usage_is_never_a_credit(usage: Usage) -> None:
    """Rule 98: whatever an upstream reports, accounting neither fails nor gives money back."""
    charge = charge_for(usage, PRICE)
    assert charge.cost_usd >= 0
    assert charge.tokens >= 0
    assert check(Caps(cost_usd=1.0, tokens=1), reserve(account(), charge), 0.0) is None or charge.tokens > 0


@settings(deadline=None)
@given(MONEY, MONEY)
def test_odd_prices_never_fail(given_price: float, other: float) -> None:
    """Rule 98: a price that is no number makes an estimate, not a failure."""
    charge = charge_for(Usage(input_tokens=5, output_tokens=5), Price(input=given_price, output=other))
    assert math.isfinite(charge.cost_usd)
    assert charge.cost_usd >= 0


CHARGES = st.builds(
    Charge, cost_usd=st.floats(0, 1e6), tokens=st.integers(0, 10**9), egress_bytes=st.integers(0, 10**9)
)


@settings(deadline=None)
@given(st.lists(st.tuples(CHARGES, CHARGES), max_size=8))
def test_reservations_leave_nothing_behind(calls: list[tuple[Charge, Charge]]) -> None:
    """Rule 94: when all calls have ended only what they really cost is on the account."""
    spending = account()
    for expected, _ in calls:
        spending = reserve(spending, expected)
    for expected, actual in calls:
        spending = settle(spending, expected, actual)
    assert spending.in_flight == Charge()
    assert spending.spent.tokens == sum(actual.tokens for _, actual in calls)
    assert spending.spent.cost_usd == pytest.approx(sum(actual.cost_usd for _, actual in calls))
