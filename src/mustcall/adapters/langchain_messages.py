"""LangChain's messages as Chat Completions, and back: text, calls, reasoning, usage, and what a turn came to."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, convert_to_openai_messages
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.content import InvalidToolCall
from langchain_core.messages.tool import (
    ToolCall,
    ToolCallChunk,
    invalid_tool_call,
    tool_call,
    tool_call_chunk,
)
from langchain_core.outputs import ChatGenerationChunk

from mustcall.core.errors import UpstreamRejected
from mustcall.core.origin import Wire
from mustcall.gateway.replies import Header
from mustcall.gateway.request_controls import PREFIX
from mustcall.wire.chat.reply import decode_usage
from mustcall.wire.registry import codec_for
from mustcall.wire.sse import SseDecoder

__all__ = ["ChunkReader", "read_message", "write_choice", "write_messages"]

#: Fields of an assistant message that LangChain has no place for; they are handed back as they came.
_CARRIED = ("reasoning_content", "reasoning", "reasoning_details", "refusal")


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


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    id: str | None = None
    index: int | None = None
    function: _Function | None = None


class _Said(msgspec.Struct):
    """An assistant message, or what a chunk adds to one."""

    content: Any = None
    tool_calls: tuple[_Call, ...] | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    refusal: Any = None

    @property
    def carried(self) -> dict[str, Any]:
        """What LangChain has no place for."""
        return {name: getattr(self, name) for name in _CARRIED if getattr(self, name)}


class _Choice(msgspec.Struct):
    message: _Said = msgspec.field(default_factory=_Said)
    delta: _Said | None = None
    finish_reason: str | None = None


class _Read(msgspec.Struct):
    """A reply, or a chunk of one."""

    id: str | None = None
    model: str = ""
    choices: tuple[_Choice, ...] = ()
    usage: Any = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Read)


def read_message(body: bytes, headers: Sequence[Header]) -> AIMessage:
    """Return a whole reply as a message."""
    reply = _decoder.decode(body)
    choice = reply.choices[0]
    calls: list[ToolCall] = []
    invalid: list[InvalidToolCall] = []
    for call in choice.message.tool_calls or ():
        function = call.function or _Function()
        try:
            arguments = msgspec.json.decode(function.arguments or "", type=dict[str, Any])
        except msgspec.DecodeError as error:  # under protocol `off` arguments may be anything
            invalid.append(invalid_tool_call(name=function.name, args=function.arguments, id=call.id, error=str(error)))
        else:
            calls.append(tool_call(name=function.name or "", args=arguments, id=call.id))
    return AIMessage(
        content=choice.message.content or "",
        tool_calls=calls,
        invalid_tool_calls=invalid,
        additional_kwargs=choice.message.carried,
        usage_metadata=_usage(reply.usage),
        response_metadata=_metadata(reply, choice, headers),
        id=reply.id,
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
        chunk = _decoder.decode(data)
        if chunk.error is not None:
            raise UpstreamRejected(codec_for(Wire.CHAT).decode_error(502, data))
        choice = chunk.choices[0] if chunk.choices else _Choice()
        delta = choice.delta or _Said()
        return AIMessageChunk(
            content=delta.content or "",
            tool_call_chunks=[_call_chunk(call) for call in delta.tool_calls or ()],
            additional_kwargs=delta.carried,
            usage_metadata=_usage(chunk.usage),
            response_metadata=_metadata(chunk, choice, self.headers) if choice.finish_reason else {},
            id=chunk.id,
        )


def _call_chunk(call: _Call) -> ToolCallChunk:
    function = call.function or _Function()
    return tool_call_chunk(name=function.name, args=function.arguments, id=call.id, index=call.index)


def _usage(value: Any) -> UsageMetadata | None:
    usage = decode_usage(value)
    if usage is None:
        return None
    return UsageMetadata(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        input_token_details={"cache_read": usage.cached_tokens, "cache_creation": usage.cache_write_tokens},
        output_token_details={"reasoning": usage.reasoning_tokens},
    )


def _metadata(reply: _Read, choice: _Choice, headers: Sequence[Header]) -> dict[str, Any]:
    """Return what LangChain calls the metadata of a response, with what the turn came to under `mustcall`."""
    turn = {name.decode(): value.decode("latin-1") for name, value in headers}
    return {
        "model_name": reply.model,
        "finish_reason": choice.finish_reason,
        "mustcall": {name.removeprefix(PREFIX): value for name, value in turn.items() if name.startswith(PREFIX)},
    }
