"""Chat Completions replies and usage, both ways.

Only the first choice is a reply; further ones pass on the same wire, where bytes are forwarded.
"""

from typing import Any

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.errors import UpstreamRejected
from mustcall.core.origin import JsonObject, Origin, Wire
from mustcall.core.parts import Part, Reasoning, Refusal, Text, ToolCall
from mustcall.core.reply import FinishReason, Reply, Usage, derive_finish
from mustcall.wire.chat.parts import (
    EXTRA_CONTENT,
    SEALED_DETAIL,
    decode_assistant_parts,
    encode_call,
    encode_reasoning,
    join_reasoning,
    reasoning_parts,
)
from mustcall.wire.chat.shape import InputDetails, OutputDetails, read_reply
from mustcall.wire.codec import Provenance, ReplyStamp
from mustcall.wire.crossing.naming import flat_name
from mustcall.wire.crossing.sealing import seal
from mustcall.wire.openai_errors import error_info
from mustcall.wire.reading import (
    ShapeError,
    as_object,
    at,
    decode_json,
    list_field,
    maybe_object,
    opt_str,
    reading_reply,
)

__all__ = [
    "FINISH_WORDS",
    "caller_name",
    "decode_finish",
    "decode_reply",
    "decode_usage",
    "detailed_usage",
    "encode_finish",
    "encode_reply",
    "encode_usage",
    "label",
    "note_dropped",
    "reasoning_fields",
    "regular_reply",
    "whole_number",
]

_CHAT = Wire.CHAT
_NO_INPUT, _NO_OUTPUT = InputDetails(), OutputDetails()

#: What chat servers report, and what it means.
FINISH_WORDS = {
    "stop": FinishReason.STOP,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}


def decode_finish(word: str | None) -> FinishReason:
    """Return the meaning of a reported finish reason."""
    return FINISH_WORDS.get(word or "", FinishReason.UNKNOWN)


def encode_finish(finish: FinishReason, has_refusal: bool) -> str:
    """Return the word for a finish reason. A refusal without words of its own can only be said as a filter stop."""
    match finish:
        case FinishReason.TOOL_CALLS | FinishReason.LENGTH | FinishReason.CONTENT_FILTER:
            return str(finish)
        case FinishReason.REFUSAL:
            return "stop" if has_refusal else "content_filter"
        case FinishReason.STOP | FinishReason.PAUSE | FinishReason.UNKNOWN:
            return "stop"


def decode_usage(value: Any) -> Usage | None:
    """Read `usage`; anything but an object is none, and a count that is no number is 0: no reply fails over it."""
    usage = maybe_object(value)
    if usage is None:
        return None
    given = maybe_object(usage.get("prompt_tokens_details")) or {}
    made = maybe_object(usage.get("completion_tokens_details")) or {}
    return Usage(
        input_tokens=whole_number(usage.get("prompt_tokens")) or 0,
        output_tokens=whole_number(usage.get("completion_tokens")) or 0,
        cached_tokens=whole_number(given.get("cached_tokens")) or 0,
        cache_write_tokens=whole_number(given.get("cache_write_tokens")) or 0,
        reasoning_tokens=whole_number(made.get("reasoning_tokens")) or 0,
        origin=Origin(_CHAT, raw=usage),
    )


def whole_number(value: Any) -> int | None:
    """Return a number without its fraction (some servers send times as floats), None for anything else."""
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def label(value: Any) -> str:
    """Return an id or a model name; a reply whose label is no string is read without it."""
    return value if isinstance(value, str) else ""


def encode_usage(usage: Usage) -> JsonObject:
    """Write `usage`."""
    raw = usage.raw_for(_CHAT)
    if raw is not None:
        return raw
    given = {"cached_tokens": usage.cached_tokens}
    if usage.cache_write_tokens:
        given["cache_write_tokens"] = usage.cache_write_tokens
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": given,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def decode_reply(body: bytes, provenance: Provenance) -> Reply:
    """Read a whole reply."""
    with reading_reply():
        value = as_object(decode_json(body))
        choices = value.get("choices")
        if value.get("error") and not choices:
            raise UpstreamRejected(error_info(value["error"], 200))
        choices = list_field(value, "choices")
        if not choices:
            raise ShapeError("has no choice in it", path="choices")
        others = tuple([_decode_choice(value, choices, place, provenance) for place in range(1, len(choices))])
        return _decode_choice(value, choices, 0, provenance, others)


