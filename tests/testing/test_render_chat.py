"""Chat Completions bodies and chunks, read by the official SDK with strict validation and compared event by event."""

from typing import Any

import msgspec
import pytest
from openai import APIStatusError, OpenAI
from openai.types.chat import ChatCompletionMessageFunctionToolCall, ChatCompletionMessageParam

from mustcall.core.origin import Wire
from mustcall.testing import Call, Fail, Refuse, Say, ScriptedUpstream, StreamError, Think, Turn, Usage
from mustcall.testing.render import Stamp, build_reply, stream_reply

ASK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]

TURNS = {
    "text": Turn(Say("Good  morning,\nworld. ")),
    "one call": Turn(Call("f", {"city": "Paris", "days": 3})),
    "two calls": Turn(Call("f", {}, id="call_a"), Call("g", '{"broken": ')),
    "call and text": Turn(Say("Let me look."), Call("f", {"a": 1})),
    "reasoning and call": Turn(Think("The user wants f."), Call("f", {"a": 1})),
    "refusal": Turn(Refuse("I will not do that.")),
    "length": Turn(Say("Once upon"), finish="length"),
    "filtered": Turn(finish="content_filter"),
    "a lie": Turn(Say("done"), finish="tool_calls"),
}
FINISHES = {
    "one call": "tool_calls",
    "two calls": "tool_calls",
    "call and text": "tool_calls",
    "reasoning and call": "tool_calls",
    "length": "length",
    "filtered": "content_filter",
    "a lie": "tool_calls",
}


def connect(upstream: ScriptedUpstream) -> OpenAI:
    """Return a client that refuses bodies its models do not describe."""
    return OpenAI(base_url=upstream.base_url, api_key="key", max_retries=0, _strict_response_validation=True)


def decode(events: list[bytes]) -> list[Any]:
    """Return the data of events, `[DONE]` as a string."""
    data = [event.removeprefix(b"data: ").strip() for event in events]
    return [one.decode() if one == b"[DONE]" else msgspec.json.decode(one) for one in data]


@pytest.mark.parametrize("name", TURNS)
@pytest.mark.parametrize("streamed", [False, True])
def test_sdk_reads_every_turn(name: str, streamed: bool) -> None:
    """The SDK sees text, refusal, reasoning, calls and finish as scripted, streamed or not."""
    turn = TURNS[name]
    with ScriptedUpstream([turn]) as upstream, connect(upstream) as client:
        if streamed:
            state = client.chat.completions.stream(model="m", messages=ASK, stream_options={"include_usage": True})
            with state as stream:
                for _ in stream:
                    pass
                completion: Any = stream.current_completion_snapshot
        else:
            completion = client.chat.completions.create(model="m", messages=ASK)
    message = completion.choices[0].message
    calls: list[ChatCompletionMessageFunctionToolCall] = message.tool_calls or []  # pyrefly: ignore[bad-assignment]
    said = "".join(part.text for part in turn.parts if isinstance(part, Say))
    assert (message.content or "") == said
    assert (message.refusal or "") == "".join(part.text for part in turn.parts if isinstance(part, Refuse))
    assert [call.function.name for call in calls] == [call.name for call in turn.calls]
    assert completion.choices[0].finish_reason == FINISHES.get(name, "stop")
    assert completion.usage.prompt_tokens == 25  # pyrefly: ignore[missing-attribute]
    assert completion.usage.completion_tokens == 12  # pyrefly: ignore[missing-attribute]
    if any(isinstance(part, Think) for part in turn.parts):
        assert message.reasoning_content == "The user wants f."  # pyrefly: ignore[missing-attribute]


