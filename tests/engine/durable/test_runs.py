"""Durable runs, interrupted on purpose: what is done again, what is not, and what is said of it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mustcall import RunResult, Stopped, ToolCall, tool
from mustcall.core.errors import (
    FenceLost,
    RunBusy,
)
from mustcall.engine.durable import holding
from mustcall.ledger import Ledger, NewEvent, RunEnd, RunStatus, open_ledger
from mustcall.testing import Call
from mustcall.testing.model import ScriptedModel
from support.durable_runs import SENDS, Cut, Cutting, World, agent, cut_off


async def test_a_name_makes_a_run_durable(place: str) -> None:
    """The same name again is the same result, byte for byte, and no model is asked."""
    model, world = ScriptedModel([SENDS, "Done."]), World()
    one = agent(model, place, world)
    first = await one.run("Go.", run_id="r")
    again = await agent(ScriptedModel([]), place).run("Go.", run_id="r")
    later = await agent(ScriptedModel([]), place).resume("r")
    assert (first.text, first.run_id, len(model.requests), sorted(world.sent)) == ("Done.", "r", 2, ["a", "b"])
    assert msgspec.json.encode(again) == msgspec.json.encode(first) == msgspec.json.encode(later)


async def test_a_tool_turn_takes_two_commits(place: str) -> None:
    """What the model said and what is about to run are one commit, the results another, the end the last."""
    model, world = ScriptedModel([Call("send", {"to": "a"}), "Done."]), World()
    async with open_ledger(place) as ledger:
        counting = Counting(ledger.store)
        await agent(model, counting, world).run("Go.", run_id="r")
        events = await ledger.events("r")
    assert counting.written == [["model:m0", "intent:m0/c0"], ["result:m0/c0"], ["model:m1", "done"]]
    assert [(event.step, event.kind, event.fence) for event in events] == [
        ("m0", "model", 1),
        ("m0/c0", "intent", 1),
        ("m0/c0", "result", 1),
        ("m1", "model", 1),
    ]


class Counting(Ledger):
    """A ledger that tells what was written in one go."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.written: list[list[str]] = []

    async def append(
        self, run: str, fence: int, events: Sequence[NewEvent], *, end: RunEnd | None = None, again: bool = False
    ) -> None:
        """Write, and remember what."""
        told = [f"{event.kind}:{event.step}" for event in events]
        self.written.append(told + ([str(end.status)] if end else []))
        await super().append(run, fence, events, end=end, again=again)


async def test_finished_calls_are_not_made_again(place: str) -> None:
    """After a crash behind both results the model is asked for the rest, and no tool runs."""
    world = World()
    await cut_off(place, [SENDS], world, before="model:m1")
    assert sorted(world.sent) == ["a", "b"]
    model = ScriptedModel(["Done."])
    result = await agent(model, place, world).resume("r")
    assert sorted(world.sent) == ["a", "b"]
    assert [str(call.status) for call in result.calls] == ["ok", "ok"]
    assert len(model.requests) == 1
    assert [m["role"] for m in model.requests[0].body["messages"]] == ["user", "assistant", "tool", "tool"]
    assert len(result.steps) == 2
    assert result.usage == sum_usage(result)


def sum_usage(result: RunResult) -> Any:
    """The tokens of every turn."""
    first, *rest = [step.usage for step in result.steps if step.usage is not None]
    for usage in rest:
        first += usage
    return first


async def test_a_call_that_had_begun_is_unknown_and_not_made_again(place: str) -> None:
    """An intent without a result: the model is told in one line, the result says so, the tool does not run."""
    world = World()
    await cut_off(place, [Call("send", {"to": "a"})], world, before="result:m0/c0")
    model = ScriptedModel(["I do not know."])
    result = await agent(model, place, world).resume("r")
    assert world.sent == ["a"]
    assert [str(call.status) for call in result.calls] == ["unknown"]
    assert result.unknown == result.calls
    told = model.requests[0].body["messages"][-1]["content"]
    assert told == (
        "Error: The run was interrupted during the call of `send`: whether it took effect is not known. "
        "Find out before calling it again."
    )


async def test_what_never_began_is_begun(place: str) -> None:
    """Cut before the intents are written: the model's turn is not there, and everything is done once."""
    world = World()
    await cut_off(place, [SENDS], world, before="model:m0")
    assert world.sent == []
    result = await agent(ScriptedModel([SENDS, "Done."]), place, world).resume("r")
    assert (sorted(world.sent), result.unknown) == (["a", "b"], ())


async def test_the_end_is_written_once(place: str) -> None:
    """Cut right after the end: the result is there, and no model is asked for it."""
    world = World()
    await cut_off(place, ["Done."], world, after="done")
    assert (await agent(ScriptedModel([]), place).resume("r")).text == "Done."


async def test_an_idempotent_tool_is_run_again(place: str) -> None:
    """What may be repeated is repeated, with a second intent, under the same call id."""
    world = World()
    tools = world.tools(idempotent=True)
    opened = open_ledger(place)
    ledger = Cutting(opened.store)
    ledger.before = "result:"
    async with ledger:
        with pytest.raises((Cut, BaseExceptionGroup)):
            await agent(ScriptedModel([Call("send", {"to": "a"})]), ledger, tools=tools, lease=0.05).run(
                "Go.", run_id="r"
            )
    await asyncio.sleep(0.06)
    result = await agent(ScriptedModel(["Done."]), place, tools=tools).resume("r")
    assert (world.sent, str(result.calls[0].status)) == (["a", "a"], "ok")
    async with open_ledger(place) as ledger:
        events = [(event.kind, event.attempt) for event in await ledger.events("r") if event.step == "m0/c0"]
    assert events == [("intent", 0), ("intent", 1), ("result", 1)]


