"""Runs and their journal: who may act, what is written once, who is stopped by the fence."""

import asyncio

import pytest

from mustcall.core.errors import AlreadyRecorded, FenceLost
from mustcall.ledger import ContentsKept, Ledger, NewEvent, RunEnd, RunStatus, open_ledger


def intent(step: str = "p/m0", data: bytes = b'{"a":1}', attempt: int = 0) -> NewEvent:
    """An intent of a step."""
    return NewEvent(step=step, kind="intent", data=data, attempt=attempt)


async def test_a_fresh_run_is_made_and_held(ledger: Ledger) -> None:
    """A run begins claimed, under fence 1, with its data and a lease in the future of the database's clock."""
    claim = await ledger.start_run("r", b'{"q":1}', owner="a", lease=30)
    assert (claim.won, claim.created) == (True, True)
    run = claim.run
    assert (run.status, run.owner, run.fence, run.data) == (RunStatus.RUNNING, "a", 1, b'{"q":1}')
    assert run.lease_until is not None
    assert run.lease_until - run.created == pytest.approx(30, abs=1)
    assert await ledger.get_run("r") == run


async def test_a_held_run_is_not_given_twice(ledger: Ledger) -> None:
    """Duplicate dispatch: who comes second is told who has it."""
    await ledger.start_run("r", b"1", owner="a", lease=30)
    second = await ledger.start_run("r", b"2", owner="b", lease=30)
    assert (second.won, second.created, second.run.owner, second.run.data) == (False, False, "a", b"1")
    same = await ledger.claim_run("r", owner="a", lease=30)
    assert same is not None
    assert not same.won


async def test_of_many_claims_one_wins(ledger: Ledger) -> None:
    """Sixteen owners start one run at once: exactly one has it."""
    claims = await asyncio.gather(*(ledger.start_run("r", b"", owner=f"o{n}", lease=30) for n in range(16)))
    assert sum(claim.won for claim in claims) == 1
    assert {claim.run.owner for claim in claims if not claim.won} == {claim.run.owner for claim in claims if claim.won}


async def test_an_expired_lease_is_taken_over(ledger: Ledger) -> None:
    """A dead owner's run goes to the next one under a higher fence."""
    await ledger.start_run("r", b"", owner="dead", lease=-1)
    claim = await ledger.claim_run("r", owner="b", lease=30)
    assert claim is not None
    assert (claim.won, claim.run.owner, claim.run.fence) == (True, "b", 2)


async def test_a_living_owner_is_displaced_only_on_demand(ledger: Ledger) -> None:
    """`take` is the operator's word over a lease that still lasts."""
    await ledger.start_run("r", b"", owner="a", lease=30)
    claim = await ledger.claim_run("r", owner="b", lease=30, take=True)
    assert claim is not None
    assert (claim.won, claim.run.fence) == (True, 2)


async def test_an_unknown_run_is_not_claimed(ledger: Ledger) -> None:
    """There is nothing to hold."""
    assert await ledger.claim_run("nobody", owner="a", lease=30) is None
    assert await ledger.get_run("nobody") is None
    assert await ledger.cancel_run("nobody") is None


async def test_the_queue_gives_each_run_to_one_worker(ledger: Ledger) -> None:
    """Forty queued runs, eight workers: each run is given once, the oldest first."""
    for number in range(40):
        await ledger.queue_run(f"r{number:02}", b"")
    taken = await asyncio.gather(*(ledger.claim_expired(owner=f"w{n}", lease=30, most=5) for n in range(8)))
    names = [run.id for runs in taken for run in runs]
    left = await ledger.claim_expired(owner="late", lease=30, most=40)
    names += [run.id for run in left]
    assert sorted(names) == [f"r{number:02}" for number in range(40)]
    assert all(runs == sorted(runs, key=lambda run: run.id) for runs in taken)
    assert await ledger.claim_expired(owner="w", lease=30, most=5) == []


async def test_expired_runs_go_to_whoever_asks_and_other_kinds_stay(ledger: Ledger) -> None:
    """A worker takes the dead's runs of its own kind, not what is held or has ended."""
    await ledger.start_run("dead", b"", owner="a", lease=-1)
    await ledger.start_run("alive", b"", owner="a", lease=30)
    await ledger.start_run("other", b"", owner="a", lease=-1, kind="batch")
    await ledger.start_run("done", b"", owner="a", lease=30)
    await ledger.end_run("done", 1, RunEnd(status=RunStatus.DONE))
    runs = await ledger.claim_expired(owner="b", lease=30, most=10)
    assert [(run.id, run.fence) for run in runs] == [("dead", 2)]


async def test_the_journal_keeps_order_and_bytes(ledger: Ledger) -> None:
    """Events come back as they were written: order, attempt, kind, fence, every byte."""
    await ledger.start_run("r", b"", owner="a", lease=30)
    odd = bytes(range(256))
    await ledger.append("r", 1, [intent("p/m0"), NewEvent(step="p/m0", kind="result", data=odd)])
    await ledger.append("r", 1, [intent("p/m1", attempt=2)])
    events = await ledger.events("r")
    assert [(event.step, event.kind, event.attempt, event.fence) for event in events] == [
        ("p/m0", "intent", 0, 1),
        ("p/m0", "result", 0, 1),
        ("p/m1", "intent", 2, 1),
    ]
    assert events[1].data == odd
    assert [event.step for event in await ledger.events("r", after=events[1].seq)] == ["p/m1"]


