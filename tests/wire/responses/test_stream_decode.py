"""Streams read: the same reply whatever the chunking, the gaps and the lies."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.origin import Wire
from mustcall.core.parts import OpaqueState, Reasoning, Text, ToolCall
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
)
from mustcall.wire.codec import Provenance
from mustcall.wire.responses import ResponsesCodec
from mustcall.wire.sse import SseEvent

Events = list[dict[str, Any]]
Read = Callable[..., list[Event]]
Sse = Callable[[Iterable[dict[str, Any]]], bytes]
StreamOf = Callable[[dict[str, Any]], Events]

REPLIES: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "replies.json").read_text())
FROM_UP = Provenance(issuer="up", token="t")


def check_order(events: list[Event]) -> None:
    """Assert the order that `core.streams.events` promises."""
    assert isinstance(events[-1], Ended | Failed)
    assert sum(isinstance(event, Ended | Failed) for event in events) == 1
    if isinstance(events[-1], Ended):
        assert isinstance(events[0], Started)
        assert sum(isinstance(event, Finished) for event in events) == 1
    begun: set[int] = set()
    ended: set[int] = set()
    finished = False
    for event in events:
        match event:
            case Started():
                assert not begun
            case PartStarted(index=index):
                assert index == len(begun)
                begun.add(index)
            case PartTextDelta(index=index) | PartReasoningDelta(index=index) | ArgumentsDelta(index=index):
                assert index in begun
                assert index not in ended
                assert not finished
            case StateDelta(index=index):
                assert index in begun - ended
            case PartEnded(index=index):
                assert index in begun - ended
                ended.add(index)
            case Finished():
                finished = True
                assert ended == begun
            case _:
                pass


def whole(name: str, strip: Callable[[Any], Any]) -> Reply:
    """Return the recorded reply as the whole body reads."""
    return strip(ResponsesCodec().decode_reply(json.dumps(REPLIES[name]).encode(), FROM_UP))


@pytest.mark.parametrize("name", REPLIES)
def test_stream_equals_whole(
    *, name: str, read: Read, sse: Sse, stream_of: StreamOf, assemble: Any, strip: Callable[[Any], Any]
) -> None:
    """Assembling a stream gives what the whole body gives, parts with their own wire form included."""
    events = read(sse(stream_of(REPLIES[name])))
    check_order(events)
    reply = assemble(events)
    assert strip(reply) == whole(name, strip)
    direct = ResponsesCodec().decode_reply(json.dumps(REPLIES[name]).encode(), FROM_UP)
    assert [part.raw_for(Wire.RESPONSES) for part in reply.parts] == [
        part.raw_for(Wire.RESPONSES) for part in direct.parts
    ]


@pytest.mark.parametrize("name", REPLIES)
def test_every_byte_alone(name: str, read: Read, sse: Sse, stream_of: StreamOf) -> None:
    """Cut at every byte, the events are the same."""
    stream = sse(stream_of(REPLIES[name]))
    assert read(stream, range(1, len(stream))) == read(stream)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_random_cuts(data: st.DataObject, read: Read, sse: Sse, stream_of: StreamOf) -> None:
    """Cut anywhere, the events are the same."""
    stream = sse(stream_of(REPLIES["reasoning and two calls"]))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))
    assert read(stream, cuts) == read(stream)


def without(*kinds: str) -> Callable[[Events], Events]:
    """Return a filter that leaves out events of these types."""
    return lambda events: [event for event in events if not event["type"].endswith(kinds)]


def minimal(events: Events) -> Events:
    """Leave only the terminal event."""
    return events[-1:]


def empty_output(events: Events) -> Events:
    """Say nothing in the final output (`r-emptyoutput`)."""
    return [*events[:-1], {**events[-1], "response": {**events[-1]["response"], "output": []}}]


def no_indexes(events: Events) -> Events:
    """Leave out every index: only ids tell items apart."""
    return [{key: value for key, value in event.items() if key != "output_index"} for event in events]


def random_ids(events: Events) -> Events:
    """Give an item another id in each event, as some proxies do."""
    changed: Events = []
    for number, event in enumerate(events):
        event = dict(event)  # noqa: PLW2901  each event is changed in its own copy
        if "item_id" in event:
            event["item_id"] = f"id_{number}"
        if "item" in event:
            event["item"] = {**event["item"], "id": f"id_{number}"}
        changed.append(event)
    return changed


def doubled(events: Events) -> Events:
    """Repeat every start and end."""
    return [copy for event in events for copy in ([event] * (1 if "delta" in event["type"] else 2))]


def unknown_types(events: Events) -> Events:
    """Put unknown event types in between (`r-keepevent`)."""
    return [copy for event in events for copy in ({"type": "keepalive"}, event, {"type": "response.new", "x": 1})]


LIES: dict[str, Callable[[Events], Events]] = {
    "r-noseq": lambda events: [
        {key: value for key, value in event.items() if key != "sequence_number"} for event in events
    ],
    "r-noadded": without("added"),
    "r-nodelta": without("delta"),
    "r-noargsdone": without("arguments.done", "input.done", "text.done", "part.done"),
    "r-noitemdone": without("output_item.done"),
    "r-onlycompleted": lambda events: [events[0], events[-1]],
    "no indexes": no_indexes,
    "random ids": random_ids,
    "doubled": doubled,
    "r-keepevent": unknown_types,
    "nothing but done items": lambda events: [
        event for event in events if event["type"] == "response.output_item.done" or "response" in event
    ],
    "no contents": without("content_part.added", "content_part.done"),
    "late deltas": lambda events: [*events[:-1], *(event for event in events if "delta" in event), events[-1]],
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("name", REPLIES)
def test_gaps_and_lies(
    *, name: str, lie: str, read: Read, sse: Sse, stream_of: StreamOf, assemble: Any, strip: Callable[[Any], Any]
) -> None:
    """wires.md 2: whatever events a server leaves out or repeats, the reply is the same."""
    events = read(sse(LIES[lie](stream_of(REPLIES[name]))))
    check_order(events)
    reply = strip(assemble(events))
    expected = whole(name, strip)
    if lie == "random ids":  # the ids are the lie
        assert [part.__struct_config__.tag for part in reply.parts] == [
            part.__struct_config__.tag for part in expected.parts
        ]
        assert (reply.finish, len(reply.parts)) == (expected.finish, len(expected.parts))
    else:
        assert reply == expected


@pytest.mark.parametrize("name", REPLIES)
def test_empty_final_output(
    *, name: str, read: Read, sse: Sse, stream_of: StreamOf, assemble: Any, strip: Callable[[Any], Any]
) -> None:
    """wires.md 2, `r-emptyoutput`: what was streamed counts when the final output is empty."""
    events = read(sse(empty_output(stream_of(REPLIES[name]))))
    check_order(events)
    assert strip(assemble(events)) == whole(name, strip)


@pytest.mark.parametrize("name", REPLIES)
def test_missing_created(
    *, name: str, read: Read, sse: Sse, stream_of: StreamOf, assemble: Any, strip: Callable[[Any], Any]
) -> None:
    """wires.md 2, `r-nocreated`: without its announcement only the reply's identity is made up."""
    events = read(sse(without("created", "in_progress")(stream_of(REPLIES[name]))))
    check_order(events)
    assert strip(assemble(events)).parts == whole(name, strip).parts


