"""Rules 112, 127: a response that needs a repair is read, and not forwarded; one that needs none means the same."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.origin import Wire
from mustcall.core.parts import Reasoning, Text
from mustcall.core.reply import Reply
from mustcall.core.streams.events import Event, Failed, PartTextDelta, Started, UsageUpdated
from mustcall.testing import Call, Say, Think, Turn
from mustcall.testing.render import Stamp, stream_reply
from mustcall.testing.script import Refuse
from mustcall.wire.codec import Provenance
from mustcall.wire.responses import ResponsesCodec
from mustcall.wire.responses.repairs import REPAIRS, ResponseOrder
from mustcall.wire.responses.shape import fit_content, is_regular, read_event
from mustcall.wire.sse import SseDecoder, SseEvent
from support.bending import places

Events = list[dict[str, Any]]
_FROM = Provenance(issuer="u", token="t")
_REPLIES: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "replies.json").read_text())
_TURNS = [
    Turn(Say("Hello there")),
    Turn(Think("hm"), Say("Look:"), Call("f", {"a": 1}), Call("f", {})),
    Turn(Think("hm", shown="full"), Refuse("no way")),
    Turn(Call("p", "free text"), finish="length"),
]
_TOOLS = [{"type": "function", "name": "f"}, {"type": "custom", "name": "p"}]
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_words = st.sampled_from(["message", "output_text", "response.output_item.done", "completed", "incomplete", "error"])
_KEYS = ["type", "id", "item_id", "output_index", "text", "delta", "arguments", "namespace", "status", "usage", "error"]
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.floats(-2, 3) | _texts | _words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=3),
    max_leaves=6,
)


def _events(turn: Turn) -> Events:
    request = {"model": "m", "stream": True, "tools": _TOOLS}
    frames = stream_reply(turn, Wire.RESPONSES, request, Stamp(1, "s"))
    return [json.loads(frame.rpartition(b"data: ")[2]) for frame in frames]


def _bend(events: Events, data: st.DataObject) -> None:
    """Put another value anywhere, leave a key or an event out, add a key, or send an event somewhere else."""
    at = data.draw(st.integers(0, len(events) - 1))
    found = list(places(events[at]))
    match data.draw(st.sampled_from(["put", "leave out", "add", "drop", "move"])):
        case "put" if found:
            holder, key = data.draw(st.sampled_from(found))
            holder[key] = data.draw(_values)
        case "leave out" if found:
            holder, key = data.draw(st.sampled_from(found))
            del holder[key]
        case "add":
            objects: list[Any] = [events[at], *(holder for holder, _ in found if isinstance(holder, dict))]
            data.draw(st.sampled_from(objects))[data.draw(st.sampled_from(_KEYS))] = data.draw(_values)
        case "drop" if len(events) > 1:
            del events[at]
        case _:
            events.insert(data.draw(st.integers(0, len(events) - 1)), events.pop(at))


def _read(events: Events, name: Callable[[dict[str, Any]], str]) -> list[Event]:
    decoder = ResponsesCodec().stream_decoder(_FROM)
    found = [one for event in events for one in decoder.feed(SseEvent(name(event), json.dumps(event).encode()))]
    return found + decoder.close()


def _own(event: dict[str, Any]) -> str:
    """The name of an event's type."""
    kind = event.get("type")
    return kind if isinstance(kind, str) else "x"


@given(turn=st.sampled_from(_TURNS), data=st.data(), times=st.integers(0, 3))
def test_the_shape_and_the_repairs_agree(turn: Turn, data: st.DataObject, times: int) -> None:
    """Must show: an event that fits its shape means what the repairs read in it, be values bent, left out or added."""
    events = _events(turn)
    for _ in range(times):
        _bend(events, data)
    # Under a name that is not its type no event fits, so all of them are read with the repairs.
    assert _read(events, _own) == _read(events, lambda _: "x") == _read(events, lambda event: _own(event)[:0])


