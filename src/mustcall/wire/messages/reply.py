"""Messages replies, both ways: content, stop reason, usage.

Reading tolerates what servers get wrong around the content (missing ids, odd usage) and refuses content it cannot
read. Writing gives the caller legal blocks only: a call whose arguments are no JSON object is never written, with
`{}` or otherwise (rules 40, 107).
"""

from collections.abc import Iterable
from typing import Any, assert_never

import msgspec

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.errors import UpstreamGarbage, UpstreamRejected
from mustcall.core.origin import JsonObject, Origin, Wire
from mustcall.core.parts import (
    Audio,
    CallKind,
    File,
    Image,
    OpaqueState,
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
from mustcall.core.reply import FinishReason, Reply, Usage, derive_finish
from mustcall.core.request import Request
from mustcall.wire.codec import Provenance, ReplyStamp
from mustcall.wire.crossing.naming import flat_name, legal_id
from mustcall.wire.crossing.sealing import seal
from mustcall.wire.messages.blocks import (
    native_signature,
    read_block,
    redacted_data,
    redacted_state,
    thinking_state,
    write_text,
)
from mustcall.wire.messages.errors import error_from_value
from mustcall.wire.messages.inputs import Schemas
from mustcall.wire.messages.shape import CallBlock, TextBlock, ThinkingBlock, read_reply
from mustcall.wire.reading import as_list, as_object, at, decode_json, maybe_object, opt_str, reading_reply, rest

__all__ = [
    "broken_call",
    "caller_call_id",
    "decode_reply",
    "encode_reply",
    "finish_reason",
    "note_cut_call",
    "read_usage",
    "reasoning_text",
    "regular_reply",
    "reply_id",
    "signature_for_caller",
    "stop_reason",
    "write_usage",
]

_WIRE = Wire.MESSAGES

_REPLY_KEYS = frozenset({"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"})
_USAGE_KEYS = frozenset(
    {"input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens_details"}
)

_FINISHES = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "tool_use": FinishReason.TOOL_CALLS,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "refusal": FinishReason.REFUSAL,
    "pause_turn": FinishReason.PAUSE,
}


def finish_reason(reported: str | None) -> FinishReason:
    """Return the canonical word for a `stop_reason`."""
    return _FINISHES.get(reported or "", FinishReason.UNKNOWN)


def stop_reason(finish: FinishReason, reported: str | None, stop_sequence: str | None) -> str:
    """Return the `stop_reason` for a finish; the upstream's own word where it is this wire's and still true."""
    if reported is not None and _FINISHES.get(reported) is finish:
        return reported
    match finish:
        case FinishReason.STOP | FinishReason.UNKNOWN:
            return "end_turn" if stop_sequence is None else "stop_sequence"
        case FinishReason.TOOL_CALLS:
            return "tool_use"
        case FinishReason.LENGTH:
            return "max_tokens"
        case FinishReason.CONTENT_FILTER | FinishReason.REFUSAL:
            return "refusal"
        case FinishReason.PAUSE:
            return "pause_turn"
        case _:
            assert_never(finish)


def decode_reply(body: bytes, provenance: Provenance) -> Reply:
    """Read an upstream's whole reply; an error body in a 200 raises `UpstreamRejected`."""
    with reading_reply():
        value = as_object(decode_json(body))
        if value.get("type") == "error" or ("content" not in value and value.get("error")):
            raise UpstreamRejected(error_from_value(value))
        with at("content"):
            blocks = as_list(value.get("content"))
            parts = read_blocks(blocks, provenance)
        reported = opt_str(value, "stop_reason")
        usage = maybe_object(value.get("usage"))
        return Reply(
            id=opt_str(value, "id") or f"msg_{provenance.token}",
            model=opt_str(value, "model") or "",
            parts=parts,
            finish=derive_finish(finish_reason(reported), parts),
            reported_finish=reported,
            stop_sequence=opt_str(value, "stop_sequence"),
            usage=None if usage is None else read_usage(usage),
            origin=Origin(_WIRE, rest(value, _REPLY_KEYS), value),
        )


