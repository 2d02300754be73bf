"""Streams of a Messages upstream: honest ones at any chunking, and lying ones."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.errors import UpstreamUnavailable
from mustcall.core.origin import Wire
from mustcall.core.parts import OpaqueState, ProviderItem, Reasoning, Text, ToolCall, Unknown
from mustcall.core.reply import FinishReason, Reply
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
from mustcall.wire.codec import Provenance
from mustcall.wire.messages import MessagesCodec
from mustcall.wire.sse import SseEvent

Json = dict[str, Any]
Decode = Callable[..., list[Event]]
Sse = Callable[..., bytes]
Native = Callable[..., list[Json]]
Assemble = Callable[[Iterable[Event]], Reply]
Bare = Callable[[Any], Any]

START: Json = {
    "type": "message_start",
    "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": {}},
}
STOP: Json = {"type": "message_stop"}
TEXT: Json = {"type": "text", "text": ""}
CALL: Json = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}


def begin(index: Any, block: Json) -> Json:
    """A content_block_start."""
    return {"type": "content_block_start", "index": index, "content_block": block}


def text(index: Any, piece: Any) -> Json:
    """A text delta."""
    return {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": piece}}


def partial(index: Any, piece: Any) -> Json:
    """An input delta."""
    return {"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": piece}}


def end(index: Any) -> Json:
    """A content_block_stop."""
    return {"type": "content_block_stop", "index": index}


def finish(reason: Any = "end_turn", **usage: int) -> Json:
    """A message_delta."""
    return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}


def comparable(reply: Reply, bare: Bare) -> Any:
    """Strip origins, and compare arguments by what they say: a stream keeps the model's own spacing."""
    parts = [
        part.evolve(arguments_json=json.dumps(json.loads(part.arguments_json), sort_keys=True))
        if isinstance(part, ToolCall)
        else part
        for part in reply.parts
    ]
    return bare(reply.evolve(parts=tuple(parts)))


def assert_well_ordered(events: list[Event]) -> None:
    """Check the order that core.events promises."""
    open_parts: set[int] = set()
    seen = started = finished = False
    for number, event in enumerate(events):
        match event:
            case Failed():
                assert number == len(events) - 1
            case Started():
                assert not started
                started = True
            case PartStarted(index=index):
                assert started
                assert not finished
                assert index not in open_parts
                open_parts.add(index)
            case PartTextDelta() | PartReasoningDelta() | ArgumentsDelta() | StateDelta():
                assert event.index in open_parts
            case PartEnded(index=index):
                open_parts.remove(index)
            case UsageUpdated():
                assert started
            case Finished():
                assert not open_parts
                assert not finished
                finished = True
            case Ended():
                assert finished
                assert number == len(events) - 1
        seen = True
    assert seen
    assert isinstance(events[-1], Ended | Failed)


def test_stream_equals_whole_reply(  # noqa: PLR0917  fixtures come by name
    codec: MessagesCodec,
    reply_shape: Json,
    native_events: Native,
    sse: Sse,
    decode_stream: Decode,
    assemble: Assemble,
    bare: Bare,
) -> None:
    """Assembling a stream gives the reply that decoding the whole body gives; arguments agree once parsed."""
    events = decode_stream([sse(native_events(reply_shape))])
    assert_well_ordered(events)
    whole = codec.decode_reply(json.dumps(reply_shape).encode(), Provenance(issuer="up", token="tok"))
    assert comparable(assemble(events), bare) == comparable(whole, bare)


def test_streamed_parts_keep_their_exact_form(
    reply_shape: Json, native_events: Native, sse: Sse, decode_stream: Decode, assemble: Assemble
) -> None:
    """Citations, signatures and unknown fields of a streamed block are all in the part's exact form."""
    reply = assemble(decode_stream([sse(native_events(reply_shape))]))
    assert [part.raw_for(Wire.MESSAGES) for part in reply.parts] == reply_shape["content"]


def test_chunking_does_not_matter(
    reply_shape: Json,
    native_events: Native,
    sse: Sse,
    decode_stream: Decode,
    split: Callable[[bytes, int], list[bytes]],
) -> None:
    """Whole, byte by byte and at random splits the events are the same, with and without event names."""
    data = sse(native_events(reply_shape))
    whole = decode_stream([data])
    assert decode_stream([data[i : i + 1] for i in range(len(data))]) == whole
    for seed in range(5):
        assert decode_stream(split(data, seed)) == whole
    assert decode_stream([sse(native_events(reply_shape), names=False)]) == whole
    assert decode_stream([data.replace(b"\n", b"\r\n")]) == whole


