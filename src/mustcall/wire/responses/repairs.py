"""What Responses servers send that is not the wire's, and how it is read: the table, and the reading of such events.

Every row keeps a reply or a stream from being forwarded as it came. What fits `shape` needs no row. An event that does
not fit is read as one that does, with nothing where a value is missing: what it means is told in one place.

The SDKs refuse a stream that does not begin with `response.created`, an item that changes its identity, content before
its item; Codex acts on `output_item.done` alone, others on the last event's output, the AI SDK on deltas, and on
responses and calls that are complete. So these must agree, and their numbers must rise.
"""

from collections.abc import Sequence
from itertools import count
from typing import Any

from mustcall.core.origin import JsonObject
from mustcall.wire.codec import WireDeviation
from mustcall.wire.reading import as_list, maybe_object
from mustcall.wire.responses.shape import (
    ANNOUNCEMENTS,
    ENDS,
    ITEM_EVENTS,
    PART_EVENTS,
    SPOKEN,
    TEXTS,
    CallItem,
    ErrorEvent,
    FailedEvent,
    IncompleteDetails,
    ItemEvent,
    LifecycleEvent,
    MessageItem,
    OutputItem,
    PartEvent,
    ReasoningItem,
    ResponsesBody,
    ResponsesEvent,
    SummaryPartEvent,
    TextEvent,
    are_distinct,
    fit_content,
    fit_item,
    is_counted,
    is_ended,
    speaks,
    words_of,
)
from mustcall.wire.sse import SseEvent

__all__ = ["REPAIRS", "ResponseOrder", "mended"]


REPAIRS = {
    # What comes out of order in a stream (`ResponseOrder`); `stream_decode` trusts no order.
    "after end": WireDeviation("an event after the last, other than one `[DONE]`", "not at all"),
    "not created": WireDeviation("a stream that begins with another event", "under an id of ours", "SDKs refuse it"),
    "number": WireDeviation("an event without a number, or one that does not rise", "without it"),
    "announced": WireDeviation("a response announced twice, with output, without model or time", "by the first"),
    "item": WireDeviation("an item that is not what its type says, or has the id of another", "as far as it can be"),
    "early": WireDeviation("an item or a content that is announced with its words", "once", "read twice by clients"),
    "place": WireDeviation("an event about an item or a content that is not open", "by `stream_items`"),
    "changed": WireDeviation("an item whose ids, name, words or input change", "by the last word on it"),
    "no deltas": WireDeviation("words that no delta brought", "from the last word", "the AI SDK reads deltas alone"),
    "no status": WireDeviation("a call that is done and does not say so", "as complete", "the AI SDK asks for it"),
    "end": WireDeviation("an end that contradicts the stream or itself", "after what was streamed"),
    "misfit": WireDeviation("an event of another shape", "by the rows below, in `mended`"),
    # What does not fit the shape of an event or of a whole reply (`mended`; `reply` and `items`).
    "no type": WireDeviation("an event without a type", "by the name on its `event:` line"),
    "no index": WireDeviation("an event without index or item id", "by `stream_items`"),
    "arguments": WireDeviation("arguments as an object, or null", "as JSON text, or as no text"),
    "no call id": WireDeviation("a call without a call id", "under its item's id, or one of ours"),
    "usage": WireDeviation("usage that is no object, counts that are no numbers", "as none, as 0"),
    "status": WireDeviation("a response without a status", "as complete"),
}


class _Progress:
    """One item: who it is, the contents it has, the input that was streamed, and how it ended."""

    __slots__ = ("contents", "done", "final", "identity", "kind", "last", "open", "pieces", "spoke", "told")

    def __init__(self, kind: str, identity: tuple[str, str | None, str, str]) -> None:
        self.kind = kind
        self.identity = identity
        #: The kind of each content; in `open` it is empty once the content is done.
        self.contents: list[str] = []
        self.open: list[str] = []
        #: Each content's words as they were first told as a whole: they are told again, and must be the same.
        self.told: dict[int, object] = {}
        #: What the item said when it was done.
        self.last: object = None
        self.pieces: list[str] = []
        self.final: str | None = None
        #: Whether a delta of its text was seen: of those that follow not every one is shown.
        self.spoke = False
        self.done = False

    def said(self) -> str:
        """Return a call's input; after this nothing may be added."""
        if self.final is None:
            self.final = "".join(self.pieces)
        return self.final

    def retells(self, place: int, words: object) -> bool:
        """Take all of a content, after which it is closed; tell whether its words are those that were told before."""
        self.open[place] = ""
        return self.told.setdefault(place, words) == words


