"""A run as it happens: the order of events, leaving early, and what is left behind (nothing)."""

import asyncio
import gc
import threading
from typing import Any

import pytest

from mustcall import (
    CallFinished,
    CallStarted,
    CallStatus,
    ReasoningDelta,
    Role,
    RunEvent,
    RunFinished,
    RunStream,
    StepFinished,
    Stopped,
    TextDelta,
    tool,
)
from mustcall.core.errors import UpstreamRejected, UpstreamUnavailable
from mustcall.policy.facts.wording import Wording, fill
from mustcall.testing import Call, Cut, Fail, Hang, Say, ScriptedUpstream, Think, Turn
from support.agents import WIRES, agent_on, collect, get_weather

wires = pytest.mark.parametrize("wire", WIRES)
CALL = Turn(Think("Hm."), Say("Let me see."), Call("get_weather", {"city": "Oslo"}))
ANSWER = Turn(Say("It is sunny."))
LONG = Turn(Say("word " * 2000))
CANCELLED = fill(Wording().tool_cancelled, tool="wait")


def kinds(events: list[RunEvent]) -> list[str]:
    """The events' names, neighbours of one kind as one."""
    names = [type(event).__name__ for event in events]
    return [name for index, name in enumerate(names) if index == 0 or names[index - 1] != name]


async def take(events: RunStream, into: list[RunEvent]) -> None:
    """Take events, also of a run that fails."""
    async for event in events:
        into.append(event)  # noqa: PERF401  what came before an error counts


@wires
async def test_order_of_events(wire: str) -> None:
    """Text as it comes, the step's end, calls as they start and end, the run's end last."""
    with ScriptedUpstream([CALL, ANSWER], strict=True) as upstream:
        events, result = await collect(agent_on(upstream, wire).stream("Weather?"))
    step = ["ReasoningDelta", "TextDelta", "StepFinished", "CallStarted", "CallFinished"]
    assert kinds(events) == [*step, "TextDelta", "StepFinished", "RunFinished"]
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    assert (said, thought) == ("Let me see.It is sunny.", "Hm.")
    (started,) = [event for event in events if isinstance(event, CallStarted)]
    (finished,) = [event for event in events if isinstance(event, CallFinished)]
    assert (started.call, finished.result, finished.ok) == (finished.call, "Sunny in Oslo", True)
    steps = [event for event in events if isinstance(event, StepFinished)]
    assert [(event.step, event.usage.output_tokens) for event in steps] == [(1, 12), (2, 12)]
    assert events[-1] == RunFinished(result)


async def test_hooks_see_every_event() -> None:
    """Hooks, plain or async, see what an iterator would; one that raises harms nothing."""
    seen: list[RunEvent] = []

    async def later(event: RunEvent) -> None:
        seen.append(event)

    def broken(_: RunEvent) -> None:
        raise ValueError("a bug in a hook")

    with ScriptedUpstream([CALL, ANSWER, CALL, ANSWER]) as upstream:
        agent = agent_on(upstream, "chat", hooks=[broken, later])
        result = await agent.run("Weather?")
        assert seen[-1] == RunFinished(result)
        whole = kinds(seen)
        seen.clear()
        events, _ = await collect(agent.stream("Weather?"))
    assert seen == events
    assert kinds(seen) == whole


@wires
async def test_closing_a_stream_cuts_the_upstream_off(wire: str) -> None:
    """Leaving the iteration ends the exchange; what was said so far is the history."""
    with ScriptedUpstream([Hang(LONG, after=6000)]) as upstream:
        async with agent_on(upstream, wire).stream("Tell me") as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    break
        await upstream.await_done()
        assert upstream.requests[0].disconnected
        result = events.result
    assert result.stopped is Stopped.CANCELLED
    assert result.text.startswith("word")
    assert [message.role for message in result.messages] == [Role.USER, Role.ASSISTANT]
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_dropping_a_stream_cuts_the_upstream_off() -> None:
    """A plain `break` without closing is enough."""
    with ScriptedUpstream([Hang(LONG, after=6000)]) as upstream:
        async for event in agent_on(upstream, "chat").stream("Tell me"):
            if isinstance(event, TextDelta):
                break
        gc.collect()
        await upstream.await_done()
        assert upstream.requests[0].disconnected


async def test_cancelling_stops_upstream_and_no_further_step_begins() -> None:
    """A cancelled task takes its run with it, in `run` and in an iteration."""
    with ScriptedUpstream(default=Hang(ANSWER)) as upstream:
        agent = agent_on(upstream, "chat")
        for number, waiting in enumerate((agent.run("Hi"), collect(agent.stream("Hi"))), 1):
            task = asyncio.ensure_future(waiting)
            await upstream.await_requests(number)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await upstream.await_done()
        assert [request.disconnected for request in upstream.requests] == [True, True]


