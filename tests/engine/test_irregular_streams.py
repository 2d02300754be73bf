"""Rule 127: a stream that is understood but not strictly its wire's is written anew, and means the same to the SDKs."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import UpstreamGarbage
from mustcall.core.origin import Wire
from mustcall.core.request import Request
from mustcall.engine.replies.delivery import Delivery
from mustcall.testing import Call, RawStream, RunningGateway, Say, ScriptedUpstream, Think, Turn
from mustcall.testing.render import Stamp as Written
from mustcall.testing.render import stream_reply
from mustcall.wire.codec import ReplyStamp
from mustcall.wire.registry import codec_for
from support.flowing import Flowing
from support.gated import events_of
from support.sdk import Ask, Seen, ask

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"q": {"type": "string"}}}
ASK = Ask(tools=(("f", SCHEMA),))
TURNS = {
    "text": Turn(Say("Sunny, as it was all week.")),
    "call": Turn(Call("f", {"q": "x y z"})),
    "both": Turn(Say("Let me look."), Call("f", {"q": "x y z"})),
}
Bend = Callable[[list[bytes]], list[bytes]]


def without(*words: str) -> Bend:
    """Leave fields out of every event."""

    def bend(frames: list[bytes]) -> list[bytes]:
        bent: list[bytes] = []
        for frame in frames:
            head, mark, data = frame.rpartition(b"data: ")
            if data.startswith(b"["):
                bent.append(frame)
                continue
            value = {key: one for key, one in json.loads(data).items() if key not in words}
            bent.append(head + mark + json.dumps(value).encode() + b"\n\n")
        return bent

    return bend


def inserted(noise: bytes, at: int) -> Bend:
    """Put bytes between two events."""
    return lambda frames: [*frames[:at], noise, *frames[at:]]


BENDS: dict[str, Bend] = {
    "no places": without("index", "output_index", "content_index", "sequence_number"),
    "a retry at the start": inserted(b"retry: 10\n\n", 0),
    "a retry in the middle": inserted(b"retry: 10\n\n", 6),
    "a retry at the end": inserted(b"retry: 10\n\n", -1),
    "bytes that are no text": inserted(b"\xff\xfe\x00\n\n", 6),
    "the last event twice": lambda frames: [*frames, frames[-1]],
    "the first event twice": lambda frames: [frames[0], *frames],
    "ids": lambda frames: [b"id: 1\n" + frame for frame in frames] + [b": bye\n\n"],
    "a mark at the start": lambda frames: [b"\xef\xbb\xbf" + frames[0], *frames[1:]],
}


def carried(wire: Wire, pieces: list[bytes]) -> bytes:
    """What goes out of a stream whose bytes come in these pieces, if its reply is accepted as it is."""
    return Flowing(wire).carry(pieces)[0]


def seen(wire: Wire, stream: bytes) -> Seen:
    """What the SDK makes of a stream."""
    with ScriptedUpstream([RawStream([stream])]) as upstream:
        found = ask(str(wire), upstream.url, ASK, stream=True)
    assert isinstance(found, Seen), found
    return found


def means(found: Seen, turn: Turn) -> bool:
    """Whether the SDK saw what the turn says, once and whole."""
    text = "".join(part.text for part in turn.parts if isinstance(part, Say))
    calls = [(part.name, part.arguments) for part in turn.parts if isinstance(part, Call)]
    made = [(name, arguments) for _, name, arguments in found.calls]
    return (found.text, made, found.finish) == (text, calls, "tool_calls" if calls else "stop")


@pytest.mark.parametrize("wire", Wire)
@pytest.mark.parametrize("name", TURNS)
@pytest.mark.parametrize("bend", BENDS)
def test_it_means_the_same(wire: Wire, name: str, bend: str) -> None:
    """Rules 112, 127: whatever is odd about the bytes, and however they are cut, the SDK sees the reply."""
    turn = TURNS[name]
    frames = BENDS[bend](stream_reply(turn, wire, {"model": "test-model", "stream": True}, Written(1, "s")))
    data = b"".join(frames)
    for pieces in (frames, [data], [data[at : at + 5] for at in range(0, len(data), 5)]):
        assert means(seen(wire, carried(wire, pieces)), turn)


@pytest.mark.parametrize("wire", Wire)
@pytest.mark.parametrize("at", range(1, 14))
def test_another_writer_keeps_the_identity(wire: Wire, at: int) -> None:
    """Rule 135: what is written anew after some went out as bytes belongs to the same reply, whatever its id."""
    turn = Turn(Think("Hm, let me see."), Say("Sunny, all week."), Call("f", {"q": "x"}), id="fixed")
    frames = stream_reply(turn, wire, {"model": "test-model", "stream": True}, Written(1, "s"))
    found = seen(wire, carried(wire, [*frames[:at], b"retry: 10\n\n", *frames[at:]]))
    assert means(found, turn)
    assert found.thinking == "Hm, let me see."


@pytest.mark.parametrize("wire", Wire)
@pytest.mark.parametrize("name", TURNS)
def test_the_gateway_writes_it_anew(wire: Wire, name: str) -> None:
    """Rule 127: the same over HTTP, in one attempt."""
    frames = stream_reply(TURNS[name], wire, {"model": "test-model", "stream": True}, Written(1, "s"))
    with (
        ScriptedUpstream([RawStream([frames[0], b"retry: 10\n\n", *frames[1:]])]) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}") as gateway,
    ):
        found = ask(str(wire), gateway.url, ASK, stream=True)
        assert len(upstream.requests) == 1
    assert isinstance(found, Seen)
    assert means(found, TURNS[name])


@pytest.mark.parametrize("error", ["no", {"message": "no"}, True])
def test_an_error_beside_a_responses_event(error: Any) -> None:
    """Rule 127: the OpenAI SDKs raise for any event with an error in it; what the event means goes out without."""
    frames = stream_reply(TURNS["both"], Wire.RESPONSES, {"model": "test-model", "stream": True}, Written(1, "s"))
    for at, frame in enumerate(frames):
        head, mark, data = frame.rpartition(b"data: ")
        failing = head + mark + json.dumps({**json.loads(data), "error": error}).encode() + b"\n\n"
        pieces = [*frames[:at], failing, *frames[at + 1 :]]
        for cut in (pieces, [b"".join(pieces)]):
            out, raw = Flowing(Wire.RESPONSES).carry(cut)
            assert not raw
            assert means(seen(Wire.RESPONSES, out), TURNS["both"])


@pytest.mark.parametrize("error", ["no", {"message": "no"}, True])
def test_an_error_beside_the_choices_of_a_chunk(error: Any) -> None:
    """Rule 127: the OpenAI SDKs raise for such a chunk, so the stream has failed; its text does not go out."""
    frames = stream_reply(TURNS["text"], Wire.CHAT, {"model": "test-model", "stream": True}, Written(1, "s"))
    for at, frame in enumerate(frames[:-1]):
        failing = b"data: %b\n\n" % json.dumps({**json.loads(frame.removeprefix(b"data: ")), "error": error}).encode()
        flow = Flowing(Wire.CHAT).flow
        out = b"".join([flow.feed(piece) for piece in [*frames[:at], failing]])
        assert flow.ended
        assert flow.error is not None
        assert failing not in out


def responses_frames(events: list[dict[str, Any]]) -> list[bytes]:
    """Events of Responses, numbered."""
    numbered: list[dict[str, Any]] = [{**event, "sequence_number": number} for number, event in enumerate(events)]
    return [b"event: %b\ndata: %b\n\n" % (one["type"].encode(), json.dumps(one).encode()) for one in numbered]


def responses_events(turn: Turn) -> list[dict[str, Any]]:
    """A healthy stream of Responses."""
    frames = stream_reply(turn, Wire.RESPONSES, {"model": "test-model", "stream": True}, Written(1, "s"))
    return [json.loads(frame.rpartition(b"data: ")[2]) for frame in frames]


@pytest.mark.parametrize("first", [Say("Look."), Think("Hm.")])
@pytest.mark.parametrize("part", [{"type": "x"}, {"type": "x", "text": ""}])
def test_text_in_a_content_of_a_kind_to_come(first: Say | Think, part: dict[str, Any]) -> None:
    """Rule 127: an item that means nothing yet is not forwarded, so it is announced once if it is written anew."""
    events = responses_events(Turn(first, Say("Sunny.")))
    for event in events:
        if event["type"] == "response.content_part.added" and event["output_index"] == 1:
            event["part"] = part
    for pieces in (responses_frames(events), [b"".join(responses_frames(events))]):
        out, raw = Flowing(Wire.RESPONSES).carry(pieces)
        assert not raw
        found = seen(Wire.RESPONSES, out)
        assert found.text == ("Look.Sunny." if isinstance(first, Say) else "Sunny.")
        announced = [one["output_index"] for one in events_of(out) if one["type"] == "response.output_item.added"]
        assert announced == [0, 1]


def test_a_content_of_a_kind_to_come_is_forwarded() -> None:
    """Rule 112: what a later version adds passes, once its item is done."""
    events = responses_events(Turn(Say("Look."), Say("Sunny.")))
    later = {"type": "x", "y": 1}
    kept: list[dict[str, Any]] = []
    for event in events:
        if event.get("output_index") == 1 and "text." in event["type"]:
            continue
        if event.get("output_index") == 1 and "part" in event:
            event["part"] = later
        elif event.get("output_index") == 1 and event["type"] == "response.output_item.done":
            event["item"]["content"] = [later]
        elif event["type"] == "response.completed":
            event["response"]["output"][1]["content"] = [later]
        kept.append(event)
    frames = responses_frames(kept)
    assert Flowing(Wire.RESPONSES).carry(frames) == (b"".join(frames), True)


def two_contents() -> list[bytes]:
    """The frames of a message that says its text twice, as two contents, and of a call behind it."""
    events = responses_events(Turn(Say("Look."), Call("f", {"q": "x"})))
    done = next(place for place, event in enumerate(events) if event["type"] == "response.output_item.done")
    second = [{**event, "content_index": 1} for event in events[:done] if "content_index" in event]
    events[done]["item"]["content"] *= 2
    events[-1]["response"]["output"][0]["content"] *= 2
    return responses_frames([*events[:done], *second, *events[done:]])


def test_a_message_of_two_contents_is_forwarded() -> None:
    """It is regular: its bytes leave as they came, those of the second content when their item is done."""
    frames = two_contents()
    sent, raw = Flowing(Wire.RESPONSES).carry(frames)
    assert raw
    assert sent == b"".join(frames)


@pytest.mark.parametrize("at", range(4, 18))
def test_a_message_of_two_contents_that_turns_irregular(at: int) -> None:
    """Rule 113: wherever another writer goes on, the official client reads both contents and the call."""
    frames = two_contents()
    found = seen(Wire.RESPONSES, carried(Wire.RESPONSES, [*frames[:at], b"retry: 10\n\n", *frames[at:]]))
    assert found.text == "Look.Look."
    assert [call[1:] for call in found.calls] == [("f", {"q": "x"})]


@pytest.mark.parametrize("began", [True, False])
def test_an_item_of_the_provider_that_changes_its_type(began: bool) -> None:
    """Rule 135: an item keeps the type under which it was forwarded; the SDKs refuse one that changes it."""
    events = responses_events(Turn(Say("Look."), Call("f", {"q": "x"})) if began else Turn(Call("f", {"q": "x"})))
    at = 1 if began else 0
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    kept: list[dict[str, Any]] = []
    for event in events:
        if event.get("output_index") == at and "item" not in event:
            continue
        if event.get("output_index") == at:
            event["item"] = search if event["type"].endswith("added") else {**search, "type": "x"}
        elif event["type"] == "response.completed":
            event["response"]["output"][at] = {**search, "type": "x"}
        kept.append(event)
    for pieces in (responses_frames(kept), [b"".join(responses_frames(kept))]):
        out, raw = Flowing(Wire.RESPONSES).carry(pieces)
        assert not raw
        assert seen(Wire.RESPONSES, out).text == ("Look." if began else "")
        told = events_of(out)
        items = [one["item"] for one in told if one.get("output_index") == at and "item" in one]
        assert [item["type"] for item in [*items, told[-1]["response"]["output"][at]]] == ["web_search_call"] * 3


@pytest.mark.parametrize("began", [True, False])
def test_a_call_that_changes_its_kind(began: bool) -> None:
    """Rule 127: what a tool is given is JSON for a function and free text for a custom tool; neither is the other."""
    events = responses_events(Turn(Say("Look."), Call("f", {"q": "x"})) if began else Turn(Call("f", {"q": "x"})))
    done = next(one for one in reversed(events) if one["type"] == "response.output_item.done")
    done["item"] = {**done["item"], "type": "custom_tool_call", "input": "x"}
    flow = Flowing(Wire.RESPONSES).flow
    for piece in responses_frames(events):
        flow.feed(piece)
    assert flow.error is not None
    assert "custom_tool_call" in str(flow.error)


def test_our_own_bytes_begin_on_a_new_line() -> None:
    """Rule 135: forwarded bytes may end inside a CRLF; what follows of ours is still an event of its own."""
    codec = codec_for(Wire.CHAT)
    delivery = Delivery(codec, Request(model="m", messages=()), ReplyStamp(token="t", created=0), AdaptationLog())
    delivery.forward(b"data: {}\r\n\r", [])
    assert delivery.fail(UpstreamGarbage("broken")).startswith(b"\ndata: ")
    assert delivery.fail(UpstreamGarbage("broken")).startswith(b"data: ")
