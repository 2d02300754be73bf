"""Rule 127: a Responses stream tells its words several times; where these differ, its bytes are not forwarded.

Codex reads `output_item.done` alone, others the last event's output, others the deltas: all must read what was judged.
"""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mustcall.core.errors import UpstreamGarbage
from mustcall.core.origin import Wire
from mustcall.core.parts import Refusal, Text
from mustcall.testing import Call, Say, Think, Turn
from mustcall.testing.render import Stamp, stream_reply
from mustcall.testing.script import Refuse
from support.flowing import Flowing
from support.gated import events_of

Event = dict[str, Any]
Edit = Callable[[Event], None]
WORDS = "Sunny, as it was all week and will be for some days more."
OTHER = "Rain."


def told(turn: Turn) -> list[Event]:
    """A healthy stream's events."""
    frames = stream_reply(turn, Wire.RESPONSES, {"model": "m", "stream": True}, Stamp(1, "s"))
    return [json.loads(frame.rpartition(b"data: ")[2]) for frame in frames]


def framed(events: list[Event]) -> list[bytes]:
    """Events as bytes."""
    return [b"event: %b\ndata: %b\n\n" % (one["type"].encode(), json.dumps(one).encode()) for one in events]


def cuts(frames: list[bytes]) -> Iterator[list[bytes]]:
    """A stream event by event, in pairs, and at once."""
    for size in (1, 2, len(frames)):
        yield [b"".join(frames[at : at + size]) for at in range(0, len(frames), size)]


def edited(events: list[Event], edits: dict[str, Edit]) -> list[bytes]:
    """The stream with events of some types changed."""
    events = copy.deepcopy(events)
    assert edits.keys() <= {event["type"] for event in events}
    for event in events:
        edits.get(event["type"], lambda _: None)(event)
    return framed(events)


def dropped(events: list[Event], *kinds: str) -> list[Event]:
    """The stream without events of some types."""
    return [event for event in events if event["type"] not in kinds]


def _says(event: Event) -> None:
    event["text"] = OTHER


def _part_says(event: Event) -> None:
    event["part"]["text"] = OTHER


def _item_says(event: Event) -> None:
    event["item"]["content"][0]["text"] = OTHER


def _end_says(event: Event) -> None:
    event["response"]["output"][0]["content"][0]["text"] = OTHER


def _end_adds(event: Event) -> None:
    content = event["response"]["output"][0]["content"]
    content.append({**content[0], "text": OTHER})


def _end_lacks(event: Event) -> None:
    event["response"]["output"][0]["content"] = []


TEXT_DONE, PART_DONE, ITEM_DONE = "response.output_text.done", "response.content_part.done", "response.output_item.done"
END = "response.completed"
#: Where other words are told after the last word that is read, so that what was streamed still holds.
LATER: dict[str, dict[str, Edit]] = {
    "item": {ITEM_DONE: _item_says},
    "output": {END: _end_says},
    "item and output": {ITEM_DONE: _item_says, END: _end_says},
    "item, and more in the output": {ITEM_DONE: _item_says, END: _end_adds},
    "more in the output": {END: _end_adds},
    "an output without content": {END: _end_lacks},
    "text": {TEXT_DONE: _says},
    "text and item": {TEXT_DONE: _says, ITEM_DONE: _item_says},
}


def words_in(event: Event) -> list[str]:
    """The words that a client reads in the last word on a text."""
    items: list[Event] = [event["item"]] if "item" in event else event.get("response", {}).get("output", [])
    contents: list[Event] = [part for item in items for part in item["content"]]
    return [part["text"] for part in (contents or ([event["part"]] if "part" in event else [event]))]


@pytest.mark.parametrize("name", LATER)
def test_other_words_are_not_forwarded(name: str) -> None:
    """Rule 127: every client reads the words that were judged, whichever event it takes them from."""
    for pieces in cuts(edited(told(Turn(Say(WORDS))), LATER[name])):
        flowing = Flowing(Wire.RESPONSES)
        out, raw = flowing.carry(pieces)
        assert not raw
        reply = flowing.flow.reply()
        assert [part.text for part in reply.parts if isinstance(part, Text)] == [WORDS]
        flowing.flow.found(reply)
        events = events_of(out)
        assert "".join(one["delta"] for one in events if one["type"].endswith("text.delta")) == WORDS
        kinds = (TEXT_DONE, PART_DONE, ITEM_DONE, END)
        assert [words_in(one) for one in events if one["type"] in kinds] == [[WORDS]] * len(kinds)


CONTRADICTED: dict[str, tuple[tuple[str, ...], dict[str, Edit]]] = {
    "part": ((), {PART_DONE: _part_says}),
    "all": ((), {TEXT_DONE: _says, PART_DONE: _part_says, ITEM_DONE: _item_says, END: _end_says}),
    "item alone": ((TEXT_DONE, PART_DONE), {ITEM_DONE: _item_says, END: _end_says}),
    "item after text": ((PART_DONE,), {ITEM_DONE: _item_says, END: _end_says}),
}


