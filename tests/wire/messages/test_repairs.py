"""Rules 112, 127: a Messages reply that needs a repair is read, and not forwarded; one without means the same."""

import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.origin import Wire
from mustcall.core.parts import Reasoning, Text, ToolCall
from mustcall.core.reply import Reply
from mustcall.core.streams.assembler import Assembler
from mustcall.core.streams.events import Event, Failed, PartEnded, UsageUpdated
from mustcall.testing import Call, Say, Think, Turn
from mustcall.testing.render import Stamp, stream_reply
from mustcall.wire.codec import Provenance
from mustcall.wire.messages import MessagesCodec
from mustcall.wire.messages.repairs import REPAIRS, MessageOrder
from mustcall.wire.messages.shape import is_regular, read_event
from mustcall.wire.sse import SseDecoder, SseEvent
from support.bending import places

Json = dict[str, Any]

_FROM = Provenance(issuer="u", token="t")
_TURNS = [
    Turn(Say("Hello there")),
    Turn(Think("hm"), Say("Look:"), Call("f", {"a": 1}), Call("f", {})),
    Turn(Think("hm, let me see", shown="full"), Say("ok")),
]
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.floats(-2, 3)
    | _texts
    | st.sampled_from(["text", "thinking", "tool_use", "text_delta", "input_json_delta", "content_block_stop"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "index", "id", "name", "input"]), inner, max_size=3)
    ),
    max_leaves=6,
)
_KEYS = ["type", "index", "text", "thinking", "partial_json", "signature", "citation", "citations", "error", "usage"]


def _stream(turn: Turn) -> list[tuple[str, Any]]:
    request = {"model": "m", "stream": True, "tools": [{"name": "f"}]}
    found: list[tuple[str, Any]] = []
    for frame in stream_reply(turn, Wire.MESSAGES, request, Stamp(1, "s")):
        head, _, data = frame.rpartition(b"data: ")
        found.append((head.removeprefix(b"event: ").strip().decode(), json.loads(data)))
    return found


def _bend(values: list[Any], data: st.DataObject) -> None:
    """Put another value anywhere, leave a key out, or add one."""
    found = [place for value in values for place in places(value)]
    if not found:
        return
    holder, key = data.draw(st.sampled_from(found))
    match data.draw(st.sampled_from(["put", "leave out", "add"])):
        case "put":
            holder[key] = data.draw(_values)
        case "leave out":
            del holder[key]
        case _:
            objects: list[Any] = [one for one, _ in found if isinstance(one, dict)]
            data.draw(st.sampled_from(objects))[data.draw(st.sampled_from(_KEYS))] = data.draw(_values)


