"""Responses replies and usage, both ways: the response object and its output items as a caller's client needs them.

Each canonical part becomes an output item of its own. Ids the upstream did not give are made from the stamp. Items
are built by small functions that the stream encoder shares, so streamed and whole replies cannot differ.
"""

from typing import Any, assert_never

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.errors import ErrorInfo, UpstreamRejected, UpstreamUnavailable
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
from mustcall.wire.caching.encode_cache import OfSettings
from mustcall.wire.chat.reply import detailed_usage
from mustcall.wire.codec import Provenance, ReplyStamp
from mustcall.wire.crossing.sealing import seal
from mustcall.wire.openai_errors import error_info
from mustcall.wire.reading import (
    as_object,
    at,
    decode_json,
    list_field,
    maybe_object,
    opt_str,
    reading_reply,
)
from mustcall.wire.responses.items import decode_output_item
from mustcall.wire.responses.parts import ENVELOPE, is_native, part_word
from mustcall.wire.responses.request_encode import encode_settings
from mustcall.wire.responses.shape import CallItem, CustomCallItem, ReasoningItem, read_reply

__all__ = [
    "decode_finish",
    "decode_reply",
    "decode_usage",
    "distinct",
    "encode_item",
    "encode_reply",
    "encode_usage",
    "failure_of",
    "finish_fields",
    "reasoning_texts",
    "regular_reply",
    "response_head",
    "response_id",
]

_WIRE = Wire.RESPONSES

_INCOMPLETE = {
    "max_output_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}
#: What a response says of itself that is no whole reply (rules 41, 123); a stream of one ends as cut off.
_UNFINISHED = ("cancelled", "in_progress", "queued")
_FAILED_STATUSES = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "invalid_prompt": 400,
    "context_length_exceeded": 400,
    "server_is_overloaded": 503,
}

# --- decode -------------------------------------------------------------------------------------------------------


def decode_reply(body: bytes, provenance: Provenance) -> Reply:
    """Read a whole reply."""
    with reading_reply():
        value = as_object(decode_json(body))
        failure = failure_of(value)
        if failure is not None:
            raise UpstreamRejected(failure)
        if value.get("status") in _UNFINISHED:
            raise UpstreamUnavailable(f"the upstream's response is not finished: its status is {value['status']!r}")
        parts: list[Part] = []
        for number, item in enumerate(list_field(value, "output")):
            with at(f"output[{number}]"):
                parts.extend(decode_output_item(item, provenance, number))
        details = maybe_object(value.get("incomplete_details")) or {}
        reason, reported = decode_finish(value.get("status"), details.get("reason"))
        return Reply(
            id=opt_str(value, "id") or f"resp_{provenance.token}",
            model=opt_str(value, "model") or "",
            parts=tuple(parts),
            finish=derive_finish(reason, parts),
            reported_finish=reported,
            usage=decode_usage(value.get("usage")),
            origin=Origin(_WIRE, raw=value),
        )


def regular_reply(body: bytes, provenance: Provenance) -> Reply | None:
    """Return what a reply means that needs no repair, without the form it came in; None for any other."""
    value = read_reply(body)
    if value is None or value.status in _UNFINISHED:
        return None
    counted, details, usage = value.usage, value.incomplete_details, None
    parts: list[Part] = []
    for item in value.output:
        if isinstance(item, CallItem):
            kind = CallKind.CUSTOM if isinstance(item, CustomCallItem) else CallKind.FUNCTION
            parts.append(ToolCall(item.call_id, item.name, item.given, kind, item.namespace, item.id))
        elif isinstance(item, ReasoningItem):
            parts.append(_thought(item, provenance.issuer))
        else:
            for content in item.content:
                if content.type == "output_text" and isinstance(content.text, str):
                    parts.append(Text(text=content.text))
                elif content.type == "refusal" and isinstance(content.refusal, str):
                    parts.append(Refusal(text=content.refusal))
                else:
                    return None  # of another type, rare enough to be read in full, or not what its type says
    if counted is not None:
        given, made = counted.input_tokens_details, counted.output_tokens_details
        usage = detailed_usage(counted.input_tokens, counted.output_tokens, given, made)
    reason, reported = decode_finish(value.status, None if details is None else details.reason)
    return Reply(
        id=value.id,
        model=value.model or "",
        parts=tuple(parts),
        finish=derive_finish(reason, parts),
        reported_finish=reported,
        usage=usage,
    )


def _thought(item: ReasoningItem, issuer: str) -> Reasoning:
    sealed = item.encrypted_content
    return Reasoning(
        text="".join([one.text for one in item.content or ()]),
        summary=tuple([one.text for one in item.summary]),
        state=None if sealed is None else OpaqueState(_WIRE, sealed, issuer),
        id=item.id,
    )