def test_stream_is_the_canonical_sequence() -> None:
    """Role first, a call's head before its pieces, finish, usage, `[DONE]`; every chunk carries the same head."""
    request = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
    turn = Turn(Say("Yes."), Call("f", {"a": 1}), Call("g", {}))
    *chunks, done = decode(stream_reply(turn, Wire.CHAT, request, Stamp(3)))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    assert done == "[DONE]"
    assert deltas == [
        {"role": "assistant", "content": None, "refusal": None},
        {"content": "Yes."},
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": "call_scripted_0003_0",
                    "type": "function",
                    "function": {"name": "f", "arguments": ""},
                }
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":1}'}}]},
        {
            "tool_calls": [
                {
                    "index": 1,
                    "id": "call_scripted_0003_1",
                    "type": "function",
                    "function": {"name": "g", "arguments": ""},
                }
            ]
        },
        {"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * 6 + ["tool_calls"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == 37
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert {(chunk["id"], chunk["object"], chunk["model"]) for chunk in chunks} == {
        ("chatcmpl-scripted_0003", "chat.completion.chunk", "m")
    }


def test_usage_chunk_only_when_asked() -> None:
    """Without `include_usage` no chunk speaks of usage."""
    chunks = decode(stream_reply(Turn(Say("a")), Wire.CHAT, {"model": "m", "stream": True}, Stamp(0)))
    assert not any("usage" in chunk for chunk in chunks[:-1])


def test_usage_details_and_extra_fields() -> None:
    """Cached, written and reasoning tokens, the model's name and unknown fields reach the body."""
    usage = Usage(input_tokens=100, output_tokens=9, cached_tokens=60, cache_write_tokens=5, reasoning_tokens=4)
    turn = Turn(Say("a"), usage=usage, id="chatcmpl-1", model="real-name", extra={"x_vendor": {"n": 1}})
    body = build_reply(turn, Wire.CHAT, {"model": "alias"}, Stamp(0))
    assert body["id"] == "chatcmpl-1"
    assert body["model"] == "real-name"
    assert body["x_vendor"] == {"n": 1}
    assert body["usage"]["prompt_tokens"] == 100
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 60, "audio_tokens": 0, "cache_write_tokens": 5}
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 4
    chunks = decode(stream_reply(turn, Wire.CHAT, {}, Stamp(0)))
    assert all(chunk["x_vendor"] == {"n": 1} for chunk in chunks[:-1])


def test_no_usage_when_the_turn_has_none() -> None:
    """`usage=None` plays a server that reports nothing."""
    turn = Turn(Say("a"), usage=None)
    asks = {"stream": True, "stream_options": {"include_usage": True}}
    assert "usage" not in build_reply(turn, Wire.CHAT, {}, Stamp(0))
    assert [c["usage"] for c in decode(stream_reply(turn, Wire.CHAT, asks, Stamp(0)))[:-1]] == [None] * 3


def test_custom_tools_come_back_as_custom_calls() -> None:
    """A call of a tool offered as custom is a custom call with its text, streamed or not."""
    request = {"tools": [{"type": "custom", "custom": {"name": "patch"}}]}
    turn = Turn(Call("patch", "*** Begin"))
    expected = {"id": "call_scripted_0000_0", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    body = build_reply(turn, Wire.CHAT, request, Stamp(0))
    assert body["choices"][0]["message"]["tool_calls"] == [expected]
    chunks = decode(stream_reply(turn, Wire.CHAT, request, Stamp(0)))
    heads = [chunk["choices"][0]["delta"].get("tool_calls") for chunk in chunks[1:-2]]
    assert heads[0] == [expected | {"index": 0, "custom": {"name": "patch", "input": ""}}]
    assert "".join(head[0]["custom"]["input"] for head in heads) == "*** Begin"


def test_errors_have_openai_shape() -> None:
    """A failure carries status, message, type, code and its headers."""
    fail = Fail(429, "slow down", code="rate_limit_exceeded", headers={"retry-after": "2"})
    with ScriptedUpstream([fail]) as upstream, connect(upstream) as client, pytest.raises(APIStatusError) as caught:
        client.chat.completions.create(model="m", messages=ASK)
    assert caught.value.status_code == 429
    assert caught.value.response.headers["retry-after"] == "2"
    assert caught.value.body == {
        "message": "slow down",
        "type": "rate_limit_error",
        "param": None,
        "code": "rate_limit_exceeded",
    }


def test_stream_error_is_an_error_chunk() -> None:
    """After the given number of events comes an error object and nothing else."""
    error = StreamError(Turn(Say("one two three")), after=2, message="lost the GPU")
    with ScriptedUpstream([error]) as upstream, connect(upstream) as client:
        stream = client.chat.completions.create(model="m", messages=ASK, stream=True)
        seen: list[str] = []
        with pytest.raises(Exception, match="lost the GPU"):
            seen.extend(chunk.choices[0].delta.content or "" for chunk in stream)
    assert seen == ["", "one"]


def test_stream_error_without_a_stream_is_a_500() -> None:
    """A request that asked for no stream gets the error as its body."""
    error = StreamError(Turn(Say("x")), message="boom")
    with ScriptedUpstream([error]) as upstream, connect(upstream) as client, pytest.raises(APIStatusError) as caught:
        client.chat.completions.create(model="m", messages=ASK)
    assert caught.value.status_code == 500
    assert caught.value.body == {"message": "boom", "type": "server_error", "param": None, "code": None}