@given(turn=st.sampled_from(_TURNS), data=st.data(), size=st.sampled_from([1 << 20, 300, 7]))
def test_what_was_parsed_to_be_forwarded_is_read(turn: Turn, data: st.DataObject, size: int) -> None:
    """Must show: a decoder that is first asked whether bytes may be forwarded reads the same as one that is not."""
    events = _events(turn)
    if data.draw(st.booleans()):
        _bend(events, data)
    body = b"".join(b"event: %b\ndata: %b\n\n" % (_own(one).encode(), json.dumps(one).encode()) for one in events)
    plain, asked, sse = ResponsesCodec().stream_decoder(_FROM), ResponsesCodec().stream_decoder(_FROM), SseDecoder()
    other, regular = ResponsesCodec().stream_decoder(Provenance()), True
    for at in range(0, len(body), size):
        block = sse.frame(body[at : at + size])
        read = sse.read(block)
        if regular and block:
            regular = other.takes(block, read)
            assert asked.takes(block, read) is regular
        assert asked.feed_all(read) == plain.feed_all(read)
    assert asked.close() == plain.close()


_RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "status": "in_progress",
    "model": "m",
    "output": [],
}
_MESSAGE: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": []}
_CALL: dict[str, Any] = {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "f", "arguments": ""}
_THOUGHT: dict[str, Any] = {"id": "rs_1", "type": "reasoning", "summary": []}
_SAID: dict[str, Any] = {"type": "output_text", "text": "ok", "annotations": []}
_OTHER: dict[str, Any] = {**_SAID, "text": "no"}
_REFUSED: dict[str, Any] = {"type": "refusal", "refusal": "ok"}
_ITEM: dict[str, Any] = {"item_id": "msg_1", "output_index": 0}
_PLACE: dict[str, Any] = {**_ITEM, "content_index": 0}
_CREATED: dict[str, Any] = {"type": "response.created", "response": _RESPONSE}
_ADDED: dict[str, Any] = {"type": "response.output_item.added", "output_index": 0, "item": _MESSAGE}
_CALLED: dict[str, Any] = {"type": "response.output_item.added", "output_index": 0, "item": _CALL}
_PART: dict[str, Any] = {"type": "response.content_part.added", **_PLACE, "part": {"type": "output_text", "text": ""}}
_DELTA: dict[str, Any] = {"type": "response.output_text.delta", **_PLACE, "delta": "ok"}
_TOLD: dict[str, Any] = {"type": "response.output_text.done", **_PLACE, "text": "ok"}
_DONE: dict[str, Any] = {
    "type": "response.output_item.done",
    "output_index": 0,
    "item": {**_MESSAGE, "content": [_SAID]},
}
_ARGUMENTS: dict[str, Any] = {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 0}
_CALL_DONE: dict[str, Any] = {**_DONE, "item": {**_CALL, "arguments": "{}", "status": "completed"}}


def _end(**changes: Any) -> dict[str, Any]:
    response = {**_RESPONSE, "status": "completed", "output": [{**_MESSAGE, "content": [_SAID]}], **changes}
    return {"type": "response.completed", "response": response}


_WHOLE = [_CREATED, _ADDED, _PART, _DELTA, _DONE, _end()]
_CALLS = [_CREATED, _CALLED, {**_ARGUMENTS, "delta": "{}"}, _CALL_DONE, _end(output=[_CALL_DONE["item"]])]
_THOUGHTS = [_CREATED, {**_ADDED, "item": _THOUGHT}, {**_DONE, "item": _THOUGHT}, _end(output=[_THOUGHT])]


def _numbered(events: Events) -> Events:
    return [{"sequence_number": number, **event} for number, event in enumerate(events)]


def _named(events: Events) -> list[str]:
    """The repairs that events need."""
    order = ResponseOrder()
    wrapped = [SseEvent(event["type"], json.dumps(event).encode()) for event in _numbered(events)]
    return [order.repair(event, read_event(event)) for event in wrapped]


def test_a_healthy_stream_needs_no_repair() -> None:
    """Rule 112: the stream that the examples bend is regular."""
    assert _named(_WHOLE) == [""] * len(_WHOLE)
    assert _named(_CALLS) == [""] * len(_CALLS)
    assert _named(_THOUGHTS) == [""] * len(_THOUGHTS)