def test_events_of_a_thinking_call(
    reply_shapes: dict[str, Json], native_events: Native, sse: Sse, decode_stream: Decode
) -> None:
    """The exact events of thinking, redacted thinking, text and a call."""
    events = decode_stream([sse(native_events(reply_shapes["thinking_call"], 100))])
    state = OpaqueState(Wire.MESSAGES, reply_shapes["thinking_call"]["content"][0], "up")
    assert [event for event in events if not isinstance(event, UsageUpdated | PartEnded | PartStarted)] == [
        Started("msg_4", "claude-x"),
        PartReasoningDelta(0, "Let me look."),
        StateDelta(0, state),
        PartTextDelta(2, "Looking."),
        ArgumentsDelta(3, '{"city": "A"}'),
        Finished(FinishReason.TOOL_CALLS, "tool_use"),
        Ended(),
    ]


def run(decode: Decode, sse: Sse, *events: Json) -> list[Event]:
    """Decode events and check their order."""
    out = decode([sse(events)])
    assert_well_ordered(out)
    return out


def folded(events: list[Event]) -> list[tuple[str, str]]:
    """Fold events into (kind, content) pairs."""
    assembler = Assembler()
    for event in events:
        assembler.feed(event)
    pairs: list[tuple[str, str]] = []
    for part in assembler.parts():
        match part:
            case Text():
                pairs.append(("text", part.text))
            case ToolCall():
                pairs.append((part.id, part.arguments_json))
            case Reasoning():
                pairs.append(("thinking", part.text))
            case _:
                pairs.append((type(part).__name__, ""))
    return pairs


