"""Chat streams for the caller: complete, readable by our decoder and by the official SDK."""

from collections.abc import Callable, Iterable
from typing import Any

import httpx2
import msgspec
import pytest
from openai import APIError, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import ErrorInfo
from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import CallKind, OpaqueState, Part, ProviderItem, Reasoning, Refusal, Text, ToolCall
from mustcall.core.reply import FinishReason, Reply, Usage, derive_finish
from mustcall.core.request import Request
from mustcall.core.streams.assembler import Assembler
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
    StateDelta,
    UsageUpdated,
)
from mustcall.core.streams.unroll import unroll
from mustcall.core.tools import Tool
from mustcall.wire.chat import ChatCodec
from mustcall.wire.codec import Provenance, ReplyStamp
from mustcall.wire.crossing.binding import Binding, StreamBinding
from mustcall.wire.crossing.sealing import seal
from mustcall.wire.sse import SseDecoder

_CODEC = ChatCodec()
_STAMP = ReplyStamp(token="t", created=9)
_CALLER = Request(model="asked", messages=(), stream=True, stream_usage=True)


def _encode(events: Iterable[Event], caller: Request = _CALLER) -> tuple[bytes, list[str]]:
    log = AdaptationLog()
    encoder = _CODEC.stream_encoder(caller, _STAMP, log)
    return b"".join(encoder.feed(event) for event in events), [entry.subject for entry in log.entries]


def _chunks(data: bytes) -> list[dict[str, Any]]:
    events = SseDecoder().feed(data)
    assert events[-1].data == b"[DONE]"
    return [msgspec.json.decode(event.data) for event in events[:-1]]


def _deltas(data: bytes) -> list[dict[str, Any]]:
    return [chunk["choices"][0]["delta"] for chunk in _chunks(data) if chunk["choices"]]


def _reply(*parts: Part, reason: FinishReason = FinishReason.STOP, usage: Usage | None = None) -> Reply:
    return Reply(id="r", model="m", parts=parts, finish=derive_finish(reason, parts), usage=usage)


_CHAT_STATE = OpaqueState(Wire.CHAT, {"field": "reasoning_content"}, "up")
_REPLIES = {
    "text": _reply(Text(text="Hello \u2028 wörld")),
    "call": _reply(ToolCall(id="a", name="f", arguments_json='{"x": 1}')),
    "zero-argument call": _reply(ToolCall(id="a", name="f", arguments_json="")),
    "parallel": _reply(
        Text(text="t"),
        ToolCall(id="a", name="f", arguments_json="{}"),
        ToolCall(id="b", name="f", arguments_json='{"y":2}'),
    ),
    "thinking": _reply(Reasoning(text="hm", state=_CHAT_STATE), Text(text="t"), usage=Usage(input_tokens=4)),
    "refusal": _reply(Refusal(text="no")),
    "length": _reply(Text(text="cu"), reason=FinishReason.LENGTH),
    "filter": _reply(reason=FinishReason.CONTENT_FILTER),
    "empty": _reply(),
}


@pytest.mark.parametrize("name", list(_REPLIES))
def test_read_back(
    name: str,
    read_stream: Callable[..., list[Event]],
    assemble: Callable[[list[Event]], Assembler],
    bare: Callable[[Any], Any],
) -> None:
    """Laws: our decoder reads the encoder's stream as the reply it was, and as the whole reply's encoding."""
    reply = _REPLIES[name]
    data, notes = _encode(unroll(reply))
    read = bare(assemble(read_stream(*[data[i : i + 3] for i in range(0, len(data), 3)])).reply())
    assert (read.parts, read.finish, read.usage) == (reply.parts, reply.finish, reply.usage)
    whole = msgspec.json.encode(_CODEC.encode_reply(reply, _CALLER, _STAMP, AdaptationLog()))
    assert bare(_CODEC.decode_reply(whole, Provenance(issuer="up", token="t"))) == read
    assert notes == []


