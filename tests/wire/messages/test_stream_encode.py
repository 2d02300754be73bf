"""Streams for a Messages caller: the complete canonical sequence, one block at a time."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import ErrorInfo
from mustcall.core.message import Message, Role
from mustcall.core.origin import Wire
from mustcall.core.parts import (
    CallKind,
    Image,
    OpaqueState,
    ProviderItem,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
)
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
    StateDelta,
    UsageUpdated,
)
from mustcall.core.tools import Tool
from mustcall.wire.codec import ReplyStamp
from mustcall.wire.crossing.sealing import unseal
from mustcall.wire.messages import MessagesCodec
from mustcall.wire.sse import SseDecoder

Json = dict[str, Any]

NEEDS: Json = {"type": "object", "properties": {"x": {}}, "required": ["x"]}
CALLER = Request(
    model="asked",
    messages=(Message(role=Role.USER, parts=(Text(text="Hi"),)),),
    tools=(Tool(name="free"), Tool(name="strict", parameters=NEEDS)),
)
STATE = OpaqueState(Wire.RESPONSES, {"encrypted_content": "e"}, "openai")
TAIL: tuple[Event, ...] = (Finished(FinishReason.STOP, "stop"), Ended())


def encode(*events: Event) -> tuple[list[Json], list[str]]:
    """Encode events; return what the caller reads and what was noted. Event names must match the data's type."""
    log = AdaptationLog()
    encoder = MessagesCodec().stream_encoder(CALLER, ReplyStamp(token="abc", created=1), log)
    frames = SseDecoder().feed(b"".join(encoder.feed(event) for event in events))
    read = [json.loads(frame.data) for frame in frames]
    assert [frame.name for frame in frames] == [value["type"] for value in read]
    return read, [f"{entry.kind} {entry.subject}" for entry in log.entries]


def body(*events: Event) -> list[Json]:
    """Encode between Started and a plain end; return what lies between message_start and message_delta."""
    read, _ = encode(Started("resp_1", "gpt"), *events, *TAIL)
    assert [read[0]["type"], read[-2]["type"], read[-1]["type"]] == ["message_start", "message_delta", "message_stop"]
    return read[1:-2]


def brief(events: Iterable[Json]) -> list[Any]:
    """Shorten block events to (type, index, content)."""
    short: list[Any] = []
    for event in events:
        match event["type"]:
            case "content_block_start":
                short.append(("start", event["index"], event["content_block"]["type"]))
            case "content_block_delta":
                content = [value for key, value in event["delta"].items() if key != "type"]
                short.append((event["delta"]["type"], event["index"], content[0]))
            case "content_block_stop":
                short.append(("stop", event["index"]))
            case kind:
                short.append(kind)
    return short


