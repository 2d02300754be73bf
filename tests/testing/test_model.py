"""The scripted model: an upstream without a socket that the engine cannot tell from one with."""

import asyncio
from typing import Any

import pytest

from mustcall import Agent, RunEvent, Stopped, TextDelta
from mustcall.core.errors import MustcallError
from mustcall.testing import (
    Call,
    Cut,
    Delayed,
    Fail,
    FakeClock,
    Hang,
    Recorded,
    Say,
    ScriptedModel,
    ScriptedUpstream,
    Think,
    Turn,
)
from support.agents import WIRES, agent_on, collect, get_weather

wires = pytest.mark.parametrize("wire", WIRES)
streaming = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


async def go(agent: Agent, *, stream: bool) -> tuple[Any, list[RunEvent]]:
    """Run an agent in either way."""
    if not stream:
        return await agent.run("Weather?"), []
    events, result = await collect(agent.stream("Weather?"))
    return result, events


@wires
@streaming
async def test_the_same_as_on_a_socket(wire: str, stream: bool) -> None:
    """Requests and results are those of the scripted upstream, byte for byte."""
    script = [Turn(Think("hm"), Call("get_weather", {"city": "Oslo"})), Turn(Say("Sunny."))]
    model = ScriptedModel(script, wire=wire, model="m", strict=True)
    mine, events = await go(Agent(model, tools=[get_weather]), stream=stream)
    with ScriptedUpstream(script, strict=True) as upstream:
        theirs, others = await go(agent_on(upstream, wire), stream=stream)
    assert [one.body for one in model.requests] == [one.body for one in upstream.requests]
    assert (mine.text, mine.usage, [type(event) for event in events]) == (
        theirs.text,
        theirs.usage,
        [type(event) for event in others],
    )


async def test_short_forms() -> None:
    """A text and a call are replies by themselves; a function makes one for each request."""
    model = ScriptedModel([Call("get_weather", {"city": "Oslo"}), "Sunny."])
    result = await Agent(model, tools=[get_weather]).run("Weather?")
    assert (result.text, result.calls[0].name) == ("Sunny.", "get_weather")

    def echo(request: Recorded) -> str:
        return request.body["messages"][-1]["content"].upper()

    assert (await Agent(ScriptedModel(echo)).run("hi")).text == "HI"


async def test_an_exhausted_script_says_so() -> None:
    """The third request of a script of none fails at once, with words for the one who wrote the test."""
    model = ScriptedModel([])
    with pytest.raises(MustcallError, match="the script is exhausted: no reply for request 1"):
        await Agent(model).run("hi")
    assert (await Agent(ScriptedModel(default="yes")).run("hi")).text == "yes"


async def test_back_offs_pass_at_once() -> None:
    """Failures are retried on a fake clock, delays pass on it."""
    clock = FakeClock()
    model = ScriptedModel([Fail(503, "busy"), Delayed(Turn(Say("Hi.")), 30.0)], clock=clock)
    result = await Agent(model).run("hi")
    asked = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}]}
    assert (result.text, [one.body for one in model.requests]) == ("Hi.", [asked] * 2)
    assert clock.sleeps[-1] == 30.0


@streaming
async def test_faults(stream: bool) -> None:
    """A cut reply is tried again; one that hangs is cancelled with its run."""
    model = ScriptedModel([Cut(Turn(Say("Sunny and warm.")), after=0), Cut(Turn(Say("S")), after=20), "Sunny."])
    result, _ = await go(Agent(model), stream=stream)
    assert (result.text, len(model.requests)) == ("Sunny.", 3)
    hanging = Agent(ScriptedModel([Hang(Turn(Say("Sunny.")), after=10)]))
    task = asyncio.create_task(hanging.run("hi"))
    await asyncio.wait({task}, timeout=0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_streams_piece_by_piece() -> None:
    """Chunking never changes a result."""
    for chunking in (None, 1, 7):
        events, result = await collect(Agent(ScriptedModel(["Sunny, é ☀."], chunking=chunking)).stream("hi"))
        assert result.stopped is Stopped.ANSWERED
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Sunny, é ☀."