def _decode_choice(
    value: JsonObject, choices: list[Any], place: int, provenance: Provenance, others: tuple[Reply, ...] = ()
) -> Reply:
    with at(f"choices[{place}]"):
        choice = as_object(choices[place])
        with at("message"):
            message = as_object(choice.get("message"))
            parts = decode_assistant_parts(message, provenance.issuer, provenance.token, crosses=provenance.crosses)
        reported = opt_str(choice, "finish_reason")
    return Reply(
        id=label(value.get("id")),
        model=label(value.get("model")),
        parts=tuple(parts),
        finish=derive_finish(decode_finish(reported), parts),
        reported_finish=reported,
        usage=None if place else decode_usage(value.get("usage")),  # it counts all of them, once
        others=others,
        origin=Origin(_CHAT, raw=value),
    )


def regular_reply(body: bytes, provenance: Provenance) -> Reply | None:
    """Return what a reply means that needs no repair, without the form it came in; None for any other."""
    value = read_reply(body)
    if value is None or len(value.choices) > 1:
        return None
    choice, counted, usage = value.choices[0], value.usage, None
    message, finish = choice.message, choice.finish_reason
    parts: list[Part] = []
    if message.reasoning_content or message.reasoning or message.reasoning_details:
        field = "reasoning_content" if message.reasoning_content else "reasoning" if message.reasoning else ""
        text = message.reasoning_content or message.reasoning or ""
        parts += reasoning_parts(text, field, message.reasoning_details or [], provenance.issuer)
    if message.content:
        parts.append(Text(text=message.content))
    if message.refusal:
        parts.append(Refusal(text=message.refusal))
    for call in message.tool_calls or ():
        function, extra = call.function, call.extra_content
        if call.custom is not None or function is None or (extra and provenance.crosses):
            return None  # rare enough to be read in full
        origin = Origin(_CHAT, {EXTRA_CONTENT: extra}) if extra else None
        parts.append(ToolCall(id=call.id, name=function.name, arguments_json=function.arguments, origin=origin))
    if counted is not None:
        given, made = counted.prompt_tokens_details, counted.completion_tokens_details
        usage = detailed_usage(counted.prompt_tokens, counted.completion_tokens, given, made)
    return Reply(
        id=value.id,
        model=value.model,
        parts=tuple(parts),
        finish=derive_finish(FINISH_WORDS.get(finish or "", FinishReason.UNKNOWN), parts),
        reported_finish=finish,
        usage=usage,
    )


def detailed_usage(read: int, written: int, given: InputDetails | None, made: OutputDetails | None) -> Usage:
    """Return OpenAI's counts, which have the same details on both of its wires."""
    given, made = given or _NO_INPUT, made or _NO_OUTPUT
    return Usage(
        input_tokens=read,
        output_tokens=written,
        cached_tokens=given.cached_tokens,
        cache_write_tokens=given.cache_write_tokens,
        reasoning_tokens=made.reasoning_tokens,
    )


def reasoning_fields(part: Reasoning) -> JsonObject:
    """Return the message fields that show thinking to a chat client and let it hand the state back."""
    state = part.state
    if state is None or state.form is _CHAT:
        return encode_reasoning(part, state)
    return {
        **encode_reasoning(part, None),
        "reasoning_details": [{"type": SEALED_DETAIL, "data": seal(state)}],
    }


def caller_name(call: ToolCall) -> str:
    """Return a call's name as the caller offered it; chat has no namespaces, so one is written into the name."""
    return flat_name(call.namespace, call.name) if call.namespace else call.name


def encode_reply(reply: Reply, stamp: ReplyStamp, log: AdaptationLog, model: str = "") -> JsonObject:
    """Write a whole reply; `model` is the name shown where the upstream gave none."""
    raw = reply.raw_for(_CHAT)
    if raw is not None:
        return raw
    texts: list[str] = []
    refusals: list[str] = []
    calls: list[JsonObject] = []
    thinking: JsonObject = {}
    for part in reply.parts:
        match part:
            case Text(text=text):
                texts.append(text)
            case Refusal(text=text):
                refusals.append(text)
            case ToolCall():
                calls.append(encode_call(part, caller_name(part), part.id))
            case Reasoning():
                join_reasoning(thinking, reasoning_fields(part))
            case _:
                note_dropped(part, log)
    message: JsonObject = {
        "role": "assistant",
        "content": "".join(texts) if texts else None,
        "refusal": "".join(refusals) if refusals else None,
        **thinking,
    }
    if calls:
        message["tool_calls"] = calls
    body: JsonObject = {
        "id": f"chatcmpl-{stamp.token}",
        "object": "chat.completion",
        "created": stamp.created,
        "model": reply.model or model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": encode_finish(reply.finish, bool(refusals)),
            }
        ],
    }
    if reply.usage is not None:
        body["usage"] = encode_usage(reply.usage)
    return body


def note_dropped(part: Part, log: AdaptationLog) -> None:
    """Note a part of a reply that a chat client has no place for."""
    log.add(AdaptationKind.PART_DROPPED, getattr(part, "type", type(part).__name__), "no form on the chat wire")
