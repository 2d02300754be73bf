"""Budgets that hold together, breakers, facts."""

import asyncio

import msgspec

from mustcall.ledger import FactRow, Hold, Ledger, Settlement, open_ledger


def hold(amount: int, limit: int = 100, budget: str = "b") -> Hold:
    """A hold on a budget of 100."""
    return Hold(budget=budget, amount=amount, limit=limit)


async def test_a_cap_is_never_passed(place: str) -> None:
    """Two replicas, 64 calls of 7 at once, a cap of 100: fourteen go through and no more."""
    async with open_ledger(place) as one, open_ledger(place) as other:
        refused = await asyncio.gather(
            *((one, other)[number % 2].reserve(f"h{number}", [hold(7)]) for number in range(64))
        )
        assert refused.count(None) == 14
        assert set(refused) == {None, "b"}
        row = await one.budget("b")
        assert row is not None
        assert (row.spent, row.reserved, row.limit) == (0, 98, 100)


async def test_a_replay_is_not_charged_again(ledger: Ledger) -> None:
    """The same holder reserves, settles and reserves again: one charge."""
    assert await ledger.reserve("h", [hold(60)]) is None
    assert await ledger.reserve("h", [hold(60)]) is None
    await ledger.settle("h", [Settlement(budget="b", amount=25)])
    await ledger.settle("h", [Settlement(budget="b", amount=25)])
    assert await ledger.reserve("h", [hold(60)]) is None
    row = await ledger.budget("b")
    assert row is not None
    assert (row.spent, row.reserved) == (25, 0)


async def test_all_budgets_or_none(ledger: Ledger) -> None:
    """A refusal by one budget leaves the others as they were, and the holder may try again."""
    assert await ledger.reserve("big", [hold(90, budget="small")]) is None
    assert await ledger.reserve("h", [hold(20, budget="wide"), hold(20, budget="small")]) == "small"
    wide = await ledger.budget("wide")
    assert wide is None or (wide.spent, wide.reserved) == (0, 0)
    await ledger.release("big")
    assert await ledger.reserve("h", [hold(20, budget="wide"), hold(20, budget="small")]) is None


async def test_a_release_gives_back_what_is_not_settled(ledger: Ledger) -> None:
    """What is settled stays spent."""
    await ledger.reserve("h", [hold(10, budget="a"), hold(20, budget="b")])
    await ledger.settle("h", [Settlement(budget="a", amount=12)])
    await ledger.release("h")
    one, other = await ledger.budget("a"), await ledger.budget("b")
    assert one is not None
    assert other is not None
    assert (one.spent, one.reserved, other.spent, other.reserved) == (12, 0, 0, 0)


async def test_what_the_dead_reserved_is_written_off(ledger: Ledger) -> None:
    """A holder that never came back counts as having spent it: money is counted too high rather than too low."""
    await ledger.reserve("dead", [hold(40)])
    assert await ledger.write_off(age=3600) == 0
    assert await ledger.write_off(age=-1) == 1
    row = await ledger.budget("b")
    assert row is not None
    assert (row.spent, row.reserved) == (40, 0)
    assert await ledger.write_off(age=-1) == 0


async def test_no_limit_counts_all_the_same(ledger: Ledger) -> None:
    """A limit of 0 refuses nothing."""
    assert await ledger.reserve("h", [hold(10**12, limit=0)]) is None
    assert await ledger.budget("nobody") is None


async def test_a_breaker_changes_by_one_hand_at_a_time(place: str) -> None:
    """Opened on one replica it is open on the other; who read an older version changes nothing."""
    async with open_ledger(place) as one, open_ledger(place) as other:
        fresh = await one.breaker("u")
        assert (fresh.state, fresh.version) == ("closed", 0)
        opened = msgspec.structs.replace(fresh, state="open", failures=5, since=fresh.now)
        assert await one.move_breaker(opened) is True
        assert await other.move_breaker(opened) is False
        seen = await other.breaker("u")
        assert (seen.state, seen.failures, seen.version, seen.since) == ("open", 5, 1, fresh.now)
        assert await other.move_breaker(msgspec.structs.replace(seen, state="half_open", probing=True)) is True
        assert await one.move_breaker(seen) is False
        (listed,) = await one.breakers()
        assert (listed.state, listed.probing, listed.version) == ("half_open", True, 2)


async def test_facts_are_written_over(ledger: Ledger) -> None:
    """The last word on a model stands."""
    fact = FactRow(upstream="u", model="m", field="forced", value=b'"never"', note="400")
    await ledger.put_facts([fact, msgspec.structs.replace(fact, model="n")])
    await ledger.put_facts([msgspec.structs.replace(fact, value=b'"always"')])
    facts = await ledger.facts()
    assert [(one.model, one.value) for one in facts] == [("m", b'"always"'), ("n", b'"never"')]
    assert await ledger.facts(since=facts[0].at + 1000) == []
    await ledger.put_facts([])