LIES: dict[str, tuple[list[Json], list[tuple[str, str]]]] = {
    "input whole in the start": (
        [START, begin(0, {**CALL, "input": {"a": 1}}), end(0), finish("tool_use"), STOP],
        [("toolu_1", '{"a":1}')],
    ),
    "input in the start and in deltas": (
        [START, begin(0, {**CALL, "input": {"a": 1}}), partial(0, '{"a": 1}'), end(0), finish("tool_use"), STOP],
        [("toolu_1", '{"a": 1}')],
    ),
    "no input at all": ([START, begin(0, CALL), end(0), finish("tool_use"), STOP], [("toolu_1", "{}")]),
    "null input": ([START, begin(0, {**CALL, "input": None}), end(0), finish("tool_use"), STOP], [("toolu_1", "")]),
    "input delta as an object": (
        [START, begin(0, CALL), partial(0, {"a": 1}), end(0), finish("tool_use"), STOP],
        [("toolu_1", '{"a":1}')],
    ),
    "no block stop": ([START, begin(0, TEXT), text(0, "a"), finish(), STOP], [("text", "a")]),
    "no block start": ([START, text(0, "a"), text(0, "b"), end(0), finish(), STOP], [("text", "ab")]),
    "no message start": ([begin(0, TEXT), text(0, "a"), end(0), finish(), STOP], [("text", "a")]),
    "no message delta": ([START, begin(0, TEXT), text(0, "a"), end(0), STOP], [("text", "a")]),
    "no message stop": ([START, begin(0, TEXT), text(0, "a"), end(0), finish()], [("text", "a")]),
    "everything twice": (
        [START, START, begin(0, TEXT), begin(0, TEXT), text(0, "a"), end(0), end(0), finish(), finish(), STOP, STOP],
        [("text", "a")],
    ),
    "all blocks under one index": (
        [START, begin(0, TEXT), text(0, "a"), begin(0, CALL), partial(0, "{}"), end(0), finish(), STOP],
        [("text", "a"), ("toolu_1", "{}")],
    ),
    "one index reused after its stop": (
        [START, begin(0, TEXT), text(0, "a"), end(0), begin(0, CALL), partial(0, "{}"), end(0), finish(), STOP],
        [("text", "a"), ("toolu_1", "{}")],
    ),
    "interleaved blocks": (
        [
            START,
            begin(0, CALL),
            begin(1, {**CALL, "id": "b"}),
            partial(1, '{"y"'),
            partial(0, '{"x"'),
            partial(1, ":1}"),
            partial(0, ":2}"),
            end(1),
            end(0),
            finish("tool_use"),
            STOP,
        ],
        [("toolu_1", '{"x":2}'), ("b", '{"y":1}')],
    ),
    "input for an index nobody opened": (
        [START, begin(0, CALL), partial(7, "{}"), end(0), finish(), STOP],
        [("toolu_1", "{}")],
    ),
    "input without any call": ([START, partial(0, "{}"), finish(), STOP], []),
    "no index": (
        [START, begin(None, TEXT), text(None, "a"), end(None), begin(None, CALL), partial(None, "{}"), finish(), STOP],
        [("text", "a"), ("toolu_1", "{}")],
    ),
    "late deltas": (
        [START, begin(0, CALL), partial(0, "{}"), end(0), partial(0, "{}"), text(0, "x"), finish(), STOP],
        [("toolu_1", "{}")],
    ),
    "late input while another call is open": (
        [
            START,
            begin(0, CALL),
            partial(0, "{}"),
            end(0),
            begin(1, {**CALL, "id": "b"}),
            partial(0, "{}"),
            partial(1, '{"y":1}'),
            end(1),
            finish("tool_use"),
            STOP,
        ],
        [("toolu_1", "{}"), ("b", '{"y":1}')],
    ),
    "text in a call's block": (
        [START, begin(0, CALL), partial(0, "{}"), text(0, "a"), finish(), STOP],
        [("toolu_1", "{}"), ("text", "a")],
    ),
    "null and odd deltas": (
        [
            START,
            begin(0, TEXT),
            text(0, None),
            text(0, 5),
            {"type": "content_block_delta", "index": 0},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta"}},
            text(0, "a"),
            finish(),
            STOP,
        ],
        [("text", "a")],
    ),
    "odd frame values": (
        [
            {"type": "message_start", "message": None},
            {"type": "message_start", "message": {"id": 5, "usage": 7}},
            begin(0, TEXT),
            text(0, "a"),
            {"type": "message_delta", "delta": None, "usage": None},
            finish(5),
            STOP,
        ],
        [("text", "a")],
    ),
    "unknown events and blocks": (
        [
            {"type": "hello"},
            START,
            {"type": "ping"},
            begin(0, {"type": "novel", "x": 1}),
            end(0),
            begin(1, TEXT),
            text(1, "a"),
            end(1),
            {"type": "telemetry"},
            finish(),
            STOP,
        ],
        [("Unknown", ""), ("text", "a")],
    ),
    "text in the block's start": ([START, begin(0, {**TEXT, "text": "a"}), text(0, "b"), STOP], [("text", "ab")]),
    "broken arguments": (
        [START, begin(0, CALL), partial(0, '{"a": '), end(0), finish("max_tokens"), STOP],
        [("toolu_1", '{"a": ')],
    ),
    "call without an id": (
        [START, begin(0, {"type": "tool_use", "name": "f"}), partial(0, "{}"), end(0), finish(), STOP],
        [("toolu_tok_0", "{}")],
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_lies_are_survived(name: str, sse: Sse, decode_stream: Decode) -> None:
    """A stream with a broken frame around honest content still gives the content, in order."""
    events, expected = LIES[name]
    out = run(decode_stream, sse, *events)
    assert folded(out) == expected
    assert isinstance(out[-1], Ended)


def test_the_frame_of_done_and_comments(sse: Sse, decode_stream: Decode) -> None:
    """wires.md 2 (a-done, a-comment): OpenAI's end mark and comments change nothing."""
    data = sse([START, begin(0, TEXT), text(0, "a"), end(0), finish(), STOP])
    assert decode_stream([b": hi\n\n" + data + b"data: [DONE]\n\n"]) == decode_stream([data])


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"type": "text", "text": "Look. "}, Text(text="Look. ")),
        ({"type": "thinking", "thinking": "Hmm. "}, Reasoning(text="Hmm. ")),
    ],
)
def test_what_a_block_begins_with_is_told(
    block: Json, part: Text | Reasoning, sse: Sse, decode_stream: Decode, assemble: Assemble
) -> None:
    """Rule 127: servers put the first words into the start of a block; they are no less said than those of deltas."""
    events = decode_stream([sse([START, begin(0, block), end(0), finish(), STOP])])
    said = [one.text for one in events if isinstance(one, PartTextDelta | PartReasoningDelta)]
    assert said == [part.text]
    assert [(type(one), getattr(one, "text", "")) for one in assemble(events).parts] == [(type(part), part.text)]


