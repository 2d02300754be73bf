"""Chat Completions chunks to canonical events.

Trusts no numbering (`core.streams.calls`), no finish reason and no order of fields. The end is only believed at
`[DONE]` or at the end of the bytes, because some servers send calls after their finish reason; a stream that ends
without any finish reason was cut.

Cost: O(length of the delta) per chunk; nothing streamed is kept, except what `core.streams.calls` needs where ids and
indexes are missing.
"""

from typing import Any, Literal

import msgspec

from mustcall.core.errors import ErrorInfo
from mustcall.core.origin import JsonObject, Origin, Wire
from mustcall.core.parts import CallKind, Reasoning, Refusal, Text, ToolCall
from mustcall.core.streams.calls import CallSlot, CallTracker
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
from mustcall.wire.chat.parts import (
    EXTRA_CONTENT,
    REASONING_FIELDS,
    arguments_text,
    call_state,
    reasoning_state,
    thinking_text,
)
from mustcall.wire.chat.reply import decode_finish, decode_usage, label
from mustcall.wire.codec import Provenance
from mustcall.wire.openai_errors import error_info
from mustcall.wire.reading import (
    ShapeError,
    as_list,
    as_object,
    decode_json,
    maybe_object,
    opt_list,
    opt_str,
)
from mustcall.wire.sse import SseEvent

__all__ = ["ChatStreamDecoder"]


