"""Chat replies, whole."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import ErrorInfo, UpstreamGarbage, UpstreamRejected
from mustcall.core.origin import Wire
from mustcall.core.parts import CallKind, OpaqueState, Part, ProviderItem, Reasoning, Refusal, Text, ToolCall
from mustcall.core.reply import FinishReason, Reply, Usage
from mustcall.core.request import Request
from mustcall.core.streams.assembler import Assembler
from mustcall.core.streams.events import Event
from mustcall.wire.chat import ChatCodec
from mustcall.wire.codec import Provenance, ReplyStamp
from mustcall.wire.crossing.sealing import seal
from mustcall.wire.sse import SseEvent

_CODEC = ChatCodec()
_CALLER = Request(model="asked", messages=())
_STAMP = ReplyStamp(token="t", created=9)


def _decode(body: Any) -> Reply:
    return _CODEC.decode_reply(json.dumps(body).encode(), Provenance(issuer="up", token="t"))


def _encode(reply: Reply) -> tuple[dict[str, Any], list[str]]:
    log = AdaptationLog()
    body = _CODEC.encode_reply(reply, _CALLER, _STAMP, log)
    return body, [entry.subject for entry in log.entries]


def _message(*parts: Part, finish: FinishReason = FinishReason.STOP) -> dict[str, Any]:
    body, notes = _encode(Reply(id="r", model="m", parts=parts, finish=finish))
    assert notes == []
    return body["choices"][0]


def test_identity(recorded_reply: dict[str, Any]) -> None:
    """Must show: on the same wire the reply that goes out is JSON-equal to the upstream's."""
    body, notes = _encode(_decode(recorded_reply["body"]))
    assert json.dumps(body, sort_keys=True) == json.dumps(recorded_reply["body"], sort_keys=True)
    assert notes == []


def _stream(recorded: dict[str, Any]) -> list[Any]:
    body = recorded["body"]
    head = {"id": body["id"], "object": "chat.completion.chunk", "created": body["created"], "model": body["model"]}
    chunks = [{**head, "choices": [{"index": 0, "delta": delta}]} for delta in recorded["deltas"]]
    finish = body["choices"][0]["finish_reason"]
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if "usage" in body:
        chunks.append({**head, "choices": [], "usage": body["usage"]})
    return [*chunks, b"[DONE]"]


def test_stream_equals_whole(
    recorded_reply: dict[str, Any],
    sse_of: Callable[..., bytes],
    read_stream: Callable[..., list[Event]],
    assemble: Callable[[list[Event]], Assembler],
    bare: Callable[[Any], Any],
) -> None:
    """Must show: assembling a stream gives the same reply as the non-streamed body, whole and per byte."""
    data = sse_of(*_stream(recorded_reply))
    whole = bare(_decode(recorded_reply["body"]))
    assert bare(assemble(read_stream(data)).reply()) == whole
    assert bare(assemble(read_stream(*[data[i : i + 1] for i in range(len(data))])).reply()) == whole


@pytest.mark.parametrize(
    ("name", "parts", "finish"),
    [
        ("text", (Text(text="Hello"),), "stop"),
        ("one_call", (ToolCall(id="a", name="w", arguments_json='{"c": "Bern"}'),), "tool_calls"),
        (
            "parallel_calls_and_text",
            (
                Text(text="Look:"),
                ToolCall(id="a", name="w", arguments_json="{}"),
                ToolCall(id="b", name="v", arguments_json='{"x": 1}'),
            ),
            "tool_calls",
        ),
        (
            "reasoning_and_call",
            (
                Reasoning(text="think hard", state=OpaqueState(Wire.CHAT, {"field": "reasoning_content"}, "up")),
                ToolCall(id="a", name="w", arguments_json="{}"),
            ),
            "tool_calls",
        ),
        ("refusal", (Refusal(text="I cannot"),), "refusal"),
        ("length", (Text(text="cut o"),), "length"),
        ("custom_call", (ToolCall(id="a", name="p", arguments_json="free text", kind=CallKind.CUSTOM),), "tool_calls"),
        ("call_without_id", (ToolCall(id="call_t_0", name="w", arguments_json='{"x":1}'),), "tool_calls"),
        ("empty", (), "stop"),
        ("odd_labels", (Text(text="x"),), "unknown"),
    ],
)
def test_meaning(
    replies: dict[str, Any], name: str, parts: tuple[Part, ...], finish: str, bare: Callable[[Any], Any]
) -> None:
    """Rule 127: parts as they are, finish by content; missing ids are made, `tool_calls: []` is no call."""
    reply = bare(_decode(replies[name]["body"]))
    assert reply.parts == parts
    assert reply.finish == finish