@pytest.mark.parametrize(
    ("answer", "sent", "status", "told"),
    [
        (False, ["a", "a"], "ok", "sent to a"),
        (True, ["a"], "ok", "The call of `send` took effect; its result was lost in an interruption."),
        ("it is number 7", ["a"], "ok", "it is number 7"),
        (None, ["a"], "unknown", "whether it took effect is not known"),
        (ValueError("?"), ["a"], "unknown", "whether it took effect is not known"),
    ],
)
async def test_a_check_says_what_became_of_a_call(
    tmp_path: Path, answer: Any, sent: list[str], status: str, told: str
) -> None:
    """`check` is asked about the call: not done, done, done with this result, or nobody can tell."""
    asked: list[str] = []

    def check(call: ToolCall) -> Any:
        asked.append(call.arguments_json)
        if isinstance(answer, Exception):
            raise answer
        return answer

    world, place = World(), str(tmp_path / "ledger.db")
    await cut_off(place, [Call("send", {"to": "a"})], world, before="result:")
    result = await agent(ScriptedModel(["Done."]), place, tools=world.tools(check=check)).resume("r")
    assert (world.sent, str(result.calls[0].status), asked) == (sent, status, ['{"to":"a"}'])
    assert told in result.calls[0].result


async def test_an_approval_stands_between_the_model_and_the_intent(tmp_path: Path) -> None:
    """A run that dies while somebody is asked has not begun the call: it is asked again, and nothing is unknown."""
    world, place = World(), str(tmp_path / "ledger.db")

    def dies(call: ToolCall) -> bool:
        raise Cut(call.name)

    def allows(call: ToolCall) -> bool:
        return call.name == "send"

    one = agent(ScriptedModel([Call("send", {"to": "a"})]), place, tools=world.tools(approve=dies), lease=0.05)
    with pytest.raises((Cut, BaseExceptionGroup)):
        await one.run("Go.", run_id="r")
    result = await agent(ScriptedModel(["Done."]), place, tools=world.tools(approve=allows)).resume("r")
    assert (world.sent, result.unknown) == (["a"], ())


async def test_a_run_is_driven_by_one_at_a_time(place: str) -> None:
    """A second process gets `RunBusy`, and one that comes after the lease stops the first by its fence."""
    started, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def wait(n: int) -> str:
        """Wait."""
        started.set()
        await go_on.wait()
        return str(n)

    first = agent(ScriptedModel([Call("wait", {"n": 1}), "First."]), place, tools=[wait])
    second = agent(ScriptedModel(["Second."]), place, tools=[wait])
    running = asyncio.create_task(first.run("Go.", run_id="r"))
    await started.wait()
    with pytest.raises(RunBusy, match="its lease lasts"):
        await second.run("Go.", run_id="r")
    with pytest.raises(RunBusy):
        await second.resume("r", check=False)
    taken = await second.resume("r", take=True)
    go_on.set()
    with pytest.raises(FenceLost):
        await running
    assert (taken.text, [str(call.status) for call in taken.calls]) == ("Second.", ["unknown"])
    assert (await first.resume("r")).text == "Second."


async def test_a_lease_is_renewed_while_a_tool_runs(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose tool takes its time stays with its process: its lease ends later and later."""
    monkeypatch.setattr(holding, "_RENEWALS", 1200)  # every 50 ms of a lease that no machine is too slow for
    renewed: asyncio.Queue[float] = asyncio.Queue()
    go_on = asyncio.Event()

    class Watched(Ledger):
        async def renew_lease(self, run: str, fence: int, *, lease: float) -> bool:
            held = await super().renew_lease(run, fence, lease=lease)
            now = await self.get_run(run)
            assert now is not None
            assert now.lease_until is not None
            renewed.put_nowait(now.lease_until)
            return held

    @tool
    async def wait() -> str:
        """Wait until the lease was renewed."""
        await go_on.wait()
        return "ok"

    async with Watched(open_ledger(place).store) as ledger:
        first = agent(ScriptedModel([Call("wait"), "First."]), ledger, tools=[wait], lease=60)
        running = asyncio.create_task(first.run("Go.", run_id="r"))
        ends = [await renewed.get() for _ in range(3)]
        assert ends == sorted(set(ends))
        with pytest.raises(RunBusy):
            await agent(ScriptedModel([]), place, tools=[wait]).resume("r")
        go_on.set()
        assert (await running).text == "First."


async def test_a_run_that_is_taken_away_is_stopped_in_its_tool(place: str) -> None:
    """Cancelled from outside, a run stops at the next beat of its lease, not only when it writes."""
    started = asyncio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        started.set()
        await asyncio.Event().wait()
        return ""

    one = agent(ScriptedModel([Call("hang"), "No."]), place, tools=[hang], lease=0.3)
    running = asyncio.create_task(one.run("Go.", run_id="r"))
    await started.wait()
    async with open_ledger(place) as ledger:
        assert await ledger.cancel_run("r") is not None
    with pytest.raises(FenceLost, match="ended from outside"):
        await running
    told = await one.resume("r")
    assert (told.stopped, [message.role for message in told.messages]) == (
        Stopped.CANCELLED,
        ["user", "assistant", "tool"],
    )


async def test_a_cancelled_task_leaves_the_run_to_be_gone_on_with(place: str) -> None:
    """Leaving a run in the middle gives it free at once; the call under way is unknown."""
    started = asyncio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        started.set()
        await asyncio.Event().wait()
        return ""

    one = agent(ScriptedModel([Call("hang"), "Done."]), place, tools=[hang])
    running = asyncio.create_task(one.run("Go.", run_id="r"))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await one.runs.find("r")).status is RunStatus.WAITING
    assert [str(call.status) for call in (await one.resume("r")).calls] == ["unknown"]