def _last_word(item: OutputItem) -> object:
    """Return what an item says when it is done, and may not take back at the response's end."""
    match item:
        case MessageItem():
            return item.content
        case ReasoningItem():
            return item.summary, item.content or [], item.encrypted_content or None
        case CallItem():
            return item.namespace or None, item.given
        case _:
            return None


def _identity(kind: str, item: OutputItem) -> tuple[str, str | None, str, str]:
    """Return what an item may not change: its kind, ids and name."""
    return (kind, item.id, item.call_id, item.name) if isinstance(item, CallItem) else (kind, item.id, "", "")


class ResponseOrder:
    """One stream: which repair its next event needs, after all before."""

    __slots__ = ("_id", "_ids", "_items", "_marked", "agrees", "ended", "number", "unsettled")

    def __init__(self) -> None:
        self._id: str | None = None
        self._items: list[_Progress] = []
        self._ids: set[str] = set()
        self._marked = False
        #: That of the last event.
        self.number = -1
        #: Items between two events that mean one thing together.
        self.unsettled: set[_Progress] = set()
        #: Whether each content was told as a whole in the words of its deltas; who reads these says so.
        self.agrees = True
        #: Whether the response's last event came.
        self.ended = False

    @property
    def names(self) -> Sequence[str]:
        """The id of each item, by its index; empty where it has none."""
        return [item.identity[1] or "" for item in self._items]

    def repair(self, event: SseEvent, value: ResponsesEvent | None) -> str:
        """Take the next event, and what it is if it fits; return no name if a strict client reads it as it means."""
        if self.ended:
            # Some servers add OpenAI's end mark of the other wire, where clients stop reading.
            once, self._marked = not self._marked, True
            return "" if once and event.data == b"[DONE]" else "after end"
        if value is None:
            return "misfit"
        if self._id is None and value.type != "response.created":
            return "not created"
        number = value.sequence_number
        if number is not None:
            if number <= self.number:
                return "number"
            self.number = number
        elif type(value) is not ResponsesEvent:
            return "number"
        match value:
            case TextEvent():
                return self._text(value)
            case ItemEvent():
                return self._added(value) if value.type == "response.output_item.added" else self._done(value)
            case PartEvent():
                return self._part(value)
            case SummaryPartEvent():
                known = self._find(value.output_index, value.item_id, "reasoning")
                if known is not None:
                    self.unsettled.add(known)
                return "place" if known is None else ""
            case LifecycleEvent():
                return self._response(value)
            case FailedEvent():
                self.ended = True
                return "" if value.response.id == self._id else "end"
            case ErrorEvent():
                self.ended = True
                return ""
            case _:
                return ""

    def _response(self, value: LifecycleEvent) -> str:
        response, kind = value.response, value.type
        if kind in ENDS:
            self.ended = True
            if not is_ended(response) or f"response.{response.status}" != kind or response.id != self._id:
                return "end"
            return self._output(response.output) if is_counted(response) else "usage"
        known, self._id = self._id, response.id
        expected = None if kind == "response.created" else response.id
        if known != expected or response.output or response.created_at is None or response.model is None:
            return "announced"
        return "" if is_counted(response) else "usage"

    def _output(self, output: list[JsonObject]) -> str:
        """Compare the response's last word with the items that came."""
        if len(output) != len(self._items):
            return "end"
        items: list[OutputItem] = []
        for known, fields in zip(self._items, output, strict=True):
            item = fit_item(fields)
            if item is None:
                return "item"
            items.append(item)
            if not known.done or known.identity != _identity(fields["type"], item) or known.last != _last_word(item):
                return "end"
        return "" if are_distinct(items) else "item"

    def _added(self, value: ItemEvent) -> str:
        item = fit_item(value.item)
        if item is None or item.id in self._ids or (item.id is None and isinstance(item, CallItem)):
            return "item"  # clients take two items of one id for a contradiction
        if value.output_index != len(self._items):
            return "place"
        if item.id:
            self._ids.add(item.id)
        kind: str = value.item["type"]
        known = _Progress(kind, _identity(kind, item))
        self._items.append(known)
        # What an item has when it is announced would be read twice: its deltas bring it again.
        match item:
            case MessageItem():
                self.unsettled.add(known)  # until its content says what it is
                return "early" if item.content else ""
            case CallItem():
                return "early" if item.given else ""
            case ReasoningItem():
                return "early" if item.summary or item.content else ""
            case _:
                return ""

    def _done(self, value: ItemEvent) -> str:
        if value.output_index >= len(self._items):
            return "place"
        known, item = self._items[value.output_index], fit_item(value.item)
        if item is None:
            return "item"
        if known.done or known.identity != _identity(value.item["type"], item):
            return "changed"
        known.done = True
        known.last = _last_word(item)
        self.unsettled.discard(known)
        match item:
            case MessageItem():
                if not known.spoke and any(map(speaks, item.content)):
                    return "no deltas"
                if [part.type for part in item.content] != known.contents:
                    return "changed"
                return "" if all(map(known.retells, count(), map(words_of, item.content))) else "changed"
            case CallItem():
                if item.status is None:
                    return "no status"
                return "" if item.given == known.said() else "changed"
            case ReasoningItem():
                return "no deltas" if not known.spoke and any(text.text for text in item.summary) else ""
            case _:
                return ""

    def _part(self, value: PartEvent) -> str:
        part, known = fit_content(value.part), self._find(value.output_index, value.item_id)
        if part is None:
            return "misfit"
        if known is None:
            return "place"
        if known.kind != "message":
            return "place" if part.type in SPOKEN else ""
        if value.type == "response.content_part.done":
            self.unsettled.add(known)
            place = value.content_index
            if place >= len(known.contents):
                return "place"
            same = part.type == known.contents[place] and known.retells(place, words_of(part))
            return "" if same else "changed"
        known.contents.append(part.type)
        known.open.append(part.type)
        if part.type in SPOKEN:  # one of another kind means nothing before its item is done
            self._settle(known)
        if value.content_index != len(known.contents) - 1:
            return "place"
        return "early" if speaks(part) else ""

    def _settle(self, known: _Progress) -> None:
        """Note that all of an item so far has been told; of several contents only their item's end tells that.

        Who writes on in the middle of the second one cannot say whose content it is.
        """
        if len(known.contents) < 2:
            self.unsettled.discard(known)
        else:
            self.unsettled.add(known)

    def _text(self, value: TextEvent) -> str:
        owner, field, number, content = TEXTS[value.type]
        known = self._find(value.output_index, value.item_id, owner)
        if known is None:
            return "place"
        text: str = getattr(value, field)
        if field == "delta":
            self._settle(known)
            known.spoke = True
        else:
            self.unsettled.add(known)
            if text and not known.spoke:
                return "no deltas"
            if content and known.told.setdefault(getattr(value, number), text) != text:
                return "changed"
        if content:
            place: int = getattr(value, number)
            return "" if place < len(known.open) and known.open[place] == content else "place"
        if number:
            return ""
        if field == "delta":
            known.pieces.append(text)
            return "" if known.final is None else "changed"
        return "" if text == known.said() else "changed"

    def _find(self, index: int, item_id: str, kind: str = "") -> _Progress | None:
        """Return the item an event is about, if it is open and the event calls it by its id."""
        if index >= len(self._items):
            return None
        known = self._items[index]
        if known.done or known.identity[1] not in (None, item_id) or (kind and known.kind != kind):
            return None
        return known