_ORDER: dict[str, list[Events]] = {
    "after end": [[*_WHOLE, _DELTA]],
    "not created": [[_ADDED]],
    "number": [[_CREATED, {**_ADDED, "sequence_number": 0}], [_CREATED, {**_ADDED, "sequence_number": None}]],
    "announced": [
        [_CREATED, _CREATED],
        [{**_CREATED, "response": {**_RESPONSE, "created_at": None}}],
        [{**_CREATED, "response": {**_RESPONSE, "model": None}}],
        [_CREATED, {"type": "response.in_progress", "response": {**_RESPONSE, "output": [_MESSAGE]}}],
        [_CREATED, {"type": "response.in_progress", "response": {**_RESPONSE, "id": "other"}}],
    ],
    "item": [
        [_CREATED, {**_ADDED, "item": {**_MESSAGE, "id": ""}}],
        [_CREATED, {**_CALLED, "item": {**_CALL, "id": None}}],
        [_CREATED, _ADDED, {**_ADDED, "output_index": 1}],
        [_CREATED, _ADDED, _PART, _DELTA, {**_DONE, "item": {**_MESSAGE, "content": [{**_SAID, "text": 5}]}}],
        [*_WHOLE[:-1], _end(output=[{**_MESSAGE, "content": 5}])],
    ],
    "early": [
        [_CREATED, {**_ADDED, "item": {**_MESSAGE, "content": [_SAID]}}],
        [_CREATED, {**_CALLED, "item": {**_CALL, "arguments": "{}"}}],
        [_CREATED, {**_ADDED, "item": {**_THOUGHT, "summary": [{"type": "summary_text", "text": "hm"}]}}],
        [_CREATED, _ADDED, {**_PART, "part": _SAID}],
    ],
    "place": [
        [_CREATED, {**_ADDED, "output_index": 1}],
        [_CREATED, _DONE],
        [_CREATED, _ADDED, _DELTA],
        [_CREATED, _ADDED, {**_PART, "content_index": 1}],
        [_CREATED, _ADDED, {**_PART, "item_id": "msg_2"}],
        [_CREATED, _ADDED, _PART, {**_DELTA, "type": "response.refusal.delta"}],
        [_CREATED, _CALLED, _DELTA],
        [*_WHOLE[:-1], _DELTA],
        [_CREATED, _ADDED, _PART, _DELTA, {**_PART, "type": "response.content_part.done", "part": _SAID}, _DELTA],
        [_CREATED, _ADDED, {"type": "response.content_part.done", **_PLACE, "part": _SAID}],
        [_CREATED, {**_ADDED, "item": _THOUGHT}, {**_PART, "item_id": "rs_1"}],
        [_CREATED, {**_ADDED, "item": _THOUGHT}, {**_PART, "item_id": "rs_1", "part": _SAID}],
        [_CREATED, _ADDED, {**_PART, "part": {"type": "x"}}, _DELTA],
        [
            _CREATED,
            _ADDED,
            {"type": "response.reasoning_summary_part.added", **_ITEM, "summary_index": 0, "part": _SAID},
        ],
    ],
    "changed": [
        [_CREATED, _ADDED, _PART, _DELTA, {**_DONE, "item": {**_DONE["item"], "id": "msg_2"}}],
        [_CREATED, _ADDED, _PART, _DELTA, {**_DONE, "item": _MESSAGE}],
        [_CREATED, _ADDED, _PART, _DELTA, _TOLD, {**_DONE, "item": {**_MESSAGE, "content": [_OTHER]}}],
        [_CREATED, _ADDED, _PART, _DELTA, _TOLD, {**_PART, "type": "response.content_part.done", "part": _OTHER}],
        [_CREATED, _ADDED, _PART, _DELTA, _TOLD, {**_TOLD, "text": "no"}],
        [_CREATED, _ADDED, _PART, _DELTA, {**_PART, "type": "response.content_part.done", "part": _REFUSED}],
        [_CREATED, _CALLED, {**_ARGUMENTS, "delta": "{"}, _CALL_DONE],
        [
            _CREATED,
            _CALLED,
            {**_ARGUMENTS, "delta": "{"},
            {**_ARGUMENTS, "type": "response.function_call_arguments.done", "arguments": "{}"},
        ],
        [*_WHOLE[:-1], _DONE],
    ],
    "no deltas": [
        [_CREATED, _ADDED, _PART, _DONE],
        [_CREATED, _ADDED, _PART, {"type": "response.output_text.done", **_PLACE, "text": "ok"}],
        [
            _CREATED,
            {**_ADDED, "item": _THOUGHT},
            {**_DONE, "item": {**_THOUGHT, "summary": [{"type": "summary_text", "text": "hm"}]}},
        ],
    ],
    "no status": [[_CREATED, _CALLED, {**_ARGUMENTS, "delta": "{}"}, {**_DONE, "item": {**_CALL, "arguments": "{}"}}]],
    "end": [
        [*_WHOLE[:-1], _end(output=[])],
        [*_WHOLE[:-1], _end(id="other")],
        [*_WHOLE[:-1], _end(status="incomplete", incomplete_details={"reason": "max_output_tokens"})],
        [*_WHOLE[:-1], _end(incomplete_details={"reason": "max_output_tokens"})],
        [*_WHOLE[:-1], _end(output=[{**_MESSAGE, "id": "msg_2"}])],
        [*_WHOLE[:-1], _end(output=[_MESSAGE])],
        [*_WHOLE[:-1], _end(output=[{**_MESSAGE, "content": [_OTHER]}])],
        [*_WHOLE[:-1], _end(output=[{**_MESSAGE, "content": [_SAID, _SAID]}])],
        [*_CALLS[:-1], _end(output=[{**_CALL_DONE["item"], "namespace": "other"}])],
        [*_CALLS[:-1], _end(output=[{**_CALL_DONE["item"], "arguments": "{ }"}])],
        [*_THOUGHTS[:-1], _end(output=[{**_THOUGHT, "encrypted_content": "sealed"}])],
        [*_THOUGHTS[:-1], _end(output=[{**_THOUGHT, "summary": [{"type": "summary_text", "text": "hm"}]}])],
        [*_THOUGHTS[:-1], _end(output=[{**_THOUGHT, "content": [{"type": "reasoning_text", "text": "hm"}]}])],
        [_CREATED, _ADDED, _PART, _DELTA, _end()],
        [
            _CREATED,
            {
                "type": "response.failed",
                "response": {"id": "other", "status": "failed", "error": {"code": "a", "message": "b"}},
            },
        ],
    ],
    "misfit": [
        [_CREATED, _ADDED, _PART, {**_DELTA, "delta": 5}],
        [_CREATED, _ADDED, _PART, {**_DELTA, "content_index": None}],
        [_CREATED, {"type": "error", "message": "no code"}],
        [_CREATED, _ADDED, _PART, {**_DELTA, "error": "no"}],
        [_CREATED, {"type": "response.later", "error": {"message": "no"}}],
        [*_WHOLE[:-1], {**_end(), "error": "no"}],
    ],
    "usage": [[*_WHOLE[:-1], _end(usage={"input_tokens": "many"})]],
}