def read_blocks(blocks: Iterable[Any], provenance: Provenance) -> tuple[Part, ...]:
    """Read a reply's content."""
    parts: list[Part] = []
    for number, block in enumerate(blocks):
        with at(f"[{number}]"):
            parts.append(read_block(block, provenance.issuer, f"toolu_{provenance.token}_{number}"))
    return tuple(parts)


def regular_reply(body: bytes, provenance: Provenance) -> Reply | None:
    """Return what a reply means that needs no repair, without the form it came in; None for any other.

    One with citations, which other wires have no word for, or with blocks of kinds to come is read in full.
    """
    value = read_reply(body)
    if value is None:
        return None
    parts: list[Part] = []
    for block in value.content:
        if isinstance(block, TextBlock):
            if block.citations is not None:
                return None
            parts.append(Text(text=block.text))
        elif isinstance(block, CallBlock):
            arguments = msgspec.json.encode(block.input).decode()
            parts.append(ToolCall(id=block.id, name=block.name, arguments_json=arguments))
        elif isinstance(block, ThinkingBlock):
            state = thinking_state(block.thinking, block.signature or "", provenance.issuer)
            parts.append(Reasoning(text=block.thinking, state=state))
        else:
            parts.append(Reasoning(state=redacted_state(block.data, provenance.issuer)))
    counts = value.usage
    cached, written = counts.cache_read_input_tokens or 0, counts.cache_creation_input_tokens or 0
    details = counts.output_tokens_details
    return Reply(
        id=value.id,
        model=value.model,
        parts=tuple(parts),
        finish=derive_finish(finish_reason(value.stop_reason), parts),
        reported_finish=value.stop_reason,
        stop_sequence=value.stop_sequence,
        usage=Usage(
            input_tokens=(counts.input_tokens or 0) + cached + written,
            output_tokens=counts.output_tokens or 0,
            cached_tokens=cached,
            cache_write_tokens=written,
            reasoning_tokens=_count(maybe_object(details) or {}, "thinking_tokens") if details else 0,
        ),
    )


def read_usage(usage: JsonObject) -> Usage:
    """Read token counts; a count that is no number is 0."""
    cached = _count(usage, "cache_read_input_tokens")
    written = _count(usage, "cache_creation_input_tokens")
    details = maybe_object(usage.get("output_tokens_details")) or {}
    return Usage(
        input_tokens=_count(usage, "input_tokens") + cached + written,
        output_tokens=_count(usage, "output_tokens"),
        cached_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=_count(details, "thinking_tokens"),
        origin=Origin(_WIRE, rest(usage, _USAGE_KEYS), usage),
    )


def _count(usage: JsonObject, key: str) -> int:
    value = usage.get(key)
    return int(value) if isinstance(value, int | float) and value > 0 else 0