def test_deltas_flow_at_once(codec: ResponsesCodec) -> None:
    """Text and arguments come out with the event that brings them."""
    decoder = codec.stream_decoder(FROM_UP)

    def feed(**event: Any) -> list[Event]:
        return decoder.feed(SseEvent("", json.dumps(event).encode()))

    assert feed(type="response.created", response={"id": "resp_1", "model": "m", "created_at": 5}) == [
        Started("resp_1", "m")
    ]
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "content": []}
    assert feed(type="response.output_item.added", output_index=0, item=message) == []
    assert (
        len(feed(type="response.content_part.added", output_index=0, content_index=0, part={"type": "output_text"}))
        == 1
    )
    text = feed(type="response.output_text.delta", output_index=0, content_index=0, delta="Hi")
    assert text == [PartTextDelta(0, "Hi")]
    second = feed(type="response.output_text.delta", output_index=0, content_index=1, delta="!")
    assert isinstance(second[0], PartStarted)
    assert second[1:] == [PartTextDelta(1, "!")]
    call = {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "f", "arguments": ""}
    (started,) = feed(type="response.output_item.added", output_index=1, item=call)
    assert isinstance(started, PartStarted)
    assert isinstance(started.part, ToolCall)
    assert feed(type="response.function_call_arguments.delta", output_index=1, delta="{") == [ArgumentsDelta(2, "{")]