def test_the_complete_sequence() -> None:
    """wires.md 2: event names, usage twice, block stops, message_delta and message_stop are all there."""
    read, noted = encode(
        Started("chatcmpl-1", "gpt"),
        PartStarted(0, Text(text="")),
        PartTextDelta(0, "Hel"),
        PartTextDelta(0, "lo"),
        PartEnded(0),
        PartStarted(1, ToolCall(id="call_1", name="strict", arguments_json="")),
        ArgumentsDelta(1, '{"x"'),
        ArgumentsDelta(1, ":1}"),
        PartEnded(1),
        Finished(FinishReason.TOOL_CALLS, "tool_calls"),
        UsageUpdated(Usage(input_tokens=9, output_tokens=4, cached_tokens=3)),
        Ended(),
    )
    zero = {"input_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0}
    call: Json = {"type": "tool_use", "id": "call_1", "name": "strict", "input": {}}
    assert read == [
        {
            "type": "message_start",
            "message": {
                "id": "msg_abc",
                "type": "message",
                "role": "assistant",
                "model": "gpt",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": zero,
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": call},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"x"'}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ":1}"}},
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {**zero, "input_tokens": 6, "cache_read_input_tokens": 3, "output_tokens": 4},
        },
        {"type": "message_stop"},
    ]
    assert noted == []


def test_text_is_not_held_back() -> None:
    """Each event's bytes come out at once; the beginning's with the event that shows whether its usage is known."""
    encoder = MessagesCodec().stream_encoder(CALLER, ReplyStamp(token="abc", created=1), AdaptationLog())
    assert encoder.feed(Started("a", "b")) == b""
    assert b"message_start" in encoder.feed(PartStarted(0, Text(text="")))
    assert b"Hel" in encoder.feed(PartTextDelta(0, "Hel"))
    assert b"lo" in encoder.feed(PartTextDelta(0, "lo"))
    assert b"content_block_stop" in encoder.feed(PartEnded(0))


def test_input_is_only_in_deltas() -> None:
    """wires.md 2 (a-fullinput): arguments known at the start still come as input_json_delta."""
    call = ToolCall(id="a", name="strict", arguments_json='{"x":1}')
    events = body(PartStarted(0, call), PartEnded(0))
    assert events[0]["content_block"]["input"] == {}
    assert brief(events) == [("start", 0, "tool_use"), ("input_json_delta", 0, '{"x":1}'), ("stop", 0)]


def test_interleaved_parts_wait_their_turn() -> None:
    """One block is open at a time; the others are held and let go in order of their start."""
    events = body(
        PartStarted(0, ToolCall(id="a", name="free", arguments_json="")),
        PartStarted(1, Text(text="")),
        PartStarted(2, ToolCall(id="b", name="free", arguments_json="")),
        ArgumentsDelta(2, "{}"),
        PartTextDelta(1, "hi"),
        ArgumentsDelta(0, "{"),
        PartEnded(2),
        ArgumentsDelta(0, "}"),
        PartEnded(0),
        PartTextDelta(1, "!"),
        PartEnded(1),
    )
    assert brief(events) == [
        ("start", 0, "tool_use"),
        ("input_json_delta", 0, "{"),
        ("input_json_delta", 0, "}"),
        ("stop", 0),
        ("start", 1, "text"),
        ("text_delta", 1, "hi"),
        ("text_delta", 1, "!"),
        ("stop", 1),
        ("start", 2, "tool_use"),
        ("input_json_delta", 2, "{}"),
        ("stop", 2),
    ]


def test_empty_parts_open_no_block() -> None:
    """An empty text or thinking block sent back is refused by the upstream, so none is made."""
    assert body(PartStarted(0, Text(text="")), PartEnded(0), PartStarted(1, Reasoning()), PartEnded(1)) == []


def test_thinking_with_foreign_state() -> None:
    """The signature slot is there from the start; another wire's state is sealed into it at the end."""
    events = body(
        PartStarted(0, Reasoning()),
        PartReasoningDelta(0, "one", summary=0),
        PartReasoningDelta(0, " more", summary=0),
        PartReasoningDelta(0, "two", summary=1),
        PartEnded(0, Reasoning(summary=("one more", "two"), state=STATE)),
    )
    assert events[0]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert [event["delta"].get("thinking") for event in events[1:4]] == ["one", " more", "\n\ntwo"]
    assert unseal(events[4]["delta"]["signature"]) == STATE
    assert brief(events)[5] == ("stop", 0)


def test_thinking_with_own_state_or_none() -> None:
    """This wire's signature goes natively, redacted data as its own block, no state as an empty slot."""
    signed = OpaqueState(Wire.MESSAGES, {"type": "thinking", "thinking": "a", "signature": "s"}, "up")
    redacted = OpaqueState(Wire.MESSAGES, {"type": "redacted_thinking", "data": "d"}, "up")
    events = body(
        PartStarted(0, Reasoning()),
        PartReasoningDelta(0, "a"),
        StateDelta(0, signed),
        PartEnded(0),
        PartStarted(1, Reasoning(state=redacted)),
        PartEnded(1),
        PartStarted(2, Reasoning(text="b")),
        PartEnded(2),
        PartStarted(3, Reasoning()),
        StateDelta(3, STATE),
        PartEnded(3),
    )
    assert brief(events) == [
        ("start", 0, "thinking"),
        ("thinking_delta", 0, "a"),
        ("signature_delta", 0, "s"),
        ("stop", 0),
        ("start", 1, "redacted_thinking"),
        ("stop", 1),
        ("start", 2, "thinking"),
        ("thinking_delta", 2, "b"),
        ("stop", 2),
        ("start", 3, "thinking"),
        ("signature_delta", 3, events[10]["delta"]["signature"]),
        ("stop", 3),
    ]
    assert events[4]["content_block"]["data"] == "d"


def test_the_final_word_fills_what_was_not_streamed() -> None:
    """A part that only its end tells is sent then; what was streamed is not sent twice."""
    events = body(
        PartStarted(0, Text(text="")),
        PartEnded(0, Text(text="whole")),
        PartStarted(1, Text(text="")),
        PartTextDelta(1, "ab"),
        PartEnded(1, Text(text="abc")),
        PartStarted(2, ToolCall(id="a", name="free", arguments_json="")),
        ArgumentsDelta(2, '{"a"'),
        PartEnded(2, ToolCall(id="a", name="free", arguments_json='{"a":1}')),
        PartStarted(3, Refusal(text="")),
        PartTextDelta(3, "No"),
        PartEnded(3, Refusal(text="No")),
    )
    deltas = [entry[2] for entry in brief(events) if entry[0].endswith("_delta")]
    assert deltas == ["whole", "ab", "c", '{"a"', ":1}", "No"]


@pytest.mark.parametrize("pieces", [[], [""], [" "], ["nu", "ll"]])
def test_no_arguments_where_none_are_required(pieces: list[str]) -> None:
    """Rules 107 and 131: {} is sent for no arguments only where the schema requires none."""
    deltas = [ArgumentsDelta(0, piece) for piece in pieces]
    call = ToolCall(id="a", name="free", arguments_json="")
    read, noted = encode(Started("a", "b"), PartStarted(0, call), *deltas, PartEnded(0), *TAIL)
    assert brief(read[1:4]) == [("start", 0, "tool_use"), ("input_json_delta", 0, "{}"), ("stop", 0)]
    assert noted == ["part_reshaped free"]


@pytest.mark.parametrize(
    ("name", "pieces"),
    [
        ("strict", []),
        ("strict", ["null"]),
        ("free", ["hello"]),
        ("free", ['{"a":']),
        ("free", ["{}", "{}"]),
        ("odd", [""]),
    ],
)
def test_broken_arguments_end_in_an_error(name: str, pieces: list[str]) -> None:
    """Rule 107: a call that is no object ends the stream with an error event; its block is never completed."""
    deltas = [ArgumentsDelta(0, piece) for piece in pieces]
    call = ToolCall(id="a", name=name, arguments_json="")
    read, _ = encode(Started("a", "b"), PartStarted(0, call), *deltas, PartEnded(0), *TAIL)
    assert read[-1]["type"] == "error"
    assert repr(name) in read[-1]["error"]["message"]
    assert read[-1]["error"]["type"] == "api_error"
    assert not [event for event in read if event["type"] in ("content_block_stop", "message_stop")]


def test_arguments_that_cannot_be_an_object_are_never_sent() -> None:
    """What does not begin like an object is held, so nothing wrong is released before the error."""
    call = ToolCall(id="a", name="free", arguments_json="")
    read, _ = encode(Started("a", "b"), PartStarted(0, call), ArgumentsDelta(0, "[1,{}"), PartEnded(0), *TAIL)
    assert [event["type"] for event in read] == ["message_start", "error"]


AT_LIMIT: tuple[Event, ...] = (Finished(FinishReason.LENGTH, "length"), UsageUpdated(Usage()), Ended())


def test_a_call_cut_by_the_limit_is_closed_as_it_stands() -> None:
    """Rule 107: like Anthropic at max_tokens: what was streamed of the call, its end, and the stop reason."""
    call = ToolCall(id="a", name="strict", arguments_json="")
    deltas = [ArgumentsDelta(0, '{"x"'), ArgumentsDelta(0, ':"ab')]
    for final in (None, call.evolve(arguments_json='{"x":"ab')):
        read, _ = encode(Started("a", "b"), PartStarted(0, call), *deltas, PartEnded(0, final), *AT_LIMIT)
        assert brief(read[1:]) == [
            ("start", 0, "tool_use"),
            ("input_json_delta", 0, '{"x"'),
            ("input_json_delta", 0, ':"ab'),
            ("stop", 0),
            "message_delta",
            "message_stop",
        ]
        assert read[-2]["delta"]["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("pieces", [[], ["", " "], ["nul"]])
def test_a_call_cut_before_its_input_is_left_out(pieces: list[str]) -> None:
    """Rule 107: a block without input would be read as `{}`, so none is opened; noted as in a whole reply."""
    call = ToolCall(id="a", name="strict", arguments_json="")
    deltas = [ArgumentsDelta(1, piece) for piece in pieces]
    text = (PartStarted(0, Text(text="Hm")), PartEnded(0))
    read, noted = encode(Started("a", "b"), *text, PartStarted(1, call), *deltas, PartEnded(1), *AT_LIMIT)
    assert brief(read[1:]) == [
        ("start", 0, "text"),
        ("text_delta", 0, "Hm"),
        ("stop", 0),
        "message_delta",
        "message_stop",
    ]
    assert read[-2]["delta"]["stop_reason"] == "max_tokens"
    assert noted == ["part_dropped strict"]


@pytest.mark.parametrize("overlapping", [False, True])
def test_a_broken_call_before_others_was_not_cut(overlapping: bool) -> None:
    """The limit only cuts what comes last: a broken call with a part behind it is an error, whatever the finish."""
    call = ToolCall(id="a", name="free", arguments_json='{"a":')
    after, ended = PartStarted(1, Text(text="x")), PartEnded(0)
    middle = (after, ended) if overlapping else (ended, after)
    read, _ = encode(Started("a", "b"), PartStarted(0, call), *middle, PartEnded(1), *AT_LIMIT)
    assert [event["type"] for event in read[1:]] == ["content_block_start", "content_block_delta", "error"]


def test_many_held_parts_follow_one() -> None:
    """Any number of parts may complete while the first is open; they follow in order."""
    count = 2000
    held: list[Event] = []
    for index in range(1, count + 1):
        held += [PartStarted(index, Text(text="")), PartTextDelta(index, str(index)), PartEnded(index)]
    events = body(PartStarted(0, Text(text="0")), *held, PartEnded(0))
    texts = [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"]
    assert texts == [str(index) for index in range(count + 1)]


def test_withheld_arguments_are_looked_at_once(memory_of: Callable[[Callable[[], object]], int]) -> None:
    """Linear cost: arguments behind a junk prefix are not joined again with each delta."""
    encoder = MessagesCodec().stream_encoder(CALLER, ReplyStamp(token="abc", created=1), AdaptationLog())
    encoder.feed(PartStarted(0, ToolCall(id="a", name="free", arguments_json="junk")))
    delta = ArgumentsDelta(0, "{" * 100)
    for _ in range(2000):
        encoder.feed(delta)
    assert memory_of(lambda: encoder.feed(delta)) < 10_000


def test_custom_calls_are_wrapped() -> None:
    """A custom call's free text becomes the one input string, whole."""
    call = ToolCall(id="a", name="patch", arguments_json="", kind=CallKind.CUSTOM)
    events = body(PartStarted(0, call), ArgumentsDelta(0, '{"not'), ArgumentsDelta(0, " json"), PartEnded(0))
    assert brief(events)[1] == ("input_json_delta", 0, '{"input":"{\\"not json"}')


def test_failures() -> None:
    """Failed becomes `event: error`, before anything was sent and after; nothing follows it."""
    failed = Failed(ErrorInfo(message="m", status=529, code="c", type="overloaded_error"))
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "m"}}
    assert encode(failed, *TAIL)[0] == [error]
    read, _ = encode(
        Started("a", "b"), PartStarted(0, Text(text="")), PartTextDelta(0, "x"), failed, PartEnded(0), *TAIL
    )
    assert read[-1] == error
    assert [event["type"] for event in read[:-1]] == ["message_start", "content_block_start", "content_block_delta"]


@pytest.mark.parametrize(
    ("reason", "reported", "stop", "call", "word"),
    [
        (FinishReason.STOP, "stop", None, False, "end_turn"),
        (FinishReason.STOP, "stop", None, True, "tool_use"),
        (FinishReason.TOOL_CALLS, "tool_calls", None, False, "end_turn"),
        (FinishReason.LENGTH, "length", None, True, "max_tokens"),
        (FinishReason.LENGTH, "model_context_window_exceeded", None, False, "model_context_window_exceeded"),
        (FinishReason.CONTENT_FILTER, "content_filter", None, False, "refusal"),
        (FinishReason.STOP, "stop", "END", False, "stop_sequence"),
        (FinishReason.UNKNOWN, None, None, False, "end_turn"),
    ],
)
def test_stop_reasons(reason: FinishReason, reported: str | None, stop: str | None, call: bool, word: str) -> None:
    """Rules 36 and 127: the stop reason follows from what was streamed."""
    part = ToolCall(id="a", name="free", arguments_json="{}") if call else Text(text="a")
    read, _ = encode(Started("a", "b"), PartStarted(0, part), PartEnded(0), Finished(reason, reported, stop), Ended())
    assert read[-2]["delta"] == {"stop_reason": word, "stop_sequence": stop}


def test_parts_without_a_form() -> None:
    """Another provider's items and media are dropped and noted; this wire's own are sent whole."""
    value: Json = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}
    read, noted = encode(
        Started("a", "b"),
        PartStarted(0, ProviderItem(wire=Wire.RESPONSES, type="web_search_call", value={})),
        PartEnded(0),
        PartStarted(1, Image(url="https://x")),
        PartEnded(1),
        PartStarted(2, ProviderItem(wire=Wire.MESSAGES, type="server_tool_use", value={**value, "input": {}})),
        PartEnded(2, ProviderItem(wire=Wire.MESSAGES, type="server_tool_use", value=value)),
        *TAIL,
    )
    assert brief(read[1:-2]) == [("start", 0, "server_tool_use"), ("input_json_delta", 0, '{"query":"q"}'), ("stop", 0)]
    assert noted == ["part_dropped web_search_call", "part_dropped image"]


