"""Removal by age and size, and the way out and in."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mustcall.core.errors import InvalidRequest
from mustcall.ledger import (
    AttemptTrace,
    ContentsKept,
    FactRow,
    Ledger,
    NewEvent,
    RunEnd,
    RunStatus,
    StoredResponse,
    TurnTrace,
    keeping,
    open_ledger,
)
from mustcall.ledger.stores.migrations import TABLES
from mustcall.policy.limits.budget import Caps, Charge, ChargeKey

RESPONSE = StoredResponse(
    id="r1",
    conversation="c",
    parent=None,
    depth=0,
    wire="responses",
    model="m",
    tenant="t",
    input=b'["I am ann@example.com"]',
    body=b"\xff\x00not text",
    items=("msg_1",),
)
TURN = TurnTrace(
    id="req_1",
    at=1.0,
    wire="chat",
    model="m",
    upstream="u",
    protocol="native",
    force="none",
    outcome="answer",
    status=200,
    seconds=0.1,
    attempts=(
        AttemptTrace(number=1, rung="native", verdict="answered", remedy=None, digest="d", seconds=0.1, sends=1),
    ),
)


async def fill(ledger: Ledger) -> None:
    """Put one of everything."""
    await ledger.start_run("done", b"1", owner="a", lease=30)
    await ledger.append("done", 1, [NewEvent(step="s", kind="intent", data=b"2")], end=RunEnd(status=RunStatus.DONE))
    await ledger.start_run("running", b"1", owner="a", lease=30)
    await ledger.append("running", 1, [NewEvent(step="s", kind="intent", data=b"2")])
    await ledger.put_response(RESPONSE)
    await ledger.put_turns([TURN])
    await ledger.reserve("s", ChargeKey("t", "s", 1), Charge(tokens=5), Caps())
    await ledger.visit("s", "example.com", 0)
    await ledger.move_breaker(await ledger.breaker("u"))
    await ledger.put_facts([FactRow(upstream="u", model="m", field="forced", value=b'"never"', note="")])


async def rows(ledger: Ledger) -> dict[str, int]:
    """Count what is there, tables that are empty left out."""
    return {table: count for table, count in (await ledger.check()).rows.items() if count}


async def test_what_is_old_goes_and_what_runs_stays(ledger: Ledger) -> None:
    """A run under way, budgets, breakers and facts are not history."""
    await fill(ledger)
    kept = {"run": 1, "event": 1, "account": 1, "charge": 1, "host": 1, "breaker": 1, "fact": 1}
    everything = {**kept, "run": 2, "event": 2, "conversation": 1, "response": 1, "item": 1, "turn": 1, "attempt": 1}
    assert await rows(ledger) == everything
    pruned = await ledger.prune(age=3600)
    assert (pruned.turns, pruned.responses, pruned.runs) == (1, 0, 0)
    pruned = await ledger.prune(age=-1)
    assert (pruned.turns, pruned.responses, pruned.runs) == (0, 1, 1)
    assert await rows(ledger) == kept


async def test_the_oldest_goes_first_where_room_is_short(ledger: Ledger) -> None:
    """A cap on the size keeps the newest turns."""
    body = b"x" * 10_000
    day = 86_400.0
    now = (await ledger.breaker("u")).now
    await ledger.put_turns(
        [
            msgspec.structs.replace(TURN, id=f"req_{number}", at=now - number * day, attempts=(), request=body)
            for number in range(50)
        ]
    )
    before = (await ledger.check()).stored_bytes
    assert before > 500_000
    pruned = await ledger.prune(size=200_000)
    left = await ledger.turns()
    assert (await ledger.check()).stored_bytes <= 200_000
    assert pruned.turns + len(left) == 50
    assert len(left) >= 10
    assert [turn.id for turn in left] == [f"req_{number}" for number in range(len(left))]


async def test_pruning_forgets_no_money(ledger: Ledger) -> None:
    """Neither age nor size touches what a cap is held against; an account goes by an age of its own."""
    caps = Caps(cost_usd=1.0)
    key = ChargeKey("t", "s", 1)
    assert await ledger.reserve("s", key, Charge(cost_usd=1.0), caps) is None
    await ledger.settle("s", key, Charge(cost_usd=1.0))
    await ledger.visit("s", "example.com", 0)
    await ledger.put_turns([TURN])
    await ledger.prune(size=0)
    await ledger.prune(age=float("-inf"), accounts=3600)
    assert await rows(ledger) == {"account": 1, "charge": 1, "host": 1}
    assert await ledger.reserve("s", ChargeKey("t2", "s", 1), Charge(cost_usd=0.1), caps) is not None
    await ledger.prune(accounts=-1)
    assert await rows(ledger) == {}


async def test_much_is_removed_in_small_parts(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much is old, each transaction removes some of it, with all that belongs to it and nothing else."""
    monkeypatch.setattr(keeping, "_BATCH", 7)
    made = [msgspec.structs.replace(TURN, id=f"req_{number}", at=float(number)) for number in range(30)]
    now = (await ledger.breaker("u")).now
    await ledger.put_turns([*made, msgspec.structs.replace(TURN, id="req_new", at=now)])
    for number in range(9):
        await ledger.start_run(f"run_{number}", b"", owner="a", lease=30)
        event = NewEvent(step="s", kind="intent", data=b"")
        await ledger.append(f"run_{number}", 1, [event], end=RunEnd(status=RunStatus.DONE))
        kept = msgspec.structs.replace(RESPONSE, id=f"r{number}", conversation=f"c{number}", items=(f"msg_{number}",))
        await ledger.put_response(kept)
    await ledger.hold([f"resp_{number}" for number in range(9)], "t")
    taken: list[float] = []
    write = ledger.store.write

    async def counted(make: Any, *, limit: float) -> Any:
        taken.append(limit)
        return await write(make, limit=limit)

    monkeypatch.setattr(ledger.store, "write", counted)
    assert (await ledger.prune(age=3600)).turns == 30
    assert await rows(ledger) == {
        "turn": 1,
        "attempt": 1,
        "run": 9,
        "event": 9,
        "conversation": 9,
        "response": 9,
        "item": 9,
        "holder": 9,
    }
    assert len(taken) == 5
    pruned = await ledger.prune(age=-1)
    assert (pruned.turns, pruned.responses, pruned.runs) == (1, 9, 9)
    assert await rows(ledger) == {}