def failure_of(response: JsonObject) -> ErrorInfo | None:
    """Return the error of a response object that failed, or of an error body in its place."""
    error = response.get("error")
    if not error and response.get("status") != "failed":
        return None
    info = error_info(error or {"message": "the upstream's response failed without saying why"}, 200)
    status = _FAILED_STATUSES.get(info.code)
    if status is None:
        return info
    return ErrorInfo(message=info.message, status=status, code=info.code, type=info.type, param=info.param)


def decode_finish(status: Any, reason: Any) -> tuple[FinishReason, str | None]:
    """Return what a response's status means, with the reason why it is incomplete, and its word for it."""
    if status == "incomplete":
        word = reason if isinstance(reason, str) else status
        return _INCOMPLETE.get(word, FinishReason.UNKNOWN), word
    if status is None or status == "completed":
        return FinishReason.STOP, status
    return FinishReason.UNKNOWN, status if isinstance(status, str) else None


def decode_usage(value: Any) -> Usage | None:
    """Read `usage`; anything but an object is none, anything but a count is 0."""
    usage = maybe_object(value)
    if usage is None:
        return None
    given = maybe_object(usage.get("input_tokens_details")) or {}
    made = maybe_object(usage.get("output_tokens_details")) or {}
    return Usage(
        input_tokens=_count(usage.get("input_tokens")),
        output_tokens=_count(usage.get("output_tokens")),
        cached_tokens=_count(given.get("cached_tokens")),
        cache_write_tokens=_count(given.get("cache_write_tokens")),
        reasoning_tokens=_count(made.get("reasoning_tokens")),
        origin=Origin(_WIRE, raw=usage),
    )


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


# --- encode -------------------------------------------------------------------------------------------------------


def encode_reply(reply: Reply, caller: Request, stamp: ReplyStamp, log: AdaptationLog) -> JsonObject:
    """Write a whole reply."""
    raw = reply.raw_for(_WIRE)
    if raw is not None:
        return raw
    output: list[JsonObject] = []
    used: set[str] = set()
    for number, part in enumerate(reply.parts):
        suffix = f"{stamp.token}_{number}"
        item = encode_item(part, suffix, log)
        if item is not None:
            output.append(distinct(item, suffix, used))
    head = response_head(caller, response_id(reply.id, stamp), reply.model or caller.model, stamp)
    refused = any(isinstance(part, Refusal) for part in reply.parts)
    return {**head, **finish_fields(reply.finish, output, refused=refused), "usage": encode_usage(reply.usage)}


def distinct(item: JsonObject, suffix: str, used: set[str]) -> JsonObject:
    """Return an item under an id that none before it has: clients refuse a response in which two share one."""
    own = item.get("id")
    if isinstance(own, str):
        if own in used:
            own = f"{own.partition('_')[0][:16]}_{suffix}"
            item = {**item, "id": own}
        used.add(own)
    return item


def response_id(upstream: str, stamp: ReplyStamp) -> str:
    """Return the upstream's own id where it is one of this wire (clients refer to it), else one from the stamp."""
    return upstream if upstream.startswith("resp_") else f"resp_{stamp.token}"


def finish_fields(finish: FinishReason, output: list[JsonObject], *, refused: bool) -> JsonObject:
    """Return status and output; in an incomplete response the last item is incomplete too.

    A refusal is told by its refusal part; one without (`refused` is false) can only be told as a filter's stop.
    """
    match finish:
        case FinishReason.LENGTH:
            reason = "max_output_tokens"
        case FinishReason.CONTENT_FILTER:
            reason = "content_filter"
        case FinishReason.REFUSAL:
            reason = None if refused else "content_filter"
        case FinishReason.STOP | FinishReason.TOOL_CALLS:
            reason = None
        case FinishReason.PAUSE | FinishReason.UNKNOWN:
            reason = None
        case _:
            assert_never(finish)
    if reason is None:
        return {"status": "completed", "incomplete_details": None, "output": output}
    if output and "status" in output[-1]:
        output = [*output[:-1], {**output[-1], "status": "incomplete"}]
    return {"status": "incomplete", "incomplete_details": {"reason": reason}, "output": output}


def response_head(caller: Request, identifier: str, model: str, stamp: ReplyStamp) -> JsonObject:
    """Return the response object without its result: identity, and the caller's settings repeated."""
    origin = caller.origin
    if origin is not None and origin.wire is _WIRE and origin.raw is not None:
        repeated = _heads.get(caller, origin, None, lambda: _repeated(origin.raw))
    else:
        repeated = _repeated(encode_settings(caller, AdaptationLog()))
    head = {**repeated, "id": identifier, "created_at": stamp.created, "model": model, "store": stamp.stored}
    if stamp.previous:
        head["previous_response_id"] = stamp.previous
    return head


