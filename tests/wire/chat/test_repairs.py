"""Rules 112, 127: a chat reply that needs a repair is read, and not forwarded; one that needs none means the same."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.origin import Wire
from mustcall.core.parts import Reasoning, Text, ToolCall
from mustcall.core.reply import Reply
from mustcall.core.streams.assembler import Assembler
from mustcall.core.streams.events import Event, Failed, PartTextDelta, UsageUpdated
from mustcall.testing import Call, Say, Think, Turn
from mustcall.testing.render import Stamp, stream_reply
from mustcall.testing.script import Refuse
from mustcall.wire.chat import ChatCodec
from mustcall.wire.chat.repairs import REPAIRS, ChunkOrder
from mustcall.wire.chat.shape import is_regular, read_chunk
from mustcall.wire.codec import Provenance
from mustcall.wire.sse import SseDecoder, SseEvent
from support.bending import places

_FROM = Provenance(issuer="u", token="t")
_TURNS = [
    Turn(Say("Hello there")),
    Turn(Think("hm"), Say("Look:"), Call("f", {"a": 1}), Call("f", {})),
    Turn(Refuse("no way")),
    Turn(Call("p", "free text")),
]
_TOOLS = [{"type": "function", "function": {"name": "f"}}, {"type": "custom", "custom": {"name": "p"}}]
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.floats(-2, 3) | _texts | st.sampled_from(["stop", "function"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "arguments", "index", "type", "text"]), inner, max_size=3)
    ),
    max_leaves=6,
)
_KEYS = [
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "refusal",
    "extra_content",
    "custom",
    "message",
    "usage",
]


def _chunks(turn: Turn) -> list[Any]:
    request = {"model": "m", "stream": True, "tools": _TOOLS, "stream_options": {"include_usage": True}}
    data = [frame.removeprefix(b"data: ").strip() for frame in stream_reply(turn, Wire.CHAT, request, Stamp(1, "s"))]
    assert data.pop() == b"[DONE]"
    return [json.loads(one) for one in data]


def _bend(chunks: list[Any], data: st.DataObject) -> None:
    """Put another value anywhere, leave a key out, or add one."""
    holder, key = data.draw(st.sampled_from([place for chunk in chunks for place in places(chunk)]))
    match data.draw(st.sampled_from(["put", "leave out", "add"])):
        case "put":
            holder[key] = data.draw(_values)
        case "leave out":
            del holder[key]
        case _:
            objects: list[Any] = [one for chunk in chunks for one, _ in places(chunk) if isinstance(one, dict)]
            data.draw(st.sampled_from(objects))[data.draw(st.sampled_from(_KEYS))] = data.draw(_values)


def _read(chunks: list[Any], name: str = "") -> list[Event]:
    """What the decoder makes of chunks; where events have a name, all of them are read with the repairs."""
    decoder = ChatCodec().stream_decoder(_FROM)
    events = [event for chunk in chunks for event in decoder.feed(SseEvent(name, json.dumps(chunk).encode()))]
    return events + decoder.feed(SseEvent("", b"[DONE]")) + decoder.close()


@given(turn=st.sampled_from(_TURNS), data=st.data(), times=st.integers(0, 3))
def test_the_shape_and_the_repairs_agree(turn: Turn, data: st.DataObject, times: int) -> None:
    """Must show: a chunk that fits its shape means what the repairs read in it, be values bent, left out or added."""
    chunks = _chunks(turn)
    for _ in range(times):
        if any(chunks):
            _bend([chunk for chunk in chunks if chunk], data)
    assert _read(chunks) == _read(chunks, "x")


@given(turn=st.sampled_from(_TURNS), data=st.data())
def test_what_was_parsed_to_be_forwarded_is_read(turn: Turn, data: st.DataObject) -> None:
    """Must show: a decoder that is first asked whether bytes may be forwarded reads the same as one that is not."""
    chunks = _chunks(turn)
    if data.draw(st.booleans()):
        _bend(chunks, data)
    block = b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"
    plain, asked = ChatCodec().stream_decoder(_FROM), ChatCodec().stream_decoder(_FROM)
    events = SseDecoder().read(block)
    assert asked.takes(block, events) is ChatCodec().stream_decoder(Provenance()).takes(block, events)
    assert asked.feed_all(events) == plain.feed_all(events)


def _delta(**delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def _call(**fields: Any) -> dict[str, Any]:
    return {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}, **fields}


_FIRST = _delta(role="assistant", content="")
_END: dict[str, Any] = {**_delta(), "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def _named(*events: tuple[str, Any]) -> list[str]:
    """The repairs that events need, up to the first."""
    order = ChunkOrder()
    data = [SseEvent(name, value if isinstance(value, bytes) else json.dumps(value).encode()) for name, value in events]
    return [order.repair(event, read_chunk(event.data)) for event in data]


_ORDER: dict[str, list[tuple[str, Any]]] = {
    "named": [("", _FIRST), ("message", _delta(content="x"))],
    "after end": [("", _FIRST), ("", _END), ("", b"[DONE]"), ("", _END)],
    "no head": [("", _FIRST), ("", {key: value for key, value in _delta(content="x").items() if key != "created"})],
    "no role": [("", _delta(content="x"))],
    "after finish": [("", _FIRST), ("", _END), ("", _delta(content="x"))],
    "call order": [("", _FIRST), ("", _delta(tool_calls=[_call(index=0), _call(index=0, id="b")]))],
    "misfit": [("", _FIRST), ("", _delta(content=5))],
}


@pytest.mark.parametrize("name", _ORDER)
def test_what_is_out_of_order_is_named(name: str) -> None:
    """Rule 127: the first event that must not be forwarded is named by its row."""
    assert _named(*_ORDER[name]) == [""] * (len(_ORDER[name]) - 1) + [name]


def _whole(**message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": "ok", **message}
    return {"id": "c", "model": "m", "choices": [{"index": 0, "message": said, "finish_reason": "stop"}]}


def _said(reply: Reply) -> Any:
    calls = [(call.id, call.name, call.arguments_json) for call in reply.parts if isinstance(call, ToolCall)]
    thoughts = [part.text for part in reply.parts if isinstance(part, Reasoning)]
    texts = [part.text for part in reply.parts if isinstance(part, Text)]
    return reply.id, *texts, thoughts, calls, reply.reported_finish, reply.usage is not None


_PART = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "ok"}]
_SHAPE: dict[str, tuple[dict[str, Any], dict[str, Any], Any]] = {
    "content list": (_whole(content=_PART), _delta(content=_PART), ("c", "ok", ["hm"], [], "stop", False)),
    "arguments": (
        _whole(tool_calls=[_call(function={"name": "f", "arguments": {}})]),
        _delta(content="ok", tool_calls=[_call(index=0, function={"name": "f", "arguments": {}})]),
        ("c", "ok", [], [("a", "f", "{}")], "stop", False),
    ),
    "no call id": (
        _whole(tool_calls=[_call(id=None, type=None)]),
        _delta(content="ok", tool_calls=[_call(id=None, type=None)]),
        ("c", "ok", [], [("call_t_0", "f", "{}")], "stop", False),
    ),
    "label": (
        {**_whole(), "id": 5},
        {**_delta(content="ok"), "id": 5},
        ("", "ok", [], [], "stop", False),
    ),
    "usage": ({**_whole(), "usage": True}, {**_delta(content="ok"), "usage": 5}, ("c", "ok", [], [], "stop", False)),
    "function call": (
        _whole(function_call={"name": "f", "arguments": "{}"}),
        _delta(content="ok", function_call={"name": "f", "arguments": "{}"}),
        ("c", "ok", [], [], "stop", False),
    ),
}


@pytest.mark.parametrize("name", _SHAPE)
def test_what_does_not_fit_is_read(name: str) -> None:
    """Rule 127: what is not the wire's is read alike in a whole reply and in a stream, and fits neither shape."""
    whole, chunk, expected = _SHAPE[name]
    body = json.dumps(whole).encode()
    assert not is_regular(body)
    assert read_chunk(json.dumps(chunk).encode()) is None or _named(("", _FIRST), ("", chunk))[-1]
    assert _said(ChatCodec().decode_reply(body, _FROM)) == expected
    assembler = Assembler()
    for event in _read([chunk, _END]):
        assembler.feed(event)
    assert _said(assembler.reply()) == expected


