"""Messages bodies and events, read by the official SDK with strict validation and compared event by event."""

from typing import Any

import msgspec
import pytest
from anthropic import Anthropic, APIStatusError
from anthropic.types import MessageParam

from mustcall.core.origin import Wire
from mustcall.testing import Call, Fail, Refuse, Say, ScriptedUpstream, StreamError, Think, Turn, Usage
from mustcall.testing.render import Stamp, build_reply, stream_reply

ASK: list[MessageParam] = [{"role": "user", "content": "hi"}]

TURNS = {
    "text": Turn(Say("Good  morning,\nworld. ")),
    "one call": Turn(Call("f", {"city": "Paris", "days": 3})),
    "two calls": Turn(Call("f", {}, id="toolu_a"), Call("g", '{"b": [1, 2]}')),
    "call and text": Turn(Say("Let me look."), Call("f", {"a": 1})),
    "reasoning and call": Turn(Think("The user wants f.", signature="c2ln"), Call("f", {"a": 1})),
    "redacted and text": Turn(Think(redacted=True, encrypted="b3BhcXVl"), Say("a")),
    "refusal": Turn(Refuse("I will not do that.")),
    "length": Turn(Say("Once upon"), finish="length"),
    "paused": Turn(Say("wait"), finish="pause"),
    "stop sequence": Turn(Say("a"), stop_sequence="END"),
}
FINISHES = {
    "one call": "tool_use",
    "two calls": "tool_use",
    "call and text": "tool_use",
    "reasoning and call": "tool_use",
    "refusal": "refusal",
    "length": "max_tokens",
    "paused": "pause_turn",
    "stop sequence": "stop_sequence",
}


def connect(upstream: ScriptedUpstream) -> Anthropic:
    """Return a client that refuses bodies its models do not describe."""
    return Anthropic(base_url=upstream.url, api_key="key", max_retries=0, _strict_response_validation=True)


def decode(events: list[bytes]) -> list[Any]:
    """Return the data of events after checking that each names its type."""
    pairs = [event.decode().strip().split("\ndata: ") for event in events]
    data = [msgspec.json.decode(text) for _, text in pairs]
    assert [name for name, _ in pairs] == [f"event: {one['type']}" for one in data]
    return data


@pytest.mark.parametrize("name", TURNS)
@pytest.mark.parametrize("streamed", [False, True])
def test_sdk_reads_every_turn(name: str, streamed: bool) -> None:
    """The SDK sees every block and the stop reason as scripted, streamed or not."""
    turn = TURNS[name]
    with ScriptedUpstream([turn]) as upstream, connect(upstream) as client:
        if streamed:
            with client.messages.stream(model="m", max_tokens=64, messages=ASK) as stream:
                message: Any = stream.get_final_message()
        else:
            message = client.messages.create(model="m", max_tokens=64, messages=ASK)
    expected = build_reply(turn, Wire.MESSAGES, {"model": "m"}, Stamp(0))
    blocks = [block.model_dump(exclude_unset=True) for block in message.content]
    assert [{key: block[key] for key in want} for block, want in zip(blocks, expected["content"], strict=True)] == (
        expected["content"]
    )
    assert message.stop_reason == FINISHES.get(name, "end_turn")
    assert message.stop_sequence == turn.stop_sequence
    assert message.usage.input_tokens == 25
    assert message.usage.output_tokens == 12


