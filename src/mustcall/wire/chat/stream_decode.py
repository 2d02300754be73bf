"""Chat Completions chunks to canonical events: what a chunk means, and whether its bytes may be forwarded.

Trusts no numbering (`core.streams.calls`), no finish reason and no order of fields. The end is only believed at
`[DONE]` or at the end of the bytes, because some servers send calls after their finish reason; a stream that ends
without any finish reason was cut.

Cost: one typed decode and O(length of the delta) per chunk; nothing streamed is kept, except what
`core.streams.calls` needs where ids and indexes are missing.
"""

from collections.abc import Sequence
from typing import Any

from mustcall.core.errors import ErrorInfo
from mustcall.core.origin import JsonObject, Origin, Wire
from mustcall.core.parts import CallKind, Reasoning, Text, ToolCall
from mustcall.core.streams.calls import CallSlot, CallTracker
from mustcall.core.streams.events import (
    ArgumentsDelta,
    Ended,
    Event,
    Failed,
    Finished,
    PartEnded,
    PartStarted,
    PartTextDelta,
    Started,
    StateDelta,
    UsageUpdated,
)
from mustcall.wire.chat.deltas import Spoken, read_words
from mustcall.wire.chat.parts import EXTRA_CONTENT, call_state, reasoning_state
from mustcall.wire.chat.repairs import ChunkOrder, mended
from mustcall.wire.chat.reply import decode_finish, decode_usage, label
from mustcall.wire.chat.shape import CallDelta, ChatChunk, ChoiceDelta, read_chunk, read_text, read_texts, usage_of
from mustcall.wire.codec import Provenance
from mustcall.wire.framing import Framing
from mustcall.wire.openai_errors import error_info
from mustcall.wire.reading import ShapeError, as_object, decode_json
from mustcall.wire.sse import SseEvent

__all__ = ["ChatStreamDecoder"]


#: A stream ends with its finish reason, its usage and `[DONE]`.
_LAST_EVENTS = 3


