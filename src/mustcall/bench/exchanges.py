"""Conversations on each wire, as the providers' clients write them: what a user says, and a call with its result.

Rendered here and not by `mustcall.wire`: a codec must not be measured against its own output.
"""

from typing import Any, Literal

import msgspec

__all__ = ["Wire", "exchange", "say"]

Wire = Literal["chat", "messages", "responses"]
Json = dict[str, Any]


def say(wire: Wire, text: str) -> Json:
    """Return a user's message."""
    if wire == "chat":
        return {"role": "user", "content": text}
    if wire == "messages":
        return {"role": "user", "content": [{"type": "text", "text": text}]}
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def exchange(wire: Wire, call_id: str, said: str, call: tuple[str, Json], result: str) -> list[Json]:
    """Return what the assistant said, its call of a tool by name and arguments, and the result."""
    return _EXCHANGES[wire](call_id, said, *call, result)


def _chat(call_id: str, said: str, name: str, arguments: Json, result: str) -> list[Json]:
    function = {"name": name, "arguments": msgspec.json.encode(arguments).decode()}
    calls = [{"id": call_id, "type": "function", "function": function}]
    return [
        {"role": "assistant", "content": said, "tool_calls": calls},
        {"role": "tool", "tool_call_id": call_id, "content": result},
    ]


def _messages(call_id: str, said: str, name: str, arguments: Json, result: str) -> list[Json]:
    call = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
    return [
        {"role": "assistant", "content": [{"type": "text", "text": said}, call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": result}]},
    ]


def _responses(call_id: str, said: str, name: str, arguments: Json, result: str) -> list[Json]:
    text: Json = {"type": "output_text", "text": said, "annotations": []}
    written = msgspec.json.encode(arguments).decode()
    return [
        {"type": "message", "role": "assistant", "content": [text]},
        {"type": "function_call", "call_id": call_id, "name": name, "arguments": written},
        {"type": "function_call_output", "call_id": call_id, "output": result},
    ]


_EXCHANGES = {"chat": _chat, "messages": _messages, "responses": _responses}