async def test_cancelling_stops_tools() -> None:
    """An async tool is cancelled and can clean up; its call has a result in the history all the same."""
    began, cleaned = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        """Wait."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()
        return "never"

    with ScriptedUpstream([Turn(Call("get_weather", {"city": "Oslo"}), Call("wait"))]) as upstream:
        events = agent_on(upstream, "chat", tools=[wait, get_weather]).stream("Wait")
        async for event in events:
            if isinstance(event, CallFinished):
                break
        await began.wait()
        await events.aclose()
        assert cleaned.is_set()
        assert len(upstream.requests) == 1
    done, left = events.result.messages[-1].results
    assert not done.is_error
    assert (getattr(left.content[0], "text", ""), left.is_error) == (CANCELLED, True)
    assert [(call.name, call.status) for call in events.result.calls] == [
        ("get_weather", CallStatus.OK),
        ("wait", CallStatus.CANCELLED),
    ]


async def test_cancelling_leaves_a_thread_behind() -> None:
    """A synchronous tool cannot be stopped; the run does not wait for it."""
    began, let_go = threading.Event(), threading.Event()

    @tool
    def wait() -> str:
        """Wait."""
        began.set()
        let_go.wait(180)
        return "late"

    with ScriptedUpstream([Turn(Call("wait"))]) as upstream:
        events = agent_on(upstream, "chat", tools=[wait]).stream("Wait")
        async for event in events:
            if isinstance(event, CallStarted):
                break
        assert await asyncio.to_thread(began.wait, 5)
        await events.aclose()
        # It was begun, and may have taken effect: who leaves is told of it.
        assert [(call.result, call.status) for call in events.result.calls] == [(CANCELLED, CallStatus.CANCELLED)]
        let_go.set()


@wires
async def test_failed_stream(wire: str) -> None:
    """A failed run's last event says so, then its error is raised; nothing the failed turn said stays."""
    with ScriptedUpstream([CALL], default=Fail(400, "too bad")) as upstream:
        events = agent_on(upstream, wire).stream("Weather?")
        seen: list[RunEvent] = []
        with pytest.raises(UpstreamRejected, match="too bad"):
            await take(events, seen)
    assert seen[-1] == RunFinished(events.result)
    assert events.result.stopped is Stopped.FAILED
    assert [message.role for message in events.result.messages] == [Role.USER, Role.ASSISTANT, Role.TOOL]


@wires
async def test_cut_stream(wire: str) -> None:
    """A stream that breaks off after text was seen is an error, never half an answer."""
    with ScriptedUpstream(default=Cut(LONG, after=4000)) as upstream:
        events = agent_on(upstream, wire).stream("Tell me")
        with pytest.raises(UpstreamUnavailable):
            [event async for event in events]
    assert (events.result.text, len(events.result.messages)) == ("", 1)


async def test_a_slow_reader_holds_the_run_back() -> None:
    """Events wait to be taken: a reader that stops reading stops the run, and closing it still works."""
    many = [Turn(Call("get_weather", {"city": f"c{number}"})) for number in range(200)]
    with ScriptedUpstream(many) as upstream:
        events = agent_on(upstream, "chat", max_steps=500).stream("Weather?")
        await anext(events)
        while not events._queue.full():  # noqa: ASYNC110
            await asyncio.sleep(0)
        seen = len(upstream.requests)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(upstream.requests) <= seen + 1 < 200
        await events.aclose()
    assert events.result.stopped is Stopped.CANCELLED


async def test_agents_side_by_side() -> None:
    """One agent serves many runs at once; connections are shared and closed with the last of them."""

    def script(request: Any) -> Turn:
        return Turn(Say(f"You said {request.body['messages'][-1]['content']}."))

    with ScriptedUpstream(script) as upstream:
        agent = agent_on(upstream, "chat")
        done = await asyncio.gather(*(agent.run(f"q{number}") for number in range(20)))
        assert [result.text for result in done] == [f"You said q{number}." for number in range(20)]
        await upstream.await_connections(0)


async def test_an_open_agent_keeps_its_connection() -> None:
    """`async with agent` keeps the connection between runs and closes it at the end."""
    with ScriptedUpstream(default=ANSWER) as upstream:
        async with agent_on(upstream, "chat") as agent:
            await agent.run("Hi")
            assert upstream.open_connections == 1
            await agent.run("Hi")
            assert upstream.open_connections == 1
        await upstream.await_connections(0)
