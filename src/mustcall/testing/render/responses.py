"""A turn as OpenAI Responses writes it: one JSON body, or the complete event sequence of a stream.

Written from the public API alone and kept apart from `mustcall.wire`: this is what the codecs are tested against.
Reasoning text is always shown as a summary, also where the request asked for none, so that tests can see it.
"""

from collections.abc import Iterator

from mustcall.core.origin import JsonObject, Wire
from mustcall.core.reply import Usage
from mustcall.testing.offers import find_offer, offers_of
from mustcall.testing.render.stamp import Stamp, arguments_text, cut_arguments, cut_text, frame
from mustcall.testing.script import Call, Refuse, Say, Think, Turn, TurnPart

__all__ = ["build_body", "stream_events"]

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_ECHOED: JsonObject = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}


def build_body(turn: Turn, request: JsonObject, stamp: Stamp) -> JsonObject:
    """Return the whole `response`, with every setting of the request echoed."""
    reason = _INCOMPLETE.get(turn.finish_word)
    echoed = {key: request[key] if request.get(key) is not None else usual for key, usual in _ECHOED.items()}
    if echoed["service_tier"] == "auto":
        echoed["service_tier"] = "default"
    body: JsonObject = {
        "id": turn.id or stamp.make_id("resp_"),
        "object": "response",
        "created_at": stamp.created,
        "status": "incomplete" if reason else "completed",
        "completed_at": None if reason else stamp.created,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "model": turn.model or request.get("model") or "scripted",
        "output": [_build_item(part, k, request, stamp) for k, part in enumerate(turn.parts)],
        "usage": None if turn.usage is None else _build_usage(turn.usage),
    }
    if reason and body["output"] and "status" in body["output"][-1]:
        body["output"][-1]["status"] = "incomplete"
    return echoed | body | dict(turn.extra)


def stream_events(turn: Turn, request: JsonObject, stamp: Stamp) -> list[bytes]:
    """Return the events from `response.created` to `response.completed` or `response.incomplete`, numbered."""
    body = build_body(turn, request, stamp)
    return [
        frame({"type": data["type"], "sequence_number": number} | data, str(data["type"]))
        for number, data in enumerate(_stream(turn, body))
    ]


def _stream(turn: Turn, body: JsonObject) -> Iterator[JsonObject]:
    opening: JsonObject = body | {"status": "in_progress", "output": [], "usage": None}
    opening |= {"completed_at": None, "incomplete_details": None}
    yield {"type": "response.created", "response": opening}
    yield {"type": "response.in_progress", "response": opening}
    for index, (part, item) in enumerate(zip(turn.parts, body["output"], strict=True)):
        place = {"item_id": item["id"], "output_index": index}
        yield {"type": "response.output_item.added", "output_index": index, "item": _open_item(item)}
        for data in _fill_item(part, item):
            yield {"type": data["type"]} | place | data
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{body['status']}", "response": body}


def _build_item(part: TurnPart, index: int, request: JsonObject, stamp: Stamp) -> JsonObject:
    match part:
        case Say(text):
            content: JsonObject = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
            return _build_message(content, stamp.make_id("msg_", index))
        case Refuse(text):
            return _build_message({"type": "refusal", "refusal": text}, stamp.make_id("msg_", index))
        case Think():
            return _build_reasoning(part, index, request, stamp)
        case Call():
            return _build_call(part, index, request, stamp)


def _build_message(content: JsonObject, item_id: str) -> JsonObject:
    return {"id": item_id, "type": "message", "status": "completed", "role": "assistant", "content": [content]}


def _build_reasoning(think: Think, index: int, request: JsonObject, stamp: Stamp) -> JsonObject:
    full = think.shown == "full"
    item: JsonObject = {
        "id": stamp.make_id("rs_", index),
        "type": "reasoning",
        "summary": [] if full or not think.text else [{"type": "summary_text", "text": think.text}],
    }
    if full:
        item["content"] = [{"type": "reasoning_text", "text": think.text}]
    if think.encrypted is not None:
        item["encrypted_content"] = think.encrypted
    elif "reasoning.encrypted_content" in (request.get("include") or ()):
        item["encrypted_content"] = stamp.sign(think, index, "encrypted")
    return item


def _build_call(call: Call, index: int, request: JsonObject, stamp: Stamp) -> JsonObject:
    offer = find_offer(offers_of(Wire.RESPONSES, request), call.name)
    call_id = call.id if call.id is not None else stamp.make_id("call_", index)
    text = arguments_text(call)
    if offer is not None and offer.custom:
        item: JsonObject = {"id": stamp.make_id("ctc_", index), "type": "custom_tool_call", "status": "completed"}
        item |= {"call_id": call_id, "name": call.name, "input": text}
    else:
        item = {"id": stamp.make_id("fc_", index), "type": "function_call", "status": "completed"}
        item |= {"call_id": call_id, "name": call.name, "arguments": text}
    offered = offer.namespace if offer is not None else None
    namespace = offered if call.namespace is None else call.namespace
    return item | ({"namespace": namespace} if namespace else {})


def _open_item(item: JsonObject) -> JsonObject:
    match item["type"]:
        case "message":
            return item | {"status": "in_progress", "content": []}
        case "reasoning":
            emptied: JsonObject = {"summary": [], "content": []}
            return item | {key: value for key, value in emptied.items() if key in item}
        case "function_call":
            return item | {"status": "in_progress", "arguments": ""}
        case _:
            return item | {"status": "in_progress", "input": ""}


def _fill_item(part: TurnPart, item: JsonObject) -> Iterator[JsonObject]:
    match part:
        case Say(text):
            yield from _fill_content(item["content"][0], "text", "response.output_text", text)
        case Refuse(text):
            yield from _fill_content(item["content"][0], "refusal", "response.refusal", text)
        case Think(text, shown="full"):
            yield from _fill_content(item["content"][0], "text", "response.reasoning_text", text)
        case Think(text):
            if item["summary"]:
                yield from _fill_summary(item["summary"][0], text)
        case Call():
            custom = item["type"] == "custom_tool_call"
            event = "response.custom_tool_call_input" if custom else "response.function_call_arguments"
            text = arguments_text(part)
            for piece in cut_arguments(text):
                yield {"type": f"{event}.delta", "delta": piece}
            done = {"input": text} if custom else {"arguments": text}
            yield {"type": f"{event}.done"} | done


def _fill_content(content: JsonObject, field: str, event: str, text: str) -> Iterator[JsonObject]:
    place: JsonObject = {"content_index": 0}
    logprobs: JsonObject = {"logprobs": []} if content["type"] == "output_text" else {}
    bracketed = content["type"] != "reasoning_text"  # servers that show full reasoning send no part brackets
    if bracketed:
        yield {"type": "response.content_part.added", "part": content | {field: ""}} | place
    for piece in cut_text(text):
        yield {"type": f"{event}.delta", "delta": piece} | place | logprobs
    yield {"type": f"{event}.done", field: text} | place | logprobs
    if bracketed:
        yield {"type": "response.content_part.done", "part": content} | place


def _fill_summary(summary: JsonObject, text: str) -> Iterator[JsonObject]:
    place: JsonObject = {"summary_index": 0}
    yield {"type": "response.reasoning_summary_part.added", "part": summary | {"text": ""}} | place
    for piece in cut_text(text):
        yield {"type": "response.reasoning_summary_text.delta", "delta": piece} | place
    yield {"type": "response.reasoning_summary_text.done", "text": text} | place
    yield {"type": "response.reasoning_summary_part.done", "part": summary} | place


def _build_usage(usage: Usage) -> JsonObject:
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
