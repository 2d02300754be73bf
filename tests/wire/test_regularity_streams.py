"""Rules 112, 127: bytes are forwarded only where a strict client reads in them what we read."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.origin import Wire
from mustcall.testing import Call, Say, Think, Turn
from mustcall.testing.render import Stamp, stream_reply
from mustcall.testing.script import Refuse
from mustcall.wire.codec import Provenance
from mustcall.wire.registry import codec_for
from mustcall.wire.sse import SseDecoder

TOOLS: dict[Wire, list[dict[str, Any]]] = {
    Wire.CHAT: [{"type": "function", "function": {"name": "f"}}, {"type": "custom", "custom": {"name": "p"}}],
    Wire.RESPONSES: [{"type": "function", "name": "f"}, {"type": "custom", "name": "p"}],
    Wire.MESSAGES: [{"name": "f"}],
}
TURNS = {
    "text": Turn(Say("Hello there, wörld")),
    "calls": Turn(Say("Look:"), Call("f", {"a": [1, "b c d"]}), Call("f", {})),
    "thinking": Turn(Think("hm, let me see"), Say("ok")),
    "full thinking": Turn(Think("hm", shown="full"), Call("f", {"a": "b"})),
    "refusal": Turn(Refuse("no way")),
    "length": Turn(Say("a b"), finish="length"),
    "custom call": Turn(Call("p", "free text")),
    "unknown finish": Turn(Say("a"), finish="no_such_reason"),
}
Events = list[tuple[str, Any]]
Bend = Callable[[Events], Events]


def frames(wire: Wire, turn: Turn) -> list[bytes]:
    """A healthy stream."""
    request = {"model": "m", "stream": True, "tools": TOOLS[wire], "stream_options": {"include_usage": True}}
    return stream_reply(turn, wire, request, Stamp(1, "s"))


def is_regular(wire: Wire, data: bytes, size: int = 1 << 20) -> bool:
    """Whether a stream could be forwarded from its first to its last byte."""
    judge, sse = codec_for(wire).stream_decoder(Provenance()), SseDecoder()
    blocks = [sse.frame(data[at : at + size]) for at in range(0, len(data), size)]
    pieces = [(block, sse.read(block)) for block in blocks if block]
    pieces.append(sse.close_block())
    return all(judge.takes(block, events) for block, events in pieces if block) and judge.complete


def read(wire: Wire, turn: Turn) -> Events:
    """A healthy stream as names and values."""
    found: Events = []
    for frame in frames(wire, turn):
        head, _, data = frame.rpartition(b"data: ")
        name = head.removeprefix(b"event: ").strip().decode()
        found.append((name, "[DONE]" if data.startswith(b"[DONE]") else json.loads(data)))
    return found


def write(events: Events) -> bytes:
    """Events as bytes."""
    return b"".join(
        (f"event: {name}\n" if name else "").encode()
        + b"data: "
        + (value if isinstance(value, str) else json.dumps(value)).encode()
        + b"\n\n"
        for name, value in events
    )


@pytest.mark.parametrize("wire", Wire)
@pytest.mark.parametrize("name", TURNS)
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_healthy_streams_are_regular_at_any_chunking(wire: Wire, name: str, size: int) -> None:
    """Rule 112: what a healthy server sends is forwarded, however it is cut."""
    assert is_regular(wire, b"".join(frames(wire, TURNS[name])), size)


@pytest.mark.parametrize("wire", Wire)
@pytest.mark.parametrize("ending", [b"\r\n", b"\n"])
def test_comments_unknown_fields_and_line_ends_are_regular(wire: Wire, ending: bytes) -> None:
    """Rule 112: comments, fields of tomorrow and CRLF change nothing."""
    events = read(wire, TURNS["calls"])
    grown = [(name, value if isinstance(value, str) else {**value, "new": [1]}) for name, value in events]
    data = b": keep-alive\n\n" + write(grown).replace(b"\n\n", b"\n\n: ping\n\n")
    assert is_regular(wire, data.replace(b"\n", ending))


@pytest.mark.parametrize("wire", [Wire.RESPONSES, Wire.MESSAGES])
def test_unknown_events_are_regular(wire: Wire) -> None:
    """Rule 112: events of versions to come pass, once the reply has begun."""
    events = read(wire, TURNS["text"])
    assert is_regular(wire, write([*events[:1], ("new.event", {"type": "new.event", "delta": 1}), *events[1:]]))


NOISE = {
    "a lone retry": b"retry: 10\n\n",
    "a lone id": b"id: 1\n\n",
    "a name without data": b"event: x\n\n",
    "bytes that are no text": b"\xff\xfe\x00\n\n",
    "null": b"data: null\n\n",
    "a page": b"<html>\n\n",
    "an empty object": b"data: {}\n\n",
    "a lone carriage return": b": a\r: b\n\n",
}


@pytest.mark.parametrize("wire", Wire)
@pytest.mark.parametrize("noise", NOISE)
def test_noise_is_not(wire: Wire, noise: str) -> None:
    """What SDKs crash on, or make an event of, is not forwarded."""
    parts = frames(wire, TURNS["text"])
    assert not is_regular(wire, b"".join([*parts[:3], NOISE[noise], *parts[3:]]))


def without(*words: str) -> Bend:
    """Leave fields out of every event."""
    return lambda events: [
        (name, value if isinstance(value, str) else {key: one for key, one in value.items() if key not in words})
        for name, value in events
    ]


def dropped(*kinds: str) -> Bend:
    """Leave events of these types out."""
    return lambda events: [one for one in events if isinstance(one[1], str) or one[1].get("type") not in kinds]


def doubled(at: int) -> Bend:
    """Send one event twice."""
    return lambda events: [*events[:at], events[at], *events[at:]] if at >= 0 else [*events, events[at]]


def fragments(change: Callable[[dict[str, Any]], Any]) -> Bend:
    """Change every fragment of a call in a chat stream."""

    def bend(events: Events) -> Events:
        chunks: list[Any] = [value for _, value in events if not isinstance(value, str)]
        for choice in (choice for chunk in chunks for choice in chunk["choices"]):
            for fragment in choice["delta"].get("tool_calls", ()):
                change(fragment)
        return events

    return bend


def late(events: Events) -> Events:
    """Say something again after the finish."""
    return [*events[:-1], events[2], events[-1]]


def last(change: Callable[[dict[str, Any]], Any]) -> Bend:
    """Change the last event."""

    def bend(events: Events) -> Events:
        change(events[-1][1])
        return events

    return bend


BENDS: dict[Wire, dict[str, Bend]] = {
    Wire.CHAT: {
        "no choices": without("choices"),
        "another object": lambda events: [(n, v if isinstance(v, str) else {**v, "object": "x"}) for n, v in events],
        "no end": lambda events: events[:-1],
        "two ends": doubled(-1),
        "text after the finish": late,
        "one index": fragments(lambda one: one.update(index=0)),
        "no index": fragments(lambda one: one.pop("index")),
        "an id in each": fragments(lambda one: one.update(id=f"c{one['index']}")),
        "no id": fragments(lambda one: one.pop("id", None)),
        "odd usage": lambda events: [(n, v if isinstance(v, str) else {**v, "usage": True}) for n, v in events],
        "named": lambda events: [("message_start", value) for _, value in events],
    },
    Wire.RESPONSES: {
        "no indexes": without("output_index"),
        "no item ids": without("item_id"),
        "no type": without("type"),
        "not created": dropped("response.created"),
        "created twice": doubled(0),
        "no items": dropped("response.output_item.added"),
        "no parts": dropped("response.content_part.added"),
        "no done items": dropped("response.output_item.done"),
        "no deltas of arguments": dropped("response.function_call_arguments.delta"),
        "no end": lambda events: events[:-1],
        "two ends": doubled(-1),
        "an empty output": last(lambda value: value["response"].update(output=[])),
        "another id": last(lambda value: value["response"].update(id="resp_other")),
        "odd usage": last(lambda value: value["response"].update(usage=5)),
    },
    Wire.MESSAGES: {
        "no indexes": without("index"),
        "no names": lambda events: [("", value) for _, value in events],
        "no start": dropped("message_start"),
        "two starts": doubled(0),
        "no blocks": dropped("content_block_start"),
        "unstopped blocks": dropped("content_block_stop"),
        "no usage": without("usage"),
        "no stop reason": dropped("message_delta"),
        "no end": lambda events: events[:-1],
        "two ends": doubled(-1),
        "an end mark of another wire": lambda events: [*events, ("", "[DONE]")],
        "a text in its start": lambda events: [
            (name, {**value, "content_block": {"type": "text", "text": "Look:"}} if name == events[1][0] else value)
            for name, value in events
            if name != "content_block_delta"
        ],
        "a block after the stop reason": lambda events: [*events[:-1], events[1], events[-1]],
    },
}


@pytest.mark.parametrize(("wire", "bend"), [(wire, bend) for wire, bends in BENDS.items() for bend in bends])
def test_bent_streams_are_not(wire: Wire, bend: str) -> None:
    """Rule 127: what a client would crash on, or read in another way, is not forwarded."""
    assert is_regular(wire, write(read(wire, TURNS["calls"])))
    assert not is_regular(wire, write(BENDS[wire][bend](read(wire, TURNS["calls"]))))


def test_an_id_is_announced_once() -> None:
    """Rule 127: a second item under the id of the first is not forwarded, before any of it is seen."""
    events = read(Wire.RESPONSES, TURNS["calls"])
    added = [value for name, value in events if name == "response.output_item.added"]
    assert len(added) > 1
    added[1]["item"]["id"] = added[0]["item"]["id"]
    judge, sse = codec_for(Wire.RESPONSES).stream_decoder(Provenance()), SseDecoder()
    taken: list[bool] = []
    for name, value in events:
        block = sse.frame(write([(name, value)]))
        taken.append(judge.takes(block, sse.read(block)))
        if value is added[1]:
            break
    assert taken == [True] * (len(taken) - 1) + [False]


@pytest.mark.parametrize("wire", Wire)
def test_the_end_waits_to_be_settled(wire: Wire) -> None:
    """Rule 135: bytes that announce an end are not let go before the end is there."""
    judge, sse = codec_for(wire).stream_decoder(Provenance()), SseDecoder()
    marks = {Wire.CHAT: b'"finish_reason":"stop"', Wire.RESPONSES: b"output_text.done", Wire.MESSAGES: b"message_delta"}
    for frame in frames(wire, TURNS["text"]):
        block = sse.frame(frame)
        assert judge.takes(block, sse.read(block))
        if marks[wire] in frame.replace(b": ", b":"):
            assert not judge.settled
            return
    raise AssertionError("no such event")


_VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["type", "index", "choices", "delta", "item", "response"]), inner, max_size=6)
    ),
    max_leaves=12,
)
_EVENTS = st.lists(
    st.tuples(st.sampled_from(["", "message_start", "response.created"]), _VALUES.map(json.dumps)), max_size=8
)


@pytest.mark.parametrize("wire", Wire)
@given(events=_EVENTS, tail=st.binary(max_size=20))
def test_it_never_raises(wire: Wire, events: Events, tail: bytes) -> None:
    """Whatever the bytes are, the answer is yes or no."""
    assert is_regular(wire, write(events) + tail) in (True, False)
