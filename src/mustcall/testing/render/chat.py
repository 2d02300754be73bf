"""A turn as OpenAI Chat Completions writes it: one JSON body, or the chunks of a stream.

Written from the public API alone and kept apart from `mustcall.wire`: this is what the codecs are tested against.
"""

from mustcall.core.origin import JsonObject, Wire
from mustcall.core.reply import Usage
from mustcall.testing.offers import as_object, find_offer, offers_of
from mustcall.testing.render.stamp import Stamp, arguments_text, cut_arguments, cut_text, frame
from mustcall.testing.script import Call, Refuse, Say, Think, Turn

__all__ = ["build_body", "stream_events"]

# Chat has no word for a refusal or a pause: the reply just stops.
_FINISH = {"refusal": "stop", "pause": "stop"}


def build_body(turn: Turn, request: JsonObject, stamp: Stamp) -> JsonObject:
    """Return the whole `chat.completion`."""
    said = [part.text for part in turn.parts if isinstance(part, Say)]
    refused = [part.text for part in turn.parts if isinstance(part, Refuse)]
    thought = [part.text for part in turn.parts if isinstance(part, Think)]
    message: JsonObject = {
        "role": "assistant",
        "content": "".join(said) if said else None,
        "refusal": "".join(refused) if refused else None,
        "annotations": [],
    }
    if thought:
        message["reasoning_content"] = "".join(thought)
    if turn.calls:
        message["tool_calls"] = [_build_call(call, k, request, stamp) for k, call in enumerate(turn.calls)]
    body: JsonObject = {
        "id": turn.id or stamp.make_id("chatcmpl-"),
        "object": "chat.completion",
        "created": stamp.created,
        "model": turn.model or request.get("model") or "scripted",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(turn)}],
    }
    if turn.usage is not None:
        body["usage"] = _build_usage(turn.usage)
    return body | {"service_tier": "default", "system_fingerprint": "fp_scripted"} | dict(turn.extra)


def stream_events(turn: Turn, request: JsonObject, stamp: Stamp) -> list[bytes]:
    """Return the chunks: role, deltas, finish, usage if it was asked for, and `[DONE]`."""
    body = build_body(turn, request, stamp)
    with_usage = as_object(request.get("stream_options")).get("include_usage") is True
    head = {key: value for key, value in body.items() if key not in ("choices", "usage")}
    head["object"] = "chat.completion.chunk"

    def chunk(delta: JsonObject, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if with_usage else {}
        return frame(head | {"choices": [choice]} | usage)

    events = [chunk({"role": "assistant", "content": None if turn.calls else "", "refusal": None})]
    number = 0
    for part in turn.parts:
        match part:
            case Say(text):
                events += [chunk({"content": piece}) for piece in cut_text(text)]
            case Refuse(text):
                events += [chunk({"refusal": piece}) for piece in cut_text(text)]
            case Think(text):
                events += [chunk({"reasoning_content": piece}) for piece in cut_text(text)]
            case Call():
                whole = _build_call(part, number, request, stamp)
                kind, field = (whole["type"], "input" if whole["type"] == "custom" else "arguments")
                start = whole | {"index": number, kind: whole[kind] | {field: ""}}
                events.append(chunk({"tool_calls": [start]}))
                events += [
                    chunk({"tool_calls": [{"index": number, kind: {field: piece}}]})
                    for piece in cut_arguments(arguments_text(part))
                ]
                number += 1
    events.append(chunk({}, _finish(turn)))
    if with_usage and "usage" in body:
        events.append(frame(head | {"choices": [], "usage": body["usage"]}))
    return [*events, b"data: [DONE]\n\n"]


def _finish(turn: Turn) -> str:
    return _FINISH.get(turn.finish_word, turn.finish_word)


def _build_call(call: Call, index: int, request: JsonObject, stamp: Stamp) -> JsonObject:
    offer = find_offer(offers_of(Wire.CHAT, request), call.name)
    text = arguments_text(call)
    call_id = call.id if call.id is not None else stamp.make_id("call_", index)
    if offer is not None and offer.custom:
        return {"id": call_id, "type": "custom", "custom": {"name": call.name, "input": text}}
    return {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": text}}


def _build_usage(usage: Usage) -> JsonObject:
    prompt: JsonObject = {"cached_tokens": usage.cached_tokens, "audio_tokens": 0}
    if usage.cache_write_tokens:
        prompt["cache_write_tokens"] = usage.cache_write_tokens
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": prompt,
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
