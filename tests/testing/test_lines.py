"""What an entry of a script may be, the same for the scripted model and the scripted upstream."""

from typing import Any

import pytest

from mustcall import Agent
from mustcall.core.errors import ConfigError, MustcallError
from mustcall.testing import (
    Answer,
    Call,
    Cut,
    Delayed,
    Fail,
    Hang,
    Line,
    Raw,
    RawStream,
    Recorded,
    Refuse,
    Reset,
    Say,
    Script,
    ScriptedModel,
    ScriptedUpstream,
    StreamError,
    Think,
    Turn,
)
from mustcall.testing.lines import read_line
from support.agents import WIRES, agent_on, collect, get_weather

CALL = Call("get_weather", {"city": "Oslo"})
TEXT = Turn(Say("Sunny."))
#: An entry that is no reply, and what its error says.
NO_REPLIES = [
    pytest.param(None, r"request 1 must be a text, .* got None: a function of the script must return", id="nothing"),
    pytest.param(3, r"request 1 must be a text, a Call, .* got 3", id="number"),
    pytest.param(Turn("x"), r"request 1 has the part 'x', .* write Turn\(Say\('x'\)\)", id="bare text"),  # pyrefly: ignore[bad-argument-type]  wrong on purpose
    pytest.param(Turn(3), r"request 1 has the part 3, .* write Turn\(Say\(", id="odd part"),  # pyrefly: ignore[bad-argument-type]  wrong on purpose
    pytest.param(Hang(None), r"answer of Hang in .* request 1 must be .* got None", id="wrapped"),  # pyrefly: ignore[bad-argument-type]  wrong on purpose
    pytest.param(StreamError("x"), r"turn of StreamError in .* must be a Turn, got 'x'", id="stream error"),  # pyrefly: ignore[bad-argument-type]  wrong on purpose
]


@pytest.mark.parametrize("answer", [TEXT, Fail(500, "x"), Raw(200, b""), RawStream([b""]), StreamError(TEXT)])
@pytest.mark.parametrize("wrap", [None, Hang, Cut, Reset])
def test_answers_are_read_as_they_are(answer: Answer, wrap: Any) -> None:
    """What an upstream can answer stands for itself, wrapped or not."""
    line = answer if wrap is None else wrap(Delayed(answer, 1.0))
    assert read_line(line) is line


@pytest.mark.parametrize("part", [Say("a"), Think("a"), CALL, Refuse("a")])
def test_a_part_is_a_turn_by_itself(part: Say | Think | Call | Refuse) -> None:
    """A part alone, and a text, are turns of one part."""
    assert read_line(part) == Turn(part)
    assert read_line("a") == Turn(Say("a"))


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("last", ["Sunny.", Say("Sunny."), TEXT, Delayed("Sunny.", 0.001)])
@pytest.mark.parametrize("made", [False, True], ids=["list", "function"])
async def test_the_upstream_takes_what_the_model_takes(wire: str, stream: bool, last: Line, made: bool) -> None:
    """Short forms come to the same reply on a socket and without, from a list and from a function."""
    lines: list[Line] = [CALL, last]

    def make(request: Recorded) -> Line:
        return lines[request.number]

    async def said(agent: Agent) -> tuple[str, str]:
        result = (await collect(agent.stream("Weather?")))[1] if stream else await agent.run("Weather?")
        return result.calls[0].name, result.text

    model = ScriptedModel(make if made else lines, wire=wire, strict=True)
    assert await said(Agent(model, tools=[get_weather])) == ("get_weather", "Sunny.")
    with ScriptedUpstream(make if made else lines, strict=True) as upstream:
        assert await said(agent_on(upstream, wire)) == ("get_weather", "Sunny.")
    for one in (model, upstream):
        assert [request.answer for request in one.requests] == [Turn(CALL), read_line(last)]


async def test_a_default_may_be_short() -> None:
    """The reply after the end of the script is an entry like others."""
    with ScriptedUpstream(default="Sunny.") as upstream:
        assert (await agent_on(upstream, "chat", tools=[]).run("Weather?")).text == "Sunny."


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("line", "match"), NO_REPLIES)
async def test_the_model_names_what_is_no_reply(line: Any, match: str, stream: bool) -> None:
    """It ends the run at once with the value and the fix, from a list as from a function."""

    def make(_: Recorded) -> Any:
        return line

    scripts: list[Script] = [[line, "Not asked for."], make]
    for script in scripts:
        model = ScriptedModel(script)
        with pytest.raises(ConfigError, match=match):
            await (collect(Agent(model).stream("Hi")) if stream else Agent(model).run("Hi"))
        assert len(model.requests) == 1


async def test_the_model_names_an_async_function() -> None:
    """Its coroutine is named and closed: nothing warns of it later."""

    async def answer(_: Recorded) -> str:
        return "Hi."

    script: Any = answer
    with pytest.raises(ConfigError, match=r"got <coroutine object .*answer.* with def, not async def"):
        await Agent(ScriptedModel(script)).run("hi")


@pytest.mark.parametrize(("line", "match"), NO_REPLIES)
@pytest.mark.parametrize("made", [False, True], ids=["list", "function"])
async def test_the_upstream_names_what_is_no_reply(line: Any, match: str, made: bool) -> None:
    """The client gets the value and the fix, and is not told to try again: the next entry would hide it."""
    with (
        ScriptedUpstream((lambda _: line) if made else [line, "Not asked for."]) as upstream,
        pytest.raises(MustcallError, match=match),
    ):
        await agent_on(upstream, "chat").run("Weather?")
    assert [one.status for one in upstream.requests] == [400]


async def test_the_upstream_names_an_async_function() -> None:
    """Its coroutine is named and closed: nothing warns of it later."""

    async def answer(_: Recorded) -> str:
        return "Hi."

    script: Any = answer
    with (
        ScriptedUpstream(script) as upstream,
        pytest.raises(MustcallError, match=r"got <coroutine object .*answer.* with def, not async def"),
    ):
        await agent_on(upstream, "chat").run("Weather?")
    assert len(upstream.requests) == 1


def test_the_upstream_names_what_can_be_no_script() -> None:
    """A text would be played letter by letter; it is found when the upstream is made."""
    made: Any = ScriptedUpstream
    for script in ("hello", None, 3, b"x", {"a": "b"}, TEXT):
        with pytest.raises(ConfigError, match="script must be a list of replies, or a function that returns one"):
            made(script)
    with pytest.raises(ConfigError, match=r"default must be a text, .* got 3"):
        made(default=3)