async def test_a_size_that_cannot_be_reached_ends(ledger: Ledger) -> None:
    """Runs under way are kept, however small the cap."""
    await fill(ledger)
    await ledger.prune(size=0)
    run = await ledger.get_run("running")
    assert run is not None
    assert await ledger.turns() == []


@pytest.mark.parametrize("page", [1, 2, 1000])
async def test_export_and_import_carry_everything(
    ledger: Ledger, tmp_path: Path, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that went out and in again is the same, on either store, and a second import changes nothing."""
    await fill(ledger)
    await ledger.hold(["resp_1"], "t")
    everything = [line async for line in ledger.export(ContentsKept.FULL)]
    monkeypatch.setattr(keeping, "_BATCH", page)
    lines = [line async for line in ledger.export(ContentsKept.FULL)]
    assert lines == everything
    assert len(lines) == sum((await rows(ledger)).values())
    async with open_ledger(tmp_path / "other.db") as other:
        assert await other.import_lines(lines) == len(lines)
        assert await other.import_lines(lines) == len(lines)
        assert await rows(other) == await rows(ledger)
        assert [line async for line in other.export(ContentsKept.FULL)] == lines
        assert await other.get_run("running") == await ledger.get_run("running")
        assert await other.get_response("r1", "t") == await ledger.get_response("r1", "t")


async def test_an_export_is_redacted_unless_asked_otherwise(ledger: Ledger) -> None:
    """Rule 136: what leaves is masked by default."""
    await ledger.put_response(RESPONSE)
    redacted = b"".join([line async for line in ledger.export()])
    none = b"".join([line async for line in ledger.export(ContentsKept.NONE)])
    assert b"[redacted email]" in redacted
    assert b"ann@example.com" not in redacted
    assert b"I am" not in none


_WRONG: tuple[dict[str, Any], ...] = (
    *({"data": 1}, {"data": {}}, {"data": {"base64": "?"}}),
    *({"run": []}, {"at": {}}, {"seq": 2**63}),
)
_ROWS = [
    json.dumps({"table": "event", "row": {**dict.fromkeys(TABLES["event"], "a"), **one}}).encode() for one in _WRONG
]


@pytest.mark.parametrize(
    "line",
    [b"no json", b'{"table":"unknown","row":{}}', b'{"table":"item","row":{"id":"x"}}', b'{"row":{}}', b"7", *_ROWS],
)
async def test_a_foreign_line_is_named(ledger: Ledger, line: bytes) -> None:
    """An import says which line it cannot read."""
    with pytest.raises(InvalidRequest, match="line 2 is no line of an exported ledger"):
        await ledger.import_lines([b"\n", line])


async def test_a_check_finds_a_sound_ledger(ledger: Ledger, place: str) -> None:
    """A check names the store, its place without secrets, and its steps."""
    health = await ledger.check()
    assert health.problems == ()
    assert health.migrations[0] == "0001_journal"
    assert health.place in place or health.place.startswith("postgresql:")
