"""What Messages servers send that is not the wire's, and how it is read: the table, and the reading of such events.

Every row keeps a reply or a stream from being forwarded as it came. What fits `shape` and comes in order needs no row.
An event that does not fit is read as one that does, so that what it means is told in one place.

Who minds was tried out in November 2026, leaving one thing at a time out of a healthy stream.
"""

from mustcall.core.origin import JsonObject
from mustcall.wire.codec import WireDeviation
from mustcall.wire.messages.blocks import dump_input
from mustcall.wire.messages.shape import (
    DELTAS,
    BlockDelta,
    BlockPiece,
    BlockStart,
    BlockStop,
    EndCounts,
    LaterKind,
    MessageDelta,
    MessageEnding,
    MessageHead,
    MessagesEvent,
    MessageStart,
    MessageStop,
    Ping,
    StartCounts,
    begins_empty,
    fits,
    is_failure,
    is_untyped,
)
from mustcall.wire.reading import maybe_object
from mustcall.wire.sse import SseEvent

__all__ = ["REPAIRS", "MessageOrder", "mended"]


REPAIRS = {
    # What comes out of order in a stream (`MessageOrder`); `stream_decode` trusts no order.
    "name": WireDeviation("an event without a name, or with another than its type", "by its type", "the SDKs skip it"),
    "after end": WireDeviation("an event after `message_stop` or an error, `[DONE]` too", "not at all"),
    "no start": WireDeviation("anything but a ping before `message_start`", "under an id of ours"),
    "second start": WireDeviation("`message_start` again", "for its usage"),
    "block order": WireDeviation(
        "a block out of its place, inside another, or after the stop reason; a delta or a stop of none that is open",
        "a block that never began as begun, one that is over not at all, any other by its kind",
    ),
    "beginning": WireDeviation(
        "a block that begins with text or input, or without what names it",
        "as its first delta, input only where no delta follows; a call without id under one of ours",
        "Claude Code, pi and Continue read deltas alone",
    ),
    "same id": WireDeviation("an id for two calls", "as two calls"),
    "delta": WireDeviation("a delta in a block of another kind, or without what it brings", "in one of its kind"),
    "unstopped": WireDeviation(
        "a block that is open at the stop reason", "as ended there", "Claude Code, AI SDK and Qwen Code need its stop"
    ),
    "no reason": WireDeviation(
        "`message_stop` without a stop reason before it", "as an unknown one", "AI SDK, pi and Qwen Code need it"
    ),
    "start usage": WireDeviation("a start without counts", "as 0", "the SDKs, AI SDK and pi need them"),
    "end usage": WireDeviation("a stop reason without counts", "as those before", "the SDKs, AI SDK and pi need them"),
    "misfit": WireDeviation("an event of another shape", "by the rows below, in `mended`"),
    # What does not fit the shape of an event or of a whole reply (`mended`; `reply` and `blocks`).
    "no index": WireDeviation("an index that is no number", "as that of the last block of the kind"),
    "input": WireDeviation("input as text or null, a piece of it as an object", "as text, as no text, as JSON text"),
    "block": WireDeviation("a call without id, thinking that is null", "under an id of ours, as no text"),
    "usage": WireDeviation("usage that is no object, counts that are no numbers", "as none, as 0"),
    "label": WireDeviation("a message without id, kind or role, or with a null model", "under an id of ours, as none"),
    "finish": WireDeviation("an empty stop reason", "as an unknown one"),
    "bytes": WireDeviation("bytes that are no UTF-8 in a field that nobody reads", "without them"),
    "citation": WireDeviation("a citation that is no object", "not at all"),
}

#: The place of no block.
_CLOSED = -1


