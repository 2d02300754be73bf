"""What a Chat Completions request means: body to canonical request.

The readers of single fields are shared with the encoder, which keeps a field's spelling while its meaning is
unchanged.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from mustcall.core.message import Message, Role
from mustcall.core.origin import JsonObject, Origin, Wire
from mustcall.core.parts import CallKind, ToolResult
from mustcall.core.request import OutputFormat, OutputKind, ReasoningConfig, ReasoningMode, Request
from mustcall.core.tools import ChoiceMode, ProviderTool, Tool, ToolChoice
from mustcall.wire.caching.decode_cache import RepeatedReader, Tools
from mustcall.wire.chat.parts import (
    decode_assistant_parts,
    decode_content,
    is_sealed,
)
from mustcall.wire.codec import Peek
from mustcall.wire.opening import Fields
from mustcall.wire.reading import (
    FOREIGN_DEMANDS,
    ShapeError,
    as_list,
    as_object,
    as_str,
    at,
    each,
    list_field,
    opt_bool,
    opt_float,
    opt_int,
    opt_object,
    opt_str,
    read_outline,
    reading_request,
    rest,
    str_field,
)

__all__ = [
    "decode_choice",
    "decode_max_tokens",
    "decode_output",
    "decode_reasoning",
    "decode_request",
    "decode_stop",
    "decode_stream_usage",
    "peek",
]

_CHAT = Wire.CHAT

_KNOWN = frozenset(
    {
        "model",
        "messages",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "stop",
        "reasoning_effort",
        "response_format",
        "stream",
        "stream_options",
    }
)
_MESSAGE_KNOWN = frozenset(
    {
        "role",
        "content",
        "tool_calls",
        "tool_call_id",
        "refusal",
        "reasoning_content",
        "reasoning",
        "reasoning_details",
    }
)

# --- peek ---------------------------------------------------------------------------------------------------------


class _PeekMessage(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[msgspec.Raw] | None = None


class _PeekRequest(msgspec.Struct):
    model: str
    messages: list[_PeekMessage]
    stream: bool | None = None
    tools: list[dict[str, msgspec.Raw]] | None = None
    temperature: float | None = None
    max_tokens: int | float | None = None
    max_completion_tokens: int | float | None = None


_peek_decoder = msgspec.json.Decoder(_PeekRequest)


def peek(body: bytes) -> Peek:
    """Check the outline of a request without building it."""
    seen = read_outline(_peek_decoder, body)
    return Peek(seen.model, bool(seen.stream))


# --- decode -------------------------------------------------------------------------------------------------------


def decode_request(body: bytes, fields: Fields | None = None) -> Request:
    """Read a request body."""
    with reading_request():
        return _repeated.decode(body, fields)


def _decode_frame(value: JsonObject) -> Request:
    _check_choices(value)
    fields = rest(value, _KNOWN)
    choice = value.get("tool_choice")
    with at("tool_choice"):
        tool_choice = decode_choice(choice)
    if choice is not None and tool_choice is None:
        fields = {**fields, "tool_choice": choice}
    return Request(
        model=str_field(value, "model"),
        messages=(),
        tool_choice=tool_choice,
        parallel_tool_calls=opt_bool(value, "parallel_tool_calls"),
        max_tokens=decode_max_tokens(value),
        temperature=opt_float(value, "temperature"),
        top_p=opt_float(value, "top_p"),
        stop=decode_stop(value),
        reasoning=decode_reasoning(value),
        output=decode_output(value),
        stream=opt_bool(value, "stream") or False,
        stream_usage=decode_stream_usage(value),
        origin=Origin(
            _CHAT, fields, spelling={key: value[key] for key in value if key in _KNOWN and key != "messages"}
        ),
    )


def _check_choices(value: JsonObject) -> None:
    """Refuse a stream of several choices where calls or a structured answer may come: only the first can be checked."""
    count = value.get("n")
    if not isinstance(count, int) or count <= 1 or value.get("stream") is not True:
        return
    output = decode_output(value)
    if value.get("tools") or value.get("functions") or (output is not None and output.kind is not OutputKind.TEXT):
        raise ShapeError(
            "1 in a stream with tools or a structured answer: further choices cannot be checked", count, "n"
        )


def _decode_messages(value: JsonObject) -> tuple[Message, ...]:
    return tuple(each(list_field(value, "messages"), _decode_message, "messages"))


def _decode_message(value: Any) -> Message:
    message = as_object(value)
    role = str_field(message, "role")
    origin = Origin(_CHAT, rest(message, _MESSAGE_KNOWN), message)
    match role:
        case "assistant":
            parts = tuple(decode_assistant_parts(message, ""))
            if is_sealed(message):
                origin = Origin(_CHAT, origin.fields)
            return Message(role=Role.ASSISTANT, parts=parts, origin=origin)
        case "tool":
            call_id = str_field(message, "tool_call_id")
            with at("content"):
                content = decode_content(message.get("content"))
            result = ToolResult(call_id=call_id, content=content)  # pyrefly: ignore[bad-argument-type]  any part of user content
            return Message(role=Role.TOOL, parts=(result,), origin=origin)
        case "system" | "developer" | "user":
            with at("content"):
                return Message(role=Role(role), parts=decode_content(message.get("content")), origin=origin)
        case _:
            raise ShapeError('one of "system", "developer", "user", "assistant", "tool"', role, "role")


def _decode_tool(value: Any) -> Tool | ProviderTool:
    tool = as_object(value)
    kind = opt_str(tool, "type") or "function"
    if kind not in ("function", "custom"):
        return ProviderTool(type=kind, value=tool, origin=Origin(_CHAT, raw=tool))
    with at(kind):
        inner = as_object(tool.get(kind))
        known = frozenset({"name", "description", "parameters", "strict", "format"})
        fields = rest(tool, frozenset({"type", kind}))
        inner_fields = rest(inner, known)
        if inner_fields:
            fields = {**fields, kind: inner_fields}
        return Tool(
            name=str_field(inner, "name"),
            description=opt_str(inner, "description"),
            parameters=opt_object(inner, "parameters"),
            strict=opt_bool(inner, "strict"),
            kind=CallKind(kind),
            format=opt_object(inner, "format"),
            origin=Origin(_CHAT, fields, tool),
        )


def _decode_tools(values: Any) -> Tools:
    with at("tools"):
        return () if values is None else tuple(each(as_list(values), _decode_tool))


_repeated = RepeatedReader("messages", _decode_message, _decode_tools, _decode_frame, _decode_messages)


#: The types of this wire's own choices.
_OWN_CHOICES = frozenset({"function", "custom", "allowed_tools"})


def decode_choice(value: Any) -> ToolChoice | None:
    """Read `tool_choice`; None also for types that are not known. A known one that is misspelt would force nothing."""
    match value:
        case ("none" | "auto" | "required" as word) | {"type": "none" | "auto" | "required" as word}:  # Cursor's form
            return ToolChoice(mode=ChoiceMode(word))
        case {"function": {"name": str() as name}} if value.get("type", "function") == "function":  # as servers read it
            return ToolChoice(mode=ChoiceMode.NAMED, name=name)
        case {"type": "custom", "custom": {"name": str() as name}}:
            return ToolChoice(mode=ChoiceMode.NAMED, name=name, kind=CallKind.CUSTOM)
        case {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto" | "required" as mode, "tools": tools},
        }:
            return ToolChoice(mode=ChoiceMode(mode), allowed=tuple(each(as_list(tools), _allowed_name)))
        case None:
            return None
        case {"type": str() as kind} if kind not in _OWN_CHOICES | FOREIGN_DEMANDS:
            return None
        case _:
            form = '{"type": "function", "function": {"name": …}}'
            raise ShapeError(f'"none", "auto", "required" or {form}', value)


def _allowed_name(value: Any) -> str:
    tool = as_object(value)
    kind = opt_str(tool, "type") or "function"
    with at(kind):
        return str_field(as_object(tool.get(kind)), "name")


def decode_max_tokens(value: Mapping[str, Any]) -> int | None:
    """Read the limit from either of its two names."""
    limit = opt_int(value, "max_completion_tokens")
    return limit if limit is not None else opt_int(value, "max_tokens")


def decode_stop(value: Mapping[str, Any]) -> tuple[str, ...]:
    """Read `stop`: a string, a list, or nothing."""
    stop = value.get("stop")
    if stop is None:
        return ()
    if isinstance(stop, str):
        return (stop,)
    with at("stop"):
        return tuple(each(as_list(stop), as_str))


def decode_reasoning(value: Mapping[str, Any]) -> ReasoningConfig | None:
    """Read `reasoning_effort`."""
    effort = opt_str(value, "reasoning_effort")
    if effort is None:
        return None
    return ReasoningConfig(mode=ReasoningMode.DISABLED if effort == "none" else None, effort=effort)


def decode_output(value: Mapping[str, Any]) -> OutputFormat | None:
    """Read `response_format`."""
    form = opt_object(value, "response_format")
    if form is None:
        return None
    match form.get("type"):
        case "json_schema":
            with at("response_format.json_schema"):
                inner = as_object(form.get("json_schema"))
                return OutputFormat(
                    kind=OutputKind.SCHEMA,
                    schema=opt_object(inner, "schema"),
                    name=opt_str(inner, "name"),
                    description=opt_str(inner, "description"),
                    strict=opt_bool(inner, "strict"),
                )
        case "json_object":
            return OutputFormat(kind=OutputKind.JSON)
        case "text":
            return OutputFormat(kind=OutputKind.TEXT)
        case other:
            raise ShapeError('"text", "json_object" or "json_schema"', other, "response_format.type")


def decode_stream_usage(value: Mapping[str, Any]) -> bool:
    """Read whether the caller wants token counts at the end of the stream."""
    options = opt_object(value, "stream_options")
    return bool(options and options.get("include_usage"))
