"""All wire pairs, streamed and not, through the official SDKs: the same meaning on each side of the gateway."""

from typing import Any

import msgspec
import pytest

from mustcall.core.reply import Usage
from mustcall.gateway.config.settings import Settings, settings_from_flags
from mustcall.policy.failures.backoff import Backoff
from mustcall.testing import Call, Refuse, Say, ScriptedUpstream, StreamError, Think, Turn
from mustcall.testing.gateway import RunningGateway
from support.reading import read_request
from support.sdk import Ask, Failure, Handed, Seen, ask

WIRES = ("chat", "responses", "messages")
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = (("get_weather", CITY), ("get_time", CITY))
USAGE = Usage(input_tokens=25, output_tokens=12)

pairs = pytest.mark.parametrize("upstream_wire", WIRES)
callers = pytest.mark.parametrize("caller_wire", WIRES)
streaming = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def without_retries(url: str, wire: str) -> Settings:
    """Settings for one upstream whose failures are handed on at once."""
    settings = settings_from_flags(f"up:{wire}={url}")
    endpoints = tuple(msgspec.structs.replace(e, backoff=Backoff(retries=0)) for e in settings.endpoints)
    return msgspec.structs.replace(settings, endpoints=endpoints)


def run(caller_wire: str, upstream_wire: str, request: Ask, *turns: Any, stream: bool) -> tuple[Any, Any]:
    """Ask through a gateway in front of a strict upstream; return what the client saw and what the upstream got."""
    with (
        ScriptedUpstream(turns, strict=True) as upstream,
        RunningGateway(settings=without_retries(upstream.base_url, upstream_wire)) as gateway,
    ):
        seen = ask(caller_wire, gateway.url, request, stream=stream)
        assert len(upstream.requests) == 1
        assert upstream.requests[0].wire == upstream_wire
        return seen, read_request(upstream_wire, upstream.requests[0].body)


@callers
@pairs
@streaming
def test_text(caller_wire: str, upstream_wire: str, stream: bool) -> None:
    """Rule 115: a text answer, its finish and its usage arrive; system prompt and question reach the upstream."""
    seen, got = run(caller_wire, upstream_wire, Ask(), Turn(Say("Sunny, 21 °C.")), stream=stream)
    assert seen == Seen(text="Sunny, 21 °C.", finish="stop", tokens=(25, 12))
    assert got.system == "Be brief."
    assert got.turns == [("user", "What is the weather?")]
    assert got.stream is stream


@callers
@pairs
@streaming
def test_one_call(caller_wire: str, upstream_wire: str, stream: bool) -> None:
    """Rule 115: one tool call arrives with its name and arguments; the tools reach the upstream."""
    turn = Turn(Call("get_weather", {"city": 'Tromsø "north" {1}'}))
    seen, got = run(caller_wire, upstream_wire, Ask(tools=TOOLS), turn, stream=stream)
    expected = Seen(calls=(("", "get_weather", {"city": 'Tromsø "north" {1}'}),), finish="tool_calls", tokens=(25, 12))
    assert isinstance(seen, Seen)
    assert seen.without_ids() == expected
    assert seen.calls[0][0]
    assert got.tools == list(TOOLS)


@callers
@pairs
@streaming
def test_two_parallel_calls(caller_wire: str, upstream_wire: str, stream: bool) -> None:
    """Rule 62: two calls arrive, in order, with ids of their own."""
    turn = Turn(Call("get_weather", {"city": "Oslo"}), Call("get_time", {"city": "Lima"}))
    seen, _ = run(caller_wire, upstream_wire, Ask(tools=TOOLS), turn, stream=stream)
    assert isinstance(seen, Seen)
    assert [(name, arguments) for _, name, arguments in seen.calls] == [
        ("get_weather", {"city": "Oslo"}),
        ("get_time", {"city": "Lima"}),
    ]
    assert len({call_id for call_id, _, _ in seen.calls}) == 2
    assert seen.finish == "tool_calls"


