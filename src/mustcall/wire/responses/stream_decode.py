"""Responses stream events to canonical events, whatever order and gaps the server leaves.

Text, thinking and arguments flow as their deltas come; an item's `done` event, or the final response object, is the
server's last word and fills what no delta brought. Each content part of a message is a canonical part. Servers leave
out starts and ends and repeat themselves: what was completed once is never emitted again. Which item an event is about
is the business of `stream_items`. Unknown event types are ignored.
"""

from typing import Any, Literal

import msgspec

from mustcall.core.errors import ErrorInfo
from mustcall.core.origin import JsonObject, Origin, Wire
from mustcall.core.parts import Part, Reasoning, Refusal, Text, ToolCall
from mustcall.core.streams.coalesce import coalesce
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
from mustcall.wire.reading import ShapeError, as_list, as_object, decode_json, maybe_object, read
from mustcall.wire.responses.items import decode_output_item, in_envelope
from mustcall.wire.responses.parts import decode_content
from mustcall.wire.responses.reply import decode_finish, decode_usage, failure_of
from mustcall.wire.responses.stream_items import CALL, MESSAGE, OTHER, REASONING, Item, ItemSlot, ItemTable, group_of
from mustcall.wire.sse import SseEvent

__all__ = ["TERMINAL", "ResponsesStreamDecoder", "error_of_event", "event_type"]

_WIRE = Wire.RESPONSES

#: Events after which nothing follows.
TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})


def event_type(value: JsonObject, name: str) -> str:
    """Return an event's type: from its data, else from its `event:` line; an untyped error body is `error`."""
    kind = value.get("type")
    if isinstance(kind, str):
        return kind
    return "error" if value.get("error") else name


def error_of_event(value: JsonObject) -> ErrorInfo:
    """Read an `error` event: its fields at the top, or nested as in an error body."""
    nested = value.get("error")
    fields = maybe_object(nested) if nested else {**value, "type": None}
    info = failure_of({"error": fields if fields is not None else nested})
    assert info is not None, "an object with an error in it is a failure"
    return info


class _PlainDelta(msgspec.Struct, gc=False):
    """A delta of nothing but text: by far the most common event, read in C and without a dict."""

    type: Literal["response.output_text.delta"]
    item_id: str
    output_index: int
    content_index: int
    delta: str


_plain = msgspec.json.Decoder(_PlainDelta)
_TEXT_HEAD = b"event: response.output_text.delta\ndata: "


