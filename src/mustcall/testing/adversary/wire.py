"""How a lying server streams a reply: the wire's own events, bent in the ways servers bend them.

Each bend is a function in a table with its effect: `KEEPS` the meaning, `BENDS` it (whatever comes out must still be
valid), or `ENDS` the stream without its end, after which nothing of it may be taken for finished.
"""

import copy
import json
import random
from collections.abc import Callable
from enum import StrEnum
from typing import Any, cast

import msgspec

from mustcall.core.origin import JsonObject, Wire
from mustcall.testing.offers import as_object, as_objects

__all__ = [
    "STREAM_BENDS",
    "Effect",
    "WireEvent",
    "absurd_usage",
    "parse_events",
    "read_loosely",
    "spoil_somewhere",
    "write_events",
]

_FREE: tuple[Any, ...] = (None, 0, -1, 2**70, 1.5, "", "x", "stop", [], {}, [None], {"type": "text"}, True)


class Effect(StrEnum):
    """What a bend does to the meaning of a reply."""

    KEEPS = "keeps"
    BENDS = "bends"
    ENDS = "ends"


class WireEvent(msgspec.Struct):
    """One server-sent event; `data` is None where it is not JSON (`raw` then has the bytes)."""

    name: str | None
    data: JsonObject | None
    raw: bytes = b""


def parse_events(frames: list[bytes]) -> list[WireEvent]:
    """Read the events a renderer wrote."""
    found: list[WireEvent] = []
    for frame in frames:
        head, _, data = frame.rpartition(b"data: ")
        name = head.removeprefix(b"event: ").strip().decode() or None
        try:
            found.append(WireEvent(name, json.loads(data)))
        except ValueError:
            found.append(WireEvent(name, None, frame))
    return found


def write_events(events: list[WireEvent], newline: bytes = b"\n") -> list[bytes]:
    """Write events, with the line ends of choice."""
    frames: list[bytes] = []
    for event in events:
        if event.data is None:
            frames.append(event.raw.replace(b"\n", newline))
            continue
        head = b"" if event.name is None else b"event: " + event.name.encode() + newline
        frames.append(head + b"data: " + json.dumps(event.data).encode() + newline + newline)
    return frames


StreamBend = Callable[[list[WireEvent], random.Random], list[WireEvent]]


# --- any wire -----------------------------------------------------------------------------------------------------


def _noise(events: list[WireEvent], source: random.Random) -> list[WireEvent]:
    noise = [b": keep-alive\n\n", b"\n", b"event: ping\ndata: {}\n\n", b"retry: 10\n\n"]
    bent = list(events)
    for _ in range(3):
        bent.insert(source.randint(0, len(bent)), WireEvent(None, None, source.choice(noise)))
    return bent


def _repeat(events: list[WireEvent], source: random.Random) -> list[WireEvent]:
    at = source.randrange(len(events))
    return [*events[: at + 1], *events[at : at + source.randint(1, 2)], *events[at + 1 :]]


def _drop(events: list[WireEvent], source: random.Random) -> list[WireEvent]:
    at = source.randrange(len(events))
    return events[:at] + events[at + 1 :]


def _swap(events: list[WireEvent], source: random.Random) -> list[WireEvent]:
    one, two = source.randrange(len(events)), source.randrange(len(events))
    bent = list(events)
    bent[one], bent[two] = bent[two], bent[one]
    return bent


def _mangle(events: list[WireEvent], source: random.Random) -> list[WireEvent]:
    bent = copy.deepcopy(events)
    event = source.choice(bent)
    if event.data is not None:
        spoil_somewhere(event.data, source)
    return bent


def _garbage(events: list[WireEvent], source: random.Random) -> list[WireEvent]:
    bent = list(events)
    rubbish = [b"data: {not json\n\n", b"\xff\xfe\x00\n\n", b"data: [1,2\n\n", b"<html>\n\n", b"data: null\n\n"]
    bent.insert(source.randint(0, len(bent)), WireEvent(None, None, source.choice(rubbish)))
    return bent


def _stop_early(events: list[WireEvent], source: random.Random) -> list[WireEvent]:
    """End the body in good order before the event that ends the reply."""
    end = next((at for at, event in enumerate(events) if _ends(event)), len(events))
    return events[: source.randint(0, end)]


def _ends(event: WireEvent) -> bool:
    data = event.data or {}
    if data.get("type") in ("message_delta", "message_stop", "response.completed", "response.incomplete"):
        return True
    return any(choice.get("finish_reason") is not None for choice in as_objects(data.get("choices")))


def _no_usage(events: list[WireEvent], _: random.Random) -> list[WireEvent]:
    bent = copy.deepcopy(events)
    for event in bent:
        for holder in (event.data or {}, as_object((event.data or {}).get("response"))):
            holder.pop("usage", None)
    return bent


