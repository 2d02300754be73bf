"""Accounts and breakers in the ledger: shared by replicas, and what they do when it is away."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import pytest

from mustcall.core.errors import LedgerUnavailable
from mustcall.engine.spending.ledger_accounts import LedgerBreakers, LedgerMeter, WhenAway
from mustcall.ledger import Ledger, open_ledger
from mustcall.ledger.notices import Notices
from mustcall.policy.failures.breaker import BreakerRule, BreakerState
from mustcall.policy.failures.breaker_classes import FailureClass
from mustcall.policy.limits.budget import Caps, Charge, ChargeKey, Trip
from mustcall.testing import FakeClock

RULE = BreakerRule(failures=2, cool_down=30)
KEY = ChargeKey("t", "s", 1)
CHARGE = Charge(cost_usd=0.5, calls=1)


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncGenerator[Ledger]:
    """An open ledger."""
    async with open_ledger(tmp_path / "l.db") as opened:
        yield opened


async def test_a_breaker_opened_on_one_replica_is_open_on_the_other(ledger: Ledger) -> None:
    """Failures of one open it for both, each for the time that is left."""
    clocks = FakeClock(), FakeClock()
    one, other = (LedgerBreakers(ledger, Notices(), clock) for clock in clocks)
    for _ in range(2):
        await one.report("u", RULE, FailureClass.SERVER)
    await one.finish()
    assert await other.allow("u", RULE) is None
    await other.refresh()
    refused = await other.allow("u", RULE)
    assert refused is not None
    assert refused[0] is FailureClass.SERVER
    assert refused[1] == pytest.approx(30, abs=5)
    clocks[1].advance(40)
    await other.refresh()  # nothing new: what is known here stays
    assert await other.allow("u", RULE) is None  # the call that goes to see
    assert await one.allow("u", RULE) is not None


async def test_a_breaker_that_closed_is_closed_everywhere(ledger: Ledger) -> None:
    """The replica whose call went through tells the others."""
    one, other = (LedgerBreakers(ledger, Notices(), FakeClock()) for _ in range(2))
    short = BreakerRule(failures=1, cool_down=0)
    await one.report("u", short, FailureClass.TIMEOUT)
    await one.finish()
    await other.refresh()
    assert other.state("u")[FailureClass.TIMEOUT].state is BreakerState.OPEN
    assert await one.allow("u", short) is None  # the call that goes to see
    await one.report("u", short, None)
    await one.finish()
    await other.refresh()
    assert other.state("u") == {}


async def test_breakers_go_on_alone(tmp_path: Path) -> None:
    """A ledger that is away changes nothing for the replica's own breaker."""
    breakers = LedgerBreakers(open_ledger(tmp_path / "l.db"), Notices(), FakeClock())
    for _ in range(2):
        await breakers.report("u", RULE, FailureClass.SERVER)
    await breakers.finish()
    assert await breakers.allow("u", RULE) == (FailureClass.SERVER, 30.0)
    with pytest.raises(LedgerUnavailable):
        await breakers.refresh()


async def test_a_cap_that_cannot_be_counted_refuses_or_lets_through(tmp_path: Path) -> None:
    """Money caps fail closed unless the operator says otherwise; without a cap nothing is refused."""
    away = open_ledger(tmp_path / "l.db")
    closed, opened = LedgerMeter(away, Notices()), LedgerMeter(away, Notices(), WhenAway.OPEN)
    trip = await closed.reserve("s", KEY, CHARGE, Caps(cost_usd=1))
    assert trip is not None
    assert (trip.error_code, trip.transient) == ("budget_unavailable", True)
    assert "cannot be reached" in trip.error
    assert str(tmp_path) not in trip.error  # which is the operator's to know
    assert await closed.reserve("s", KEY, CHARGE, Caps()) is None
    assert await opened.reserve("s", KEY, CHARGE, Caps(cost_usd=1)) is None


async def test_an_end_told_while_being_cancelled_is_written(ledger: Ledger) -> None:
    """A caller that goes away does not take its bill with it."""
    meter = LedgerMeter(ledger, Notices())
    await meter.reserve("s", KEY, CHARGE, Caps(cost_usd=5))
    task = asyncio.create_task(meter.settle("s", KEY, CHARGE))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await meter.finish()
    account = await meter.spending("s")
    assert (account.spent.cost_usd, account.running) == (0.5, 0)
    await meter.release("s", KEY)
    assert await meter.visit("s", "example.com", 1)


async def test_a_reservation_nobody_waits_for_is_freed(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 94: a caller that goes away while the ledger's answer is on its way leaves no reservation behind."""
    counted, go, reserve = asyncio.Event(), asyncio.Event(), ledger.reserve

    async def slow(session: str, key: ChargeKey, expected: Charge, caps: Caps) -> Trip | None:
        trip = await reserve(session, key, expected, caps)
        counted.set()
        await go.wait()
        return trip

    monkeypatch.setattr(ledger, "reserve", slow)
    meter = LedgerMeter(ledger, Notices())
    task = asyncio.create_task(meter.reserve("s", KEY, CHARGE, Caps(cost_usd=9)))
    await counted.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    await meter.finish()
    account = await meter.spending("s")
    assert (account.in_flight.cost_usd, account.running) == (0, 0)


async def test_without_a_cap_nobody_waits_for_the_ledger(tmp_path: Path) -> None:
    """A call that no cap is held against begins and ends beside the ledger, and is counted when that can be asked."""
    async with open_ledger(tmp_path / "l.db") as ledger:
        meter = LedgerMeter(ledger, Notices())
        with closing(sqlite3.connect(tmp_path / "l.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert await meter.reserve("s", KEY, CHARGE, Caps()) is None
            await meter.release("s", KEY)
            await meter.settle("s", KEY, CHARGE)
            assert (await meter.spending("s")).spent.cost_usd == 0
            other.execute("ROLLBACK")
        await meter.finish()
        assert (await meter.spending("s")).spent.cost_usd == 0.5
    lost = LedgerMeter(open_ledger(tmp_path / "away.db"), Notices())
    await lost.settle("s", KEY, CHARGE)
    await lost.finish()


async def test_a_refused_call_holds_nothing(tmp_path: Path) -> None:
    """A reservation whose caller gave up is not carried out later, or is released: the cap is as free as before."""
    async with open_ledger(tmp_path / "l.db", limit=0.2) as ledger:
        meter = LedgerMeter(ledger, Notices())
        with closing(sqlite3.connect(tmp_path / "l.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert await meter.reserve("s", KEY, CHARGE, Caps(cost_usd=1)) is not None
            other.execute("ROLLBACK")
        await meter.finish()
        async with open_ledger(tmp_path / "l.db") as later:
            await asyncio.sleep(0.3)  # a write that was given up would have been carried out by now
            account = await later.spending("s")
        assert (account.running, account.in_flight.cost_usd, account.spent.cost_usd) == (0, 0, 0)