@pytest.mark.parametrize(
    ("block", "deltas", "whole"),
    [
        (
            {"type": "compaction", "content": None},
            [
                {"type": "compaction_delta", "content": "The word "},
                {"type": "compaction_delta", "content": "is ORANGE."},
            ],
            {"type": "compaction", "content": "The word is ORANGE."},
        ),
        (
            {"type": "later", "kept": 1, "items": []},
            [{"type": "later_delta", "items": [1], "kept": None}, {"type": "later_delta", "items": [1, 2]}],
            {"type": "later", "kept": 1, "items": [1, 2]},
        ),
    ],
    ids=["compaction", "values"],
)
def test_deltas_of_a_kind_to_come_make_their_block(  # noqa: PLR0917  fixtures come by name
    block: Json, deltas: list[Json], whole: Json, sse: Sse, decode_stream: Decode, assemble: Assemble
) -> None:
    """A provider's block keeps what its deltas brought, beside the deltas of other blocks and however they are cut."""
    pieces = [{"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas]
    data = sse([START, begin(0, block), *pieces, end(0), begin(1, TEXT), text(1, "Hi"), end(1), finish(), STOP])
    for chunks in ([data], [data[place : place + 1] for place in range(len(data))]):
        compacted, said = assemble(decode_stream(chunks)).parts
        assert isinstance(compacted, ProviderItem | Unknown)
        assert compacted.value == whole
        assert isinstance(said, Text)
        assert said.text == "Hi"


def test_usage_is_merged(sse: Sse, decode_stream: Decode, assemble: Assemble) -> None:
    """Counts of message_delta are totals over those of message_start; null ones leave the old value."""
    usage = {"input_tokens": 5, "cache_read_input_tokens": 3, "output_tokens": 1}
    start = {"type": "message_start", "message": {**START["message"], "usage": usage}}
    delta = {**finish(), "usage": {"output_tokens": 9, "input_tokens": None, "cache_creation_input_tokens": 2}}
    reply = assemble(run(decode_stream, sse, start, begin(0, TEXT), text(0, "a"), delta, STOP))
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cached_tokens) == (10, 9, 3)


def test_error_event(sse: Sse, decode_stream: Decode) -> None:
    """A mid-stream error becomes Failed with the provider's type, message and the status of its class."""
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    out = run(decode_stream, sse, START, begin(0, TEXT), text(0, "a"), error, text(0, "b"), STOP)
    failed = out[-1]
    assert isinstance(failed, Failed)
    assert (failed.error.type, failed.error.message, failed.error.status) == ("overloaded_error", "Overloaded", 529)
    assert failed.raw == error


def test_error_without_a_type(decode_stream: Decode) -> None:
    """An OpenAI-shaped error in the stream is seen too."""
    (failed,) = decode_stream([b'data: {"error":{"message":"no","type":"server_error"}}\n\n'])
    assert isinstance(failed, Failed)
    assert (failed.error.message, failed.error.status) == ("no", 502)


@pytest.mark.parametrize("cut", range(1, 5))
def test_cut_streams_fail(cut: int, sse: Sse, decode_stream: Decode) -> None:
    """Rule 41: a stream without its terminal event is a cut one, retryable by its code."""
    events = [START, begin(0, TEXT), text(0, "a"), end(0), finish(), STOP][:cut]
    out = run(decode_stream, sse, *events)
    failed = out[-1]
    assert isinstance(failed, Failed)
    assert (failed.error.code, failed.error.status) == (UpstreamUnavailable.code, 502)


@pytest.mark.parametrize("data", [b"{", b"[]", b"5", b"\xff", b'{"type":"content_block_start","index":0}', b"[" * 9999])
def test_garbage_fails(data: bytes, sse: Sse, decode_stream: Decode) -> None:
    """Data that is no event fails as garbage, whatever came before."""
    out = decode_stream([sse([START]), b"data: " + data + b"\n\n", sse([STOP])])
    failed = out[-1]
    assert isinstance(failed, Failed)
    assert failed.error.code == "upstream_garbage"


def test_call_without_a_name_is_garbage(sse: Sse, decode_stream: Decode) -> None:
    """A call nobody can route is no call."""
    out = run(decode_stream, sse, START, begin(0, {"type": "tool_use", "id": "a"}), STOP)
    assert isinstance(out[-1], Failed)


def test_nothing_after_the_end(codec: MessagesCodec) -> None:
    """After Ended or Failed nothing more comes out, not from close either."""
    decoder = codec.stream_decoder(Provenance(token="t"))
    assert decoder.feed(SseEvent("", b'{"type":"message_stop"}'))[-1] == Ended()
    assert decoder.feed(SseEvent("", b"garbage")) == []
    assert decoder.close() == []


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", "text", "tool_use", "{}", '{"a":']),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "text", "id"]), inner, max_size=2)
    ),
    max_leaves=4,
)
_kinds = st.sampled_from(
    [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
)
_starts: list[Json] = [TEXT, CALL, {"type": "thinking"}, {"type": "server_tool_use", "input": {}}, {"type": "x"}]
_blocks = st.sampled_from(_starts)
_deltas = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["text_delta", "thinking_delta", "input_json_delta", "signature_delta", "citations_delta"]
        )
    },
    optional={"text": _json, "thinking": _json, "partial_json": _json, "signature": _json, "citation": _json},
)
_hostile = st.fixed_dictionaries(
    {"type": _kinds},
    optional={
        "index": st.integers(0, 2) | _json,
        "content_block": _blocks | _json,
        "delta": _deltas | _json,
        "message": _json,
        "usage": _json,
        "error": _json,
    },
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_hostile, max_size=12))
def test_hostile_events_keep_the_order(events: list[Json]) -> None:
    """Whatever the upstream sends, the decoder keeps its promises and raises nothing."""
    decoder = MessagesCodec().stream_decoder(Provenance(issuer="up", token="tok"))
    out = [event for value in events for event in decoder.feed(SseEvent("", json.dumps(value).encode()))]
    out += decoder.close()
    assert_well_ordered(out)
    assembler = Assembler()
    for event in out:
        assembler.feed(event)
    assert assembler.ended is isinstance(out[-1], Ended)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=40).filter(lambda data: b"message_stop" not in data), max_size=6))