class _PlainDelta(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    content: str
    role: str | None = None


class _PlainChoice(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    delta: _PlainDelta
    index: Literal[0]
    finish_reason: None = None
    logprobs: None = None


class _PlainChunk(msgspec.Struct, gc=False):
    """A chunk of nothing but text: by far the most common one, read in C and without a dict."""

    choices: tuple[_PlainChoice]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    usage: None = None
    error: None = None


_plain = msgspec.json.Decoder(_PlainChunk)
_plain_run = msgspec.json.Decoder(list[_PlainChunk])
_PATIENCE = 4
#: A stream ends with its finish reason, its usage and `[DONE]`.
_LAST_EVENTS = 3


class ChatStreamDecoder:
    """One stream's state: which parts are open, which calls were begun, and how it is going to end."""

    __slots__ = (
        "_details",
        "_done",
        "_extras",
        "_field",
        "_finish",
        "_indexes",
        "_misses",
        "_next",
        "_open",
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
        self._open: tuple[type[Text | Refusal | Reasoning], int] | None = None
        self._tracker = CallTracker()
        self._indexes: dict[int, int] = {}
        self._pending: dict[int, list[str]] = {}
        self._extras: dict[int, Any] = {}
        self._field = ""
        self._details: list[Any] = []
        self._finish = False
        self._reported: str | None = None
        self._misses = 0

    def feed(self, event: SseEvent) -> list[Event]:
        """Take one server-sent event."""
        if self._done:
            return []
        data = event.data
        if data == b"[DONE]" or data.strip() == b"[DONE]":
            return self._end()
        out: list[Event] = []
        if self._started and self._misses < _PATIENCE and not event.name:
            try:
                text = _plain.decode(data).choices[0].delta.content
            except (msgspec.DecodeError, ValueError, RecursionError):
                self._misses += 1  # a stream of other things (a call's arguments) is not tried for ever
            else:
                self._misses = 0
                if text:
                    out.append(PartTextDelta(self._ensure(Text, out), text))
                return out
        try:
            self._chunk(as_object(decode_json(data)), out, is_error=event.name == "error")
        except ShapeError as error:
            self._done = True
            out.append(
                Failed(
                    ErrorInfo(
                        message=f"the upstream's stream cannot be read: {error}", status=502, code="upstream_garbage"
                    )
                )
            )
        return out

    def feed_all(self, events: list[SseEvent]) -> list[Event]:
        """Take events that arrived together; a run of plain text is read in one step."""
        out: list[Event] = []
        rest = events
        if events and not self._started:
            out.extend(self.feed(events[0]))
            rest = events[1:]
        run = rest[:-_LAST_EVENTS] if rest and rest[-1].data == b"[DONE]" else rest
        text = self._plain_text(run)
        if text is not None:
            if text:
                out.append(PartTextDelta(self._ensure(Text, out), text))
            rest = rest[len(run) :]
        for event in rest:
            out.extend(self.feed(event))
        return out

    def peel(self, event: bytes) -> tuple[int, str] | None:
        """Read one chunk of nothing but text."""
        part = self._open
        if part is None or part[0] is not Text or self._done or self._finish:
            return None
        if not event.startswith(b"data: ") or event.find(b"\n") != len(event) - 2:
            return None
        try:
            text = _plain.decode(memoryview(event)[6:-2]).choices[0].delta.content
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None
        return (part[1], text) if text else None

    def take_text(self, index: int, text: str) -> PartTextDelta:
        """Take the text of such chunks; nothing streamed is kept."""
        return PartTextDelta(index, text)

    def _plain_text(self, run: list[SseEvent]) -> str | None:
        """Return the text of a run of plain text chunks, None if it is any other run."""
        if len(run) < 2 or not self._started or self._done or self._misses >= _PATIENCE:
            return None
        try:
            chunks = _plain_run.decode(b"[%b]" % b",".join([event.data for event in run]))
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None
        if len(chunks) != len(run) or any(event.name for event in run):
            return None  # events that are JSON only when joined are not these
        return "".join([chunk.choices[0].delta.content for chunk in chunks])

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
        self._start({}, out)
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

    def _chunk(self, chunk: JsonObject, out: list[Event], *, is_error: bool) -> None:
        error = chunk.get("error")
        if error or is_error:
            self._done = True
            out.append(Failed(error_info(error or chunk, 200), chunk))
            return
        self._start(chunk, out)
        choices = opt_list(chunk, "choices") or ()
        for value in choices:
            choice = as_object(value)
            if choice.get("index") not in (0, None):
                continue  # further choices have no canonical form; on the same wire they are forwarded as bytes
            delta = maybe_object(choice.get("delta"))
            if delta is None and self._next == 0:
                delta = maybe_object(choice.get("message"))  # some servers send one whole message instead
            if delta is not None:
                self._delta(delta, out)
            reported = opt_str(choice, "finish_reason")
            if reported is not None:
                self._finish = True
                self._reported = reported
        usage = decode_usage(chunk.get("usage"))
        if usage is not None:
            out.append(UsageUpdated(usage))

    def _start(self, chunk: JsonObject, out: list[Event]) -> None:
        if not self._started:
            self._started = True
            out.append(Started(label(chunk.get("id")), label(chunk.get("model"))))

    def _delta(self, delta: JsonObject, out: list[Event]) -> None:
        for field in REASONING_FIELDS:
            thinking = opt_str(delta, field)
            if thinking:
                self._field = field
                out.append(PartReasoningDelta(self._ensure(Reasoning, out), thinking))
                break
        details = opt_list(delta, "reasoning_details")
        if details:
            self._ensure(Reasoning, out)
            self._details.extend(details)
        content = delta.get("content")
        if isinstance(content, list):
            for part in as_list(content):
                self._content_part(part, out)
            content = None
        elif content is not None and not isinstance(content, str):
            raise ShapeError("a string", content, "content")
        if content:
            out.append(PartTextDelta(self._ensure(Text, out), content))
        refusal = opt_str(delta, "refusal")
        if refusal:
            out.append(PartTextDelta(self._ensure(Refusal, out), refusal))
        for value in opt_list(delta, "tool_calls") or ():
            self._call_delta(as_object(value), out)

    def _content_part(self, value: Any, out: list[Event]) -> None:
        """Read a content part: text, or thinking as Mistral streams it; others have no place in a reply's text."""
        part = maybe_object(value)
        if part is None:
            return
        thinking = thinking_text(part)
        if thinking is not None:
            if thinking:
                out.append(PartReasoningDelta(self._ensure(Reasoning, out), thinking))
        else:
            text = opt_str(part, "text")
            if text:
                out.append(PartTextDelta(self._ensure(Text, out), text))

    def _ensure(self, kind: type[Text | Refusal | Reasoning], out: list[Event]) -> int:
        """Return the index of the open part of this kind, opening one if another kind was open."""
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

    def _call_delta(self, call: JsonObject, out: list[Event]) -> None:
        custom = maybe_object(call.get("custom"))
        function = maybe_object(call.get("function")) or {}
        if custom is not None:
            kind, name, text = CallKind.CUSTOM, opt_str(custom, "name") or "", opt_str(custom, "input") or ""
        else:
            kind, name, text = CallKind.FUNCTION, opt_str(function, "name") or "", arguments_text(function)
        number = call.get("index")
        position = number if isinstance(number, int) else None
        slot = self._tracker.assign(position, opt_str(call, "id") or "", name, text)
        if call.get(EXTRA_CONTENT):
            self._extras[slot.number] = call[EXTRA_CONTENT]
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
