"""A turn as Anthropic Messages writes it: one JSON body, or the events of a stream.

Written from the public API alone and kept apart from `mustcall.wire`: this is what the codecs are tested against.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.core.reply import Usage
from mustcall.testing.offers import as_object
from mustcall.testing.render.stamp import Stamp, arguments_text, cut_arguments, cut_text, frame
from mustcall.testing.script import Call, Refuse, Say, Think, Turn, TurnPart

__all__ = ["build_body", "stream_events"]

_FINISH = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
    "refusal": "refusal",
    "pause": "pause_turn",
}


def build_body(turn: Turn, request: JsonObject, stamp: Stamp) -> JsonObject:
    """Return the whole `message`."""
    finish = _finish(turn)
    body: JsonObject = {
        "id": turn.id or stamp.make_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": turn.model or request.get("model") or "scripted",
        "content": [_build_block(part, k, request, stamp) for k, part in enumerate(turn.parts)],
        "stop_reason": finish,
        "stop_sequence": turn.stop_sequence,
        "stop_details": {"type": "refusal", "category": None, "explanation": None} if finish == "refusal" else None,
    }
    if turn.usage is not None:
        body["usage"] = _build_usage(turn.usage)
    return body | dict(turn.extra)


def stream_events(turn: Turn, request: JsonObject, stamp: Stamp) -> list[bytes]:
    """Return the events: message_start, each block started, filled and stopped, message_delta, message_stop."""
    return [frame(data, str(data["type"])) for data in _stream(turn, build_body(turn, request, stamp))]


def _stream(turn: Turn, body: JsonObject) -> Iterator[JsonObject]:
    opening: JsonObject = body | {"content": [], "stop_reason": None, "stop_sequence": None, "stop_details": None}
    usage: JsonObject | None = body.get("usage")
    if usage is not None:
        opening["usage"] = usage | {"output_tokens": min(1, int(usage["output_tokens"]))}
    yield {"type": "message_start", "message": opening}
    for index, (part, block) in enumerate(zip(turn.parts, body["content"], strict=True)):
        yield {"type": "content_block_start", "index": index, "content_block": _open_block(block)}
        if index == 0:
            yield {"type": "ping"}
        for delta in _deltas(part, block):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ending: JsonObject = {
        "type": "message_delta",
        "delta": {key: body[key] for key in ("stop_reason", "stop_sequence", "stop_details")},
    }
    if usage is not None:
        ending["usage"] = {key: value for key, value in usage.items() if key not in ("cache_creation", "service_tier")}
    yield ending
    yield {"type": "message_stop"}


def _finish(turn: Turn) -> str:
    if turn.finish is None and turn.stop_sequence is not None:
        return "stop_sequence"
    return _FINISH.get(turn.finish_word, turn.finish_word)


def _build_block(part: TurnPart, index: int, request: JsonObject, stamp: Stamp) -> JsonObject:
    match part:
        case Say(text) | Refuse(text):
            return {"type": "text", "text": text}
        case Think(redacted=True):
            return {"type": "redacted_thinking", "data": part.encrypted or stamp.sign(part, index, "redacted")}
        case Think(text):
            omitted = as_object(request.get("thinking")).get("display") == "omitted"
            signature = part.signature if part.signature is not None else stamp.sign(part, index, "signature")
            return {"type": "thinking", "thinking": "" if omitted else text, "signature": signature}
        case Call(name):
            call_id = part.id if part.id is not None else stamp.make_id("toolu_", index)
            return {"type": "tool_use", "id": call_id, "name": name, "input": _build_input(part)}


def _build_input(call: Call) -> Any:
    """Return the input as JSON; text that is none goes out as the string it is, as careless servers do."""
    if not isinstance(call.arguments, str):
        return call.arguments
    try:
        return msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        return call.arguments


def _open_block(block: JsonObject) -> JsonObject:
    match block["type"]:
        case "text":
            return {"type": "text", "text": ""}
        case "thinking":
            return {"type": "thinking", "thinking": "", "signature": ""}
        case "tool_use":
            return block | {"input": {}}
        case _:
            return block


def _deltas(part: TurnPart, block: JsonObject) -> Iterator[JsonObject]:
    match part:
        case Say(text) | Refuse(text):
            for piece in cut_text(text):
                yield {"type": "text_delta", "text": piece}
        case Think(redacted=True):
            pass
        case Think():
            for piece in cut_text(str(block["thinking"])):
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": block["signature"]}
        case Call():
            # The first delta is empty, and a call without arguments has no other.
            yield {"type": "input_json_delta", "partial_json": ""}
            for piece in cut_arguments(arguments_text(part) if part.arguments else ""):
                yield {"type": "input_json_delta", "partial_json": piece}


def _build_usage(usage: Usage) -> JsonObject:
    written = usage.cache_write_tokens
    fields: JsonObject = {
        "input_tokens": usage.input_tokens - usage.cached_tokens - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
        "output_tokens": usage.output_tokens,
        "service_tier": "standard",
    }
    if usage.reasoning_tokens:
        fields["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return fields