def write_usage(usage: Usage | None) -> JsonObject:
    """Write token counts; clients crash without them, so unknown ones are 0."""
    if usage is None:
        usage = Usage()
    raw = usage.raw_for(_WIRE)
    if raw is not None:
        return raw
    written: JsonObject = {
        "input_tokens": max(0, usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
    }
    if usage.reasoning_tokens:
        written["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return {**written, **usage.fields_for(_WIRE)}


def encode_reply(reply: Reply, caller: Request, stamp: ReplyStamp, log: AdaptationLog) -> JsonObject:
    """Write a reply for the caller; raise `UpstreamGarbage` for a call that cannot be one."""
    raw = reply.raw_for(_WIRE)
    if raw is not None:
        return raw
    if reply.origin is not None and reply.origin.wire is not _WIRE:
        for field in reply.origin.fields:
            log.add(AdaptationKind.FIELD_DROPPED, field, "a reply field of another wire")
    writer = _Writer(reply, Schemas(caller.tools), stamp, log)
    content: list[JsonObject] = []
    for number, part in enumerate(reply.parts):
        block = writer.part(number, part)
        if block is not None:
            content.append(block)
    return {
        "id": reply_id(reply.id, stamp),
        "type": "message",
        "role": "assistant",
        "model": reply.model or caller.model,
        "content": content,
        "stop_reason": stop_reason(reply.finish, reply.reported_finish, reply.stop_sequence),
        "stop_sequence": reply.stop_sequence,
        "usage": write_usage(reply.usage),
        **reply.fields_for(_WIRE),
    }


def reply_id(own: str, stamp: ReplyStamp) -> str:
    """Return the reply's id: the upstream's where it is one of this wire."""
    return own if own.startswith("msg_") else f"msg_{stamp.token}"


def reasoning_text(part: Reasoning) -> str:
    """Return thinking as one text: itself, or its summaries."""
    return part.text or "\n\n".join(part.summary)


def signature_for_caller(state: OpaqueState | None) -> str:
    """Return what goes into the signature slot: our own wire's signature, another wire's state sealed, or nothing."""
    if state is None:
        return ""
    return native_signature(state) if state.form is _WIRE else seal(state)


def _write_reasoning(part: Reasoning) -> JsonObject | None:
    text, state = reasoning_text(part), part.state
    if state is not None and state.form is _WIRE and not text:
        data = redacted_data(state)
        if data is not None:
            return {"type": "redacted_thinking", "data": data, **part.fields_for(_WIRE)}
    if not text and state is None:
        return None
    return {
        "type": "thinking",
        "thinking": text,
        "signature": signature_for_caller(state),
        **part.fields_for(_WIRE),
    }


def caller_call_id(call: ToolCall, number: int, stamp: ReplyStamp, log: AdaptationLog) -> str:
    """Return an id the caller may send back to any upstream of this wire."""
    if not call.id:
        return f"toolu_{stamp.token}_{number}"
    legal = legal_id(call.id)
    if legal != call.id:
        log.add(AdaptationKind.ID_MAPPED, call.id, legal)
    return legal


def broken_call(name: str) -> UpstreamGarbage:
    """Return the error for a call whose arguments are no JSON object."""
    return UpstreamGarbage(f"the model called the tool {name!r} with arguments that are not a JSON object")


def note_cut_call(call: ToolCall, log: AdaptationLog) -> None:
    """Note a call that the token limit fell into: half a call is none, and the stop reason says what happened."""
    log.add(AdaptationKind.PART_DROPPED, call.name, "a call cut by the token limit")


class _Writer:
    """Writes the parts of one reply; what it changes goes to the log."""

    __slots__ = ("_log", "_reply", "_schemas", "_stamp")

    def __init__(self, reply: Reply, schemas: Schemas, stamp: ReplyStamp, log: AdaptationLog) -> None:
        self._reply = reply
        self._schemas = schemas
        self._stamp = stamp
        self._log = log

    def part(self, number: int, part: Part) -> JsonObject | None:
        """Write one part; None if there is nothing to write."""
        raw = part.raw_for(_WIRE)
        if raw is not None:
            return raw
        match part:
            case Text():
                return write_text(part) if part.text else None
            case Refusal(text=text):
                return {"type": "text", "text": text} if text else None
            case Reasoning():
                return _write_reasoning(part)
            case ToolCall():
                return self._call(number, part)
            case ProviderItem() | Unknown() if part.wire is _WIRE:
                return part.value
            case ProviderItem() | Unknown():
                self._log.add(AdaptationKind.PART_DROPPED, part.type, "has no form on the messages wire")
                return None
            case Image() | File() | Audio() | ToolReference() | ToolResult():
                name = type(part).__name__.lower()
                self._log.add(AdaptationKind.PART_DROPPED, name, "replies hold none on the messages wire")
                return None
            case _:
                assert_never(part)

    def _call(self, number: int, call: ToolCall) -> JsonObject | None:
        found, empty = self._schemas.input_of(call)
        if found is None:
            if self._reply.finish is FinishReason.LENGTH and call is self._reply.parts[-1]:
                note_cut_call(call, self._log)
                return None
            raise broken_call(call.name)
        if empty:
            self._log.add(AdaptationKind.PART_RESHAPED, call.name, "no arguments, and none required: {}")
        elif call.kind is CallKind.CUSTOM:
            self._log.add(AdaptationKind.PART_RESHAPED, call.name, "custom call as a function call")
        return {
            "type": "tool_use",
            "id": caller_call_id(call, number, self._stamp, self._log),
            "name": flat_name(call.namespace, call.name) if call.namespace else call.name,
            "input": found,
            **call.fields_for(_WIRE),
        }