def test_a_message_in_place_of_a_delta_is_read() -> None:
    """Rule 127: some servers stream one whole message."""
    chunk = {**_delta(), "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}}]}
    assert read_chunk(json.dumps(chunk).encode()) is None
    assembler = Assembler()
    for event in _read([chunk, _END]):
        assembler.feed(event)
    assert [part.text for part in assembler.reply().parts if isinstance(part, Text)] == ["ok"]


@pytest.mark.parametrize(("before", "said"), [({}, ["ok"]), ({"content": "no"}, ["no"])])
def test_a_message_behind_a_delta_is_read_if_nothing_was_said(before: dict[str, str], said: list[str]) -> None:
    """Rule 127: a role says nothing; behind text a whole message would say it again."""
    first = {"index": 0, "delta": {"role": "assistant", **before}}
    chunk = {**_delta(), "choices": [first, {"index": 0, "message": {"content": "ok"}}]}
    assembler = Assembler()
    for event in _read([chunk, _END]):
        assembler.feed(event)
    assert [part.text for part in assembler.reply().parts if isinstance(part, Text)] == said


def test_tokens_are_read_without_what_stands_beside_them() -> None:
    """Rule 114: a number that is too large, in a field that nobody reads, spoils no usage."""
    counted: dict[str, Any] = {
        **_delta(),
        "choices": [],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
    }
    written = json.dumps(counted).encode().replace(b'"usage"', b'"timings": 1e999, "usage"')
    decoder = ChatCodec().stream_decoder(_FROM)
    assert decoder.feed(SseEvent("", json.dumps(_FIRST).encode()))
    (told,) = decoder.feed(SseEvent("", written))
    assert isinstance(told, UsageUpdated)
    assert (told.usage.input_tokens, told.usage.output_tokens) == (3, 4)


def test_bytes_that_are_no_text_spoil_no_text() -> None:
    """Rule 127: nobody needs the head of a text delta; where they are in the text itself, it cannot be read."""
    broken = json.dumps(_delta(content="ok")).encode().replace(b'"m"', b'"\xff"')
    assert read_chunk(broken) is None
    decoder = ChatCodec().stream_decoder(_FROM)
    assert decoder.feed(SseEvent("", json.dumps(_FIRST).encode()))
    assert decoder.feed(SseEvent("", broken))[-1] == PartTextDelta(0, "ok")
    assert isinstance(decoder.feed(SseEvent("", broken.replace(b"ok", b"\xff")))[-1], Failed)


def test_an_empty_finish_is_an_unknown_one() -> None:
    """Rule 127: an empty finish reason ends a reply and names no reason."""
    body = json.dumps({**_whole(), "choices": [{**_whole()["choices"][0], "finish_reason": ""}]}).encode()
    assert not is_regular(body)
    assert ChatCodec().decode_reply(body, _FROM).reported_finish == ""


def test_every_row_has_an_example() -> None:
    """Must show: no row of the table is without a test."""
    assert {*_ORDER, *_SHAPE, "message", "bytes", "finish"} == set(REPAIRS)
