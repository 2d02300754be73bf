"""LangChain's messages as Chat Completions, and back: text, calls, reasoning, usage, and what a turn came to."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, convert_to_openai_messages
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import ToolCall, ToolCallChunk, tool_call, tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk

from mustcall.core.errors import UpstreamRejected
from mustcall.core.origin import Wire
from mustcall.gateway.replies import Header
from mustcall.wire.registry import codec_for
from mustcall.wire.sse import SseDecoder

__all__ = ["ChunkReader", "read_message", "write_choice", "write_messages"]

#: Fields of an assistant message that LangChain has no place for; they are handed back as they came.
_CARRIED = ("reasoning_content", "reasoning", "reasoning_details", "refusal")
_OURS = "x-mustcall-"


def write_messages(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """Return a conversation as Chat Completions has it."""
    written: list[dict[str, Any]] = []
    for message in messages:
        made = convert_to_openai_messages([message])
        if isinstance(message, AIMessage) and made:
            carried = {name: message.additional_kwargs[name] for name in _CARRIED if name in message.additional_kwargs}
            made[0] = {**made[0], **carried}
        written += made
    return written


def write_choice(choice: str | bool | Mapping[str, Any] | None, names: Sequence[str]) -> Any:
    """Return LangChain's choice of a tool as Chat Completions has it; None where there is none."""
    match choice:
        case None | False:
            return None
        case True | "any" | "required":
            return "required"
        case str() if choice in names or choice not in ("auto", "none"):
            return {"type": "function", "function": {"name": choice}}
        case _:
            return choice


def read_message(body: bytes, headers: Sequence[Header]) -> AIMessage:
    """Return a whole reply as a message."""
    reply = msgspec.json.decode(body)
    choice = reply["choices"][0]
    message = choice["message"]
    return AIMessage(
        content=message.get("content") or "",
        tool_calls=[_call(call) for call in message.get("tool_calls") or ()],
        additional_kwargs={name: message[name] for name in _CARRIED if message.get(name)},
        usage_metadata=_usage(reply.get("usage")),
        response_metadata=_metadata(reply, choice, headers),
        id=reply.get("id"),
    )


class ChunkReader:
    """Reads the bytes of a stream as chunks of a message; `headers` are those of the answer."""

    def __init__(self) -> None:
        self.headers: Sequence[Header] = ()
        self._sse = SseDecoder()

    def read(self, piece: bytes) -> list[ChatGenerationChunk]:
        """Return what a piece holds; raise the error that a stream ends in."""
        events = [event.data for event in self._sse.feed(piece)]
        return [ChatGenerationChunk(message=self._chunk(data)) for data in events if data and data != b"[DONE]"]

    def _chunk(self, data: bytes) -> AIMessageChunk:
        chunk = msgspec.json.decode(data)
        if "error" in chunk:
            raise UpstreamRejected(codec_for(Wire.CHAT).decode_error(502, data))
        choice: dict[str, Any] = next(iter(chunk.get("choices") or ()), {})
        delta: dict[str, Any] = choice.get("delta") or {}
        done = bool(choice.get("finish_reason"))
        return AIMessageChunk(
            content=delta.get("content") or "",
            tool_call_chunks=[_call_chunk(call) for call in delta.get("tool_calls") or ()],
            additional_kwargs={name: delta[name] for name in _CARRIED if delta.get(name)},
            usage_metadata=_usage(chunk.get("usage")),
            response_metadata=_metadata(chunk, choice, self.headers) if done else {},
            id=chunk.get("id"),
        )


def _call(call: Mapping[str, Any]) -> ToolCall:
    function = call["function"]
    return tool_call(name=function["name"], args=msgspec.json.decode(function["arguments"]), id=call["id"])


def _call_chunk(call: Mapping[str, Any]) -> ToolCallChunk:
    function = call.get("function") or {}
    return tool_call_chunk(
        name=function.get("name"), args=function.get("arguments"), id=call.get("id"), index=call.get("index")
    )


def _usage(usage: Mapping[str, Any] | None) -> UsageMetadata | None:
    if not usage:
        return None
    asked, made = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    read = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    thought = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
    return UsageMetadata(
        input_tokens=asked,
        output_tokens=made,
        total_tokens=usage.get("total_tokens") or asked + made,
        input_token_details={"cache_read": read},
        output_token_details={"reasoning": thought},
    )


def _metadata(reply: Mapping[str, Any], choice: Mapping[str, Any], headers: Sequence[Header]) -> dict[str, Any]:
    """Return what LangChain calls the metadata of a response, with what the turn came to under `mustcall`."""
    turn = {name.decode(): value.decode("latin-1") for name, value in headers}
    return {
        "model_name": reply.get("model", ""),
        "finish_reason": choice.get("finish_reason"),
        "mustcall": {name.removeprefix(_OURS): value for name, value in turn.items() if name.startswith(_OURS)},
    }
