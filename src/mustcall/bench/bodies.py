"""What the benchmark says on each wire: the caller's requests and the upstream's replies, as the providers write them.

Everything is rendered once, at import, so that the upstream only copies bytes. Kept apart from `mustcall.wire` on
purpose: a codec must not be measured against its own output.
"""

from typing import Any, Literal

import msgspec

from mustcall.bench.exchanges import Wire, exchange, say

__all__ = [
    "ARGUMENTS",
    "DELTAS",
    "LONG_FORMS",
    "PATHS",
    "TEXT",
    "TOOL",
    "WIRES",
    "LongForm",
    "Reply",
    "Wire",
    "forced_request",
    "long_arguments",
    "long_events",
    "named_request",
    "opening_of",
    "request_body",
    "settings_of",
    "stream_events",
    "whole_body",
]

#: What is asked for: a text, a tool call, or a text in deltas (written as groups, one by one, or at once).
Reply = Literal["text", "call", "groups", "paced", "burst"]
#: How a long argument comes: as the deltas of a tool call, or as text in which the model wrote the call.
LongForm = Literal["native", "text"]
Json = dict[str, Any]

WIRES: tuple[Wire, ...] = ("chat", "messages", "responses")
PATHS: dict[Wire, str] = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}

LONG_FORMS: tuple[LongForm, ...] = ("native", "text")
#: Characters of one delta of a long argument.
_CUT = 4

_WORDS = ("The", " wind", " over", " Oslo", " turns", " north", " before", " noon", ",", " and", " it", " rains", ".\n")
#: The streamed reply: 200 deltas of one token each.
DELTAS = tuple(_WORDS[number % len(_WORDS)] for number in range(200))
#: The whole reply: as much text as makes a body of about 1 kB.
TEXT = "".join(DELTAS[:52])
TOOL = "get_weather"
ARGUMENTS: Json = {"city": "Oslo", "country": "NO", "units": "metric", "days": 3, "hourly": False, "note": TEXT[:200]}
ARGUMENTS["places"] = ["Frogner", "Grünerløkka"]

_MODEL = "bench-model-2026-05-01"
_CREATED = 1780000000
_SYSTEM = "You are a helpful assistant. Answer briefly, and use a tool where one helps. " * 3
_QUESTION = "What will the weather be like in Oslo over the next three days, and should I take an umbrella?"
_EARLIER: Json = ARGUMENTS | {"city": "Bergen", "days": 2, "note": "for a walk", "places": ["Bryggen", "Laksevåg"]}


#: Stands for the messages of a request.
_PLACE = "the messages"
_PLACE_BYTES = msgspec.json.encode(_PLACE)


def request_body(wire: Wire, reply: Reply, tools: int = 1) -> bytes:
    """Return a caller's request; its model name tells the upstream what to reply."""
    return named_request(wire, f"bench-{reply}", tools, stream=reply in ("groups", "paced", "burst"))


def named_request(wire: Wire, model: str, tools: int = 1, *, stream: bool, ask: str = _QUESTION) -> bytes:
    """Return a caller's request for a model by its whole name: an earlier call and its result, and a question."""
    said = "I look it up (two days)."
    earlier = exchange(wire, "call_h1st0ry0123456789abcd", said, (TOOL, _EARLIER), TEXT[:300])
    messages = [*opening_of(wire, "What will the weather be like in Bergen?"), *earlier, say(wire, ask)]
    return msgspec.json.encode(_REQUESTS[wire](model, tools, stream, messages))


def forced_request(wire: Wire, model: str) -> bytes:
    """Return a caller's request for a stream that must come to a call."""
    body: Json = msgspec.json.decode(named_request(wire, model, stream=True))
    return msgspec.json.encode(body | {"tool_choice": {"type": "any"} if wire == "messages" else "required"})


def opening_of(wire: Wire, question: str) -> list[Json]:
    """Return the messages a conversation begins with."""
    system = [{"role": "system", "content": _SYSTEM}] if wire == "chat" else []
    return [*system, say(wire, question)]


def settings_of(wire: Wire, model: str, tools: int, *, stream: bool) -> tuple[bytes, bytes]:
    """Return what stands before and behind the messages of a request."""
    head, _, tail = msgspec.json.encode(_REQUESTS[wire](model, tools, stream, [_PLACE])).partition(_PLACE_BYTES)
    return head, tail


def _tool(number: int) -> tuple[str, str, Json]:
    """Return name, description and schema of one tool, about 1.4 kB."""
    name = TOOL if number == 0 else f"{TOOL}_{number}"
    properties: Json = {
        "city": {"type": "string", "description": "The city to look up, by its usual name, without the country."},
        "country": {"type": "string", "description": "The ISO 3166 code of the country.", "pattern": "^[A-Z]{2}$"},
        "units": {"type": "string", "enum": ["metric", "imperial"], "description": "How to give temperatures."},
        "days": {"type": "integer", "minimum": 1, "maximum": 14, "description": "Days to look ahead."},
        "hourly": {"type": "boolean", "description": "Whether every hour is wanted rather than every day."},
        "note": {"type": "string", "description": "Anything the forecaster should know. " * 10},
        "places": {"type": "array", "items": {"type": "string"}, "description": "Parts of the city, if not all."},
    }
    schema: Json = {
        "type": "object",
        "properties": properties,
        "required": ["city", "country", "units", "days", "hourly", "note"],
        "additionalProperties": False,
    }
    return name, "Returns the weather forecast for a city, day by day. " * 4, schema