def _dump(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def _read(events: list[tuple[str, Any]]) -> list[Event]:
    decoder = MessagesCodec().stream_decoder(_FROM)
    found = [event for name, value in events for event in decoder.feed(SseEvent(name, _dump(value)))]
    return found + decoder.close()


def _reply(events: list[tuple[str, Any]]) -> Reply:
    assembler = Assembler()
    for event in _read(events):
        assembler.feed(event)
    return assembler.reply()


def _spoilt(value: Any) -> Any:
    """The same event with a value that does not fit where nobody looks, so that the repairs read it."""
    places = {
        "content_block_delta": ("delta", "citation"),
        "message_delta": ("delta", "stop_sequence"),
        "message_start": ("message", "stop_reason"),
    }
    found: Any = dict(cast("Json", value)) if isinstance(value, dict) else {}
    key, unread = places.get(str(found.get("type")), ("", ""))
    if isinstance(found.get(key), dict):
        inner = found[key] = dict(found[key])
        unread = "signature" if inner.get("type") == "citations_delta" else unread
        if not isinstance(inner.get(unread), (str, dict)):
            inner[unread] = 5
    return found if isinstance(value, dict) else value


@given(turn=st.sampled_from(_TURNS), data=st.data(), times=st.integers(0, 3))
def test_the_shape_and_the_repairs_agree(turn: Turn, data: st.DataObject, times: int) -> None:
    """Must show: an event that fits its shape means what the repairs read in it, be values bent, left out or added."""
    events = _stream(turn)
    for _ in range(times):
        _bend([value for _, value in events], data)
    assert _read([(name, _spoilt(value)) for name, value in events]) == _read(events)


def test_an_event_is_spoilt() -> None:
    """Must show: the test above reads events with the repairs."""
    kinds = {name for name, value in _stream(_TURNS[1]) if read_event(_dump(_spoilt(value))) is None}
    assert kinds == {"message_start", "content_block_delta", "message_delta"}


@given(turn=st.sampled_from(_TURNS), data=st.data())
def test_what_was_parsed_to_be_forwarded_is_read(turn: Turn, data: st.DataObject) -> None:
    """Must show: a decoder that is first asked whether bytes may be forwarded reads the same as one that is not."""
    events = _stream(turn)
    if data.draw(st.booleans()):
        _bend([value for _, value in events], data)
    block = b"".join(b"event: %b\ndata: %b\n\n" % (name.encode(), _dump(value)) for name, value in events)
    plain, asked = MessagesCodec().stream_decoder(_FROM), MessagesCodec().stream_decoder(_FROM)
    read = SseDecoder().read(block)
    assert asked.takes(block, read) is MessagesCodec().stream_decoder(Provenance()).takes(block, read)
    assert asked.feed_all(read) == plain.feed_all(read)


def _event(value: Json) -> tuple[str, Any]:
    return value["type"], value


def _begin(block: Json, index: Any = 0) -> tuple[str, Any]:
    return _event({"type": "content_block_start", "index": index, "content_block": block})


def _delta(kind: str, index: Any = 0, **piece: Any) -> tuple[str, Any]:
    return _event({"type": "content_block_delta", "index": index, "delta": {"type": kind, **piece}})


def _end(index: Any = 0) -> tuple[str, Any]:
    return _event({"type": "content_block_stop", "index": index})


def _start(**message: Any) -> tuple[str, Any]:
    head: Json = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    return _event({"type": "message_start", "message": {**head, "usage": _COUNTS, **message}})


def _reason(reason: Any = "end_turn", **fields: Any) -> tuple[str, Any]:
    return _event({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": _COUNTS, **fields})


_COUNTS: Json = {"input_tokens": 3, "output_tokens": 4}
_TEXT: Json = {"type": "text", "text": ""}
_CALL: Json = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
_THOUGHT: Json = {"type": "thinking", "thinking": "", "signature": ""}
_OK = _delta("text_delta", text="ok")
_STOP = _event({"type": "message_stop"})
_BROKEN = b'{"type":"content_block_stop","index":0,"x":"\xff"}'


def _named(*events: tuple[str, Any]) -> list[str]:
    """The repairs that events need, up to the first."""
    order = MessageOrder()
    data = [SseEvent(name, _dump(value)) for name, value in events]
    return [order.repair(event, read_event(event.data)) for event in data]


_ORDER: dict[str, list[tuple[str, Any]]] = {
    "name": [_start(), _begin(_TEXT), ("", _OK[1])],
    "after end": [_start(), _reason(), _STOP, ("", b"[DONE]")],
    "no start": [("ping", {"type": "ping"}), _begin(_TEXT)],
    "second start": [_start(), _start()],
    "block order": [_start(), _begin(_TEXT), _end(), _OK],
    "beginning": [_start(), _begin({**_CALL, "input": {"a": 1}})],
    "same id": [_start(), _begin(_CALL), _end(), _begin(_CALL, 1)],
    "delta": [_start(), _begin(_TEXT), _delta("thinking_delta", thinking="hm")],
    "unstopped": [_start(), _begin(_TEXT), _OK, _reason()],
    "no reason": [_start(), _begin(_TEXT), _OK, _end(), _STOP],
    "start usage": [_start(usage={})],
    "end usage": [_start(), _reason(usage={"input_tokens": 3})],
    "misfit": [_start(), _begin(_TEXT), _delta("text_delta", text=5)],
}


@pytest.mark.parametrize("name", _ORDER)
def test_what_is_out_of_order_is_named(name: str) -> None:
    """Rule 127: the first event that must not be forwarded is named by its row."""
    assert _named(*_ORDER[name]) == [""] * (len(_ORDER[name]) - 1) + [name]


@pytest.mark.parametrize("event", [{"type": "ping"}, {}, {"type": "later"}])
def test_a_ping_is_skipped_by_its_name(event: Json) -> None:
    """Rule 112: a ping passes at any place, with or without its type."""
    assert _named(("ping", event), _start(), ("ping", event)) == [""] * 3


@pytest.mark.parametrize("event", [_OK[1], {"error": {"message": "e"}}, {"type": "error"}, 5, b"{"])
def test_what_is_only_called_a_ping_is_not(event: Any) -> None:
    """Rule 127: clients skip a ping by its name, so one in which we read anything is not forwarded."""
    assert _named(_start(), _begin(_TEXT), ("ping", event))[-1] in ("name", "misfit")


_READ: dict[str, tuple[list[tuple[str, Any]], Any]] = {
    "name": ([("", value) for _, value in (_start(), _begin(_TEXT), _OK, _end(), _reason(), _STOP)], ["ok"]),
    "after end": ([_start(), _begin(_TEXT), _OK, _end(), _reason(), _STOP, _begin(_TEXT, 1), ("", b"[DONE]")], ["ok"]),
    "no start": ([_begin(_TEXT), _OK, _end(), _reason(), _STOP], ["ok"]),
    "second start": ([_start(), _begin(_TEXT), _start(id="msg_2"), _OK, _end(), _reason(), _STOP], ["ok"]),
    "block order": ([_start(), _OK, _end(), _OK, _begin(_CALL, 7), _reason(), _STOP], ["ok", ("a", "f", "{}")]),
    "beginning": (
        [_start(), _begin({"type": "text", "text": "o"}), _delta("text_delta", text="k"), _end(), _reason(), _STOP],
        ["ok"],
    ),
    "same id": (
        [_start(), _begin(_CALL), _end(), _begin(_CALL, 1), _end(1), _reason(), _STOP],
        [("a", "f", "{}"), ("a", "f", "{}")],
    ),
    "delta": ([_start(), _begin(_TEXT), _OK, _delta("thinking_delta", thinking="hm"), _reason(), _STOP], ["ok", "hm"]),
    "unstopped": ([_start(), _begin(_TEXT), _OK, _reason(), _STOP], ["ok"]),
    "no reason": ([_start(), _begin(_TEXT), _OK, _end(), _STOP], ["ok"]),
    "start usage": ([_start(usage={}), _begin(_TEXT), _OK, _end(), _reason(), _STOP], ["ok"]),
    "end usage": ([_start(), _begin(_TEXT), _OK, _end(), _reason(usage=None), _STOP], ["ok"]),
    "misfit": ([_start(), _begin(_TEXT), _delta("text_delta", text=5), _OK, _end(), _reason(), _STOP], ["ok"]),
    "no index": (
        [_start(), _begin(_TEXT, None), _delta("text_delta", "x", text="ok"), _end("x"), _reason(), _STOP],
        ["ok"],
    ),
    "input": (
        [_start(), _begin(_CALL), _delta("input_json_delta", partial_json={"a": 1}), _end(), _reason(), _STOP],
        [("a", "f", '{"a":1}')],
    ),
    "block": ([_start(), _begin({**_CALL, "id": None}), _end(), _reason(), _STOP], [("toolu_t_0", "f", "{}")]),
    "usage": ([_start(usage=5), _begin(_TEXT), _OK, _end(), _reason(usage={"output_tokens": "x"}), _STOP], ["ok"]),
    "label": ([_start(id=5, model=None), _begin(_TEXT), _OK, _end(), _reason(), _STOP], ["ok"]),
    "finish": ([_start(), _begin(_TEXT), _OK, _end(), _reason(""), _STOP], ["ok"]),
    "citation": (
        [_start(), _begin(_TEXT), _OK, _delta("citations_delta", citation=5), _end(), _reason(), _STOP],
        ["ok"],
    ),
    "bytes": (
        [_start(), _begin(_TEXT), _OK, ("content_block_stop", _BROKEN), _reason(), _STOP],
        ["ok"],
    ),
}


def _said(reply: Reply) -> list[Any]:
    return [
        (part.id, part.name, part.arguments_json) if isinstance(part, ToolCall) else part.text
        for part in reply.parts
        if isinstance(part, Text | Reasoning | ToolCall)
    ]


@pytest.mark.parametrize("name", _READ)
def test_what_needs_a_repair_is_read(name: str) -> None:
    """Rule 127: what is not the wire's is read as its row says, and not forwarded."""
    events, said = _READ[name]
    block = b"".join((b"event: %b\n" % n.encode() if n else b"") + b"data: %b\n\n" % _dump(v) for n, v in events)
    assert not MessagesCodec().stream_decoder(_FROM).takes(block, SseDecoder().read(block))
    assert _said(_reply(events)) == said


def test_every_row_has_an_example() -> None:
    """Must show: no row of the table is without a test."""
    assert set(_READ) == set(REPAIRS)
    assert set(_ORDER) < set(REPAIRS)


def _whole(*content: Json, **fields: Any) -> Json:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content}
    return {**head, "stop_reason": "end_turn", "usage": _COUNTS, **fields}


_SAID: Json = {"type": "text", "text": "ok"}
_BODIES: dict[str, tuple[Json, list[Any]]] = {
    "input": (_whole({**_CALL, "input": '{"a":1}'}), [("a", "f", '{"a":1}')]),
    "block": (_whole({**_CALL, "id": None}, {**_THOUGHT, "thinking": None}), [("toolu_t_0", "f", "{}"), ""]),
    "same id": (_whole(_CALL, _CALL), [("a", "f", "{}"), ("a", "f", "{}")]),
    "usage": (_whole(_SAID, usage=5), ["ok"]),
    "label": (_whole(_SAID, id=None, model=None, type=None, role=None), ["ok"]),
    "finish": (_whole(_SAID, stop_reason=""), ["ok"]),
}


@pytest.mark.parametrize("name", _BODIES)
def test_whole_replies_that_need_a_repair_are_read(name: str) -> None:
    """Rule 127: the same in a whole reply."""
    value, said = _BODIES[name]
    assert not is_regular(_dump(value))
    assert _said(MessagesCodec().decode_reply(_dump(value), _FROM)) == said


def test_blocks_of_kinds_to_come_do_not_excuse_others() -> None:
    """Rule 127: beside an unknown block, a known one must still be what its type says."""
    later = {"type": "later", "text": 5}
    assert is_regular(_dump(_whole(later, _SAID, _CALL)))
    assert not is_regular(_dump(_whole(later, {**_SAID, "text": 5})))
    assert not is_regular(_dump(_whole(later, _CALL, _CALL)))
    assert not is_regular(_dump(_whole(later, {"type": ""})))


def test_numbers_that_nobody_reads_spoil_nothing() -> None:
    """Rule 114: a number that is too large, in a field that nobody reads, ends no stream."""
    written = _dump(_reason()[1])[:-1] + b', "timings": 1e999}'
    told = _read([_start(), ("message_delta", written), _STOP])
    assert [event.usage.output_tokens for event in told if isinstance(event, UsageUpdated)] == [4, 4]


def test_a_block_that_cannot_be_read_fails_the_end_too() -> None:
    """Contract: errors never leave a decoder as exceptions, not even at the end of the bytes."""
    told = _read([_start(), _begin({**_THOUGHT, "signature": 5}), _reason()])
    assert isinstance(told[-1], Failed)
    assert not any(isinstance(event, PartEnded) for event in told)


def test_a_negative_index_costs_no_other_block() -> None:
    """Rule 127: behind text under a negative index, the deltas of a call that come together are all read."""
    pieces = [_delta("input_json_delta", 1, partial_json=text) for text in ('{"a":', "1}")]
    events = [_start(), _begin(_TEXT, -1), _begin(_CALL, 1), *pieces, _end(1), _reason(), _STOP]
    decoder, assembler = MessagesCodec().stream_decoder(_FROM), Assembler()
    for event in decoder.feed_all([SseEvent(name, _dump(value)) for name, value in events]):
        assembler.feed(event)
    assert _said(assembler.reply()) == ["", ("a", "f", '{"a":1}')]
