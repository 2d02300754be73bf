"""Accounts of sessions: caps that hold together, charges that are counted once."""

import asyncio

import pytest

from mustcall.ledger import Ledger, open_ledger
from mustcall.policy.limits.budget import BudgetKind, Caps, Charge, ChargeKey

#: Seconds for what is asked 64 times at once, on a machine that has other things to do.
PATIENCE = 60.0
TENTH = Charge(cost_usd=0.1, tokens=10, calls=1)


def key(number: int) -> ChargeKey:
    """A key of its own."""
    return ChargeKey("turn", "p/m0", number)


async def test_a_cap_is_never_passed(place: str) -> None:
    """Rule 94: two replicas, 64 calls of 0.1 at once, a cap of 1: ten go through, because what runs counts."""
    async with open_ledger(place, limit=PATIENCE) as one, open_ledger(place, limit=PATIENCE) as other:
        trips = await asyncio.gather(
            *((one, other)[n % 2].reserve("s", key(n), TENTH, Caps(cost_usd=1.0)) for n in range(64))
        )
        assert trips.count(None) == 10
        assert {trip.error_code for trip in trips if trip is not None} == {"session_cost_cap"}
        account = await one.spending("s")
        assert (account.running, account.in_flight.cost_usd, account.in_flight.calls) == (10, 1.0, 10)
        assert account.spent == Charge()


async def test_a_replay_is_not_charged_again(ledger: Ledger) -> None:
    """A run that is taken up again repeats its keys: reserved, settled, reserved again is one charge."""
    caps = Caps(calls=1)
    assert await ledger.reserve("s", key(1), TENTH, caps) is None
    assert await ledger.reserve("s", key(1), TENTH, caps) is None
    actual = Charge(cost_usd=0.03, tokens=7, calls=1, estimated=True)
    await ledger.settle("s", key(1), actual)
    await ledger.settle("s", key(1), actual)
    assert await ledger.reserve("s", key(1), TENTH, caps) is None
    account = await ledger.spending("s")
    assert (account.spent, account.in_flight, account.running) == (actual, Charge(), 0)
    trip = await ledger.reserve("s", key(2), TENTH, caps)
    assert trip is not None
    assert trip.error_kind is BudgetKind.CALLS


async def test_what_was_refused_may_be_asked_again(ledger: Ledger) -> None:
    """A refusal leaves nothing behind: after a release the same key goes through."""
    caps = Caps(tokens=10)
    assert await ledger.reserve("s", key(1), TENTH, caps) is None
    trip = await ledger.reserve("s", key(2), TENTH, caps)
    assert trip is not None
    assert trip.transient
    await ledger.release("s", key(1))
    await ledger.release("s", key(1))
    assert (await ledger.spending("s")).running == 0
    assert await ledger.reserve("s", key(2), TENTH, caps) is None


async def test_a_call_that_was_never_reserved_is_spent_all_the_same(ledger: Ledger) -> None:
    """Rule 93: the account could not be reached when it began; its end is counted, once."""
    await ledger.settle("s", key(1), TENTH)
    await ledger.settle("s", key(1), TENTH)
    account = await ledger.spending("s")
    assert (account.spent, account.running) == (TENTH, 0)


@pytest.mark.parametrize(
    ("caps", "kind"),
    [
        (Caps(cost_usd=0.1), BudgetKind.COST),
        (Caps(tokens=10), BudgetKind.TOKENS),
        (Caps(calls=1), BudgetKind.CALLS),
        (Caps(egress_bytes=5), BudgetKind.EGRESS),
        (Caps(seconds=1e-9), BudgetKind.TIME),
    ],
)
async def test_every_cap_is_known(ledger: Ledger, caps: Caps, kind: BudgetKind) -> None:
    """Rule 94: each cap trips when it is reached and names itself; 0 is none."""
    await ledger.reserve("s", key(1), Charge(), Caps())
    await ledger.settle("s", key(1), Charge(cost_usd=0.1, tokens=10, calls=1, egress_bytes=5))
    await asyncio.sleep(0.005)  # SQLite's clock counts milliseconds
    trip = await ledger.reserve("s", key(2), TENTH, caps)
    assert trip is not None
    assert trip.error_kind is kind
    assert await ledger.reserve("s", key(2), TENTH, Caps()) is None
    assert await ledger.reserve("other", key(2), TENTH, caps) is None


async def test_what_the_dead_reserved_is_written_off(ledger: Ledger) -> None:
    """A replica that never came back counts as having spent it: money is counted too high rather than too low."""
    await ledger.reserve("s", key(1), TENTH, Caps())
    assert await ledger.write_off(age=3600) == 0
    assert await ledger.write_off(age=-1) == 1
    assert await ledger.write_off(age=-1) == 0
    account = await ledger.spending("s")
    assert (account.spent.cost_usd, account.spent.estimated, account.running) == (0.1, True, 0)


async def test_hosts_are_counted(ledger: Ledger) -> None:
    """Rule 99: a new host while there are fewer than the cap; one already used stays allowed."""
    assert await ledger.visit("s", "a", 2)
    assert await ledger.visit("s", "b", 2)
    assert not await ledger.visit("s", "c", 2)
    assert await ledger.visit("s", "a", 1)
    assert await ledger.visit("other", "c", 1)
    assert await ledger.visit("s", "c", 0)


async def test_an_unknown_session_has_spent_nothing(ledger: Ledger) -> None:
    """It starts now, by the database's clock."""
    account = await ledger.spending("nobody")
    assert (account.spent, account.running) == (Charge(), 0)
    assert account.started > 1_600_000_000