class MessageOrder:
    """One stream: which repair its next event needs, after all before.

    The SDKs find a block by its place in the list they built, skip events without a name, and take the counts of the
    last event without asking.
    """

    __slots__ = ("_begun", "_blocks", "_ids", "_open", "_owner", "ended", "stopping")

    def __init__(self) -> None:
        self._begun = False
        self._blocks: int = 0
        self._ids: set[str] = set()
        #: The place of the open block, and the kind of deltas it takes.
        self._open: int = _CLOSED
        self._owner = ""
        #: Whether the end was announced.
        self.stopping = False
        #: Whether `message_stop` or an error came.
        self.ended = False

    def repair(self, event: SseEvent, shape: MessagesEvent | None) -> str:
        """Take the next event, and what it is if it fits; return no name if a strict client reads it as it means."""
        if type(shape) is BlockDelta and event.name == "content_block_delta":
            if shape.index != self._open or self.ended:
                return "after end" if self.ended else "block order"
            piece = shape.delta
            known = DELTAS.get(piece.type)
            if known is None or (known[1] == self._owner and getattr(piece, known[0]) is not None):
                return ""
            return "delta"
        if self.ended:
            return "after end"
        return self._unread(event) if shape is None else self._other(event.name, shape)

    def _unread(self, event: SseEvent) -> str:
        if event.name == "ping":
            return "" if is_untyped(event.data) else "misfit"
        self.ended = True
        return "" if event.name == "error" and is_failure(event.data) else "misfit"

    def _other(self, name: str, shape: MessagesEvent) -> str:
        match shape:
            case Ping() | LaterKind() if name == "ping":
                return ""  # skipped by its name alone
            case MessageStart() if name == "message_start":
                if self._begun:
                    return "second start"
                self._begun = True
                return "" if fits(shape.message.usage, StartCounts) else "start usage"
            case _ if not self._begun:
                return "no start"
            case BlockStart() if name == "content_block_start":
                return self._start(shape)
            case BlockStop() if name == "content_block_stop":
                place, self._open = self._open, _CLOSED
                return "" if shape.index == place else "block order"
            case MessageDelta() if name == "message_delta":
                return self._stop(shape)
            case MessageStop() if name == "message_stop":
                self.ended = True
                return "" if self.stopping else "no reason"
            case LaterKind(type=kind):
                return "" if name == kind else "name"
            case _:
                return "name"

    def _start(self, shape: BlockStart) -> str:
        if shape.index != self._blocks or self._open != _CLOSED or self.stopping:
            return "block order"
        block = maybe_object(shape.content_block) or {}
        kind = block.get("type")
        if not isinstance(kind, str) or not kind or not begins_empty(kind, block):
            return "beginning"
        self._open = self._blocks
        self._blocks += 1
        self._owner = "tool_use" if kind.endswith("tool_use") else kind
        if kind == "tool_use":
            if block["id"] in self._ids:
                return "same id"
            self._ids.add(block["id"])
        return ""

    def _stop(self, shape: MessageDelta) -> str:
        self.stopping = True
        if self._open != _CLOSED:
            return "unstopped"
        if shape.delta.stop_reason is None:
            return "no reason"
        return "" if fits(shape.usage, EndCounts) else "end usage"


def mended(value: JsonObject, kind: str) -> MessagesEvent | None:
    """Read an event of this kind that does not fit; None if it says nothing."""
    index = value.get("index")
    place = index if isinstance(index, int) else None
    match kind:
        case "content_block_delta":
            delta = maybe_object(value.get("delta"))
            return None if delta is None else BlockDelta(place, _piece(delta))
        case "content_block_start":
            return BlockStart(place, value.get("content_block"))
        case "content_block_stop":
            return BlockStop(place)
        case "message_start":
            message = maybe_object(value.get("message")) or {}
            named, model = _text(message, "id") or "", _text(message, "model") or ""
            usage = maybe_object(message.get("usage")) or {}
            return MessageStart(MessageHead(named, "message", "assistant", model, [], usage))
        case "message_delta":
            delta = maybe_object(value.get("delta")) or {}
            ending = MessageEnding(_text(delta, "stop_reason"), _text(delta, "stop_sequence"))
            return MessageDelta(ending, maybe_object(value.get("usage")) or {})
        case "message_stop":
            return MessageStop()
        case _:
            return LaterKind(kind)


def _piece(delta: JsonObject) -> BlockPiece:
    return BlockPiece(
        _text(delta, "type") or "",
        text=_text(delta, "text"),
        thinking=_text(delta, "thinking"),
        partial_json=dump_input(delta.get("partial_json")),
        signature=_text(delta, "signature"),
        citation=maybe_object(delta.get("citation")),
    )


def _text(value: JsonObject, key: str) -> str | None:
    found = value.get(key)
    return found if isinstance(found, str) else None
