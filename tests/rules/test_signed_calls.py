"""Rule 124 for state that stands beside a call: Gemini's `thought_signature` in `extra_content`, through every wire."""

import json
from typing import Any

import pytest

from mustcall import Agent, Upstream
from mustcall.testing import Answer, Raw, RawStream, RunningGateway, Say, ScriptedUpstream, Turn
from support.agents import collect
from support.forcing import WAYS
from support.http import post
from support.sdk import Ask, Seen, ask

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FIRST, SECOND = "CpcBAdHtim9/first+==", "EsoCAdHtim9_second-"
MODEL = "gemini-3-pro"


def extra(signature: str) -> dict[str, Any]:
    """What Gemini's chat endpoint puts beside a call."""
    return {"google": {"thought_signature": signature}}


def called(number: int, city: str, signature: str | None) -> dict[str, Any]:
    """One entry of `tool_calls`."""
    function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
    call: dict[str, Any] = {"id": f"function-call-{number}", "type": "function", "function": function}
    return call if signature is None else {**call, "extra_content": extra(signature)}


def answer(*calls: dict[str, Any], stream: bool) -> Answer:
    """A reply that is nothing but calls, whole or as Gemini streams it: each call in one chunk."""
    if not stream:
        message = {"role": "assistant", "content": None, "tool_calls": list(calls)}
        body = {
            "id": "r1",
            "object": "chat.completion",
            "created": 1,
            "model": MODEL,
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10},
        }
        return Raw(200, json.dumps(body).encode())
    head: dict[str, Any] = {"id": "r1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "tool_calls": [{"index": number, **call}]} for number, call in enumerate(calls)
    ]
    events: list[dict[str, Any]] = [
        head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    events.append(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    data = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
    return RawStream([*data, b"data: [DONE]\n\n"])


def asking(echo: Seen | None = None, model: str = MODEL) -> Ask:
    """A question, and its answer handed back with a result."""
    return Ask(tools=(("get_weather", SCHEMA),), echo=echo, model=model)


CASES = {
    "one": ([("Paris", FIRST)], [FIRST]),
    "the first of two": ([("Paris", FIRST), ("Rome", None)], [FIRST, None]),
    "two": ([("Paris", FIRST), ("Rome", SECOND)], [FIRST, SECOND]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("wire", "stream"), [way for way in WAYS if way != ("chat", True)])
def test_a_signed_call_comes_back_with_its_signature(wire: str, stream: bool, case: str) -> None:
    """Rule 124: through any caller's wire `extra_content` returns byte for byte beside the call it came with."""
    made, expected = CASES[case]
    calls = [called(number, city, signature) for number, (city, signature) in enumerate(made)]
    with (
        ScriptedUpstream([answer(*calls, stream=stream), Turn(Say("Sunny."))]) as upstream,
        RunningGateway(f"chat={upstream.base_url}") as gateway,
    ):
        seen = ask(wire, gateway.url, asking(), stream=stream)
        assert isinstance(seen, Seen)
        ask(wire, gateway.url, asking(seen), stream=stream)
        first, second = [one.body for one in upstream.requests]
    (turn,) = [message for message in second["messages"] if message["role"] == "assistant"]
    assert [call.get("extra_content") for call in turn["tool_calls"]] == [
        None if signature is None else extra(signature) for signature in expected
    ]
    assert [json.loads(call["function"]["arguments"])["city"] for call in turn["tool_calls"]] == [
        city for city, _ in made
    ]
    assert "mc1." not in json.dumps(second)
    assert "extra_content" not in json.dumps(first)


@pytest.mark.parametrize("wire", ["responses", "messages"])
@pytest.mark.parametrize("stream", [False, True])
def test_another_models_signature_is_not_sent(wire: str, stream: bool) -> None:
    """Rule 124: the issuer is endpoint and model: to another model of the same endpoint the call goes without it."""
    with (
        ScriptedUpstream([answer(called(0, "Paris", FIRST), stream=stream), Turn(Say("Sunny."))]) as upstream,
        RunningGateway(f"chat={upstream.base_url}") as gateway,
    ):
        seen = ask(wire, gateway.url, asking(), stream=stream)
        assert isinstance(seen, Seen)
        ask(wire, gateway.url, asking(seen, model="gemini-3-flash"), stream=stream)
        second = upstream.requests[1].body
    assert "extra_content" not in json.dumps(second)
    assert FIRST not in json.dumps(second)
    assert len([message for message in second["messages"] if "tool_calls" in message]) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_mended_call_keeps_its_signature(stream: bool) -> None:
    """Rule 124: on the chat wire, too, a reply that has to be written anew says what stood beside its call."""
    call = called(0, "Paris", FIRST)
    call["function"]["name"] = "functions.get_weather"
    asked = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Weather?"}],
        "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}],
        "stream": stream,
    }
    with (
        ScriptedUpstream([answer(call, stream=stream)]) as upstream,
        RunningGateway(f"chat={upstream.base_url}") as gateway,
    ):
        got = post(f"{gateway.url}/v1/chat/completions", asked)
        assert len(upstream.requests) == 1
    assert b'"name":"get_weather"' in got.body.replace(b": ", b":")
    assert json.dumps(extra(FIRST), separators=(",", ":")).encode() in got.body.replace(b": ", b":")


@pytest.mark.parametrize("stream", [False, True])
async def test_an_agent_hands_the_signature_back(stream: bool) -> None:
    """Rule 124: an agent's history keeps what stood beside a call, streamed or not."""

    def get_weather(city: str) -> str:
        """Look up the weather."""
        return f"Sunny in {city}"

    with ScriptedUpstream([answer(called(0, "Paris", FIRST), stream=stream), Turn(Say("Sunny."))]) as upstream:
        agent = Agent(Upstream(f"chat={upstream.base_url}", model=MODEL, api_key="k"), tools=[get_weather])
        result = (await collect(agent.stream("Weather?")))[1] if stream else await agent.run("Weather?")
        second = upstream.requests[1].body
    assert result.text == "Sunny."
    (turn,) = [message for message in second["messages"] if message["role"] == "assistant"]
    assert [call["extra_content"] for call in turn["tool_calls"]] == [extra(FIRST)]


@pytest.mark.parametrize("stream", [False, True])
def test_on_the_chat_wire_bytes_stay_bytes(stream: bool) -> None:
    """Rules 112, 124: on the same wire nothing is moved: the reply with its `extra_content` is forwarded as it came."""
    given = answer(called(0, "Paris", FIRST), stream=stream)
    asked = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Weather?"}],
        "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}],
        "stream": stream,
    }
    with ScriptedUpstream([given]) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        got = post(f"{gateway.url}/v1/chat/completions", asked)
        assert len(upstream.requests) == 1
    assert isinstance(given, Raw | RawStream)
    assert got.body == (given.body if isinstance(given, Raw) else b"".join(given.chunks))
