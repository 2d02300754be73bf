"""The official anthropic SDK reads what the codec writes, and writes what the codec reads. No network."""

import json
from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.types import Message as SdkMessage
from anthropic.types import RawMessageStreamEvent
from pydantic import TypeAdapter

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import ErrorInfo
from mustcall.core.message import Message, Role
from mustcall.core.origin import Wire
from mustcall.core.parts import OpaqueState, Reasoning, Text, ToolCall, ToolResult
from mustcall.core.reply import FinishReason, Reply, Usage
from mustcall.core.request import Request
from mustcall.core.streams.events import (
    ArgumentsDelta,
    Ended,
    Event,
    Failed,
    Finished,
    PartEnded,
    PartReasoningDelta,
    PartStarted,
    PartTextDelta,
    Started,
    UsageUpdated,
)
from mustcall.wire.codec import ReplyStamp, Target
from mustcall.wire.messages import MessagesCodec
from mustcall.wire.sse import SseDecoder

CODEC = MessagesCodec()
STAMP = ReplyStamp(token="abc", created=1)
CALLER = Request(model="asked", messages=())
STATE = OpaqueState(Wire.RESPONSES, {"encrypted_content": "e"}, "openai")
EVENTS: list[Event] = [
    Started("resp_1", "gpt"),
    PartStarted(0, Reasoning()),
    PartReasoningDelta(0, "Thinking", summary=0),
    PartEnded(0, Reasoning(summary=("Thinking",), state=STATE)),
    PartStarted(1, Text(text="")),
    PartTextDelta(1, "Hel"),
    PartTextDelta(1, "lo"),
    PartEnded(1),
    PartStarted(2, ToolCall(id="call_1", name="f", arguments_json="")),
    PartStarted(3, ToolCall(id="call_2", name="g", arguments_json="")),
    ArgumentsDelta(3, "{}"),
    ArgumentsDelta(2, '{"x": '),
    ArgumentsDelta(2, "1}"),
    PartEnded(2),
    PartEnded(3),
    Finished(FinishReason.STOP, "completed"),
    UsageUpdated(Usage(input_tokens=9, output_tokens=4, cached_tokens=3, reasoning_tokens=2)),
    Ended(),
]
REPLY = Reply(
    id="resp_1",
    model="gpt",
    parts=(
        Reasoning(summary=("Thinking",), state=STATE),
        Text(text="Hello"),
        ToolCall(id="call_1", name="f", arguments_json='{"x": 1}'),
        ToolCall(id="call_2", name="g", arguments_json="{}"),
    ),
    finish=FinishReason.TOOL_CALLS,
    usage=Usage(input_tokens=9, output_tokens=4, cached_tokens=3, reasoning_tokens=2),
)


def client(answer: Callable[[httpx2.Request], httpx2.Response]) -> anthropic.Anthropic:
    """An SDK client whose transport is a function."""
    return anthropic.Anthropic(
        api_key="k",
        base_url="http://gateway",
        max_retries=0,
        http_client=httpx2.Client(transport=httpx2.MockTransport(answer)),
    )


def encoded() -> bytes:
    """The events as the caller's bytes."""
    encoder = CODEC.stream_encoder(CALLER, STAMP, AdaptationLog())
    return b"".join(encoder.feed(event) for event in EVENTS)


def check(message: SdkMessage) -> None:
    """Check the meaning on the SDK's side, by hand."""
    thinking, text, first, second = message.content
    assert thinking.type == "thinking"
    assert thinking.thinking == "Thinking"
    assert thinking.signature.startswith("mc1.")
    assert text.type == "text"
    assert text.text == "Hello"
    assert first.type == "tool_use"
    assert (first.id, first.name, first.input) == ("call_1", "f", {"x": 1})
    assert second.type == "tool_use"
    assert (second.id, second.input) == ("call_2", {})
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens, message.usage.output_tokens) == (6, 3, 4)


def test_events_are_valid_by_the_sdks_own_models() -> None:
    """Every event the encoder writes validates against the SDK's event union."""
    adapter: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
    frames = SseDecoder().feed(encoded())
    kinds = [adapter.validate_json(frame.data).type for frame in frames]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 4