def test_reasoning_events(read: Read, sse: Sse, stream_of: StreamOf) -> None:
    """Summaries are numbered, state comes whole before the part ends."""
    events = read(sse(stream_of(REPLIES["reasoning and two calls"])))
    state = OpaqueState(Wire.RESPONSES, "enc", "up")
    assert [event for event in events if isinstance(event, PartReasoningDelta | StateDelta)] == [
        PartReasoningDelta(0, "First.", 0),
        PartReasoningDelta(0, "Second.", 1),
        StateDelta(0, state),
    ]


def test_final_word_wins(read: Read, sse: Sse, assemble: Any, strip: Callable[[Any], Any]) -> None:
    """A done item that goes on where the deltas stopped is completed; one that contradicts them wins."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    place = {"output_index": 0, "content_index": 0}

    def stream(final: str) -> Events:
        content: list[Any] = [{"type": "output_text", "text": final, "annotations": []}]
        return [
            {"type": "response.output_text.delta", **place, "delta": "Hel"},
            {"type": "response.output_item.done", "output_index": 0, "item": {**message, "content": content}},
            {"type": "response.completed", "response": {"status": "completed"}},
        ]

    events = read(sse(stream("Hello")))
    assert [event.text for event in events if isinstance(event, PartTextDelta)] == ["Hel", "lo"]
    assert strip(assemble(events)).parts == (Text(text="Hello"),)
    assert strip(assemble(read(sse(stream("Bye"))))).parts == (Text(text="Bye"),)


def test_calls_sharing_an_index(read: Read, sse: Sse, assemble: Any) -> None:
    """Parallel calls on one index are told apart by their ids."""
    events: Events = []
    for number in (1, 2):
        item = {"id": f"fc_{number}", "type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": ""}
        events.append({"type": "response.output_item.added", "output_index": 0, "item": item})
    for number in (1, 2):
        delta = {"item_id": f"fc_{number}", "output_index": 0, "delta": f'{{"n":{number}}}'}
        events.append({"type": "response.function_call_arguments.delta", **delta})
    events.append({"type": "response.completed", "response": {"status": "completed", "output": []}})
    reply = assemble(read(sse(events)))
    assert [(call.id, call.arguments_json) for call in reply.calls] == [("c1", '{"n":1}'), ("c2", '{"n":2}')]


@pytest.mark.parametrize("final", [True, False], ids=["final output", "no final output"])
@pytest.mark.parametrize("done", [True, False], ids=["done items", "no done items"])
@pytest.mark.parametrize(
    ("ids", "indexes"),
    [(("fc_1", "fc_2"), (0, 1)), (("fc_1", "fc_1"), (0, 1)), ((None, None), (0, 1)), (("fc_1", "fc_2"), (None, None))],
    ids=["index and item id", "index", "index, no item ids", "item id, no indexes"],
)
def test_calls_sharing_a_call_id(
    read: Read,
    sse: Sse,
    assemble: Any,
    ids: tuple[str | None, ...],
    indexes: tuple[int | None, ...],
    *,
    done: bool,
    final: bool,
) -> None:
    """Rule 143: two calls of one call id are two, told apart by index or item id."""
    items: Events = []
    events: Events = []
    for number, (identifier, index) in enumerate(zip(ids, indexes, strict=True)):
        named = {} if identifier is None else {"id": identifier}
        place = {} if index is None else {"output_index": index}
        item = {**named, "type": "function_call", "call_id": "c", "name": "f", "arguments": ""}
        items.append({**item, "arguments": f'{{"n":{number}}}'})
        of = {} if identifier is None else {"item_id": identifier}
        events.append({"type": "response.output_item.added", **place, "item": item})
        delta = {**of, **place, "delta": f'{{"n":{number}}}'}
        events.append({"type": "response.function_call_arguments.delta", **delta})
        if done:
            events.append({"type": "response.output_item.done", **place, "item": items[-1]})
    output = items if final else []
    events.append({"type": "response.completed", "response": {"status": "completed", "output": output}})
    reply = assemble(read(sse(events)))
    assert [(call.id, call.arguments_json) for call in reply.calls] == [("c", '{"n":0}'), ("c", '{"n":1}')]


def test_many_calls_sharing_a_call_id(read: Read, sse: Sse, assemble: Any) -> None:
    """Rule 143: hundreds of calls of one call id arrive in order, whether or not they were streamed before the end."""
    items: Events = [
        {"id": f"fc_{number}", "type": "function_call", "call_id": "c", "name": "f", "arguments": f'{{"n":{number}}}'}
        for number in range(300)
    ]
    events: Events = [
        {"type": "response.output_item.added", "output_index": number, "item": item}
        for number, item in enumerate(items[:200])
    ]
    events.append({"type": "response.completed", "response": {"status": "completed", "output": items}})
    reply = assemble(read(sse(events)))
    assert [call.arguments_json for call in reply.calls] == [item["arguments"] for item in items]


def test_messages_sharing_an_id(read: Read, sse: Sse, assemble: Any) -> None:
    """Messages on their own indexes are told apart although the server gives them all one id."""
    events: Events = []
    for number, text in enumerate(("One", "Two")):
        content = [{"type": "output_text", "text": text, "annotations": list[Any]()}]
        item = {"id": "msg_0", "type": "message", "role": "assistant", "content": content}
        place = {"item_id": "msg_0", "output_index": number, "content_index": 0}
        events += [
            {"type": "response.output_item.added", "output_index": number, "item": {**item, "content": []}},
            {"type": "response.output_text.delta", **place, "delta": text},
            {"type": "response.output_item.done", "output_index": number, "item": item},
        ]
    output = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    events.append({"type": "response.completed", "response": {"status": "completed", "output": output}})
    assert [part.text for part in assemble(read(sse(events))).parts] == ["One", "Two"]


def test_arguments_only_announced(read: Read, sse: Sse, assemble: Any) -> None:
    """A call whose arguments came with its announcement and nowhere else keeps them."""
    item = {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":1}'}
    events: Events = [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"status": "completed", "output": []}},
    ]
    assert [call.arguments_json for call in assemble(read(sse(events))).calls] == ['{"a":1}']


def test_nameless_announcement_waits(read: Read, sse: Sse, assemble: Any) -> None:
    """A call announced without a name begins when its done item brings one."""
    item = {"id": "fc_1", "type": "function_call", "call_id": "c", "name": None, "arguments": ""}
    events: Events = [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "fc_1", "delta": "{}"},
        {"type": "response.output_item.done", "output_index": 0, "item": {**item, "name": "f", "arguments": "{}"}},
        {"type": "response.completed", "response": {"status": "completed"}},
    ]
    decoded = read(sse(events))
    check_order(decoded)
    assert [(call.name, call.arguments_json) for call in assemble(decoded).calls] == [("f", "{}")]


@pytest.mark.parametrize(
    ("event", "code", "status", "message"),
    [
        (
            {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "Slow."}}},
            "rate_limit_exceeded",
            429,
            "Slow.",
        ),
        ({"type": "response.failed", "response": None}, "upstream_rejected", 502, "without saying why"),
        ({"type": "error", "code": "server_error", "message": "Oops", "param": None}, "server_error", 502, "Oops"),
        ({"type": "error", "error": {"type": "overloaded", "message": "Full"}}, "upstream_rejected", 502, "Full"),
        ({"error": {"message": "Bare", "code": 429}}, "upstream_rejected", 429, "Bare"),
        ({"type": "error"}, "upstream_rejected", 502, ""),
        (
            {"type": "response.completed", "response": {"status": "failed", "error": {"message": "Late"}}},
            "upstream_rejected",
            502,
            "Late",
        ),
    ],
)
def test_failures(event: Any, code: str, status: int, message: str, read: Read) -> None:
    """Mid-stream errors in any shape end the stream with the provider's words, and nothing follows."""
    begun = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Hi"}
    stream = b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in (begun, event, begun))
    events = read(stream)
    check_order(events)
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert (failed.error.code, failed.error.status) == (code, status)
    assert message in failed.error.message