def test_odd_labels_and_counts_do_not_fail_a_reply(replies: dict[str, Any], bare: Callable[[Any], Any]) -> None:
    """providers.md: an id, time or count of the wrong type is no reason to lose a reply."""
    reply = bare(_decode(replies["odd_labels"]["body"]))
    assert (reply.id, reply.model) == ("", "")
    assert reply.usage == Usage(input_tokens=0, output_tokens=2)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"choices":[]}',
        b'{"choices":{}}',
        b'{"choices":[null]}',
        b'{"choices":[{}]}',
        b'{"choices":[{"message":{"content":5}}]}',
        b'{"choices":[{"message":{"tool_calls":[{"function":{}}]}}]}',
        b'{"choices":[{"message":{"tool_calls":[{"function":{"name":"f","arguments":[1]}}]}}]}',
        b'{"choices":[{"message":{"content":"x"},"finish_reason":5}]}',
    ],
)
def test_garbage(body: bytes) -> None:
    """Must show: an answer that is not the wire's raises `UpstreamGarbage`."""
    with pytest.raises(UpstreamGarbage, match="cannot be read"):
        _CODEC.decode_reply(body, Provenance())


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"error": {"message": "quota", "code": 429}}, 429),
        ({"error": "quota", "choices": []}, 502),
        ({"error": {"message": "quota"}, "choices": None}, 502),
    ],
)
def test_error_in_a_success(body: object, status: int) -> None:
    """An error body with HTTP 200 is the upstream's error, with a status that says so."""
    with pytest.raises(UpstreamRejected, match="quota") as raised:
        _decode(body)
    assert raised.value.info().status == status


def test_full_body() -> None:
    """wires.md 2: id, object, created, model and finish reason are there, usage in chat's words."""
    reply = Reply(
        id="msg_1",
        model="",
        parts=(Text(text="a"), Text(text="b")),
        finish=FinishReason.STOP,
        usage=Usage(input_tokens=10, output_tokens=3, cached_tokens=4, cache_write_tokens=2, reasoning_tokens=1),
    )
    body, notes = _encode(reply)
    assert body == {
        "id": "chatcmpl-t",
        "object": "chat.completion",
        "created": 9,
        "model": "asked",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "ab", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 3,
            "total_tokens": 13,
            "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 1},
        },
    }
    assert notes == []


@pytest.mark.parametrize(
    ("finish", "parts", "word"),
    [
        (FinishReason.STOP, (), "stop"),
        (FinishReason.TOOL_CALLS, (ToolCall(id="a", name="f", arguments_json="{}"),), "tool_calls"),
        (FinishReason.LENGTH, (), "length"),
        (FinishReason.CONTENT_FILTER, (), "content_filter"),
        (FinishReason.REFUSAL, (Refusal(text="no"),), "stop"),
        (FinishReason.REFUSAL, (Text(text="no"),), "content_filter"),
        (FinishReason.PAUSE, (), "stop"),
        (FinishReason.UNKNOWN, (), "stop"),
    ],
)
def test_finish_words(finish: FinishReason, parts: tuple[Part, ...], word: str) -> None:
    """wires.md 2: finish_reason is always one of chat's words."""
    assert _message(*parts, finish=finish)["finish_reason"] == word


def test_refusal() -> None:
    """Build 3: a refusal goes out in its own field."""
    assert _message(Refusal(text="no"))["message"] == {"role": "assistant", "content": None, "refusal": "no"}