def _odd_usage(events: list[WireEvent], source: random.Random) -> list[WireEvent]:
    bent = copy.deepcopy(events)
    for event in bent:
        for holder in (event.data or {}, as_object((event.data or {}).get("response"))):
            if holder.get("usage"):
                holder["usage"] = absurd_usage(source)
    return bent


def absurd_usage(source: random.Random) -> Any:
    """Return a usage no server should send."""
    numbers: list[Any] = [-5, 2**60, "many", None, 1.5, [], True]
    words = ("prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens")
    return source.choice([*numbers[3:], {word: source.choice(numbers) for word in words}])


def spoil_somewhere(value: Any, source: random.Random) -> None:
    """Replace or remove one place of a JSON value, chosen on a random way down."""
    holder, key = value, None
    while isinstance(holder, (dict, list)) and holder:
        keys = cast("list[Any]", list(holder) if isinstance(holder, dict) else list(range(len(holder))))
        key = source.choice(keys)
        inner = cast("Any", holder[key])
        if isinstance(inner, (dict, list)) and inner and source.random() < 0.8:
            holder = cast("Any", inner)
            continue
        if isinstance(holder, dict) and source.random() < 0.4:
            del holder[key]
        else:
            holder[key] = source.choice(_FREE)
        return


# --- chat ---------------------------------------------------------------------------------------------------------


def _fragments(events: list[WireEvent]) -> list[tuple[WireEvent, JsonObject]]:
    """Return the tool-call fragments of a chat stream, each with its event."""
    return [
        (event, fragment)
        for event in events
        for choice in as_objects((event.data or {}).get("choices"))
        for fragment in as_objects(as_object(choice.get("delta")).get("tool_calls"))
    ]


def _one_index(events: list[WireEvent], _: random.Random) -> list[WireEvent]:
    """All parallel calls on index 0; only the first fragment of each has an id."""
    bent = copy.deepcopy(events)
    for _event, fragment in _fragments(bent):
        fragment["index"] = 0
    return bent


def _no_index(events: list[WireEvent], _: random.Random) -> list[WireEvent]:
    bent = copy.deepcopy(events)
    for _event, fragment in _fragments(bent):
        fragment.pop("index", None)
    return bent


def _named_everywhere(events: list[WireEvent], _: random.Random) -> list[WireEvent]:
    """Id and name in every fragment."""
    bent = copy.deepcopy(events)
    heads: dict[Any, tuple[Any, Any]] = {}
    for _event, fragment in _fragments(bent):
        function = as_object(fragment.get("function"))
        if "id" in fragment:
            heads[fragment["index"]] = (fragment["id"], function.get("name"))
        fragment["id"], function["name"] = heads[fragment["index"]]
    return bent


def _changing_id(events: list[WireEvent], _: random.Random) -> list[WireEvent]:
    """A new id in a fragment in the middle of a call's arguments."""
    bent = copy.deepcopy(events)
    seen: dict[Any, int] = {}
    for _event, fragment in _fragments(bent):
        place = fragment["index"]
        seen[place] = seen.get(place, 0) + 1
        if seen[place] == 3:
            fragment["id"] = f"other_{place}"
    return bent


def _whole_arguments(events: list[WireEvent], source: random.Random) -> list[WireEvent]:
    """Each call in one fragment: its arguments as text, as an object, or twice over as complete snapshots."""
    bent = copy.deepcopy(events)
    whole: dict[Any, str] = {}
    for _event, fragment in _fragments(bent):
        arguments = as_object(fragment.get("function")).get("arguments") or ""
        whole[fragment["index"]] = whole.get(fragment["index"], "") + arguments
    form = source.choice(["text", "object", "twice"])
    kept: list[WireEvent] = []
    for event in bent:
        found = _fragments([event])
        if not found:
            kept.append(event)
            continue
        fragment = found[0][1]
        if "id" not in fragment:
            if form == "twice" and whole.get(("again", fragment["index"])) is None:
                whole["again", fragment["index"]] = ""
                fragment["function"] = {"arguments": whole[fragment["index"]]}
                kept.append(event)
            continue
        fragment["function"]["arguments"] = whole[fragment["index"]]
        if form == "object":
            fragment["function"]["arguments"] = read_loosely(whole[fragment["index"]])
        kept.append(event)
    return kept