def mended(kind: str, value: JsonObject) -> ResponsesEvent | None:
    """Read an event that does not fit; None where it says nothing. What an upstream failed with is not read here."""
    index: Any = _number(value.get("output_index"))
    item_id: Any = value.get("item_id")
    content = _number(value.get("content_index")) or 0
    where = TEXTS.get(kind)
    if where is not None:
        text = value.get(where.field)
        said: dict[str, Any] = {where.field: text} if isinstance(text, str) else {}
        return TextEvent(
            type=kind,
            item_id=item_id,
            output_index=index,
            content_index=content,
            summary_index=_number(value.get("summary_index")) or 0,
            **said,
        )
    if kind in ITEM_EVENTS:
        item: Any = value.get("item")
        return ItemEvent(type=kind, output_index=index, item=item)
    if kind in PART_EVENTS:
        part = maybe_object(value.get("part")) or {}
        return PartEvent(type=kind, item_id=item_id, output_index=index, content_index=content, part=part)
    return LifecycleEvent(type=kind, response=_response(value)) if kind in ANNOUNCEMENTS or kind in ENDS else None


def _response(value: JsonObject) -> ResponsesBody:
    response = maybe_object(value.get("response")) or {}
    identifier, model, output = response.get("id"), response.get("model"), response.get("output")
    reason: Any = (maybe_object(response.get("incomplete_details")) or {}).get("reason")
    status = "incomplete" if value.get("type") == "response.incomplete" else None
    return ResponsesBody(
        id=identifier if isinstance(identifier, str) else "",
        object="response",
        status=response.get("status", status),
        output=as_list(output) if isinstance(output, list) else [],
        usage=response.get("usage"),
        incomplete_details=IncompleteDetails(reason),
        model=model if isinstance(model, str) else None,
    )


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
