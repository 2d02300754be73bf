"""Breakers, facts, and counts of what made demanded calls."""

import asyncio

import msgspec

from mustcall.ledger import FactRow, Ledger, MeasuredRow, TallyRow, open_ledger

TALLY = TallyRow(upstream="u", model="m", subject="rung:schema", made=1, missed=0, first=10.0, last=10.0)
FACT = FactRow(upstream="u", model="m", field="forced", value=b'"never"', note="400")


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
    await ledger.put_facts([FACT, msgspec.structs.replace(FACT, model="n")])
    await ledger.put_facts([msgspec.structs.replace(FACT, value=b'"always"')])
    facts = await ledger.facts()
    assert [(one.model, one.value) for one in facts] == [("m", b'"always"'), ("n", b'"never"')]
    assert await ledger.facts(since=facts[0].at + 1000) == []
    await ledger.put_facts([])


def tally(**changes: object) -> TallyRow:
    """A count that differs in these fields."""
    return msgspec.structs.replace(TALLY, **changes)


async def test_counts_are_added_up(ledger: Ledger) -> None:
    """Rule 139: what replicas count is summed; the first date stays, the last one moves forward only."""
    await ledger.add_tallies([TALLY, tally(subject="rung:native", made=0, missed=2)])
    await ledger.add_tallies([tally(made=2, missed=1, first=20.0, last=30.0), tally(model="n")])
    await ledger.add_tallies([tally(made=1, first=5.0, last=15.0)])
    assert await ledger.tallies() == [
        tally(subject="rung:native", made=0, missed=2),
        tally(made=4, missed=1, last=30.0),
        tally(model="n"),
    ]
    await ledger.add_tallies([])
    assert [one.subject for one in await ledger.tallies(since=30.0)] == ["rung:schema"]
    assert await ledger.tallies(since=30.5) == []


async def test_counts_that_expired_start_anew(ledger: Ledger) -> None:
    """Rule 139: what nothing was added to since a time does not live on in what is added now, removed or not."""
    await ledger.add_tallies([tally(made=9, missed=9), tally(model="n", made=9, last=20.0)])
    news = tally(made=1, missed=2, first=30.0, last=30.0)
    await ledger.add_tallies([news, msgspec.structs.replace(news, model="n")], before=20.0)
    assert await ledger.tallies() == [news, tally(model="n", made=10, missed=2, last=30.0)]


async def test_replicas_count_at_the_same_time(place: str) -> None:
    """Rule 139: no count of either is lost, in whatever order they write."""
    async with open_ledger(place, limit=60.0) as one, open_ledger(place, limit=60.0) as other:
        await asyncio.gather(*(each.add_tallies([TALLY]) for each in (one, other) for _ in range(10)))
        assert await other.tallies() == [tally(made=20)]


async def test_what_was_learnt_can_be_forgotten(ledger: Ledger) -> None:
    """Rule 139: facts and counts go together: of one model, of one upstream, or all; it is told how many."""
    rows = [(upstream, model) for upstream in ("u", "v") for model in ("m", "n")]
    await ledger.put_facts([msgspec.structs.replace(FACT, upstream=upstream, model=model) for upstream, model in rows])
    await ledger.add_tallies([tally(upstream=upstream, model=model) for upstream, model in rows])

    async def left() -> list[tuple[str, str]]:
        facts = [(one.upstream, one.model) for one in await ledger.facts()]
        assert facts == [(one.upstream, one.model) for one in await ledger.tallies()]
        return facts

    assert await ledger.forget_learnt("u", "m") == 2
    assert await left() == [("u", "n"), ("v", "m"), ("v", "n")]
    assert await ledger.forget_learnt("u", "m") == 0
    assert await ledger.forget_learnt("", "n") == 4
    assert await left() == [("v", "m")]
    assert await ledger.forget_learnt("u") == 0
    assert await ledger.forget_learnt() == 2
    assert await left() == []


async def test_what_was_learnt_expires(ledger: Ledger) -> None:
    """Rule 139: what nothing was added to since a time is removed; what was, stays."""
    await ledger.add_tallies([TALLY, tally(model="n", last=20.0)])
    await ledger.put_facts([FACT])
    (fact,) = await ledger.facts()
    await ledger.expire_learnt(before=20.0)
    assert [one.model for one in await ledger.tallies()] == ["n"]
    assert await ledger.facts() == [fact]
    await ledger.expire_learnt(before=fact.at + 1)
    assert (await ledger.facts(), await ledger.tallies()) == ([], [])


async def test_counts_of_large_numbers(ledger: Ledger) -> None:
    """A count may be as large as a long life of a gateway makes it, and dates keep their fractions."""
    large = tally(made=2**40, missed=2**40, first=1_700_000_000.25, last=1_700_000_000.75)
    await ledger.add_tallies([large])
    assert await ledger.tallies() == [large]


MEASURED = MeasuredRow(endpoint="h:1/v1", wire="chat", model="m", upstream="u", profile=b"{}", report=b"[1]")


async def test_measured_profiles_are_written_over(ledger: Ledger) -> None:
    """The last measurement of a model at an endpoint stands, with its time; forgetting removes it."""
    await ledger.put_measured(MEASURED)
    await ledger.put_measured(msgspec.structs.replace(MEASURED, profile=b"{1}"))
    await ledger.put_measured(msgspec.structs.replace(MEASURED, model="n", upstream="w"))
    first, second = await ledger.measured()
    assert (first.model, first.profile, first.report, second.model) == ("m", b"{1}", b"[1]", "n")
    assert 0 < first.at <= first.tried
    assert await ledger.forget_measured("w", "m") == 0
    assert await ledger.forget_measured("w") == 1
    assert [one.model for one in await ledger.measured()] == ["m"]


async def test_one_replica_takes_on_a_measurement(place: str) -> None:
    """Of many that ask at once one gets it; what was measured stays as it is, and the next turn comes later."""
    async with open_ledger(place, limit=60.0) as one, open_ledger(place, limit=60.0) as other:
        await one.put_measured(MEASURED)
        before = (await one.measured())[0]
        ours = await asyncio.gather(*(each.claim_measuring(MEASURED, every=0.0) for each in (one, other)))
        assert any(ours)
        asked = await asyncio.gather(*(each.claim_measuring(MEASURED, every=1000.0) for each in (one, other) * 5))
        assert not any(asked)
        new = msgspec.structs.replace(MEASURED, model="new")
        asked = await asyncio.gather(*(each.claim_measuring(new, every=1000.0) for each in (one, other) * 5))
        assert sum(asked) == 1
        kept, begun = await other.measured()
        assert (kept.profile, kept.report, kept.at) == (before.profile, before.report, before.at)
        assert (begun.model, begun.profile, begun.at) == ("new", b"", 0.0)