def _chat_request(model: str, tools: int, stream: bool, messages: list[Any]) -> Json:
    offered: list[Json] = []
    for name, description, schema in map(_tool, range(tools)):
        offered.append(
            {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}
        )
    body: Json = {
        "model": model,
        "messages": messages,
        "tools": offered,
        "tool_choice": "auto",
        "temperature": 0.2,
        "max_completion_tokens": 1024,
    }
    return body | {"stream": True, "stream_options": {"include_usage": True}} if stream else body


def _messages_request(model: str, tools: int, stream: bool, messages: list[Any]) -> Json:
    offered: list[Json] = [
        {"name": name, "description": description, "input_schema": schema}
        for name, description, schema in map(_tool, range(tools))
    ]
    body: Json = {
        "model": model,
        "max_tokens": 1024,
        "system": _SYSTEM,
        "messages": messages,
        "tools": offered,
        "tool_choice": {"type": "auto"},
        "temperature": 0.2,
    }
    return body | {"stream": True} if stream else body


def _responses_request(model: str, tools: int, stream: bool, messages: list[Any]) -> Json:
    offered: list[Json] = [
        {"type": "function", "name": name, "description": description, "parameters": schema, "strict": False}
        for name, description, schema in map(_tool, range(tools))
    ]
    body: Json = {
        "model": model,
        "instructions": _SYSTEM,
        "input": messages,
        "tools": offered,
        "tool_choice": "auto",
        "temperature": 0.2,
        "max_output_tokens": 1024,
        "store": False,
    }
    return body | {"stream": True} if stream else body


_REQUESTS = {"chat": _chat_request, "messages": _messages_request, "responses": _responses_request}


def whole_body(wire: Wire, *, call: bool, text: str = TEXT) -> bytes:
    """Return a reply in one piece: a text, or a tool call."""
    return msgspec.json.encode(_WHOLE[wire](call, text))


def _arguments() -> str:
    return msgspec.json.encode(ARGUMENTS).decode()


#: What a server counts for the longest conversation: by fewer tokens than a prompt can have it would have cut the
#: prompt, which the gateway finds and says, so that no turn of a growing session were a healthy one.
_READ, _CACHED = 90_412, 90_128