def read_loosely(text: str) -> Any:
    """Return the JSON value a text is, the text itself if it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _interleaved(events: list[WireEvent], source: random.Random) -> list[WireEvent]:
    """Fragments of parallel calls mixed; the order within each call stays."""
    places = [at for at, event in enumerate(events) if _fragments([event])]
    queues: dict[Any, list[WireEvent]] = {}
    for at in places:
        queues.setdefault(_fragments([events[at]])[0][1].get("index"), []).append(events[at])
    bent = list(events)
    for at in places:
        queue = source.choice([queue for queue in queues.values() if queue])
        bent[at] = queue.pop(0)
    return bent


def _empty_lists(events: list[WireEvent], _: random.Random) -> list[WireEvent]:
    """`tool_calls: []` in every delta that has none, and arguments of null where a call begins."""
    bent = copy.deepcopy(events)
    for event in bent:
        for choice in as_objects((event.data or {}).get("choices")):
            as_object(choice.get("delta")).setdefault("tool_calls", [])
    for _event, fragment in _fragments(bent):
        if "id" in fragment and not fragment["function"].get("arguments"):
            fragment["function"]["arguments"] = None
    return bent


def _late(events: list[WireEvent], source: random.Random) -> list[WireEvent]:
    """A delta, of text or of arguments, after the finish."""
    at = next((k for k, event in enumerate(events) if _ends(event)), len(events) - 1)
    filled = [event for event in events[:at] if event.data is not None]
    return [*events[: at + 1], source.choice(filled), *events[at + 1 :]] if filled else events


def _no_finish(events: list[WireEvent], _: random.Random) -> list[WireEvent]:
    """No finish reason anywhere, and no end marker."""
    bent = copy.deepcopy(events)
    for event in bent:
        for choice in as_objects((event.data or {}).get("choices")):
            choice["finish_reason"] = None
    return [event for event in bent if event.data is not None]


# --- responses and messages -----------------------------------------------------------------------------------------


def _only_final(events: list[WireEvent], _: random.Random) -> list[WireEvent]:
    """Arguments only in the event that ends the call: no deltas."""
    return [event for event in events if not str((event.data or {}).get("type")).endswith("arguments.delta")]


def _empty_output(events: list[WireEvent], _: random.Random) -> list[WireEvent]:
    """The last event's `output` is empty although items were streamed."""
    bent = copy.deepcopy(events)
    response = as_object((bent[-1].data or {}).get("response"))
    if "output" in response:
        response["output"] = []
    return bent


def _unplaced(events: list[WireEvent], _: random.Random) -> list[WireEvent]:
    """No `output_index`, `content_index`, `index` or `sequence_number`."""
    bent = copy.deepcopy(events)
    for event in bent:
        for word in ("output_index", "content_index", "index", "sequence_number"):
            (event.data or {}).pop(word, None)
    return bent


def _whole_input(events: list[WireEvent], _: random.Random) -> list[WireEvent]:
    """A call's whole input where the block starts, and no deltas."""
    bent = copy.deepcopy(events)
    texts: dict[Any, str] = {}
    for event in bent:
        data = event.data or {}
        if as_object(data.get("delta")).get("type") == "input_json_delta":
            texts[data.get("index")] = texts.get(data.get("index"), "") + str(data["delta"]["partial_json"])
    for event in bent:
        data = event.data or {}
        if data.get("type") == "content_block_start" and texts.get(data.get("index")):
            as_object(data.get("content_block"))["input"] = read_loosely(texts[data["index"]])
    return [event for event in bent if as_object((event.data or {}).get("delta")).get("type") != "input_json_delta"]


def _unstopped(events: list[WireEvent], _: random.Random) -> list[WireEvent]:
    """No `content_block_stop`: each block ends where the next begins."""
    return [event for event in events if (event.data or {}).get("type") != "content_block_stop"]


_ANY: tuple[tuple[StreamBend, Effect], ...] = (
    (_noise, Effect.KEEPS),
    (_no_usage, Effect.KEEPS),
    (_odd_usage, Effect.BENDS),
    (_repeat, Effect.BENDS),
    (_drop, Effect.BENDS),
    (_swap, Effect.BENDS),
    (_mangle, Effect.BENDS),
    (_mangle, Effect.BENDS),
    (_garbage, Effect.BENDS),
    (_stop_early, Effect.ENDS),
    (_late, Effect.BENDS),
)
STREAM_BENDS: dict[Wire, tuple[tuple[StreamBend, Effect], ...]] = {
    Wire.CHAT: (
        *_ANY,
        (_one_index, Effect.KEEPS),
        (_no_index, Effect.KEEPS),
        (_named_everywhere, Effect.KEEPS),
        (_changing_id, Effect.KEEPS),
        (_whole_arguments, Effect.KEEPS),
        (_interleaved, Effect.KEEPS),
        (_empty_lists, Effect.KEEPS),
        (_no_finish, Effect.ENDS),
    ),
    Wire.RESPONSES: (*_ANY, (_only_final, Effect.KEEPS), (_empty_output, Effect.BENDS), (_unplaced, Effect.BENDS)),
    Wire.MESSAGES: (*_ANY, (_whole_input, Effect.KEEPS), (_unstopped, Effect.BENDS), (_unplaced, Effect.BENDS)),
}
