"""Responses stream events to canonical events: what an event means, and whether its bytes may be forwarded.

Text, thinking and arguments flow as their deltas come; an item's `done` event, or the final response object, is the
server's last word and fills what no delta brought. Each content part of a message is a canonical part. Servers leave
out starts and ends and repeat themselves: what was completed once is never emitted again. Which item an event is about
is the business of `stream_items`. Unknown event types are ignored.
"""

from collections.abc import Sequence
from typing import Any

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
from mustcall.wire.framing import Framing
from mustcall.wire.reading import ShapeError, as_object, decode_json, maybe_object
from mustcall.wire.responses.items import decode_output_item, in_envelope
from mustcall.wire.responses.parts import decode_content
from mustcall.wire.responses.repairs import ResponseOrder, mended
from mustcall.wire.responses.reply import decode_finish, decode_usage, failure_of
from mustcall.wire.responses.shape import (
    ENDS,
    TEXTS,
    ErrorEvent,
    FailedEvent,
    ItemEvent,
    LifecycleEvent,
    PartEvent,
    ResponsesBody,
    ResponsesEvent,
    TextEvent,
    fit_content,
    read_event,
    read_text,
)
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


_FAILURES = frozenset({FailedEvent, ErrorEvent})
_TEXT_HEAD = b"event: response.output_text.delta\ndata: "


