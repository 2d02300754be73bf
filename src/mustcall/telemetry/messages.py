"""Requests and replies as the JSON that OpenTelemetry's conventions describe: roles, and parts by their type."""

from typing import Any

import msgspec

from mustcall.core.errors import MustcallError
from mustcall.core.origin import Wire
from mustcall.core.parts import Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from mustcall.core.reply import Reply
from mustcall.wire.registry import codec_for

__all__ = ["input_messages", "output_messages"]


def input_messages(wire: str, body: bytes) -> str:
    """Return the messages of a request; none if it cannot be read."""
    try:
        request = codec_for(Wire(wire)).decode_request(body)
    except (MustcallError, ValueError, RecursionError):
        return "[]"
    messages = [{"role": str(one.role), "parts": [_part(part) for part in one.parts]} for one in request.messages]
    return _written(messages)


def output_messages(reply: Reply) -> str:
    """Return a reply as the one message that it is."""
    parts = [_part(part) for part in reply.parts]
    return _written([{"role": "assistant", "parts": parts, "finish_reason": str(reply.finish)}])


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Text(text=text) | Refusal(text=text):
            return {"type": "text", "content": text}
        case Reasoning(text=text, summary=summary):
            return {"type": "reasoning", "content": text or "\n\n".join(summary)}
        case ToolCall(id=call_id, name=name, arguments_json=arguments):
            return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
        case ToolResult(call_id=call_id, content=content):
            said = "".join(one.text for one in content if isinstance(one, Text))
            return {"type": "tool_call_response", "id": call_id, "response": said}
        case _:
            return {"type": type(part).__name__.lower()}


def _written(messages: list[dict[str, Any]]) -> str:
    return msgspec.json.encode(messages).decode()