def test_reply_is_valid_by_the_sdks_own_model() -> None:
    """The whole reply validates against the SDK's message."""
    check(SdkMessage.model_validate(CODEC.encode_reply(REPLY, CALLER, STAMP, AdaptationLog())))


def test_sdk_reads_the_stream() -> None:
    """wires.md 2: the SDK's stream helper, fed with pings first, ends with the same message."""

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(
            200, headers={"content-type": "text/event-stream"}, content=CODEC.keepalive * 2 + encoded()
        )

    with client(answer).messages.stream(
        model="asked", max_tokens=10, messages=[{"role": "user", "content": "Hi"}]
    ) as stream:
        texts = list(stream.text_stream)
        check(stream.get_final_message())
    assert texts == ["Hel", "lo"]


def test_sdk_reads_the_whole_reply_and_sends_it_back() -> None:
    """The SDK takes a reply, sends it back as history, and the codec reads calls, results and state from it."""
    bodies: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        bodies.append(request.read())
        return httpx2.Response(200, json=CODEC.encode_reply(REPLY, CALLER, STAMP, AdaptationLog()))

    sdk = client(answer)
    first = sdk.messages.create(model="asked", max_tokens=10, messages=[{"role": "user", "content": "Hi"}])
    check(first)
    sdk.messages.create(
        model="asked",
        max_tokens=10,
        messages=[
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "ok"}]},
        ],
    )
    request = CODEC.decode_request(bodies[1])
    assert CODEC.peek(bodies[1]).model == "asked"
    reasoning, _, call, _ = request.messages[1].parts
    assert isinstance(reasoning, Reasoning)
    assert reasoning.state == STATE
    assert isinstance(call, ToolCall)
    assert json.loads(call.arguments_json) == {"x": 1}
    assert request.messages[2].role is Role.TOOL
    assert isinstance(request.messages[2].parts[0], ToolResult)


def test_sdk_knows_the_thread_refusal() -> None:
    """wires.md 1.1: the SDK sees the refusal of threads as its own typed 400 with details."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        with pytest.raises(Exception, match="thread") as caught:
            CODEC.peek(request.read())
        error: Any = caught.value
        return httpx2.Response(400, json=CODEC.encode_error(error.info(), "req_1"))

    with pytest.raises(anthropic.BadRequestError) as caught:
        client(answer).messages.create(
            model="m",
            max_tokens=1,
            messages=[{"role": "user", "content": "Hi"}],
            extra_body={"thread": {"type": "create"}},
        )
    body: Any = caught.value.body
    assert body["error"]["details"]["error_code"] == "thread_unsupported_request"


def test_sdk_sees_mid_stream_errors() -> None:
    """An error after the first byte surfaces in the SDK with its message."""
    encoder = CODEC.stream_encoder(CALLER, STAMP, AdaptationLog())
    failed = Failed(ErrorInfo(message="it broke", status=529, code="c"))
    data = b"".join(encoder.feed(event) for event in (*EVENTS[:6], failed))

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=data)

    with (
        pytest.raises(anthropic.APIStatusError, match="it broke"),
        client(answer).messages.stream(model="m", max_tokens=1, messages=[{"role": "user", "content": "Hi"}]) as stream,
    ):
        stream.until_done()


def test_requests_are_what_the_sdk_would_send() -> None:
    """A canonical request, sent through the SDK's own parameters, arrives at the codec as the same body."""
    request = Request(
        model="m",
        messages=(
            Message(role=Role.USER, parts=(Text(text="Hi"),)),
            Message(role=Role.ASSISTANT, parts=(ToolCall(id="a", name="f", arguments_json='{"x":1}'),)),
            Message(role=Role.TOOL, parts=(ToolResult(call_id="a", content=(Text(text="ok"),)),)),
        ),
        max_tokens=10,
    )
    body = CODEC.encode_request(request, Target(), AdaptationLog())
    bodies: list[Any] = []

    def answer(sent: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(sent.read()))
        return httpx2.Response(200, json=CODEC.encode_reply(REPLY, CALLER, STAMP, AdaptationLog()))

    client(answer).messages.create(**body)
    assert bodies == [body]