def test_hostile_bytes_fail(chunks: list[bytes]) -> None:
    """Random bytes as event data, the wire's own last event excepted, end in Failed, never in an exception."""
    decoder = MessagesCodec().stream_decoder(Provenance())
    out = [event for chunk in chunks for event in decoder.feed(SseEvent("", chunk))] + decoder.close()
    assert isinstance(out[-1], Failed)


def test_long_streams_are_linear(codec: MessagesCodec) -> None:
    """Twenty thousand deltas give as many events and one joined text."""
    decoder = codec.stream_decoder(Provenance())
    data = json.dumps(text(0, "abc")).encode()
    count = sum(len(decoder.feed(SseEvent("", data))) for _ in range(20_000))
    assert count == 20_002  # one Started and one PartStarted before the deltas


def test_blocks_without_an_index_are_linear(
    codec: MessagesCodec, memory_of: Callable[[Callable[[], object]], int]
) -> None:
    """Linear cost: neither a new block without an index nor a delta without one looks at all blocks so far."""
    decoder = codec.stream_decoder(Provenance())
    starts = [SseEvent("", json.dumps(begin(None, block)).encode()) for block in (TEXT, CALL)]
    for start in starts * 1000:
        decoder.feed(start)
    assert memory_of(lambda: decoder.feed(starts[0])) < 5_000
    for delta in (text(None, "x"), partial(None, "x")):
        event = SseEvent("", json.dumps(delta).encode())
        assert memory_of(lambda event=event: decoder.feed(event)) < 5_000


def test_a_delta_without_an_index_goes_to_the_last_open_block(decode_stream: Decode, sse: Sse) -> None:
    """A closed block gets nothing more: the last one of its kind that is still open does."""
    stop: Json = {"type": "content_block_stop", "index": 7}
    events = decode_stream(
        [sse([START, begin(3, TEXT), begin(7, TEXT), stop, text(None, "x"), begin(None, CALL), STOP])]
    )
    assert [event.index for event in events if isinstance(event, PartTextDelta)] == [0]
    assert [event.index for event in events if isinstance(event, PartStarted)] == [0, 1, 2]