@pytest.mark.parametrize("name", CONTRADICTED)
def test_what_takes_back_all_deltas_ends_the_stream(name: str) -> None:
    """Rule 127: where the word that counts is not what was streamed, what went out cannot be made good."""
    left_out, edits = CONTRADICTED[name]
    frames = edited(dropped(told(Turn(Say(WORDS))), *left_out), edits)
    flowing = Flowing(Wire.RESPONSES)
    assert not flowing.carry(frames)[1]
    assert flowing.flow.began
    with pytest.raises(UpstreamGarbage, match="contradicted"):
        flowing.flow.found(flowing.flow.reply())


@pytest.mark.parametrize("left_out", [(), (TEXT_DONE,), (PART_DONE,), (TEXT_DONE, PART_DONE)])
def test_words_that_no_delta_brought_get_one(left_out: tuple[str, ...]) -> None:
    """Rule 127: a client that reads deltas alone reads all words, also those that only the last word has."""
    last = [at for at, one in enumerate(told(Turn(Say(WORDS)))) if one["type"].endswith("text.delta")][-1]
    events = told(Turn(Say(WORDS)))
    del events[last]
    for pieces in cuts(framed(dropped(events, *left_out))):
        out, raw = Flowing(Wire.RESPONSES).carry(pieces)
        assert not raw
        assert "".join(one["delta"] for one in events_of(out) if one["type"].endswith("text.delta")) == WORDS


@pytest.mark.parametrize("after", [TEXT_DONE, PART_DONE])
def test_words_after_the_last_word_are_not_forwarded(after: str) -> None:
    """Rule 127: a delta for a text that was told as a whole is not forwarded."""
    events = told(Turn(Say(WORDS)))
    delta = next(one for one in events if one["type"].endswith("text.delta"))
    at = next(at for at, one in enumerate(events) if one["type"] == after)
    late = [*events[: at + 1], {**delta, "delta": OTHER}, *events[at + 1 :]]
    for number, event in enumerate(late):
        event["sequence_number"] = number
    for pieces in cuts(framed(late)):
        assert not Flowing(Wire.RESPONSES).carry(pieces)[1]


@pytest.mark.parametrize("kind", ["response.refusal.done", PART_DONE, ITEM_DONE, END])
def test_a_refusal_is_told_in_the_same_words(kind: str) -> None:
    """Rule 127: a refusal that is told in other words is not forwarded."""

    def says(event: Event) -> None:
        items: list[Event] = [event["item"]] if "item" in event else event.get("response", {}).get("output", [])
        holder = items[0]["content"][0] if items else event.get("part", event)
        assert holder["refusal"] == "No way, sorry."
        holder["refusal"] = OTHER

    for pieces in cuts(edited(told(Turn(Refuse("No way, sorry."))), {kind: says})):
        flowing = Flowing(Wire.RESPONSES)
        assert not flowing.carry(pieces)[1]
        assert [type(part) for part in flowing.flow.reply().parts] == [Refusal]


THOUGHT = Turn(Think("Hm, let me see.", encrypted="sealed"), Say(WORDS))
CALLED = Turn(Call("f", {"q": "x"}, namespace="n"))


def _put(key: str, value: Any) -> Edit:
    def put(event: Event) -> None:
        item = event["item"] if "item" in event else event["response"]["output"][0]
        if item["type"] in ("reasoning", "function_call"):
            item[key] = value

    return put


ITEMS: dict[str, tuple[Turn, dict[str, Edit]]] = {
    "a seal only at the end": (THOUGHT, {ITEM_DONE: _put("encrypted_content", None)}),
    "another seal": (THOUGHT, {END: _put("encrypted_content", "another")}),
    "no seal at the end": (THOUGHT, {END: _put("encrypted_content", None)}),
    "another summary": (THOUGHT, {END: _put("summary", [{"type": "summary_text", "text": OTHER}])}),
    "other thoughts": (THOUGHT, {END: _put("content", [{"type": "reasoning_text", "text": OTHER}])}),
    "another namespace": (CALLED, {END: _put("namespace", "m")}),
    "no namespace": (CALLED, {END: _put("namespace", None)}),
    "a namespace only at the end": (CALLED, {ITEM_DONE: _put("namespace", None)}),
}


@pytest.mark.parametrize("name", ITEMS)
def test_an_item_is_the_same_when_it_is_done_and_at_the_end(name: str) -> None:
    """Rule 127: clients take reasoning to send back, and the tool that is called, from either event."""
    turn, edits = ITEMS[name]
    for pieces in cuts(edited(told(turn), edits)):
        out, raw = Flowing(Wire.RESPONSES).carry(pieces)
        assert not raw
        events = events_of(out)
        items = [event["item"] for event in events if event["type"] == ITEM_DONE]
        assert items == events[-1]["response"]["output"]


def test_what_is_told_in_the_same_words_is_forwarded() -> None:
    """Rule 112: the streams that are bent here are forwarded as they are."""
    for turn in (Turn(Say(WORDS)), Turn(Refuse("No way, sorry.")), Turn(Say(WORDS), *CALLED.parts), THOUGHT):
        for left_out in ((), (TEXT_DONE,), (PART_DONE,), (TEXT_DONE, PART_DONE)):
            frames = framed(dropped(told(turn), *left_out))
            for pieces in cuts(frames):
                assert Flowing(Wire.RESPONSES).carry(pieces) == (b"".join(frames), True)