@callers
@pairs
@streaming
def test_text_and_call(caller_wire: str, upstream_wire: str, stream: bool) -> None:
    """Rule 35: text before a call stays text, and the reply is a tool call."""
    turn = Turn(Say("Let me look."), Call("get_weather", {"city": "Oslo"}))
    seen, _ = run(caller_wire, upstream_wire, Ask(tools=TOOLS), turn, stream=stream)
    assert isinstance(seen, Seen)
    assert (seen.text, seen.finish) == ("Let me look.", "tool_calls")
    assert [name for _, name, _ in seen.calls] == ["get_weather"]


@callers
@pairs
@streaming
def test_reasoning_and_call(caller_wire: str, upstream_wire: str, stream: bool) -> None:
    """Rule 124: thinking arrives beside the call, and handed back it reaches its issuer unaltered."""
    first = Turn(Think("They mean Oslo."), Call("get_weather", {"city": "Oslo"}))
    request = Ask(tools=TOOLS, effort="low")
    with (
        ScriptedUpstream([first, Turn(Say("Sunny."))], strict=True) as upstream,
        RunningGateway(settings=without_retries(upstream.base_url, upstream_wire)) as gateway,
    ):
        seen = ask(caller_wire, gateway.url, request, stream=stream)
        assert isinstance(seen, Seen)
        assert seen.thinking == "They mean Oslo."
        assert [(name, arguments) for _, name, arguments in seen.calls] == [("get_weather", {"city": "Oslo"})]
        answer = ask(caller_wire, gateway.url, Ask(tools=TOOLS, effort="low", echo=seen), stream=stream)
        assert isinstance(answer, Seen)
        assert answer.text == "Sunny."
        got = read_request(upstream_wire, upstream.requests[1].body)
    assert got.thinking == ["They mean Oslo."]
    assert [turn[0] for turn in got.turns] == ["user", "call", "result"]


@callers
@pairs
@streaming
def test_tool_result_turn(caller_wire: str, upstream_wire: str, stream: bool) -> None:
    """Rule 101: calls and their results of the history reach the upstream, each result with its call."""
    handed = Handed(
        calls=(("call_a", "get_weather", {"city": "Oslo"}), ("call_b", "get_time", {"city": "Lima"})),
        results=(("call_a", "rain"), ("call_b", "noon")),
        text="Looking.",
    )
    request = Ask(tools=TOOLS, handed=handed)
    seen, got = run(caller_wire, upstream_wire, request, Turn(Say("Rain in Oslo, noon in Lima.")), stream=stream)
    assert isinstance(seen, Seen)
    assert seen.text == "Rain in Oslo, noon in Lima."
    assert got.turns == [
        ("user", "What is the weather?"),
        ("assistant", "Looking."),
        ("call", "call_a", "get_weather", {"city": "Oslo"}),
        ("call", "call_b", "get_time", {"city": "Lima"}),
        ("result", "call_a", "rain"),
        ("result", "call_b", "noon"),
    ]


@callers
@pairs
@streaming
def test_refusal(caller_wire: str, upstream_wire: str, stream: bool) -> None:
    """Rule 37: a refusal arrives as one, with the model's words."""
    seen, _ = run(caller_wire, upstream_wire, Ask(), Turn(Refuse("I will not do that.")), stream=stream)
    assert isinstance(seen, Seen)
    assert (seen.text, seen.finish) == ("I will not do that.", "refusal")


@callers
@pairs
@streaming
def test_length_stop(caller_wire: str, upstream_wire: str, stream: bool) -> None:
    """Rule 123: a reply cut by the token limit says so."""
    seen, _ = run(caller_wire, upstream_wire, Ask(), Turn(Say("It is going to"), finish="length"), stream=stream)
    assert isinstance(seen, Seen)
    assert (seen.text, seen.finish) == ("It is going to", "length")


@callers
@pairs
@streaming
def test_error_in_the_middle(caller_wire: str, upstream_wire: str, stream: bool) -> None:
    """Rule 135: an error after the first event is an error event on the caller's wire, never a finished reply."""
    turn = StreamError(Turn(Say("It is going to rain all day.")), after=4, message="the engine broke")
    seen, _ = run(caller_wire, upstream_wire, Ask(), turn, stream=stream)
    assert isinstance(seen, Failure)
    assert "the engine broke" in seen.message
    if not stream:
        assert seen.status == 500