def _client(data: bytes, content_type: str = "text/event-stream") -> OpenAI:
    transport = httpx2.MockTransport(
        lambda _: httpx2.Response(200, headers={"content-type": content_type}, content=data)
    )
    return OpenAI(
        api_key="k", base_url="http://gateway/v1", http_client=httpx2.Client(transport=transport), max_retries=0
    )


@pytest.mark.parametrize("name", list(_REPLIES))
def test_official_sdk_accumulates_the_stream(name: str) -> None:
    """Must show: the official SDK's own accumulation of our stream gives text, refusal, calls, finish and usage."""
    reply = _REPLIES[name]
    data, _ = _encode(unroll(reply))
    with _client(data) as client, client.chat.completions.create(model="m", messages=[], stream=True) as plain:
        for chunk in plain:
            ChatCompletionChunk.model_validate(chunk.model_dump(), strict=True)
            assert (chunk.id, chunk.created, chunk.model, chunk.object) == (
                "chatcmpl-t",
                9,
                "m",
                "chat.completion.chunk",
            )
    if reply.finish in (FinishReason.LENGTH, FinishReason.CONTENT_FILTER):
        return  # the SDK's helper raises its own error for these, by design
    with _client(data) as client, client.chat.completions.stream(model="m", messages=[]) as stream:
        final = stream.get_final_completion()
    choice = final.choices[0]
    assert (choice.message.content or "") == "".join(part.text for part in reply.parts if isinstance(part, Text))
    assert (choice.message.refusal or "") == "".join(part.text for part in reply.parts if isinstance(part, Refusal))
    calls = [
        (call.id, call.type, call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()
    ]
    assert calls == [(call.id, "function", call.name, call.arguments_json) for call in reply.calls]
    assert choice.finish_reason == ("tool_calls" if reply.calls else "stop")
    assert (final.usage.prompt_tokens if final.usage else None) == (reply.usage.input_tokens if reply.usage else None)


@pytest.mark.parametrize("name", list(_REPLIES))
def test_official_sdk_reads_the_whole_reply(name: str) -> None:
    """Must show: the official SDK reads the non-streamed reply, and its types accept it strictly."""
    reply = _REPLIES[name]
    body = _CODEC.encode_reply(reply, _CALLER, _STAMP, AdaptationLog())
    ChatCompletion.model_validate_json(msgspec.json.encode(body), strict=True)
    with _client(msgspec.json.encode(body), "application/json") as client:
        read = client.chat.completions.create(model="m", messages=[])
    calls = [call.id for call in read.choices[0].message.tool_calls or ()]
    assert calls == [call.id for call in reply.calls]


def test_complete_sequence() -> None:
    """wires.md 2: role first, tool type and index, finish reason, usage, `[DONE]`, each chunk with its four labels."""
    data, _ = _encode(unroll(_reply(ToolCall(id="a", name="f", arguments_json="{}"), usage=Usage(input_tokens=1))))
    chunks = _chunks(data)
    assert all(chunk.keys() >= {"id", "object", "created", "model", "choices"} for chunk in chunks)
    assert _deltas(data) == [
        {"role": "assistant", "content": ""},
        {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None, None, None, "tool_calls"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["prompt_tokens"] == 1
    assert {chunk["model"] for chunk in chunks} == {"m"}


def test_usage_only_if_asked() -> None:
    """Build 3: without `stream_options.include_usage` no usage chunk is sent; a nameless model is the caller's."""
    reply = Reply(id="", model="", parts=(), finish=FinishReason.STOP, usage=Usage(input_tokens=1))
    data, _ = _encode(unroll(reply), Request(model="asked", messages=(), stream=True))
    assert [chunk["choices"] == [] for chunk in _chunks(data)] == [False, False]
    assert {chunk["model"] for chunk in _chunks(data)} == {"asked"}


def test_interleaved_parts() -> None:
    """wires.md 2: parts may interleave; indexes number the calls."""
    data, _ = _encode(
        [
            Started("r", "m"),
            PartStarted(0, Text(text="a")),
            PartStarted(1, ToolCall(id="x", name="f", arguments_json="{")),
            PartStarted(2, ToolCall(id="y", name="p", arguments_json="", kind=CallKind.CUSTOM)),
            ArgumentsDelta(2, "free"),
            PartTextDelta(0, "b"),
            ArgumentsDelta(1, "}"),
            PartEnded(2),
            PartEnded(1),
            PartEnded(0),
            Finished(FinishReason.STOP),
            UsageUpdated(Usage(input_tokens=1)),
            Ended(),
        ]
    )
    assert _deltas(data)[1:-1] == [
        {"content": "a"},
        {"tool_calls": [{"index": 0, "id": "x", "type": "function", "function": {"name": "f", "arguments": "{"}}]},
        {"tool_calls": [{"index": 1, "id": "y", "type": "custom", "custom": {"name": "p", "input": ""}}]},
        {"tool_calls": [{"index": 1, "custom": {"input": "free"}}]},
        {"content": "b"},
        {"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]},
    ]
    assert _chunks(data)[-2]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("started", "deltas", "final", "expected"),
    [
        (Text(text=""), [], Text(text="whole"), [{"content": "whole"}]),
        (Text(text=""), [PartTextDelta(0, "wh")], Text(text="whole"), [{"content": "wh"}, {"content": "ole"}]),
        (Text(text=""), [PartTextDelta(0, "whole")], Text(text="whole"), [{"content": "whole"}]),
        (Refusal(text=""), [], Refusal(text="no"), [{"refusal": "no"}]),
        (Reasoning(), [], Reasoning(summary=("a", "b")), [{"reasoning_content": "a\n\nb"}]),
        (Reasoning(), [PartReasoningDelta(0, "a", 0)], Reasoning(summary=("a",)), [{"reasoning_content": "a"}]),
        (Text(text=""), [PartTextDelta(0, "x")], None, [{"content": "x"}]),
    ],
)
def test_final_word_completes_what_was_sent(
    started: Part, deltas: list[Event], final: Part | None, expected: list[dict[str, Any]]
) -> None:
    """wires.md 2 (r-nodelta): text that an upstream sends only at the end of a part still reaches the client, once."""
    data, _ = _encode(
        [Started("r", "m"), PartStarted(0, started), *deltas, PartEnded(0, final), Finished(FinishReason.STOP), Ended()]
    )
    assert _deltas(data)[1:-1] == expected


def test_final_arguments_and_state() -> None:
    """providers.md: arguments and state that come only with the final event are sent; twice-told state is sent once."""
    state = OpaqueState(Wire.RESPONSES, "enc", "gpt")
    data, _ = _encode(
        [
            Started("r", "m"),
            PartStarted(0, Reasoning()),
            StateDelta(0, state),
            PartEnded(0, Reasoning(state=state)),
            PartStarted(1, Reasoning()),
            PartEnded(1, Reasoning(text="late", state=state)),
            PartStarted(2, ToolCall(id="a", name="f", arguments_json="")),
            ArgumentsDelta(2, "{"),
            PartEnded(2, ToolCall(id="a", name="f", arguments_json="{}")),
            Finished(FinishReason.STOP),
            Ended(),
        ]
    )
    details = {"reasoning_details": [{"type": "reasoning.encrypted", "data": seal(state)}]}
    deltas = _deltas(data)
    assert deltas[1:4] == [details, {"reasoning_content": "late"}, details]
    assert [delta["tool_calls"][0]["function"]["arguments"] for delta in deltas[4:-1]] == ["", "{", "}"]


def test_thoughts_are_paragraphs() -> None:
    """Laws: several thoughts and summaries read the same streamed and whole."""
    reply = _reply(Reasoning(summary=("a", "b")), Reasoning(text="c"), Text(text="t"))
    data, _ = _encode(unroll(reply))
    streamed = "".join(delta.get("reasoning_content", "") for delta in _deltas(data))
    whole = _CODEC.encode_reply(reply, _CALLER, _STAMP, AdaptationLog())
    assert streamed == "a\n\nb\n\nc"
    assert whole["choices"][0]["message"]["reasoning_content"] == streamed


def test_sealed_state_in_a_stream(read_stream: Callable[..., list[Event]]) -> None:
    """Rule 124: a client that collects `reasoning_details` from the stream hands the sealed state back whole."""
    state = OpaqueState(Wire.MESSAGES, {"signature": "s"}, "claude")
    data, _ = _encode(unroll(_reply(Reasoning(text="hm", state=state), Text(text="t"))))
    details = [detail for delta in _deltas(data) for detail in delta.get("reasoning_details", [])]
    message = {"role": "assistant", "content": "t", "reasoning_content": "hm", "reasoning_details": details}
    request = _CODEC.decode_request(msgspec.json.encode({"model": "m", "messages": [message]}))
    assert request.messages[0].parts == (Reasoning(text="hm", state=state), Text(text="t"))
    assert isinstance(read_stream(data)[-1], Ended)


def test_provider_items_are_dropped_with_a_note() -> None:
    """Build 3: a part without a form on chat is left out and reported, its end too."""
    item = ProviderItem(wire=Wire.RESPONSES, type="web_search_call", value={})
    data, notes = _encode(unroll(_reply(item, Text(text="t"))))
    assert notes == ["web_search_call"]
    assert _deltas(data)[1:-1] == [{"content": "t"}]


@pytest.mark.parametrize("before", [[], [Started("r", "m"), PartStarted(0, Text(text="a"))]], ids=["first", "later"])
def test_failure(before: list[Event]) -> None:
    """wires.md 2 (c-error): a failure is an error event that the official SDK raises with its message."""
    data, _ = _encode([*before, Failed(ErrorInfo(message="overloaded", status=503, code="busy"))])
    assert b"[DONE]" not in data
    with (
        _client(data) as client,
        client.chat.completions.create(model="m", messages=[], stream=True) as stream,
        pytest.raises(APIError, match="overloaded"),
    ):
        list(stream)


def test_custom_and_namespace_calls_come_back_in_kind() -> None:
    """wires.md 1.9: through offer, a chat upstream's stream and binding, calls are the caller's own again."""
    caller = Request(
        model="m",
        messages=(),
        tools=(Tool(name="apply_patch", kind=CallKind.CUSTOM), Tool(name="spawn", namespace="agents")),
        origin=Origin(Wire.RESPONSES),
    )
    upstream = _reply(
        ToolCall(id="a", name="apply_patch", arguments_json='{"input":"*** Begin"}'),
        ToolCall(id="b", name="agents__spawn", arguments_json="{}"),
    )
    data, _ = _encode(unroll(upstream))
    decoder, binding, assembler = (
        _CODEC.stream_decoder(Provenance()),
        StreamBinding(Binding(caller, Wire.CHAT)),
        Assembler(),
    )
    for message in SseDecoder().feed(data):
        for event in decoder.feed(message):
            for bound in binding.feed(event):
                assembler.feed(bound)
    whole = _CODEC.decode_reply(
        msgspec.json.encode(_CODEC.encode_reply(upstream, _CALLER, _STAMP, AdaptationLog())), Provenance()
    )
    expected = [
        ("a", "apply_patch", None, CallKind.CUSTOM, "*** Begin"),
        ("b", "spawn", "agents", CallKind.FUNCTION, "{}"),
    ]
    for reply in (assembler.reply(), Binding(caller, Wire.CHAT).restore_reply(whole)):
        assert [
            (call.id, call.name, call.namespace, call.kind, call.arguments_json) for call in reply.calls
        ] == expected