class ResponsesStreamDecoder:
    """One stream's state."""

    __slots__ = ("_items", "_last", "_next", "_over", "_provenance", "_started")

    def __init__(self, provenance: Provenance) -> None:
        self._provenance = provenance
        self._items = ItemTable()
        #: The text that was written last: the item and place its deltas name, and its slot.
        self._last: tuple[tuple[str, int, int], ItemSlot] | None = None
        self._next = 0
        self._started = False
        self._over = False

    def feed(self, event: SseEvent) -> list[Event]:
        """Take one server-sent event."""
        data = event.data.strip()
        if self._over or not data or data == b"[DONE]":
            return []
        out: list[Event] = []
        try:
            value = as_object(decode_json(data))
            self._take(event_type(value, event.name), value, out)
        except ShapeError as error:
            message = f"the upstream's stream cannot be read: {error}"
            self._fail(ErrorInfo(message=message, status=502, code="upstream_garbage"), None, out)
        return out

    def feed_all(self, events: list[SseEvent]) -> list[Event]:
        """Take events that arrived together."""
        return coalesce(event for one in events for event in self.feed(one))

    def peel(self, event: bytes) -> tuple[int, str] | None:
        """Read one delta of nothing but text."""
        last = self._last
        if last is None or self._over or last[1].ended:
            return None
        if not event.startswith(_TEXT_HEAD) or event.find(b"\n", len(_TEXT_HEAD)) != len(event) - 2:
            return None
        delta = read(_plain, memoryview(event)[len(_TEXT_HEAD) : -2])
        if delta is None or (delta.item_id, delta.output_index, delta.content_index) != last[0] or not delta.delta:
            return None
        return last[1].index, delta.delta

    def take_text(self, index: int, text: str) -> PartTextDelta:
        """Take the text of such deltas."""
        assert self._last is not None, "an event was peeled before"
        return PartTextDelta(index, self._last[1].take(None, text, False))

    def close(self) -> list[Event]:
        """Take the end of the bytes."""
        if self._over:
            return []
        out: list[Event] = []
        message = "the upstream's stream was cut before the response was complete"
        self._fail(ErrorInfo(message=message, status=502, code="upstream_unavailable"), None, out)
        return out

    def _fail(self, error: ErrorInfo, raw: Any, out: list[Event]) -> None:
        self._over = True
        out.append(Failed(error, raw))

    def _take(self, kind: str, value: JsonObject, out: list[Event]) -> None:
        match kind:
            case "response.output_text.delta":
                self._text(value, Text, value.get("delta"), out)
            case "response.output_text.done":
                self._text(value, Text, value.get("text"), out, whole=True)
            case "response.refusal.delta":
                self._text(value, Refusal, value.get("delta"), out)
            case "response.refusal.done":
                self._text(value, Refusal, value.get("refusal"), out, whole=True)
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
                self._arguments(value, value.get("delta"), out)
            case "response.function_call_arguments.done":
                self._arguments(value, value.get("arguments"), out, whole=True)
            case "response.custom_tool_call_input.done":
                self._arguments(value, value.get("input"), out, whole=True)
            case "response.reasoning_summary_text.delta":
                self._thinking(value, value.get("delta"), _number(value, "summary_index"), out)
            case "response.reasoning_summary_text.done":
                self._thinking(value, value.get("text"), _number(value, "summary_index"), out, whole=True)
            case "response.reasoning_text.delta":
                self._thinking(value, value.get("delta"), None, out)
            case "response.created" | "response.in_progress" | "response.queued":
                self._start(maybe_object(value.get("response")) or {}, out)
            case "response.output_item.added":
                self._added(value, out)
            case "response.content_part.added":
                self._content_added(value, out)
            case "response.content_part.done":
                self._content_done(value, out)
            case "response.output_item.done":
                self._item_done(value, out)
            case "response.completed" | "response.incomplete":
                self._terminal(value, out)
            case "response.failed":
                response = maybe_object(value.get("response")) or {}
                failure = failure_of({**response, "status": "failed"})
                assert failure is not None, "a response that says `failed` is a failure"
                self._fail(failure, value, out)
            case "error":
                self._fail(error_of_event(value), value, out)
            case _:
                pass

    # --- starts ---------------------------------------------------------------------------------------------------

    def _start(self, response: JsonObject, out: list[Event]) -> None:
        if self._started:
            return
        self._started = True
        identifier, model = response.get("id"), response.get("model")
        out.append(
            Started(
                identifier if isinstance(identifier, str) and identifier else f"resp_{self._provenance.token}",
                model if isinstance(model, str) else "",
            )
        )

    def _open(self, item: Item, place: int, part: Part, out: list[Event], seed: Part | None = None) -> ItemSlot:
        self._start({}, out)
        slot = item.slots[place] = ItemSlot(self._next, seed)
        self._next += 1
        out.append(PartStarted(slot.index, part))
        return slot

    def _added(self, value: JsonObject, out: list[Event]) -> None:
        fields = maybe_object(value.get("item"))
        group = group_of(fields or {})
        if fields is None or not isinstance(fields.get("type"), str):
            return
        if self._items.find(group, value, fields, begins=True) is not None:
            return
        item = self._items.register(group, value, fields)
        if group == REASONING:
            self._open(item, 0, _empty_reasoning(fields.get("id")), out)
        elif group == OTHER:
            (part,) = decode_output_item(fields, self._provenance, 0)
            self._open(item, 0, part, out)
        elif group == CALL and fields.get("call_id") and fields.get("name"):
            call = _try_call(fields, self._provenance)
            if call is not None:
                self._open(item, 0, call.evolve(arguments_json=""), out, call)

    def _content_added(self, value: JsonObject, out: list[Event]) -> None:
        part = maybe_object(value.get("part")) or {}
        if part.get("type") in ("output_text", "refusal"):
            self._content(value, Refusal if part["type"] == "refusal" else Text, out)

    # --- deltas ---------------------------------------------------------------------------------------------------

    def _content(self, value: JsonObject, kind: type[Text | Refusal], out: list[Event]) -> ItemSlot | None:
        """Return the slot of a message's content, begun if need be; None if the item is complete."""
        item = self._items.find(MESSAGE, value, {}) or self._items.register(
            MESSAGE, value, {"id": value.get("item_id")}
        )
        place = _number(value, "content_index")
        slot = item.slots.get(place)
        if slot is None and not item.done:
            (part,) = in_envelope((kind(text="", origin=Origin(_WIRE)),), item.envelope)
            slot = self._open(item, place, part, out)
        return None if slot is None or slot.ended else slot

    def _text(
        self, value: JsonObject, kind: type[Text | Refusal], text: Any, out: list[Event], *, whole: bool = False
    ) -> None:
        if isinstance(text, str) and text:
            slot = self._content(value, kind, out)
            delta = slot.take(None, text, whole) if slot is not None else ""
            if slot is not None and delta:
                out.append(PartTextDelta(slot.index, delta))
                named = (value.get("item_id"), value.get("output_index"), value.get("content_index"))
                match named:
                    case (str() as item, int() as output, int() as content) if kind is Text and not whole:
                        self._last = ((item, output, content), slot)
                    case _:
                        self._last = None

    def _arguments(self, value: JsonObject, text: Any, out: list[Event], *, whole: bool = False) -> None:
        item = self._items.find(CALL, value, {})
        slot = item.slots.get(0) if item is not None else None
        # Without a name there is no call to add to; the item's `done` event brings the arguments whole.
        if slot is not None and not slot.ended and isinstance(text, str):
            delta = slot.take(None, text, whole)
            if delta:
                out.append(ArgumentsDelta(slot.index, delta))

    def _thinking(
        self, value: JsonObject, text: Any, summary: int | None, out: list[Event], *, whole: bool = False
    ) -> None:
        if not isinstance(text, str) or not text:
            return
        item = self._items.find(REASONING, value, {})
        if item is None:
            item = self._items.register(REASONING, value, {"id": value.get("item_id")})
            self._open(item, 0, _empty_reasoning(value.get("item_id")), out)
        slot = item.slots[0]
        delta = "" if slot.ended else slot.take(summary, text, whole)
        if delta:
            out.append(PartReasoningDelta(slot.index, delta, summary))

    # --- ends -----------------------------------------------------------------------------------------------------

    def _content_done(self, value: JsonObject, out: list[Event]) -> None:
        fields = maybe_object(value.get("part")) or {}
        kind = fields.get("type")
        if not (kind == "output_text" and isinstance(fields.get("text"), str)) and not (
            kind == "refusal" and isinstance(fields.get("refusal"), str)
        ):
            return
        (part,) = decode_content([fields])
        slot = self._content(value, Refusal if isinstance(part, Refusal) else Text, out)
        item = self._items.find(MESSAGE, value, {})
        if slot is not None and item is not None:
            (part,) = in_envelope((part,), item.envelope)
            self._end(slot, part, out)

    def _item_done(self, value: JsonObject, out: list[Event]) -> None:
        fields = as_object(value.get("item"))
        group = group_of(fields)
        item = self._items.find(group, value, fields) or self._items.register(group, value, fields)
        self._finish(item, fields, out)

    def _finish(self, item: Item, fields: JsonObject, out: list[Event]) -> None:
        if item.done:
            return
        item.done = True
        parts = decode_output_item(fields, self._provenance, len(self._items))
        for place, part in enumerate(parts):
            slot = item.slots.get(place)
            if slot is None:
                slot = self._open(item, place, _bare(part), out)
            if not slot.ended:
                self._end(slot, part, out)
        self._close_slots(item, out)

    def _close_slots(self, item: Item, out: list[Event]) -> None:
        for slot in item.slots.values():
            if not slot.ended:
                self._end(slot, None if slot.streamed else slot.seed, out)

    def _end(self, slot: ItemSlot, part: Part | None, out: list[Event]) -> None:
        """End a part with its final form; what no delta brought is sent as a delta first."""
        slot.ended = True
        index = slot.index
        for channel, text in _texts(part).items():
            missing = slot.take(channel, text, whole=True)
            if not missing:
                continue
            match part:
                case Reasoning():
                    out.append(PartReasoningDelta(index, missing, channel))
                case ToolCall():
                    out.append(ArgumentsDelta(index, missing))
                case _:
                    out.append(PartTextDelta(index, missing))
        if isinstance(part, Reasoning) and part.state is not None:
            out.append(StateDelta(index, part.state))
        out.append(PartEnded(index, part))

    def _terminal(self, value: JsonObject, out: list[Event]) -> None:
        response = maybe_object(value.get("response")) or {}
        failure = failure_of(response)
        if failure is not None:
            self._fail(failure, value, out)
            return
        self._start(response, out)
        output = response.get("output")
        entries = [as_object(entry) for entry in as_list(output)] if isinstance(output, list) else []
        for item, fields in self._items.match(entries):
            self._finish(item, fields, out)
        for item in self._items:
            self._close_slots(item, out)
        usage = decode_usage(response.get("usage"))
        if usage is not None:
            out.append(UsageUpdated(usage))
        if "status" not in response and value.get("type") == "response.incomplete":
            response = {**response, "status": "incomplete"}
        reason, reported = decode_finish(response)
        out.append(Finished(reason, reported))
        out.append(Ended())
        self._over = True


def _try_call(fields: JsonObject, provenance: Provenance) -> ToolCall | None:
    """Read a call as it is announced; one that cannot be read yet waits for its `done` event."""
    try:
        (part,) = decode_output_item(fields, provenance, 0)
    except ShapeError:
        return None
    return part if isinstance(part, ToolCall) else None


def _number(value: JsonObject, key: str) -> int:
    number = value.get(key)
    return number if isinstance(number, int) and not isinstance(number, bool) else 0


def _empty_reasoning(identifier: Any) -> Reasoning:
    return Reasoning(id=identifier if isinstance(identifier, str) else None, origin=Origin(_WIRE))


def _bare(part: Part) -> Part:
    match part:
        case Text() | Refusal():
            return part.evolve(text="")
        case ToolCall():
            return part.evolve(arguments_json="")
        case Reasoning():
            return _empty_reasoning(part.id)
        case _:
            return part


def _texts(part: Part | None) -> dict[int | None, str]:
    match part:
        case Text(text=text) | Refusal(text=text) | ToolCall(arguments_json=text):
            return {None: text}
        case Reasoning(text=text, summary=summary):
            return {**dict(enumerate(summary)), None: text}
        case _:
            return {}
