"""Runs whose task is cancelled while the database has written and its answer is on the way."""

import asyncio
from collections.abc import Sequence

import pytest

from mustcall import Agent, tool
from mustcall.core.errors import LedgerBroken
from mustcall.ledger import Ledger, NewEvent, RunEnd, RunStatus, open_ledger
from mustcall.testing import Call
from mustcall.testing.model import ScriptedModel


class Unheard(Ledger):
    """A ledger whose first answer to what is looked for does not come."""

    awaited: str = ""
    written = asyncio.Event()

    async def append(
        self, run: str, fence: int, events: Sequence[NewEvent], *, end: RunEnd | None = None, again: bool = False
    ) -> None:
        """Write, and say nothing of it once."""
        await super().append(run, fence, events, end=end, again=again)
        told = " ".join([*(f"{event.kind}:{event.step}" for event in events), *([str(end.status)] if end else [])])
        if self.awaited and self.awaited in told:
            self.awaited = ""
            self.written.set()
            await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("awaited", "status", "paid"),
    [
        ("intent:m0/c0", RunStatus.WAITING, "unknown"),
        ("result:m0/c0", RunStatus.WAITING, "ok"),
        ("done", RunStatus.DONE, "ok"),
    ],
)
async def test_a_run_cancelled_while_it_writes_is_let_go_of(
    place: str, awaited: str, status: RunStatus, paid: str
) -> None:
    """What the write came to is accepted, and the run is held by nobody: it can be gone on with at once."""

    @tool
    async def pay(n: int) -> str:
        """Pay."""
        return str(n)

    async with Unheard(open_ledger(place).store) as ledger:
        ledger.awaited, ledger.written = awaited, asyncio.Event()
        one = Agent(ScriptedModel([Call("pay", {"n": 1}), "Done."]), tools=[pay], ledger=ledger, lease=60.0)
        running = asyncio.create_task(one.run("Go.", run_id="r"))
        await ledger.written.wait()
        running.cancel()
        await asyncio.wait({running})
        found = await ledger.get_run("r")
        assert found is not None
        assert found.status is status
    result = await Agent(ScriptedModel(["Done."]), tools=[pay], ledger=place).resume("r")
    assert (result.text, [str(call.status) for call in result.calls]) == ("Done.", [paid])


async def test_a_run_that_was_ending_ends(place: str) -> None:
    """Cancelled before the end was written: it is written all the same, and no model is asked again."""

    class Slow(Unheard):
        """A ledger that is cancelled before it writes."""

        async def append(
            self, run: str, fence: int, events: Sequence[NewEvent], *, end: RunEnd | None = None, again: bool = False
        ) -> None:
            if end is not None and not self.written.is_set():
                self.written.set()
                await asyncio.Event().wait()
            await super().append(run, fence, events, end=end, again=again)

    async with Slow(open_ledger(place).store) as ledger:
        ledger.written = asyncio.Event()
        running = asyncio.create_task(Agent(ScriptedModel(["Done."]), ledger=ledger).run("Go.", run_id="r"))
        await ledger.written.wait()
        running.cancel()
        await asyncio.wait({running})
    assert (await Agent(ScriptedModel([]), ledger=place).resume("r")).text == "Done."


async def test_a_journal_that_cannot_be_read_is_held_by_nobody(place: str) -> None:
    """Who cannot read a run does not keep it until the lease is over."""
    one = Agent(ScriptedModel([]), ledger=place)
    await one.submit("Go.", run_id="r")
    async with open_ledger(place) as ledger:
        claim = await ledger.claim_run("r", owner="o", lease=30)
        assert claim is not None
        await ledger.append("r", 1, [NewEvent(step="m0", kind="model", data=b"?")], end=RunEnd(status=RunStatus.QUEUED))
    with pytest.raises(LedgerBroken):
        await one.resume("r")
    assert (await one.runs.find("r")).status is RunStatus.WAITING
