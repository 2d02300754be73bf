"""A Messages stream, read into canonical events: what its events mean, and whether their bytes may be forwarded.

Believes the content and mistrusts the frame around it: a block may never start, start twice under one index, never
stop, or bring its input whole; deltas may name an index nobody opened. Each block is rebuilt as the JSON it would be
in a whole reply and read by the same reader, so a streamed reply equals the whole one by construction (the arguments
of a call stay the text that was streamed). Errors never leave as exceptions: they become `Failed`.

Cost is linear: one typed decode for each event; fragments are kept in lists and joined once, when their block ends.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from mustcall.core.errors import ErrorInfo
from mustcall.core.origin import JsonObject, Origin, Wire
from mustcall.core.parts import Part, Reasoning, Text
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
from mustcall.wire.messages.blocks import dump_input, read_block
from mustcall.wire.messages.errors import error_from_value
from mustcall.wire.messages.inputs import parse_object
from mustcall.wire.messages.open_block import OpenBlock
from mustcall.wire.messages.repairs import MessageOrder, mended
from mustcall.wire.messages.reply import finish_reason, read_usage
from mustcall.wire.messages.shape import (
    DELTAS,
    BlockDelta,
    BlockStart,
    BlockStop,
    LaterKind,
    MessageDelta,
    MessagesEvent,
    MessageStart,
    MessageStop,
    read_event,
    read_events,
    read_text,
)
from mustcall.wire.reading import ShapeError, as_list, as_object, decode_json, maybe_object
from mustcall.wire.sse import SseEvent

__all__ = ["MessagesStreamDecoder"]

_WIRE = Wire.MESSAGES
_TERMINATOR = b"[DONE]"  # some servers add OpenAI's end mark
_LAST = SseEvent("message_stop", b'{"type":"message_stop"}')
_NONE = -1
_TEXT_HEAD = b"event: content_block_delta\ndata: "
_EMPTY_BLOCKS: dict[str, JsonObject] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


class MessagesStreamDecoder:
    """Server-sent events in, canonical events out."""

    __slots__ = (
        "_ahead",
        "_blocks",
        "_closed",
        "_count",
        "_done",
        "_framing",
        "_fresh",
        "_opened",
        "_order",
        "_provenance",
        "_reported",
        "_started",
        "_stop",
        "_usage",
        "_writing",
        "_written",
    )

    def __init__(self, provenance: Provenance) -> None:
        self._provenance = provenance
        self._blocks: dict[int | None, OpenBlock] = {}  # open ones, by the index the upstream gave
        self._closed: set[int] = set()
        self._opened: dict[str, list[OpenBlock]] = {}  # by kind; closed ones are taken off when they are on top
        self._fresh = 0  # above every index ever used
        self._count = 0
        self._usage: JsonObject = {}
        self._reported: str | None = None
        self._stop: str | None = None
        self._started = False
        self._done = False
        self._writing: int = _NONE  # the index of the text block that was opened last, while it is open
        self._written: OpenBlock | None = None  # what was peeled last
        self._framing = Framing()
        self._order = MessageOrder()
        self._ahead: tuple[list[SseEvent], Sequence[MessagesEvent | None]] | None = None

    # --- whether bytes may be forwarded ----------------------------------------------------------------------------

    @property
    def names(self) -> Sequence[str]:
        """Nothing: parts have their place alone."""
        return ()

    @property
    def settled(self) -> bool:
        """Whether the end was not announced yet."""
        return not self._order.stopping

    @property
    def complete(self) -> bool:
        """Whether a stop reason and `message_stop` came."""
        return self._order.ended and self._order.stopping

    def takes(self, block: bytes, events: list[SseEvent]) -> bool:
        """Tell whether no repair is needed for these bytes; `feed_all` reads what was parsed for that."""
        if not self._framing.takes(block):
            return False
        shapes = read_events(events)
        self._ahead = events, shapes
        return not any(map(self._order.repair, events, shapes))

    # --- what events mean --------------------------------------------------------------------------------------------

    def feed(self, event: SseEvent) -> list[Event]:
        """Take one event; nothing comes out after `Ended` or `Failed`."""
        out: list[Event] = []
        self._event(event, read_event(event.data), out)
        return out

    def feed_all(self, events: list[SseEvent]) -> list[Event]:
        """Take events that arrived together; neighbouring text of one block is joined."""
        out: list[Event] = []
        ahead, self._ahead = self._ahead, None
        shapes = ahead[1] if ahead is not None and ahead[0] is events else read_events(events)
        texts: list[str] = []
        number = self._writing
        for event, shape in zip(events, shapes, strict=True):
            if type(shape) is BlockDelta and shape.index == number and shape.delta.type == "text_delta":
                texts.append(shape.delta.text or "")
                continue
            if texts:
                self._grow(self._blocks.get(number), "".join(texts), out)
                texts.clear()
            self._event(event, shape, out)
            number = self._writing
        if texts:
            self._grow(self._blocks.get(number), "".join(texts), out)
        return out

    def peel(self, event: bytes) -> tuple[int, str] | None:
        """Read one delta of nothing but text."""
        if self._done or not event.startswith(_TEXT_HEAD) or event.find(b"\n", len(_TEXT_HEAD)) != len(event) - 2:
            return None
        delta = read_text(memoryview(event)[len(_TEXT_HEAD) : -2])
        block = self._blocks.get(delta[0]) if delta is not None else None
        if delta is None or block is None or block.kind != "text":
            return None
        self._written = block
        return block.index, delta[1]

    def take_text(self, index: int, text: str, number: int | None) -> PartTextDelta:  # noqa: ARG002  events have none
        """Take the text of such deltas."""
        assert self._written is not None, "an event was peeled before"
        self._written.fragments.append(text)
        return PartTextDelta(index, text)

    def close(self) -> list[Event]:
        """Take the end of the bytes; a stop reason makes a reply complete even without `message_stop`."""
        out: list[Event] = []
        if self._done:
            return out
        if self._reported is not None:
            self._event(_LAST, MessageStop(), out)
        else:
            message = "the upstream's stream was cut before the reply was complete"
            self._fail(ErrorInfo(message=message, status=502, code="upstream_unavailable"), out)
        return out

    def _event(self, event: SseEvent, shape: MessagesEvent | None, out: list[Event]) -> None:
        """Take one event, and what it is if it fits; where it cannot be read, nothing of it comes out."""
        if self._done:
            return
        known = len(out)
        try:
            meant = self._mended(event, out) if shape is None else shape
            self._meaning(meant, out)
            if type(meant) is BlockDelta and meant.delta.type not in DELTAS:
                block = self._blocks.get(meant.index)
                if block is not None:
                    block.keep(as_object(as_object(decode_json(event.data)).get("delta")))
        except ShapeError as error:
            del out[known:]
            message = f"the upstream's stream cannot be read: {error}"
            self._fail(ErrorInfo(message=message, status=502, code="upstream_garbage"), out)

    def _mended(self, event: SseEvent, out: list[Event]) -> MessagesEvent | None:
        """Read an event that does not fit; None if it says nothing, or ended the stream with an error."""
        if event.data.strip() == _TERMINATOR:
            return None
        value = as_object(decode_json(event.data))
        given = value.get("type")
        kind = given if isinstance(given, str) else event.name
        shape = mended(value, kind)
        if kind == "error" or (given is None and type(shape) is LaterKind and value.get("error")):
            self._fail(error_from_value(value), out, value)
            return None
        return shape

    def _meaning(self, shape: MessagesEvent | None, out: list[Event]) -> None:
        match shape:
            case BlockDelta():
                self._delta(shape, out)
            case BlockStart():
                self._block_start(shape, out)
            case BlockStop(index=index):
                block = self._blocks.get(index)
                if block is not None:
                    self._close(block, out)
            case MessageStart(message=head):
                if not self._started:
                    self._started = True
                    out.append(Started(head.id or f"msg_{self._provenance.token}", head.model))
                self._merge_usage(head.usage, out)
            case MessageDelta(delta=ending):
                self._begin(out)
                self._reported = self._reported if ending.stop_reason is None else ending.stop_reason
                self._stop = self._stop if ending.stop_sequence is None else ending.stop_sequence
                self._merge_usage(shape.usage, out)
            case MessageStop():
                self._end(out)
            case _:
                pass  # pings, and events of versions to come

    def _fail(self, error: ErrorInfo, out: list[Event], raw: Any = None) -> None:
        self._done = True
        self._writing = _NONE
        out.append(Failed(error, raw))

    def _begin(self, events: list[Event]) -> None:
        if not self._started:
            self._started = True
            events.append(Started(f"msg_{self._provenance.token}", ""))

    def _merge_usage(self, usage: JsonObject, events: list[Event]) -> None:
        """Lay new counts over the old ones: they are totals, and absent ones stay as they were."""
        if usage:
            self._usage = {**self._usage, **{key: count for key, count in usage.items() if count is not None}}
            events.append(UsageUpdated(read_usage(self._usage)))

    def _block_start(self, shape: BlockStart, events: list[Event]) -> None:
        start = maybe_object(shape.content_block)
        if start is None or not isinstance(start.get("type"), str):
            raise ShapeError("an object with a type", shape.content_block, "content_block")
        number = self._fresh if shape.index is None else shape.index
        self._begin(events)
        old = self._blocks.get(number)
        if old is not None:
            if old.start == start and not old.fragments:
                return  # the same event twice
            self._close(old, events)  # a new block under an index still open: the old one is over
        self._open(number, start, events)

    def _open(self, number: int, start: JsonObject, events: list[Event]) -> OpenBlock:
        block = OpenBlock(number, self._count, start)
        self._count += 1
        self._blocks[number] = block
        self._opened.setdefault(block.kind, []).append(block)
        self._fresh = max(self._fresh, number + 1)
        self._closed.discard(number)
        events.append(PartStarted(block.index, self._first_form(block)))
        if block.kind == "text":
            self._writing = number
            self._grow(block, start.get("text"), events)
        elif block.kind == "thinking":
            self._grow(block, start.get("thinking"), events)
        return block

    def _first_form(self, block: OpenBlock) -> Part:
        """Return what is known of a part when it starts: its kind and, for a call, id and name."""
        match block.kind:
            case "text":
                return Text(text="")
            case "thinking":
                return Reasoning()
            case "tool_use":
                # Read without its input, which usually comes in deltas, and without a claim to be the exact form.
                call = self._read({**block.start, "input": None}, block)
                return call.evolve()
            case _:
                return self._read(block.start, block)

    def _read(self, value: JsonObject, block: OpenBlock) -> Part:
        return read_block(value, self._provenance.issuer, f"toolu_{self._provenance.token}_{block.index}")

    def _grow(self, block: OpenBlock | None, text: Any, events: list[Event]) -> None:
        if block is None or not isinstance(text, str) or not text:
            return
        block.fragments.append(text)
        if block.kind == "text":
            events.append(PartTextDelta(block.index, text))
        elif block.kind == "thinking":
            events.append(PartReasoningDelta(block.index, text))
        elif block.kind == "tool_use":
            events.append(ArgumentsDelta(block.index, text))

    def _delta(self, shape: BlockDelta, events: list[Event]) -> None:
        self._begin(events)
        number, piece = shape.index, shape.delta
        match piece.type:
            case "text_delta":
                self._grow(self._block_for(number, "text", events), piece.text, events)
            case "thinking_delta":
                self._grow(self._block_for(number, "thinking", events), piece.thinking, events)
            case "input_json_delta":
                self._grow(self._input_block(number), piece.partial_json, events)
            case "signature_delta":
                block = self._latest(number, "thinking")
                if block is not None and piece.signature is not None:
                    block.signature = piece.signature
            case "citations_delta":
                block = self._latest(number, "text")
                if block is not None and piece.citation is not None:
                    block.citations.append(piece.citation)
            case _:
                pass

    def _block_for(self, number: int | None, kind: str, events: list[Event]) -> OpenBlock | None:
        """Return the open block a text belongs to, opening one that never started; None for one that is over."""
        if number is None:
            found = self._latest(None, kind)
            if found is not None:
                return found
            number = self._fresh
        block = self._blocks.get(number)
        if block is not None:
            if block.kind == kind:
                return block
            self._close(block, events)
        elif number in self._closed:
            return None
        return self._open(number, _EMPTY_BLOCKS[kind], events)

    def _input_block(self, number: int | None) -> OpenBlock | None:
        if number in self._closed:
            return None  # a late delta: the call is complete
        block = self._blocks.get(number)
        if block is not None and block.kind.endswith("tool_use"):
            return block
        return self._latest(None, "tool_use")

    def _latest(self, number: int | None, kind: str) -> OpenBlock | None:
        """Return the open block of this index if it is of this kind, else the last opened one that is."""
        if number in self._closed:
            return None
        block = self._blocks.get(number)
        if block is not None and block.kind == kind:
            return block
        opened = self._opened.get(kind, [])
        while opened and opened[-1].closed:
            opened.pop()
        return opened[-1] if opened else None

    def _close(self, block: OpenBlock, events: list[Event]) -> None:
        """End a block: say what only its end tells, then its final form."""
        del self._blocks[block.number]
        if block.number == self._writing:
            self._writing = _NONE
        block.closed = True
        self._closed.add(block.number)
        if block.kind == "tool_use" and not block.fragments:
            # No deltas: the input came whole with the start, `{}` included.
            self._grow(block, dump_input(block.start.get("input")), events)
        part = self._final(block)
        if isinstance(part, Reasoning) and part.state is not None and block.kind == "thinking":
            events.append(StateDelta(block.index, part.state))
        events.append(PartEnded(block.index, part))

    def _final(self, block: OpenBlock) -> Part:
        """Read the block as it would stand in a whole reply."""
        text = "".join(block.fragments)
        value = block.value()
        if block.kind == "text":
            value["text"] = text
            if block.citations:
                known = value.get("citations")
                value["citations"] = [*(as_list(known) if isinstance(known, list) else []), *block.citations]
        elif block.kind == "thinking":
            value["thinking"] = text
            if block.signature is not None:
                value["signature"] = block.signature
        elif block.fragments:
            found = parse_object(text)
            if block.kind != "tool_use":
                value["input"] = found if found is not None else text
            else:
                value["input"] = found
                call = self._read(value, block)
                # The arguments stay as the model wrote them; the exact form is only known if they could be read.
                exact = Origin(_WIRE, call.fields_for(_WIRE), value if found is not None else None)
                return msgspec.structs.replace(call, arguments_json=text, origin=exact)
        return self._read(value, block)

    def _end(self, events: list[Event]) -> None:
        self._begin(events)
        for block in sorted(self._blocks.values(), key=lambda block: block.index):
            self._close(block, events)
        events.append(Finished(finish_reason(self._reported), self._reported, self._stop))
        events.append(Ended())
        self._done = True
