"""Canonical events, written as the complete event sequence of the Messages wire.

The wire has one block open at a time, so parts that interleave wait their turn: the oldest unfinished part is live,
the others are held. Blocks open with their first content, because an empty text block sent back is refused by the
upstream, and a call without any input is read as one with `{}`. Arguments are released as they come once they begin
like an object, and checked when the call ends: one that is no JSON object ends the stream with an error event, never
with `{}` (rule 107). Only the last part can have been cut by the token limit, so the verdict on a broken last call
waits for the finish: at the limit its block is closed as it stands, which is what Anthropic itself sends.

Cost is linear: fragments are kept in lists and joined once, when their part ends.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, assert_never

import msgspec

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.errors import ErrorInfo
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.parts import (
    Audio,
    CallKind,
    File,
    Image,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolReference,
    ToolResult,
    Unknown,
)
from mustcall.core.reply import FinishReason, Usage, derive_finish
from mustcall.core.request import Request
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
from mustcall.wire.codec import ReplyStamp
from mustcall.wire.crossing.naming import flat_name
from mustcall.wire.crossing.offer import custom_arguments
from mustcall.wire.messages.block_slots import BlockSlot, missing_text
from mustcall.wire.messages.blocks import redacted_data
from mustcall.wire.messages.errors import encode_stream_error
from mustcall.wire.messages.inputs import Schemas, parse_object
from mustcall.wire.messages.reply import (
    broken_call,
    caller_call_id,
    note_cut_call,
    reasoning_text,
    reply_id,
    signature_for_caller,
    stop_reason,
    write_usage,
)
from mustcall.wire.reading import as_list, maybe_object
from mustcall.wire.sse import encode_event

__all__ = ["PING", "MessagesStreamEncoder"]

PING = encode_event(b'{"type":"ping"}', "ping")

_WIRE = Wire.MESSAGES

_TEXT_DELTA = encode_event(
    b'{"type":"content_block_delta","index":%d,"delta":{"type":"text_delta","text":%b}}', "content_block_delta"
)


class MessagesStreamEncoder:
    """Canonical events in, bytes of server-sent events out."""

    __slots__ = (
        "_blocks",
        "_broken",
        "_caller",
        "_done",
        "_finish",
        "_log",
        "_open",
        "_order",
        "_out",
        "_resuming",
        "_schemas",
        "_slots",
        "_stamp",
        "_started",
        "_telling",
        "_usage",
    )

    def __init__(self, caller: Request, stamp: ReplyStamp, log: AdaptationLog) -> None:
        self._caller = caller
        self._stamp = stamp
        self._log = log
        self._schemas = Schemas(caller.tools)
        self._out: list[bytes] = []
        self._slots: dict[int, BlockSlot] = {}
        self._order: deque[int] = deque()
        self._broken: ToolCall | None = None  # the last part, waiting for the finish
        self._blocks = 0
        self._open = False
        self._telling: list[Part] = []
        self._usage: Usage | None = None
        self._finish: Finished | None = None
        #: The beginning, until it is known whether its usage follows.
        self._started: Started | None = None
        self._done = False
        self._resuming = False

    def sign(self) -> bytes:
        """Return a sign of life."""
        return PING

    def resume(self, events: list[Event], names: Sequence[str], last: bytes) -> None:  # noqa: ARG002  no ids, no numbers
        """Take what went out as the upstream's own bytes."""
        self._resuming = True
        for event in events:
            self.feed(event)
        self._resuming = False
        self._started = None

    def feed(self, event: Event) -> bytes:
        """Take one event and return what can be sent now; after the end, nothing."""
        if self._done:
            return b""
        if self._started is not None and not isinstance(event, UsageUpdated):
            self._message_start(self._started)
        match event:
            case PartTextDelta() | PartReasoningDelta() | ArgumentsDelta() | StateDelta() | PartEnded():
                self._for_slot(event.index, event)
            case PartStarted():
                self._start_part(event.index, event.part)
            case UsageUpdated():
                self._usage = event.usage
            case Started():
                self._started = event
            case Finished():
                self._finish = event
            case Ended():
                self._message_end()
            case Failed():
                self._fail(event.error)
            case _:
                assert_never(event)
        out = b"".join(self._out)
        self._out.clear()
        return out

    def _emit(self, kind: str, **fields: Any) -> None:
        self._out.append(encode_event(msgspec.json.encode({"type": kind, **fields}), kind))

    def _fail(self, error: ErrorInfo) -> None:
        self._done = True
        self._out.append(encode_stream_error(error, self._stamp.request_id))

    def _message_start(self, event: Started) -> None:
        """Begin the message, with the usage where it is known: clients read the size of the context from here."""
        self._started = None
        self._emit(
            "message_start",
            message={
                "id": reply_id(event.id, self._stamp),
                "type": "message",
                "role": "assistant",
                "model": event.model or self._caller.model,
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": write_usage(self._usage),
            },
        )

    def _message_end(self) -> None:
        reason = self._finish.reason if self._finish is not None else FinishReason.UNKNOWN
        reported = self._finish.reported if self._finish is not None else None
        stop = self._finish.stop_sequence if self._finish is not None else None
        finish = derive_finish(reason, self._telling)
        if self._broken is not None:
            if finish is not FinishReason.LENGTH:
                self._fail(broken_call(self._broken.name).info())
                return
            if self._open:
                self._stop_block()
            else:
                note_cut_call(self._broken, self._log)
        self._emit(
            "message_delta",
            delta={"stop_reason": stop_reason(finish, reported, stop), "stop_sequence": stop},
            usage=write_usage(self._usage),
        )
        self._emit("message_stop")
        self._done = True

    def _start_part(self, index: int, part: Part) -> None:
        if self._broken is not None:  # so it was not the last part, and no limit cut it
            self._fail(broken_call(self._broken.name).info())
            return
        slot = self._slots[index] = BlockSlot(index, part)
        self._order.append(index)
        if isinstance(part, ToolCall | Refusal):
            self._telling.append(part)
        if self._order[0] == index:
            self._begin(slot)

    def _for_slot(self, index: int, event: Event) -> None:
        slot = self._slots.get(index)
        if slot is None:
            return
        if self._order[0] != index:
            slot.held.append(event)
            return
        self._apply(slot, event)
        while slot.ended and not self._done:
            del self._slots[self._order.popleft()]
            if not self._order:
                return
            slot = self._slots[self._order[0]]
            self._begin(slot)

    def _begin(self, slot: BlockSlot) -> None:
        """Make a part the live one: open it if it must be, then let go what was held for it."""
        part = slot.part
        if self._resuming:  # its start went out, empty or not
            match part:
                case Text() | Refusal():
                    self._start_block({"type": "text", "text": ""})
                case Reasoning():
                    self._start_thinking()
                case ToolCall():
                    self._start_call(slot.index, part)
                case _:
                    pass
        match part:
            case Text(text=text) | Refusal(text=text):
                self._text(slot, text)
            case Reasoning():
                self._thinking(slot, reasoning_text(part))
            case ToolCall():
                self._arguments(slot, part.arguments_json)
            case ProviderItem() | Unknown() | Image() | File() | Audio() | ToolReference() | ToolResult():
                pass
            case _:
                assert_never(part)
        held, slot.held = slot.held, []
        for event in held:
            if slot.ended:
                return
            self._apply(slot, event)

    def _apply(self, slot: BlockSlot, event: Event) -> None:
        match event:
            case PartTextDelta(text=text):
                self._text(slot, text)
            case PartReasoningDelta(text=text, summary=summary):
                if summary is not None and slot.summary is not None and summary != slot.summary:
                    text = "\n\n" + text
                slot.summary = summary
                self._thinking(slot, text)
            case ArgumentsDelta(text=text):
                self._arguments(slot, text)
            case StateDelta(state=state):
                slot.state = state
            case PartEnded(part=part):
                slot.ended = True
                slot.final = part
                self._end_part(slot)
            case _:
                pass

    def _start_block(self, block: JsonObject) -> None:
        self._emit("content_block_start", index=self._blocks, content_block=block)
        self._open = True

    def _delta(self, delta: JsonObject) -> None:
        self._emit("content_block_delta", index=self._blocks, delta=delta)

    def _stop_block(self) -> None:
        self._emit("content_block_stop", index=self._blocks)
        self._blocks += 1
        self._open = False

    def _text(self, slot: BlockSlot, text: str) -> None:
        if not text:
            return
        if not self._open:
            self._start_block({"type": "text", "text": ""})
        slot.sent.append(text)
        # The most common event of all: only its two values are written anew.
        self._out.append(_TEXT_DELTA % (self._blocks, msgspec.json.encode(text)))

    def _citations(self, part: Text) -> None:
        citations = part.fields_for(_WIRE).get("citations")
        if self._open and isinstance(citations, list):
            for citation in as_list(citations):
                self._delta({"type": "citations_delta", "citation": citation})

    def _thinking(self, slot: BlockSlot, text: str) -> None:
        if not text:
            return
        if not self._open:
            self._start_thinking()
        slot.sent.append(text)
        self._delta({"type": "thinking_delta", "thinking": text})

    def _start_thinking(self) -> None:
        # The signature slot is there from the start: clients copy the block back as it is.
        self._start_block({"type": "thinking", "thinking": "", "signature": ""})

    def _start_call(self, index: int, call: ToolCall) -> None:
        self._start_block(
            {
                "type": "tool_use",
                "id": caller_call_id(call, index, self._stamp, self._log),
                "name": flat_name(call.namespace, call.name) if call.namespace else call.name,
                "input": {},
                **call.fields_for(_WIRE),
            }
        )

    def _arguments(self, slot: BlockSlot, text: str) -> None:
        """Send arguments on once they begin like an object; hold what can only be wrong, or must be rewritten."""
        if not text:
            return
        if slot.sent:
            self._send_arguments(slot, text)
            return
        slot.unsent.append(text)
        begun = "" if slot.withheld else text.lstrip()
        if begun.startswith("{"):
            self._send_arguments(slot, "".join(slot.unsent))
            slot.unsent.clear()
        elif begun:
            slot.withheld = True

    def _send_arguments(self, slot: BlockSlot, text: str) -> None:
        if not self._open and isinstance(slot.part, ToolCall):
            self._start_call(slot.index, slot.part)
        slot.sent.append(text)
        self._delta({"type": "input_json_delta", "partial_json": text})

    def _end_part(self, slot: BlockSlot) -> None:
        """Send what only the end of a part tells, and close its block."""
        part = slot.final if slot.final is not None else slot.part
        match part:
            case Text(text=text):
                self._text(slot, missing_text(slot, text))
                self._citations(part)
            case Refusal(text=text):
                self._text(slot, missing_text(slot, text))
            case Reasoning():
                self._end_thinking(slot, part)
            case ToolCall():
                self._end_call(slot, part)
            case ProviderItem() | Unknown() if part.wire is _WIRE:
                self._whole_block(part.value)
            case ProviderItem() | Unknown():
                self._log.add(AdaptationKind.PART_DROPPED, part.type, "has no form on the messages wire")
            case Image() | File() | Audio() | ToolReference() | ToolResult():
                name = type(part).__name__.lower()
                self._log.add(AdaptationKind.PART_DROPPED, name, "replies hold none on the messages wire")
            case _:
                assert_never(part)
        if self._open and not self._done and self._broken is None:
            self._stop_block()

    def _end_thinking(self, slot: BlockSlot, part: Reasoning) -> None:
        self._thinking(slot, missing_text(slot, reasoning_text(part)))
        state = part.state or slot.state
        if state is None:
            return
        if not self._open:
            data = redacted_data(state) if state.form is _WIRE else None
            if data is not None:
                self._start_block({"type": "redacted_thinking", "data": data})
                return
            self._start_thinking()
        signature = signature_for_caller(state)
        if signature:
            self._delta({"type": "signature_delta", "signature": signature})

    def _end_call(self, slot: BlockSlot, call: ToolCall) -> None:
        """Check a complete call; what was sent of a broken one is taken back by an error, or by the stop reason."""
        text = "".join(slot.sent) + "".join(slot.unsent)
        if slot.final is not None and (not slot.sent or call.arguments_json.startswith(text)):
            text = call.arguments_json
        if call.kind is CallKind.CUSTOM:
            self._log.add(AdaptationKind.PART_RESHAPED, call.name, "custom call as a function call")
            text = custom_arguments(text)
        if parse_object(text) is None:
            found, _ = self._schemas.input_of(call.evolve(arguments_json=text))
            if found is None or slot.sent:
                self._broken = call
                if len(self._order) > 1:  # other parts follow, so no limit cut this one
                    self._fail(broken_call(call.name).info())
                return
            self._log.add(AdaptationKind.PART_RESHAPED, call.name, "no arguments, and none required: {}")
            text = "{}"
        rest = text[sum(map(len, slot.sent)) :]
        if rest:
            self._send_arguments(slot, rest)

    def _whole_block(self, value: JsonObject) -> None:
        """Send a provider's own block; its input as clients read it, in a delta."""
        held = maybe_object(value.get("input"))
        if held is None:
            self._start_block(value)
            return
        self._start_block({**value, "input": {}})
        self._delta({"type": "input_json_delta", "partial_json": msgspec.json.encode(held).decode()})