class ChatStreamDecoder:
    """One stream's state: which parts are open, which calls were begun, and how it is going to end."""

    __slots__ = (
        "_ahead",
        "_details",
        "_done",
        "_extras",
        "_field",
        "_finish",
        "_framing",
        "_indexes",
        "_next",
        "_open",
        "_order",
        "_pending",
        "_provenance",
        "_reported",
        "_started",
        "_tracker",
    )

    def __init__(self, provenance: Provenance) -> None:
        self._provenance = provenance
        self._started = False
        self._done = False
        self._next = 0
        self._open: tuple[Spoken, int] | None = None
        self._tracker = CallTracker()
        self._indexes: dict[int, int] = {}
        self._pending: dict[int, list[str]] = {}
        self._extras: dict[int, Any] = {}
        self._field = ""
        self._details: list[Any] = []
        self._finish = False
        self._reported: str | None = None
        self._framing = Framing()
        self._order = ChunkOrder()
        self._ahead: tuple[list[SseEvent], list[ChatChunk | None]] | None = None

    # --- whether bytes may be forwarded ----------------------------------------------------------------------------

    @property
    def names(self) -> Sequence[str]:
        """Nothing: parts have their place alone."""
        return ()

    @property
    def settled(self) -> bool:
        """Whether no finish was announced that a later writer would have to repeat."""
        return not self._order.finished

    @property
    def complete(self) -> bool:
        """Whether a finish and `[DONE]` came."""
        return self._order.ended and self._order.finished

    def takes(self, block: bytes, events: list[SseEvent]) -> bool:
        """Tell whether no repair is needed for these bytes; `feed_all` reads what was parsed for that."""
        if not self._framing.takes(block):
            return False
        chunks = [read_chunk(event.data) for event in events]
        self._ahead = events, chunks
        return not any(map(self._order.repair, events, chunks))

    # --- what events mean --------------------------------------------------------------------------------------------

    def feed(self, event: SseEvent) -> list[Event]:
        """Take one server-sent event."""
        out: list[Event] = []
        self._event(event, read_chunk(event.data), out)
        return out

    def feed_all(self, events: list[SseEvent]) -> list[Event]:
        """Take events that arrived together; a run of plain text is read in one step."""
        out: list[Event] = []
        ahead, self._ahead = self._ahead, None
        parsed = ahead[1] if ahead is not None and ahead[0] is events else None
        start, end = 0, len(events)
        if events and not self._started:
            start = 1
            self._event(events[0], read_chunk(events[0].data) if parsed is None else parsed[0], out)
        if events and events[-1].data == b"[DONE]":
            end -= _LAST_EVENTS
        text = self._plain_text(events[start:end])
        if text is not None:
            start = end
            if text:
                out.append(PartTextDelta(self._ensure(Text, out), text))
        rest = events[start:]
        chunks = [read_chunk(event.data) for event in rest] if parsed is None else parsed[start:]
        for event, chunk in zip(rest, chunks, strict=True):
            self._event(event, chunk, out)
        return out

    def peel(self, event: bytes) -> tuple[int, str] | None:
        """Read one chunk of nothing but text."""
        part = self._open
        if part is None or part[0] is not Text or self._done or self._finish:
            return None
        if not event.startswith(b"data: ") or event.find(b"\n") != len(event) - 2:
            return None
        text = read_text(memoryview(event)[6:-2])
        return (part[1], text) if text else None

    def take_text(self, index: int, text: str, number: int | None) -> PartTextDelta:  # noqa: ARG002  chunks have none
        """Take the text of such chunks; nothing streamed is kept."""
        return PartTextDelta(index, text)

    def _plain_text(self, run: list[SseEvent]) -> str | None:
        """Return the text of a run of plain text chunks, None if it is any other run."""
        if len(run) < 2 or self._done or self._indexes:
            return None
        data = [event.data for event in run if not event.name]
        return read_texts(data) if len(data) == len(run) else None

    def _event(self, event: SseEvent, chunk: ChatChunk | None, out: list[Event]) -> None:
        """Take one event, and what it is if it fits."""
        if self._done:
            return
        data = event.data
        try:
            if chunk is not None and not event.name:
                self._chunk(chunk, data, out)
            elif data.strip() == b"[DONE]":
                out += self._end()
            else:
                self._odd_event(event, out)
        except ShapeError as error:
            self._done = True
            message = f"the upstream's stream cannot be read: {error}"
            out.append(Failed(ErrorInfo(message=message, status=502, code="upstream_garbage")))

    def _chunk(self, chunk: ChatChunk, data: bytes, out: list[Event]) -> None:
        if not self._started:  # asked here because this is done for each chunk
            self._start(chunk.id, chunk.model or "", out)
        for choice in chunk.choices:
            if not choice.index:
                self._choice(choice, out)
        if chunk.usage is not None:
            self._usage(usage_of(data), out)

    def close(self) -> list[Event]:
        """Take the end of the bytes."""
        if self._done:
            return []
        if self._finish:
            return self._end()
        self._done = True
        return [
            Failed(
                ErrorInfo(
                    message="the upstream's stream ended before the reply was complete",
                    status=502,
                    code="upstream_unavailable",
                )
            )
        ]

    def _end(self) -> list[Event]:
        self._done = True
        out: list[Event] = []
        self._start("", "", out)
        self._close_open(out)
        for slot in self._tracker.slots:
            if slot.number not in self._indexes:
                if not "".join(self._pending.get(slot.number, ())).strip():
                    continue  # a placeholder that nothing was ever put into is no call
                self._begin_call(slot, CallKind.FUNCTION, out)
            out.append(PartEnded(self._indexes[slot.number]))
        out.append(Finished(decode_finish(self._reported), self._reported))
        out.append(Ended())
        return out

    def _odd_event(self, event: SseEvent, out: list[Event]) -> None:
        try:
            chunk = as_object(decode_json(event.data))
        except ShapeError:
            text = read_text(event.data) if self._started and not event.name else None
            if text is None:
                raise
            if text:
                out.append(PartTextDelta(self._ensure(Text, out), text))
        else:
            self._odd_chunk(chunk, out, is_error=event.name == "error")

    def _odd_chunk(self, chunk: JsonObject, out: list[Event], *, is_error: bool) -> None:
        error = chunk.get("error")
        if error or is_error:
            self._done = True
            out.append(Failed(error_info(error or chunk, 200), chunk))
            return
        self._start(label(chunk.get("id")), label(chunk.get("model")), out)
        for choice in mended(chunk, begun=self._next > 0):
            self._choice(choice, out)
        self._usage(chunk.get("usage"), out)

    def _usage(self, counts: Any, out: list[Event]) -> None:
        usage = decode_usage(counts)
        if usage is not None:
            out.append(UsageUpdated(usage))

    def _start(self, identifier: str, model: str, out: list[Event]) -> None:
        if not self._started:
            self._started = True
            out.append(Started(identifier, model))

    def _choice(self, choice: ChoiceDelta, out: list[Event]) -> None:
        delta = choice.delta
        if delta.reasoning_details:
            self._ensure(Reasoning, out)
            self._details += delta.reasoning_details
        read_words(delta, self._ensure, out)
        for call in delta.tool_calls or ():
            self._call_delta(call, out)
        if choice.finish_reason is not None:
            self._finish = True
            self._reported = choice.finish_reason

    def _ensure(self, kind: Spoken, out: list[Event], field: str = "") -> int:
        """Return the index of the open part of this kind, opening one if another kind was open.

        `field` is the one that held reasoning, which goes back under that name.
        """
        if field:
            self._field = field
        if self._open is not None:
            if self._open[0] is kind:
                return self._open[1]
            self._close_open(out)
        index = self._next
        self._next += 1
        self._open = (kind, index)
        out.append(PartStarted(index, Reasoning() if kind is Reasoning else kind(text="")))
        return index

    def _close_open(self, out: list[Event]) -> None:
        if self._open is None:
            return
        kind, index = self._open
        self._open = None
        if kind is Reasoning:
            out.append(StateDelta(index, reasoning_state(self._field, self._details, self._provenance.issuer)))
            self._details = []
        out.append(PartEnded(index))

    def _call_delta(self, call: CallDelta, out: list[Event]) -> None:
        function, custom = call.function, call.custom
        if custom is not None:
            kind, name, text = CallKind.CUSTOM, custom.name or "", custom.input or ""
        elif function is not None:
            kind, name, text = CallKind.FUNCTION, function.name or "", function.arguments or ""
        else:
            kind, name, text = CallKind.FUNCTION, "", ""
        slot = self._tracker.assign(call.index, call.id or "", name, text)
        if call.extra_content:
            self._extras[slot.number] = call.extra_content
        index = self._indexes.get(slot.number)
        if index is None:
            if text:
                self._pending.setdefault(slot.number, []).append(text)
            if slot.name:
                self._begin_call(slot, kind, out)
        elif text:
            out.append(ArgumentsDelta(index, text))

    def _begin_call(self, slot: CallSlot, kind: CallKind, out: list[Event]) -> None:
        self._close_open(out)
        token = self._provenance.token
        call_id = slot.id or (f"call_{token}_{slot.number}" if token else f"call_{slot.number}")
        extra = self._extras.get(slot.number)
        origin = Origin(Wire.CHAT, {EXTRA_CONTENT: extra}) if extra else None
        call = ToolCall(id=call_id, name=slot.name, arguments_json="", kind=kind, origin=origin)
        state = call_state(call, self._provenance.issuer) if self._provenance.crosses else None
        if state is not None and state.state is not None:
            out += (PartStarted(self._next, Reasoning()), StateDelta(self._next, state.state), PartEnded(self._next))
            self._next += 1
        index = self._next
        self._next += 1
        self._indexes[slot.number] = index
        out.append(PartStarted(index, call))
        out.extend(ArgumentsDelta(index, text) for text in self._pending.pop(slot.number, ()))