def test_ids_are_legal() -> None:
    """Illegal call ids are mapped and noted, missing ones made from the stamp."""
    first = ToolCall(id="functions.f:0", name="free", arguments_json="{}")
    second = ToolCall(id="", name="free", arguments_json="{}")
    read, noted = encode(
        Started("a", "b"), PartStarted(0, first), PartEnded(0), PartStarted(1, second), PartEnded(1), *TAIL
    )
    ids = [event["content_block"]["id"] for event in read if event["type"] == "content_block_start"]
    assert ids[0].startswith("functions_f_0_")
    assert ids[1] == "toolu_abc_1"
    assert noted == ["id_mapped functions.f:0"]


def test_encoded_stream_reads_back_as_the_same_reply(  # noqa: PLR0917  fixtures come by name
    reply_shape: Json,
    codec: MessagesCodec,
    native_events: Callable[..., list[Json]],
    sse: Callable[..., bytes],
    decode_stream: Callable[..., list[Event]],
    assemble: Callable[[Iterable[Event]], Reply],
    bare: Callable[[Any], Any],
) -> None:
    """Decoding a stream, encoding its events and decoding those again gives the same reply."""
    events = decode_stream([sse(native_events(reply_shape))])
    encoder = codec.stream_encoder(CALLER, ReplyStamp(token="abc", created=1), AdaptationLog())
    again = assemble(decode_stream([b"".join(encoder.feed(event) for event in events)]))
    first = assemble(events)
    if first.finish is FinishReason.UNKNOWN:  # a stop reason this version has no word for becomes end_turn
        first = first.evolve(finish=FinishReason.STOP, reported_finish="end_turn")
    assert bare(again) == bare(first)
    assert [part.raw_for(Wire.MESSAGES) for part in again.parts] == reply_shape["content"]