@pytest.mark.parametrize(("name", "number"), [(name, at) for name, cases in _ORDER.items() for at in range(len(cases))])
def test_what_is_out_of_order_is_named(name: str, number: int) -> None:
    """Rule 127: the first event that must not be forwarded is named by its row."""
    events = _ORDER[name][number]
    assert _named(events) == [""] * (len(events) - 1) + [name]


def _said(reply: Reply) -> Any:
    calls = [(call.id, call.name, call.arguments_json) for call in reply.calls]
    thoughts = [part.text or part.summary for part in reply.parts if isinstance(part, Reasoning)]
    texts = [part.text for part in reply.parts if isinstance(part, Text)]
    return reply.id, *texts, thoughts, calls, reply.reported_finish, reply.usage is not None


def _call_events(**item: Any) -> Events:
    done: dict[str, Any] = {**_CALL, "arguments": "{}", "status": "completed", **item}
    return [_CREATED, {**_DONE, "item": done}, _end(output=[done])]


def _without(key: str) -> Events:
    return [{name: value for name, value in event.items() if name != key} for event in _WHOLE]


_OK: tuple[Any, ...] = ("resp_1", "ok", [], [], "completed", False)
_SHAPE: dict[str, tuple[Events, Any]] = {
    "no type": (_without("type"), _OK),
    "no index": (
        [{name: one for name, one in event.items() if name != "item_id"} for event in _without("output_index")],
        _OK,
    ),
    "arguments": (_call_events(arguments={}), ("resp_1", [], [("c", "f", "{}")], "completed", False)),
    "no call id": (_call_events(call_id=None), ("resp_1", [], [("fc_1", "f", "{}")], "completed", False)),
    "usage": ([*_WHOLE[:-1], _end(usage=5)], _OK),
    "status": ([*_WHOLE[:-1], {"type": "response.completed", "response": {"id": "resp_1"}}], (*_OK[:-2], None, False)),
}


@pytest.mark.parametrize("name", _SHAPE)
def test_what_does_not_fit_is_read(name: str, assemble: Callable[[list[Event]], Reply]) -> None:
    """Rule 127: what is not the wire's is read, and not forwarded."""
    events, expected = _SHAPE[name]
    kinds = [event["type"] for event in (_WHOLE if name == "no type" else events)]
    decoder, order = ResponsesCodec().stream_decoder(_FROM), ResponseOrder()
    found: list[Event] = []
    repairs: list[str] = []
    for kind, event in zip(kinds, _numbered(events), strict=True):
        wrapped = SseEvent(kind, json.dumps(event).encode())
        repairs.append(order.repair(wrapped, read_event(wrapped)))
        found += decoder.feed(wrapped)
    assert any(repairs)
    assert _said(assemble(found)) == expected


