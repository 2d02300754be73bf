"""The scripted model: an upstream without a socket that the engine cannot tell from one with."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from mustcall import Agent, RunEvent, Stopped, TextDelta
from mustcall.core.errors import ConfigError, MustcallError, UpstreamTimeout
from mustcall.testing import (
    Call,
    Cut,
    Delayed,
    End,
    Fail,
    FakeClock,
    Hang,
    Line,
    Recorded,
    Say,
    ScriptedModel,
    ScriptedUpstream,
    Think,
    Turn,
)
from mustcall.upstream.retry import Clock, SystemClock
from support.agents import WIRES, agent_on, collect, get_weather

T = TypeVar("T")

LATE = Turn(Say("late"))

wires = pytest.mark.parametrize("wire", WIRES)
streaming = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


async def go(agent: Agent, *, stream: bool) -> tuple[Any, list[RunEvent]]:
    """Run an agent in either way."""
    if not stream:
        return await agent.run("Weather?"), []
    events, result = await collect(agent.stream("Weather?"))
    return result, events


async def ended(run: Coroutine[Any, Any, T]) -> T:
    """Return what a run comes to; one that waits in real time fails instead of blocking the tests."""
    async with asyncio.timeout(180):
        return await run


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
    """A cut reply is tried again."""
    model = ScriptedModel([Cut(Turn(Say("Sunny and warm.")), after=0), Cut(Turn(Say("S")), after=20), "Sunny."])
    result, _ = await go(Agent(model), stream=stream)
    assert (result.text, len(model.requests)) == ("Sunny.", 3)


@streaming
@pytest.mark.parametrize(
    "delay", [Hang(LATE), Delayed(LATE, 500.0), Delayed(Hang(LATE), 1.5)], ids=["hang", "delay", "both"]
)
async def test_a_late_head_is_a_timeout(delay: Line, stream: bool) -> None:
    """What does not begin within the agent's time ends after that time of the clock, not of the test."""
    clock = FakeClock()
    began = clock.monotonic()
    model = ScriptedModel([delay, "Not asked for."], clock=clock)
    with pytest.raises(UpstreamTimeout, match="did not answer in time"):
        await ended(go(Agent(model, timeout=2), stream=stream))
    assert (clock.sleeps, clock.monotonic() - began) == ([2.0], 2.0)
    assert [one.ended for one in model.requests] == [End.DISCONNECTED]


@streaming
async def test_a_delay_within_the_time_is_waited_for(stream: bool) -> None:
    """A delay as long as the read timeout is not yet too long."""
    clock = FakeClock()
    result, _ = await go(Agent(ScriptedModel([Delayed(LATE, 2.0)], clock=clock), timeout=2), stream=stream)
    assert (result.text, clock.sleeps) == ("late", [2.0])


@streaming
@pytest.mark.parametrize("hang", [Hang(LATE, after=10), Hang(LATE, head=True)], ids=["body", "head"])
async def test_a_silent_body_is_a_timeout(hang: Hang, stream: bool) -> None:
    """A body that stops ends after the idle timeout of the clock, and is tried again as on a socket."""
    clock = FakeClock()
    model = ScriptedModel([hang, "Here."], clock=clock)
    result, _ = await ended(go(Agent(model), stream=stream))
    asked: dict[str, Any] = {"model": "scripted", "messages": [{"role": "user", "content": "Weather?"}]}
    if stream:
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
    assert (result.text, [one.body for one in model.requests]) == ("Here.", [asked] * 2)
    assert clock.sleeps[0] == 120.0
    assert [one.ended for one in model.requests] == [End.DISCONNECTED, End.COMPLETE]


@pytest.mark.parametrize("after", [0, 10])
@pytest.mark.parametrize("clock", [FakeClock(), SystemClock()], ids=["fake", "real"])
async def test_a_hang_can_be_cancelled(clock: Clock, after: int) -> None:
    """A run that is cancelled while its reply hangs ends at once, on either clock; the client has then left."""
    model = ScriptedModel([Hang(LATE, after=after)], clock=clock)
    task = asyncio.create_task(Agent(model).run("hi"))
    while not model.requests:  # noqa: ASYNC110  no event tells
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [one.ended for one in model.requests] == [End.DISCONNECTED]


async def test_a_hanging_stream_can_be_closed() -> None:
    """Who leaves a stream before it hangs never waits for it: no time passes."""
    clock = FakeClock()
    model = ScriptedModel([Hang(Turn(Say("word " * 400)), after=6000)], clock=clock)
    async with Agent(model).stream("hi") as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break
    assert (clock.sleeps, [one.ended for one in model.requests]) == ([], [End.DISCONNECTED])


def test_what_can_be_no_model() -> None:
    """A text, nothing, an unknown wire and a default that is no reply are found when the model is made."""
    made: Any = ScriptedModel
    with pytest.raises(ConfigError, match=r"script must be .* got 'hello': write a list: \['hello'\]"):
        made("hello")
    for script in (None, 3, b"x", {"a": "b"}, Turn(Say("x"))):
        with pytest.raises(ConfigError, match="script must be a list of replies, or a function that returns one"):
            made(script)
    with pytest.raises(ConfigError, match="wire must be one of chat, responses, messages, got 'bogus'"):
        made(["Hi."], wire="bogus")
    with pytest.raises(ConfigError, match=r"default must be a text, .* got 3"):
        made(default=3)


async def test_streams_piece_by_piece() -> None:
    """Chunking never changes a result."""
    for chunking in (None, 1, 7):
        events, result = await collect(Agent(ScriptedModel(["Sunny, é ☀."], chunking=chunking)).stream("hi"))
        assert result.stopped is Stopped.ANSWERED
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Sunny, é ☀."