@pytest.mark.parametrize("name", REPLIES)
def test_cut_stream(name: str, read: Read, sse: Sse, stream_of: StreamOf) -> None:
    """wires.md 2, `x-cut`: a stream that stops before its terminal event has failed, wherever it was cut."""
    events = stream_of(REPLIES[name])
    for count in range(len(events)):
        decoded = read(sse(events[:count]))
        check_order(decoded)
        failed = decoded[-1]
        assert isinstance(failed, Failed)
        assert (failed.error.code, failed.error.status) == ("upstream_unavailable", 502)


@pytest.mark.parametrize("data", [b"{", b"[]", b"5", b'"x"', b"\xff", b"<html>"])
def test_garbage(data: bytes, read: Read) -> None:
    """What is no event is the upstream's garbage."""
    (failed,) = read(b"data: " + data + b"\n\n")
    assert isinstance(failed, Failed)
    assert failed.error.code == "upstream_garbage"


def test_done_and_comments_are_ignored(read: Read, sse: Sse, stream_of: StreamOf) -> None:
    """wires.md 2, `r-done`, `r-comment`, `r-noevent`: extra lines and missing names change nothing."""
    events = stream_of(REPLIES["text"])
    bare = b"".join(b": keepalive\n\ndata: %b\n\n" % json.dumps(event).encode() for event in events)
    assert read(b"data: [DONE]\n\n" + bare + b"data: [DONE]\n\n") == read(sse(events))


