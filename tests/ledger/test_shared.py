"""Breakers and facts."""

import msgspec

from mustcall.ledger import FactRow, Ledger, open_ledger


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