async def test_an_intent_is_written_once(ledger: Ledger) -> None:
    """Of two writers of one intent, with the same bytes and the same fence, one may act."""
    await ledger.start_run("r", b"", owner="a", lease=30)
    both = await asyncio.gather(
        ledger.append("r", 1, [intent()]), ledger.append("r", 1, [intent()]), return_exceptions=True
    )
    assert sorted(type(one).__name__ for one in both) == ["AlreadyRecorded", "NoneType"]


async def test_a_write_whose_answer_was_lost_may_be_made_again(ledger: Ledger) -> None:
    """The same bytes under the same fence are accepted; other bytes are not."""
    await ledger.start_run("r", b"", owner="a", lease=30)
    await ledger.append("r", 1, [intent()])
    await ledger.append("r", 1, [intent()], again=True)
    with pytest.raises(AlreadyRecorded, match="'intent' of step 'p/m0'"):
        await ledger.append("r", 1, [intent(data=b"other")], again=True)
    assert len(await ledger.events("r")) == 1


async def test_an_end_whose_answer_was_lost_may_be_made_again(ledger: Ledger) -> None:
    """The last event and the end came through: again, they are accepted; another end is not."""
    await ledger.start_run("r", b"", owner="a", lease=30)
    end = RunEnd(status=RunStatus.DONE, outcome=b"fine")
    await ledger.append("r", 1, [intent()], end=end)
    await ledger.append("r", 1, [intent()], end=end, again=True)
    with pytest.raises(FenceLost):
        await ledger.append("r", 1, [intent()], end=RunEnd(status=RunStatus.FAILED), again=True)
    with pytest.raises(FenceLost):
        await ledger.append("r", 1, [intent("p/m1")])


async def test_a_batch_is_written_whole_or_not_at_all(ledger: Ledger) -> None:
    """A step that is taken undoes the steps beside it."""
    await ledger.start_run("r", b"", owner="a", lease=30)
    await ledger.append("r", 1, [intent("p/m1")])
    with pytest.raises(AlreadyRecorded):
        await ledger.append("r", 1, [intent("p/m0"), intent("p/m1"), intent("p/m2")])
    assert [event.step for event in await ledger.events("r")] == ["p/m1"]


async def test_a_displaced_owner_writes_nothing(ledger: Ledger) -> None:
    """A zombie that wakes after its lease is stopped by the fence, for every kind of write."""
    await ledger.start_run("r", b"", owner="zombie", lease=-1)
    await ledger.claim_run("r", owner="b", lease=30)
    with pytest.raises(FenceLost, match="under fence 2"):
        await ledger.append("r", 1, [intent()])
    with pytest.raises(FenceLost):
        await ledger.append("r", 1, [intent()], again=True)
    with pytest.raises(FenceLost):
        await ledger.end_run("r", 1, RunEnd(status=RunStatus.DONE))
    assert await ledger.renew_lease("r", 1, lease=30) is False
    assert await ledger.events("r") == []
    await ledger.append("r", 2, [intent()])


async def test_a_lease_is_renewed(ledger: Ledger) -> None:
    """An owner that is alive holds on."""
    await ledger.start_run("r", b"", owner="a", lease=-1)
    assert await ledger.renew_lease("r", 1, lease=30) is True
    claim = await ledger.claim_run("r", owner="b", lease=30)
    assert claim is not None
    assert not claim.won


async def test_an_ended_run_keeps_its_outcome(ledger: Ledger) -> None:
    """Last event, outcome and status come in one commit, and nobody holds the run any more."""
    await ledger.start_run("r", b"", owner="a", lease=30)
    await ledger.append("r", 1, [intent()], end=RunEnd(status=RunStatus.DONE, outcome=b'{"text":"ok"}'))
    run = await ledger.get_run("r")
    assert run is not None
    assert (run.status, run.owner, run.lease_until, run.outcome) == (RunStatus.DONE, None, None, b'{"text":"ok"}')
    again = await ledger.start_run("r", b"", owner="b", lease=30)
    assert (again.won, again.run.outcome) == (False, b'{"text":"ok"}')


async def test_a_parked_run_waits_and_is_resumed(ledger: Ledger) -> None:
    """A run that waits for an approval has no owner; workers leave it, a claim by name takes it."""
    await ledger.start_run("r", b"", owner="a", lease=30)
    await ledger.end_run("r", 1, RunEnd(status=RunStatus.WAITING))
    assert await ledger.claim_expired(owner="w", lease=30) == []
    claim = await ledger.claim_run("r", owner="b", lease=30)
    assert claim is not None
    assert (claim.won, claim.run.fence, claim.run.status) == (True, 2, RunStatus.RUNNING)