@pytest.mark.parametrize("name", ["arguments", "no call id", "usage", "status"])
def test_a_whole_reply_that_does_not_fit_is_read(name: str) -> None:
    """Rule 127: whole replies are repaired as streams are."""
    events, expected = _SHAPE[name]
    whole = {**copy.deepcopy(_end()["response"]), **events[-1]["response"]}
    if name == "status":
        del whole["status"]
    body = json.dumps(whole).encode()
    assert not is_regular(body)
    assert _said(ResponsesCodec().decode_reply(body, _FROM)) == expected


def test_a_number_that_is_too_large_spoils_nothing() -> None:
    """Rule 114: a number that is too large, in a field that nobody reads, spoils neither start nor usage."""
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    decoder = ResponsesCodec().stream_decoder(_FROM)
    found: list[Event] = []
    for event in (_CREATED, _end(output=[], usage=usage)):
        data = json.dumps(event).encode().replace(b'"object"', b'"temperature": 1e999, "object"')
        found += decoder.feed(SseEvent(event["type"], data))
    assert found[0] == Started("resp_1", "m")
    (told,) = [event.usage for event in found if isinstance(event, UsageUpdated)]
    assert (told.input_tokens, told.output_tokens) == (3, 4)


def test_bytes_that_are_no_text_are_not_forwarded() -> None:
    """Rule 127: a field that nobody reads is looked at, too: a client decodes all of an event."""
    event = SseEvent("response.created", json.dumps(_CREATED).encode().replace(b'"object"', b'"x": "\xff", "object"'))
    assert read_event(event) is None
    assert isinstance(ResponsesCodec().stream_decoder(_FROM).feed(event)[-1], Failed)


@pytest.mark.parametrize(
    ("content", "fits"),
    [
        ({"type": "output_text", "text": "x"}, True),
        ({"type": "output_text", "refusal": "x"}, False),
        ({"type": "refusal", "refusal": "x"}, True),
        ({"type": "refusal", "text": "x"}, False),
        ({"type": "later"}, True),
    ],
)
def test_a_content_has_what_its_type_says(content: dict[str, str], fits: bool) -> None:
    """Rule 127: a refusal without its words is none, whatever else it holds; unknown types are left alone."""
    assert (fit_content(content) is not None) is fits


def test_an_item_between_deltas_takes_its_text() -> None:
    """Rule 127: where an item is announced between deltas, those that follow are for the item they name."""
    decoder = ResponsesCodec().stream_decoder(_FROM)

    def feed(event: dict[str, Any]) -> list[Event]:
        return decoder.feed(SseEvent(event["type"], json.dumps(event).encode()))

    other = {**_ADDED, "item": {**_MESSAGE, "id": "msg_2"}, "output_index": 1}
    assert feed(_DELTA)[-1] == PartTextDelta(0, "ok")
    assert feed(other) == []
    assert feed({**_DELTA, "item_id": "msg_2", "output_index": 1})[-1] == PartTextDelta(1, "ok")
    assert feed(_DELTA) == [PartTextDelta(0, "ok")]


def test_an_item_without_a_type_is_not_read_as_another() -> None:
    """Rule 127: an item that is done and has no type cannot be read, also where one of its id was announced."""
    decoder = ResponsesCodec().stream_decoder(_FROM)
    added: dict[str, Any] = {**_ADDED, "item": {"id": "ws_1", "type": "web_search_call"}}
    done: dict[str, Any] = {**_DONE, "item": {"id": "ws_1"}}
    found = [decoder.feed(SseEvent(one["type"], json.dumps(one).encode())) for one in (_CREATED, added, done)]
    assert isinstance(found[-1][-1], Failed)


@pytest.mark.parametrize("name", _REPLIES)
def test_recorded_replies_are_regular(name: str) -> None:
    """Rule 112: what was recorded needs no repair."""
    assert is_regular(json.dumps(_REPLIES[name]).encode())


def test_every_row_has_an_example() -> None:
    """Must show: no row of the table is without a test."""
    assert {*_ORDER, *_SHAPE} == set(REPAIRS)