def test_calls() -> None:
    """wires.md 1.9 and 2: calls have id, type and index-free form; custom ones their own kind."""
    message = _message(
        ToolCall(id="a", name="f", arguments_json="{}", namespace="ns"),
        ToolCall(id="b", name="p", arguments_json="free", kind=CallKind.CUSTOM),
    )["message"]
    assert message["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "ns__f", "arguments": "{}"}},
        {"id": "b", "type": "custom", "custom": {"name": "p", "input": "free"}},
    ]


def test_thinking_of_another_wire_is_sealed() -> None:
    """Rule 124: state of another wire travels sealed, one entry per thought, and comes back from the client whole."""
    one = OpaqueState(Wire.MESSAGES, {"type": "thinking", "thinking": "a", "signature": "s"}, "claude")
    two = OpaqueState(Wire.MESSAGES, {"type": "redacted_thinking", "data": "d"}, "claude")
    message = _message(Reasoning(text="a", state=one), Reasoning(state=two), Text(text="t"))["message"]
    assert message["reasoning_content"] == "a"
    assert message["reasoning_details"] == [
        {"type": "reasoning.encrypted", "data": seal(one)},
        {"type": "reasoning.encrypted", "data": seal(two)},
    ]
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}, message]}
    request = _CODEC.decode_request(json.dumps(body).encode())
    assert request.messages[1].parts == (Reasoning(text="a", state=one), Reasoning(state=two), Text(text="t"))


@pytest.mark.parametrize(
    ("part", "fields"),
    [
        (Reasoning(summary=("a", "b")), {"reasoning_content": "a\n\nb"}),
        (Reasoning(text="x", state=OpaqueState(Wire.CHAT, {"field": "reasoning"}, "up")), {"reasoning": "x"}),
        (Reasoning(text="x", state=OpaqueState(Wire.CHAT, "odd", "up")), {"reasoning_content": "x"}),
        (Reasoning(), {}),
    ],
)
def test_thinking_shown(part: Reasoning, fields: dict[str, Any]) -> None:
    """Build 3: thinking is shown in the field it came in, summaries as paragraphs; no shape of state raises."""
    message = _message(part, Text(text="t"))["message"]
    assert message == {"role": "assistant", "content": "t", "refusal": None, **fields}


def test_provider_items_are_dropped_with_a_note() -> None:
    """Build 3: what the provider did by itself has no place in a chat reply."""
    item = ProviderItem(wire=Wire.RESPONSES, type="web_search_call", value={})
    _, notes = _encode(Reply(id="r", model="m", parts=(item, Text(text="t")), finish=FinishReason.STOP))
    assert notes == ["web_search_call"]


@pytest.mark.parametrize(
    ("data", "name", "closes"),
    [
        (b"[DONE]", "", True),
        (b" [DONE] ", "", True),
        (b'{"choices":[{"finish_reason":"stop"}]}', "", True),
        (b'{"choices":[{"delta":{},"finish_reason":null}]}', "", False),
        (b'{"choices":[]}', "", False),
        (b'{"choices":null}', "", False),
        (b'{"choices":5}', "", False),
        (b'{"error":{"message":"x"}}', "", True),
        (b'{"message":"x"}', "error", True),
        (b"garbage", "", False),
    ],
)
def test_what_closes_a_stream(data: bytes, name: str, closes: bool) -> None:
    """wires.md 2: `[DONE]`, a finish reason or the upstream's error end a stream; nobody needs `[DONE]`."""
    assert _CODEC.closes(SseEvent(name, data)) is closes


def test_errors() -> None:
    """Build 6: error bodies and the error event of a forwarded stream have the request id."""
    error = ErrorInfo(message="m", status=400, code="invalid_request", param="p")
    body = {
        "error": {
            "message": "m",
            "type": "invalid_request_error",
            "param": "p",
            "code": "invalid_request",
            "request_id": "r",
        }
    }
    assert _CODEC.encode_error(error, "r") == body
    event = _CODEC.encode_stream_error(error, "r")
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert msgspec.json.decode(event[6:]) == body
    assert _CODEC.decode_error(400, json.dumps(body).encode()).message == "m"