async def test_a_cancelled_run_stops_its_owner(ledger: Ledger) -> None:
    """A cancel from outside is final and seen at the next write."""
    await ledger.start_run("r", b"", owner="a", lease=30)
    cancelled = await ledger.cancel_run("r")
    assert cancelled is not None
    assert cancelled.status is RunStatus.CANCELLED
    with pytest.raises(FenceLost, match="cancelled"):
        await ledger.append("r", 1, [intent()])
    assert await ledger.cancel_run("r") is None


async def test_runs_are_listed_newest_first(ledger: Ledger) -> None:
    """A list can be narrowed by status and kind, and read on from where it ended."""
    for name in ("a", "b", "c"):
        await ledger.start_run(name, b"", owner="o", lease=30, kind="batch" if name == "b" else "agent")
        await asyncio.sleep(0.005)  # no two in one millisecond, by which a list is read on
    await ledger.end_run("c", 1, RunEnd(status=RunStatus.FAILED))
    everything = await ledger.runs()
    assert [run.id for run in everything] == ["c", "b", "a"]
    assert [run.id for run in await ledger.runs(status=RunStatus.FAILED)] == ["c"]
    assert [run.id for run in await ledger.runs(kind="batch")] == ["b"]
    assert [run.id for run in await ledger.runs(before=everything[1].created)] == ["a"]
    assert [run.id for run in await ledger.runs(most=1)] == ["c"]


@pytest.mark.parametrize(
    ("contents", "kept"), [(ContentsKept.NONE, b""), (ContentsKept.REDACTED, b'{"to":"[redacted email]"}')]
)
async def test_contents_leave_a_journal_when_its_run_ends(place: str, contents: ContentsKept, kept: bytes) -> None:
    """Rule 136: what is needed to resume is there until the end, and then only what the setting allows."""
    data = b'{"to":"ann@example.com"}'
    async with open_ledger(place, contents=contents) as ledger:
        await ledger.start_run("r", data, owner="a", lease=30)
        await ledger.append("r", 1, [intent(data=data)])
        assert (await ledger.events("r"))[0].data == data
        await ledger.end_run("r", 1, RunEnd(status=RunStatus.DONE, outcome=b"fine"))
        run = await ledger.get_run("r")
        assert run is not None
        assert (run.data, (await ledger.events("r"))[0].data, run.outcome) == (kept, kept, b"fine")


@pytest.mark.parametrize("contents", list(ContentsKept))
async def test_an_end_is_accepted_again_whatever_is_kept(place: str, contents: ContentsKept) -> None:
    """The answer to the ending write was lost, and its events are shredded: again, it is our own; another is not."""
    data = b'{"to":"ann@example.com"}'
    end = RunEnd(status=RunStatus.DONE, outcome=b"fine")
    async with open_ledger(place, contents=contents) as ledger:
        await ledger.start_run("r", data, owner="a", lease=30)
        await ledger.append("r", 1, [intent(data=data)], end=end)
        await ledger.append("r", 1, [intent(data=data)], end=end, again=True)
        with pytest.raises(FenceLost):
            await ledger.append("r", 1, [], end=RunEnd(status=RunStatus.DONE, outcome=b"other"), again=True)


async def test_an_end_does_not_cover_another_s_events(ledger: Ledger) -> None:
    """An end that is written now does not make what others wrote our own."""
    await ledger.start_run("r", b"", owner="a", lease=30)
    await ledger.append("r", 1, [intent(data=b"other")])
    with pytest.raises((AlreadyRecorded, FenceLost)):
        await ledger.append("r", 1, [intent()], end=RunEnd(status=RunStatus.DONE, outcome=b"fine"), again=True)
    run = await ledger.get_run("r")
    assert run is not None
    assert run.status is RunStatus.RUNNING


@pytest.mark.parametrize(
    ("contents", "kept"), [(ContentsKept.NONE, b""), (ContentsKept.REDACTED, b'{"to":"[redacted email]"}')]
)
async def test_contents_leave_a_journal_when_its_run_is_cancelled(
    place: str, contents: ContentsKept, kept: bytes
) -> None:
    """Rule 136: a run that is ended from outside keeps no more than one that ended by itself."""
    data = b'{"to":"ann@example.com"}'
    async with open_ledger(place, contents=contents) as ledger:
        await ledger.start_run("r", data, owner="a", lease=30)
        await ledger.append("r", 1, [intent(data=data)])
        run = await ledger.cancel_run("r")
        assert run is not None
        assert (run.status, run.data, (await ledger.events("r"))[0].data) == (RunStatus.CANCELLED, kept, kept)


async def test_leases_that_are_over_are_listed(ledger: Ledger) -> None:
    """By the database's clock, of one kind, the oldest first; what is held or queued is not among them."""
    for name, lease in (("a", -1.0), ("b", 30.0), ("c", -1.0)):
        await ledger.start_run(name, b"", owner="o", lease=lease)
    await ledger.start_run("d", b"", owner="o", lease=-1.0, kind="batch")
    await ledger.queue_run("e", b"")
    assert [run.id for run in await ledger.expired_runs()] == ["a", "c"]
    assert [run.id for run in await ledger.expired_runs(most=1)] == ["a"]