class ResponsesStreamDecoder:
    """One stream's state: its items, and whether it is still going on."""

    __slots__ = ("_ahead", "_framing", "_items", "_last", "_next", "_order", "_over", "_provenance", "_started")

    def __init__(self, provenance: Provenance) -> None:
        self._provenance = provenance
        self._items = ItemTable()
        #: The text that was written last: the item and place its deltas name, and its slot.
        self._last: tuple[tuple[str, int, int | None], ItemSlot] | None = None
        self._next = 0
        self._started = False
        self._over = False
        self._framing = Framing()
        self._order = ResponseOrder()
        #: Events that were looked at before they are fed, what they are, and what they mean if they are in order.
        self._ahead: tuple[list[SseEvent], list[ResponsesEvent | None], list[Event] | None] | None = None

    # --- whether bytes may be forwarded ----------------------------------------------------------------------------

    @property
    def names(self) -> Sequence[str]:
        """The id of each item, by its index; empty where it has none."""
        return self._order.names

    @property
    def settled(self) -> bool:
        """Whether no item is between two events that mean one thing together."""
        return not self._order.unsettled

    @property
    def complete(self) -> bool:
        """Whether the response's last event came."""
        return self._order.ended

    def takes(self, block: bytes, events: list[SseEvent]) -> bool:
        """Tell whether no repair is needed for these bytes; `feed_all` returns what was read for that.

        A whole text is compared with its deltas where they are kept: in the slot that they are read into.
        """
        if not self._framing.takes(block):
            return False
        values = [*map(read_event, events)]
        if any(map(self._order.repair, events, values)):
            self._ahead = events, values, None
            return False
        self._ahead = events, values, self._read(events, values)
        return self._order.agrees

    # --- what events mean --------------------------------------------------------------------------------------------

    def feed(self, event: SseEvent) -> list[Event]:
        """Take one server-sent event."""
        out: list[Event] = []
        self._event(event, read_event(event), out)
        return out

    def feed_all(self, events: list[SseEvent]) -> list[Event]:
        """Take events that arrived together."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[0] is not events:
            return self._read(events, [*map(read_event, events)])
        return self._read(events, ahead[1]) if ahead[2] is None else ahead[2]

    def _read(self, events: list[SseEvent], values: list[ResponsesEvent | None]) -> list[Event]:
        out: list[Event] = []
        for event, value in zip(events, values, strict=True):
            self._event(event, value, out)
        return coalesce(out) if len(out) > 1 else out

    def peel(self, event: bytes) -> tuple[int, str] | None:
        """Read one delta of nothing but text."""
        last = self._last
        if last is None or self._over or last[1].ended:
            return None
        if not event.startswith(_TEXT_HEAD) or event.find(b"\n", len(_TEXT_HEAD)) != len(event) - 2:
            return None
        delta = read_text(memoryview(event)[len(_TEXT_HEAD) : -2])
        if delta is None or (delta.item_id, delta.output_index, delta.content_index) != last[0] or not delta.delta:
            return None
        return last[1].index, delta.delta

    def take_text(self, index: int, text: str, number: int | None) -> PartTextDelta:
        """Take the text of such deltas."""
        assert self._last is not None, "an event was peeled before"
        if number is not None:
            self._order.number = number
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

    def _event(self, event: SseEvent, value: ResponsesEvent | None, out: list[Event]) -> None:
        """Take one event, and what it is if it fits."""
        if self._over:
            return
        try:
            if value is None or type(value) in _FAILURES:
                self._odd_event(event, out)
            else:
                self._take(value, out)
        except ShapeError as error:
            message = f"the upstream's stream cannot be read: {error}"
            self._fail(ErrorInfo(message=message, status=502, code="upstream_garbage"), None, out)

    def _odd_event(self, event: SseEvent, out: list[Event]) -> None:
        """Take an event that does not fit, or with which the upstream failed."""
        data = event.data.strip()
        if not data or data == b"[DONE]":
            return
        value = as_object(decode_json(data))
        kind = event_type(value, event.name)
        failure = None
        if kind == "error":
            failure = error_of_event(value)
        elif kind in TERMINAL:
            response = maybe_object(value.get("response")) or {}
            failure = failure_of({**response, "status": "failed"} if kind == "response.failed" else response)
        if failure is not None:
            self._fail(failure, value, out)
            return
        fitted = mended(kind, value)
        if fitted is not None:
            self._take(fitted, out)

    def _take(self, event: ResponsesEvent, out: list[Event]) -> None:
        match event:
            case TextEvent():
                self._text(event, out)
            case ItemEvent(type="response.output_item.added"):
                self._added(event, out)
            case ItemEvent():
                self._item_done(event, out)
            case PartEvent(type="response.content_part.added"):
                if event.part.get("type") in ("output_text", "refusal"):
                    self._content(event, Refusal if event.part["type"] == "refusal" else Text, out)
            case PartEvent():
                self._content_done(event, out)
            case LifecycleEvent(type=kind, response=response):
                (self._terminal if kind in ENDS else self._start)(response, out)
            case _:
                pass

    # --- starts ---------------------------------------------------------------------------------------------------

    def _start(self, response: ResponsesBody | None, out: list[Event]) -> None:
        if not self._started:
            self._started = True
            identifier, model = (response.id, response.model) if response is not None else ("", "")
            out.append(Started(identifier or f"resp_{self._provenance.token}", model or ""))

    def _open(self, item: Item, place: int, part: Part, out: list[Event], seed: Part | None = None) -> ItemSlot:
        self._start(None, out)
        slot = item.slots[place] = ItemSlot(self._next, seed)
        self._next += 1
        out.append(PartStarted(slot.index, part))
        return slot

    def _added(self, event: ItemEvent, out: list[Event]) -> None:
        fields = maybe_object(event.item)
        group = group_of(fields or {})
        if fields is None or not isinstance(fields.get("type"), str):
            return
        if self._items.carried(group, event.output_index, fields, begins=True) is not None:
            return
        item = self._register(group, event.output_index, fields)
        if group == REASONING:
            self._open(item, 0, _empty_reasoning(fields.get("id")), out)
        elif group == OTHER:
            (part,) = decode_output_item(fields, self._provenance, 0)
            self._open(item, 0, part, out)
        elif group == CALL and fields.get("call_id") and fields.get("name"):
            call = _try_call(fields, self._provenance)
            if call is not None:
                self._open(item, 0, call.evolve(arguments_json=""), out, call)

    def _register(self, group: str, index: int | None, fields: JsonObject) -> Item:
        self._last = None  # the same names may mean this one from now on
        return self._items.register(group, index, fields)

    # --- deltas ---------------------------------------------------------------------------------------------------

    def _text(self, event: TextEvent, out: list[Event]) -> None:
        owner, field, number, content = TEXTS[event.type]
        text: str | None = getattr(event, field)
        whole = field != "delta"
        if not text:
            return
        if content:
            self._words(event, text, content, out, whole=whole)
        elif owner != REASONING:
            self._arguments(event, text, out, whole=whole)
        elif not whole or number == "summary_index":  # other text is told again when its item is done
            self._thinking(event, text, event.summary_index if number == "summary_index" else None, out, whole=whole)

    def _words(self, event: TextEvent, text: str, kind: str, out: list[Event], *, whole: bool) -> None:
        last, named = self._last, (event.item_id, event.output_index, event.content_index)
        plain = kind == "output_text" and not whole
        if plain and last is not None and last[0] == named and not last[1].ended:
            out.append(PartTextDelta(last[1].index, last[1].take(None, text, whole)))
            return
        slot = self._content(event, Refusal if kind == "refusal" else Text, out)
        delta = slot.take(None, text, whole) if slot is not None else ""
        if slot is not None and delta:
            out.append(PartTextDelta(slot.index, delta))
            self._last = (named, slot) if plain else None

    def _content(self, event: TextEvent | PartEvent, kind: type[Text | Refusal], out: list[Event]) -> ItemSlot | None:
        """Return the slot of a message's content, begun if need be; None if the item is complete."""
        index, place = event.output_index, event.content_index or 0
        item = self._items.find(MESSAGE, index, event.item_id)
        if item is None:
            item = self._register(MESSAGE, index, {"id": event.item_id})
        slot = item.slots.get(place)
        if slot is None and not item.done:
            (part,) = in_envelope((kind(text="", origin=Origin(_WIRE)),), item.envelope)
            slot = self._open(item, place, part, out)
        return None if slot is None or slot.ended else slot

    def _arguments(self, event: TextEvent, text: str, out: list[Event], *, whole: bool) -> None:
        item = self._items.find(CALL, event.output_index, event.item_id)
        slot = item.slots.get(0) if item is not None else None
        # Without a name there is no call to add to; the item's `done` event brings the arguments whole.
        if slot is not None and not slot.ended:
            delta = slot.take(None, text, whole)
            if delta:
                out.append(ArgumentsDelta(slot.index, delta))

    def _thinking(self, event: TextEvent, text: str, summary: int | None, out: list[Event], *, whole: bool) -> None:
        item = self._items.find(REASONING, event.output_index, event.item_id)
        if item is None:
            item = self._register(REASONING, event.output_index, {"id": event.item_id})
            self._open(item, 0, _empty_reasoning(event.item_id), out)
        slot = item.slots[0]
        delta = "" if slot.ended else slot.take(summary, text, whole)
        if delta:
            out.append(PartReasoningDelta(slot.index, delta, summary))

    # --- ends -----------------------------------------------------------------------------------------------------

    def _content_done(self, event: PartEvent, out: list[Event]) -> None:
        kind = event.part.get("type")
        if kind not in ("output_text", "refusal") or fit_content(event.part) is None:
            return
        (part,) = decode_content([event.part])
        slot = self._content(event, Refusal if isinstance(part, Refusal) else Text, out)
        item = self._items.find(MESSAGE, event.output_index, event.item_id)
        if slot is not None and item is not None:
            (part,) = in_envelope((part,), item.envelope)
            self._end(slot, part, out)

    def _item_done(self, event: ItemEvent, out: list[Event]) -> None:
        fields = as_object(event.item)
        group, index = group_of(fields), event.output_index
        item = self._items.carried(group, index, fields) or self._register(group, index, fields)
        self._finish(item, fields, out)

    def _finish(self, item: Item, fields: JsonObject, out: list[Event]) -> None:
        if item.done:
            return
        item.done = True
        parts = decode_output_item(_as_announced(item, fields), self._provenance, len(self._items))
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
        if isinstance(part, Text | Refusal):
            self._order.agrees &= slot.agrees
        elif isinstance(part, Reasoning) and part.state is not None:
            out.append(StateDelta(index, part.state))
        out.append(PartEnded(index, part))

    def _terminal(self, response: ResponsesBody, out: list[Event]) -> None:
        self._start(response, out)
        for item, fields in self._items.match([as_object(entry) for entry in response.output]):
            self._finish(item, fields, out)
        for item in self._items:
            self._close_slots(item, out)
        usage = decode_usage(response.usage)
        if usage is not None:
            out.append(UsageUpdated(usage))
        details = response.incomplete_details
        out.append(Finished(*decode_finish(response.status, None if details is None else details.reason)))
        out.append(Ended())
        self._over = True


def _as_announced(item: Item, fields: JsonObject) -> JsonObject:
    """Return an item under the type that it was announced with: clients refuse one that changes it."""
    announced, kind = item.envelope.get("type"), fields.get("type")
    if announced is None or announced == kind or not isinstance(kind, str):
        return fields
    if item.group == CALL:  # what a tool is given has another name, and another form
        raise ShapeError(str(announced), kind, "type")
    return {**fields, "type": announced}


def _try_call(fields: JsonObject, provenance: Provenance) -> ToolCall | None:
    """Read a call as it is announced; one that cannot be read yet waits for its `done` event."""
    try:
        (part,) = decode_output_item(fields, provenance, 0)
    except ShapeError:
        return None
    return part if isinstance(part, ToolCall) else None


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