def test_stream_is_the_canonical_sequence() -> None:
    """message_start, each block started, filled and stopped, one ping, message_delta with usage, message_stop."""
    turn = Turn(Think("Hm.", signature="c2ln"), Say("Yes sir"), Call("f", {"a": 1}), Call("g", {}))
    data = decode(stream_reply(turn, Wire.MESSAGES, {"model": "m"}, Stamp(3)))
    assert data[0]["message"]["content"] == []
    assert data[0]["message"]["stop_reason"] is None
    assert data[0]["message"]["usage"]["input_tokens"] == 25
    assert data[0]["message"]["usage"]["output_tokens"] == 1
    assert data[1:-2] == [
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Yes"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": " sir"}},
        {"type": "content_block_stop", "index": 1},
        {
            "type": "content_block_start",
            "index": 2,
            "content_block": {"type": "tool_use", "id": "toolu_scripted_0003_2", "name": "f", "input": {}},
        },
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": ""}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"a":1}'}},
        {"type": "content_block_stop", "index": 2},
        {
            "type": "content_block_start",
            "index": 3,
            "content_block": {"type": "tool_use", "id": "toolu_scripted_0003_3", "name": "g", "input": {}},
        },
        {"type": "content_block_delta", "index": 3, "delta": {"type": "input_json_delta", "partial_json": ""}},
        {"type": "content_block_stop", "index": 3},
    ]
    assert data[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None, "stop_details": None}
    assert data[-2]["usage"]["output_tokens"] == 12
    assert data[-1] == {"type": "message_stop"}


def test_usage_splits_the_input() -> None:
    """Cached and newly cached tokens are counted apart from the rest of the input."""
    usage = Usage(input_tokens=100, output_tokens=9, cached_tokens=60, cache_write_tokens=5, reasoning_tokens=4)
    body = build_reply(Turn(Say("a"), usage=usage, extra={"x_vendor": 1}), Wire.MESSAGES, {}, Stamp(0))
    assert body["x_vendor"] == 1
    assert body["usage"]["input_tokens"] == 35
    assert body["usage"]["cache_read_input_tokens"] == 60
    assert body["usage"]["cache_creation_input_tokens"] == 5
    assert body["usage"]["output_tokens_details"] == {"thinking_tokens": 4}
    assert "usage" not in build_reply(Turn(Say("a"), usage=None), Wire.MESSAGES, {}, Stamp(0))


def test_broken_arguments_go_out_as_they_are() -> None:
    """Text that is not JSON is streamed as it is, and put into `input` as a string without a stream."""
    turn = Turn(Call("f", '{"broken": '))
    assert build_reply(turn, Wire.MESSAGES, {}, Stamp(0))["content"][0]["input"] == '{"broken": '
    data = decode(stream_reply(turn, Wire.MESSAGES, {}, Stamp(0)))
    pieces = [one["delta"]["partial_json"] for one in data if one["type"] == "content_block_delta"]
    assert "".join(pieces) == '{"broken": '


def test_omitted_thinking_keeps_its_signature() -> None:
    """`display: omitted` hides the text of a thought and leaves its signature."""
    request = {"thinking": {"type": "adaptive", "display": "omitted"}}
    block = build_reply(Turn(Think("secret")), Wire.MESSAGES, request, Stamp(0))["content"][0]
    assert block["thinking"] == ""
    assert len(block["signature"]) > 20


def test_errors_have_anthropic_shape() -> None:
    """A failure carries its type by status, details and a request id."""
    fail = Fail(529, "Overloaded", details={"error_code": "x"})
    with ScriptedUpstream([fail]) as upstream, connect(upstream) as client, pytest.raises(APIStatusError) as caught:
        client.messages.create(model="m", max_tokens=64, messages=ASK)
    assert caught.value.status_code == 529
    assert caught.value.body == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "Overloaded", "details": {"error_code": "x"}},
        "request_id": "req_scripted_0000",
    }
    assert caught.value.response.headers["request-id"] == "req_scripted_0000"


def test_stream_error_is_an_error_event() -> None:
    """After the given number of events comes `event: error` and nothing else."""
    error = StreamError(Turn(Say("one two three")), after=4, message="Overloaded")
    with ScriptedUpstream([error]) as upstream, connect(upstream) as client:
        stream = client.messages.create(model="m", max_tokens=64, messages=ASK, stream=True)
        seen: list[str] = []
        with pytest.raises(APIStatusError, match="overloaded_error"):
            seen.extend(event.type for event in stream)
    assert seen == ["message_start", "content_block_start", "content_block_delta"]