def _repeated(asked: JsonObject) -> JsonObject:
    """Return a response object that repeats what was asked; nothing of it may be changed. `store` is ours to say."""
    said = {name: value for name, value in asked.items() if name in _REPEATED and value is not None}
    return {
        **_UNSAID,
        **said,
        "output": [],
        "reasoning": {"effort": None, "summary": None, **said.get("reasoning", {})},
        "text": {"format": {"type": "text"}, **said.get("text", {})},
        "tools": [_echoed_tool(tool) for tool in said.get("tools", ())],
    }


_heads: OfSettings[JsonObject] = OfSettings()


#: A response object, its result and what it repeats of a request that says nothing of it.
_UNSAID: JsonObject = {
    "id": "",
    "object": "response",
    "created_at": 0,
    "status": "in_progress",
    "background": False,
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "model": "",
    "output": None,
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": None,
    "safety_identifier": None,
    "service_tier": "default",
    "store": False,
    "temperature": 1.0,
    "text": None,
    "tool_choice": "auto",
    "tools": None,
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "usage": None,
    "user": None,
    "metadata": {},
}
_REPEATED = _UNSAID.keys() - {"id", "object", "created_at", "status", "error", "incomplete_details", "output", "usage"}


def _echoed_tool(tool: JsonObject) -> JsonObject:
    """Return a tool as the server repeats it: fields the SDK's models demand are there, if only as null."""
    if tool.get("type") == "function" and not {"parameters", "strict"} <= tool.keys():
        return {"parameters": None, "strict": None, **tool}
    return tool


def encode_usage(usage: Usage | None) -> JsonObject | None:
    """Write `usage`."""
    if usage is None:
        return None
    raw = usage.raw_for(_WIRE)
    if raw is not None:
        return raw
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def encode_item(part: Part, suffix: str, log: AdaptationLog) -> JsonObject | None:
    """Write a part of a reply as an output item; made ids end in `suffix`. None if the wire has no form for it."""
    match part:
        case Text() | Refusal():
            return _message(part, suffix, _reply_content(part))
        case Reasoning():
            return _reasoning(part, suffix, log)
        case ToolCall():
            return _call(part, suffix)
        case ProviderItem(wire=wire, value=value) if wire is _WIRE:
            return value
        case Unknown(wire=wire, value=value) if wire is _WIRE:
            return _message(part, suffix, value)
        case ProviderItem() | Unknown() | ToolResult() | Image() | File() | Audio() | ToolReference():
            log.add(AdaptationKind.PART_DROPPED, part_word(part), "no form in a reply on the responses wire")
            return None
        case _:
            assert_never(part)


def _reply_content(part: Text | Refusal) -> JsonObject:
    raw = part.raw_for(_WIRE)
    if raw is not None:
        return raw
    fields = {name: value for name, value in part.fields_for(_WIRE).items() if name != ENVELOPE}
    if isinstance(part, Refusal):
        return {"type": "refusal", "refusal": part.text, **fields}
    return {"type": "output_text", "text": part.text, "annotations": [], "logprobs": [], **fields}


def _message(part: Text | Refusal | Unknown, suffix: str, content: JsonObject) -> JsonObject:
    return {
        "id": f"msg_{suffix}",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [content],
        **(maybe_object(part.fields_for(_WIRE).get(ENVELOPE)) or {}),
    }


def reasoning_texts(part: Reasoning) -> tuple[tuple[str, ...], str]:
    """Return (summaries, thinking text) as a client of this wire is shown them.

    Clients render summaries, not reasoning text; so thinking of another wire, which is all there is to show, is
    shown as a summary. A server of this wire tells the two apart by itself.
    """
    if is_native(part) or not part.text:
        return part.summary, part.text
    return (*part.summary, part.text), ""


def _reasoning(part: Reasoning, suffix: str, log: AdaptationLog) -> JsonObject:
    raw = part.raw_for(_WIRE)
    if raw is not None:
        return raw
    summary, text = reasoning_texts(part)
    if len(summary) != len(part.summary):
        log.add(AdaptationKind.PART_RESHAPED, "reasoning", "thinking text shown as a summary")
    item: JsonObject = {
        "id": part.id or f"rs_{suffix}",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": one} for one in summary],
    }
    if text:
        item["content"] = [{"type": "reasoning_text", "text": text}]
    state = part.state
    if state is not None:
        native = state.form is _WIRE and isinstance(state.data, str)
        item["encrypted_content"] = state.data if native else seal(state)
    return {**item, **part.fields_for(_WIRE)}


def _call(call: ToolCall, suffix: str) -> JsonObject:
    raw = call.raw_for(_WIRE)
    if raw is not None:
        return raw
    custom = call.kind is CallKind.CUSTOM
    item: JsonObject = {
        "id": call.item_id or f"{'ctc' if custom else 'fc'}_{suffix}",
        "type": "custom_tool_call" if custom else "function_call",
        "status": "completed",
        "call_id": call.id,
        "name": call.name,
        "input" if custom else "arguments": call.arguments_json,
    }
    if call.namespace is not None:
        item["namespace"] = call.namespace
    return {**item, **call.fields_for(_WIRE)}