def _chat_usage() -> Json:
    return {
        "prompt_tokens": _READ,
        "completion_tokens": 200,
        "total_tokens": _READ + 200,
        "prompt_tokens_details": {"cached_tokens": _CACHED, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _chat_head(kind: str) -> Json:
    return {
        "id": "chatcmpl-CJ5aVqRZ0Ub0yLxkqnT3uXoQ7aBcD",
        "object": kind,
        "created": _CREATED,
        "model": _MODEL,
        "service_tier": "default",
        "system_fingerprint": "fp_44709d6fcb",
    }


def _chat_whole(call: bool, text: str) -> Json:
    message: Json = {"role": "assistant", "content": None if call else text, "refusal": None, "annotations": []}
    if call:
        function = {"name": TOOL, "arguments": _arguments()}
        message["tool_calls"] = [{"id": "call_Zk0WbM4nq8yB3Xr7LsT1vQpD", "type": "function", "function": function}]
    choice: Json = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": "tool_calls" if call else "stop",
    }
    return _chat_head("chat.completion") | {"choices": [choice], "usage": _chat_usage()}


def _messages_usage(written: int) -> Json:
    return {
        "input_tokens": _READ - _CACHED,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": _CACHED,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": written,
        "service_tier": "standard",
    }


def _messages_head(content: list[Json], stop: str | None, written: int) -> Json:
    return {
        "model": _MODEL,
        "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
        "type": "message",
        "role": "assistant",
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": _messages_usage(written),
    }


def _messages_whole(call: bool, text: str) -> Json:
    block: Json = {"type": "text", "text": text}
    if call:
        block = {"type": "tool_use", "id": "toolu_01A09q90qw90lq917835lq9", "name": TOOL, "input": ARGUMENTS}
    return _messages_head([block], "tool_use" if call else "end_turn", 200)


_ITEM_ID = "msg_68af2b1c5d0c8193a1d2e3f405162738"


def _responses_head(output: list[Json], *, done: bool) -> Json:
    usage = {
        "input_tokens": _READ,
        "input_tokens_details": {"cached_tokens": _CACHED},
        "output_tokens": 200,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": _READ + 200,
    }
    return {
        "id": "resp_68af2b1c4a8c8193b0c1d2e3f4051627",
        "object": "response",
        "created_at": _CREATED,
        "status": "completed" if done else "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": 1024,
        "model": _MODEL,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": 0.2,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": usage if done else None,
        "user": None,
        "metadata": {},
    }


def _responses_part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _responses_message(content: list[Json], status: str) -> Json:
    return {"id": _ITEM_ID, "type": "message", "status": status, "role": "assistant", "content": content}


def _responses_whole(call: bool, text: str) -> Json:
    item = _responses_message([_responses_part(text)], "completed")
    if call:
        item = {
            "id": "fc_68af2b1c5d0c8193a1d2e3f405162738",
            "type": "function_call",
            "status": "completed",
            "call_id": "call_Zk0WbM4nq8yB3Xr7LsT1vQpD",
            "name": TOOL,
            "arguments": _arguments(),
        }
    return _responses_head([item], done=True)


_WHOLE = {"chat": _chat_whole, "messages": _messages_whole, "responses": _responses_whole}


def stream_events(wire: Wire) -> list[bytes]:
    """Return the 200-delta reply as server-sent events, one entry each, the wire's whole sequence around them."""
    return _STREAMS[wire]()


def _event(data: Json, name: str | None = None) -> bytes:
    head = b"event: %b\n" % name.encode() if name else b""
    return head + b"data: %b\n\n" % msgspec.json.encode(data)


def _chat_stream() -> list[bytes]:
    head = _chat_head("chat.completion.chunk")

    def chunk(delta: Json, finish: str | None = None) -> bytes:
        choice: Json = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _event(head | {"choices": [choice], "usage": None, "obfuscation": "3kQz9aWm"})

    return [
        chunk({"role": "assistant", "content": "", "refusal": None}),
        *(chunk({"content": text}) for text in DELTAS),
        chunk({}, "stop"),
        _event(head | {"choices": [], "usage": _chat_usage(), "obfuscation": "Yw"}),
        b"data: [DONE]\n\n",
    ]


def long_arguments(size: int) -> str:
    """Return the arguments of a call, of about so many characters."""
    note = (TEXT * (size // len(TEXT) + 1))[:size]
    return msgspec.json.encode(ARGUMENTS | {"note": note}).decode()


def long_events(form: LongForm, size: int) -> list[bytes]:
    """Return a streamed call on the Chat Completions wire whose arguments have so many characters, in small deltas."""
    head = _chat_head("chat.completion.chunk")

    def chunk(delta: Json, finish: str | None = None) -> bytes:
        choice: Json = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _event(head | {"choices": [choice], "usage": None})

    def function(fields: Json, **call: str) -> bytes:
        return chunk({"tool_calls": [{"index": 0, **call, "function": fields}]})

    arguments = long_arguments(size)
    if form == "native":
        pieces = [arguments[at : at + _CUT] for at in range(0, len(arguments), _CUT)]
        middle = [
            function({"name": TOOL, "arguments": ""}, id="call_Zk0WbM4nq8yB3Xr7LsT1vQpD", type="function"),
            *(function({"arguments": piece}) for piece in pieces),
        ]
        finish = "tool_calls"
    else:
        text = f'<tool_call>\n{{"name": "{TOOL}", "arguments": {arguments}}}\n</tool_call>'
        middle = [chunk({"content": text[at : at + _CUT]}) for at in range(0, len(text), _CUT)]
        finish = "stop"
    return [
        chunk({"role": "assistant", "content": None if form == "native" else "", "refusal": None}),
        *middle,
        chunk({}, finish),
        b"data: [DONE]\n\n",
    ]


def _messages_stream() -> list[bytes]:
    def event(kind: str, **fields: Any) -> bytes:
        return _event({"type": kind, **fields}, kind)

    return [
        event("message_start", message=_messages_head([], None, 1)),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        event("ping"),
        *(event("content_block_delta", index=0, delta={"type": "text_delta", "text": text}) for text in DELTAS),
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 200}),
        event("message_stop"),
    ]


def _responses_stream() -> list[bytes]:
    number = 0

    def event(kind: str, **fields: Any) -> bytes:
        nonlocal number
        number += 1
        return _event({"type": f"response.{kind}", "sequence_number": number - 1, **fields}, f"response.{kind}")

    text = "".join(DELTAS)
    place: Json = {"item_id": _ITEM_ID, "output_index": 0, "content_index": 0}
    done = _responses_message([_responses_part(text)], "completed")
    return [
        event("created", response=_responses_head([], done=False)),
        event("in_progress", response=_responses_head([], done=False)),
        event("output_item.added", output_index=0, item=_responses_message([], "in_progress")),
        event("content_part.added", **place, part=_responses_part("")),
        *(event("output_text.delta", **place, delta=piece, logprobs=[], obfuscation="3kQz9aWm") for piece in DELTAS),
        event("output_text.done", **place, text=text, logprobs=[]),
        event("content_part.done", **place, part=_responses_part(text)),
        event("output_item.done", output_index=0, item=done),
        event("completed", response=_responses_head([done], done=True)),
    ]


_STREAMS = {"chat": _chat_stream, "messages": _messages_stream, "responses": _responses_stream}