def test_closes(codec: ResponsesCodec) -> None:
    """The events that end a stream, named or not."""
    for kind in ("response.completed", "response.incomplete", "response.failed", "error"):
        assert codec.closes(SseEvent(kind, b"{}"))
        assert codec.closes(SseEvent("", json.dumps({"type": kind}).encode()))
    assert codec.closes(SseEvent("", b'{"error":{"message":"x"}}'))
    for data in (b"[DONE]", b"{", b'{"type":"response.output_text.delta"}', b'{"type":5}'):
        assert not codec.closes(SseEvent("", data))
    assert not codec.closes(SseEvent("response.created", b"{}"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
TYPES = st.sampled_from(
    [
        "response.created",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.refusal.delta",
        "response.content_part.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.custom_tool_call_input.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_part.added",
        "response.reasoning_text.delta",
        "response.output_item.done",
        "response.completed",
    ]
)
SMALL = st.integers(0, 2) | st.none() | st.just("0")
ID = st.sampled_from(["a", "b", None, 7])
PART = st.fixed_dictionaries(
    {"type": st.sampled_from(["output_text", "refusal", "reasoning_text", "odd"])},
    optional={"text": st.text(max_size=3) | st.none(), "refusal": st.text(max_size=3)},
)
ITEM: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "reasoning", "function_call", "custom_tool_call", "web_search_call"])},
    optional={
        "id": ID,
        "call_id": ID,
        "name": st.sampled_from(["f", "", None]),
        "arguments": st.sampled_from(["{}", "", None, 5]) | st.just(dict[str, Any]()),
        "input": st.sampled_from(["x", None]),
        "content": st.lists(PART, max_size=2) | st.none(),
        "summary": st.lists(st.fixed_dictionaries({"text": st.text(max_size=3)}), max_size=2),
        "encrypted_content": st.sampled_from(["e", None]),
    },
)
EVENT = st.fixed_dictionaries(
    {"type": TYPES},
    optional={
        "output_index": SMALL,
        "content_index": SMALL,
        "summary_index": SMALL,
        "item_id": ID,
        "delta": st.text(max_size=3) | st.none(),
        "text": st.text(max_size=3),
        "arguments": st.text(max_size=3),
        "part": PART | JSON,
        "item": ITEM | JSON,
        "response": st.fixed_dictionaries(
            {}, optional={"output": st.lists(ITEM | JSON, max_size=3), "usage": JSON, "id": JSON}
        )
        | JSON,
    },
)


@settings(max_examples=300, deadline=None)
@given(st.lists(EVENT, max_size=10))
def test_any_events_keep_the_order(events: Events) -> None:
    """Whatever a server sends: events in the promised order, and a fold that never breaks on them."""
    decoder = ResponsesCodec().stream_decoder(FROM_UP)
    decoded: list[Event] = []
    for event in events:
        decoded += decoder.feed(SseEvent("", json.dumps(event).encode()))
    decoded += decoder.close()
    check_order(decoded)
    assembler = Assembler()
    for event in decoded:
        assembler.feed(event)
    if isinstance(decoded[-1], Ended):
        assert assembler.reply().finish in FinishReason
        for part in assembler.parts():
            assert not isinstance(part, Reasoning) or part.state is None or part.state.issuer == "up"
