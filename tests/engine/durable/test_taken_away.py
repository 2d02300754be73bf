"""Calls that wait for their turn: none begins once its run is another's, and none counts as begun that did not."""

import asyncio
import time

import pytest

from mustcall import Agent, FunctionTool, tool
from mustcall.core.errors import FenceLost
from mustcall.engine.durable.holding import Hold
from mustcall.ledger import JournalEvent, Ledger, StoredRun, open_ledger
from mustcall.testing import Call, Turn
from mustcall.testing.model import ScriptedModel

PAYMENTS = Turn(*(Call("pay", {"n": number}) for number in range(3)))


class Till:
    """A tool that takes one payment at a time, and who paid what."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.paying = asyncio.Event()
        self.go_on = asyncio.Event()

    def tools(self, *, concurrency: int = 0) -> list[FunctionTool]:
        """The tool; what is not yet paid may be paid by whoever goes on."""

        @tool(concurrency=concurrency, check=lambda _: False)
        async def pay(n: int) -> str:
            """Pay."""
            self.begun.append(n)
            self.paying.set()
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:  # as a tool in a thread: it cannot be stopped
                await self.go_on.wait()
            return "paid"

        return [pay]


@pytest.mark.parametrize(("own", "shared"), [(1, 8), (0, 1)])
async def test_a_call_that_waits_does_not_begin_once_its_run_is_taken(place: str, own: int, shared: int) -> None:
    """What waited for a slot when the run was taken is made by the new owner alone."""
    old, new = Till(), Till()
    new.go_on.set()
    first = Agent(
        ScriptedModel([PAYMENTS]), tools=old.tools(concurrency=own), concurrency=shared, ledger=place, lease=30.0
    )
    running = asyncio.create_task(first.run("Go.", run_id="r"))
    await old.paying.wait()
    second = Agent(ScriptedModel(["Done."]), tools=new.tools(), ledger=place)
    assert (await second.resume("r", take=True)).text == "Done."
    old.go_on.set()
    with pytest.raises(FenceLost):
        await running
    assert (old.begun, sorted(new.begun)) == ([0], [0, 1, 2])


async def test_a_call_that_waits_does_not_begin_once_its_run_is_cancelled(place: str) -> None:
    """Ended from outside, a run begins nothing more, however long its lease lasts."""
    till = Till()
    one = Agent(ScriptedModel([PAYMENTS]), tools=till.tools(concurrency=1), ledger=place, lease=30.0)
    running = asyncio.create_task(one.run("Go.", run_id="r"))
    await till.paying.wait()
    async with open_ledger(place) as ledger:
        assert await ledger.cancel_run("r") is not None
    till.go_on.set()
    with pytest.raises(FenceLost):
        await running
    assert till.begun == [0]


async def test_only_what_began_is_unknown(place: str) -> None:
    """Interrupted in the first of three calls, the others are made and not reported."""
    begun: list[int] = []
    paying = asyncio.Event()

    @tool(concurrency=1)
    async def pay(n: int) -> str:
        """Pay; the first time it hangs."""
        begun.append(n)
        paying.set()
        if len(begun) == 1:
            await asyncio.Event().wait()
        return "paid"

    running = asyncio.create_task(Agent(ScriptedModel([PAYMENTS]), tools=[pay], ledger=place).run("Go.", run_id="r"))
    await paying.wait()
    running.cancel()
    await asyncio.wait({running})
    result = await Agent(ScriptedModel(["Done."]), tools=[pay], ledger=place).resume("r")
    assert begun == [0, 1, 2]
    assert [(call.call.arguments_json, str(call.status)) for call in result.unknown] == [('{"n":0}', "unknown")]


async def test_a_call_that_is_held_up_asks_before_it_begins(place: str) -> None:
    """Between the intent and the call a hook took its time, and the run was ended: the tool does not begin."""
    till = Till()
    till.go_on.set()

    async def slow(event: object) -> None:
        if type(event).__name__ == "CallStarted":
            async with open_ledger(place) as ledger:
                await ledger.cancel_run("r")
            await asyncio.sleep(0.3)

    one = Agent(ScriptedModel([Call("pay", {"n": 1})]), tools=till.tools(), ledger=place, hooks=[slow])
    with pytest.raises(FenceLost):
        await one.run("Go.", run_id="r")
    assert till.begun == []


class _Slow(Ledger):
    """A ledger that takes longer to read a journal than a lease lasts."""

    async def events(self, run: str, *, after: int = 0) -> list[JournalEvent]:
        """Read, slowly."""
        await asyncio.sleep(0.3)
        return await super().events(run, after=after)


async def test_a_lease_is_counted_from_the_claim(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that took longer to read than the lease lasts leaves nothing of the lease."""
    holds: list[tuple[float, float]] = []
    made = Hold.__init__

    def make(self: Hold, ledger: Ledger, run: StoredRun, lease: float, since: float) -> None:
        holds.append((since, time.monotonic()))
        made(self, ledger, run, lease, since)

    monkeypatch.setattr(Hold, "__init__", make)
    one = Agent(ScriptedModel(["Done."]), ledger=place)
    await one.submit("Go.", run_id="r")
    async with _Slow(open_ledger(place).store) as ledger:
        await Agent(ScriptedModel(["Done."]), ledger=ledger, lease=0.2).resume("r")
    [(since, now)] = holds
    assert now - since >= 0.3
