"""What a Responses request means: body to canonical request.

The readers of single fields are shared with the encoder, which keeps a field's spelling while its meaning is
unchanged. Settings inside `text` and `reasoning` that have no canonical word stay as unknown fields of those names.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from mustcall.core.errors import InvalidRequest
from mustcall.core.message import Message, Role
from mustcall.core.origin import JsonObject, Origin, Wire
from mustcall.core.parts import Text
from mustcall.core.request import OutputFormat, OutputKind, ReasoningConfig, ReasoningMode, Request
from mustcall.wire.caching.decode_cache import RepeatedReader, Tools
from mustcall.wire.codec import Peek
from mustcall.wire.opening import Fields
from mustcall.wire.reading import (
    ShapeError,
    as_list,
    at,
    each,
    maybe_object,
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
from mustcall.wire.responses.items import decode_input_item
from mustcall.wire.responses.tools import decode_choice, decode_tools

__all__ = ["decode_output", "decode_reasoning", "decode_request", "peek"]

_WIRE = Wire.RESPONSES

_KNOWN = frozenset(
    {
        "model",
        "input",
        "instructions",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "max_output_tokens",
        "temperature",
        "top_p",
        "reasoning",
        "text",
        "stream",
        "previous_response_id",
    }
)
_BULK = frozenset({"input", "tools"})
_REASONING_KEYS = frozenset({"effort", "summary"})
_SCHEMA_KEYS = frozenset({"type", "name", "schema", "description", "strict"})
#: Where the conversation may be, if not in `input`.
_ELSEWHERE = ("previous_response_id", "conversation", "prompt")

# --- peek ---------------------------------------------------------------------------------------------------------


class _PeekItem(msgspec.Struct):
    type: str | None = None
    role: str | None = None
    content: str | list[dict[str, msgspec.Raw]] | dict[str, msgspec.Raw] | None = None


class _PeekTool(msgspec.Struct):
    type: str


class _PeekRequest(msgspec.Struct):
    model: str
    input: str | list[_PeekItem] | None = None
    instructions: str | None = None
    stream: bool | None = None
    tools: list[_PeekTool] | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | float | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None


_peek_decoder = msgspec.json.Decoder(_PeekRequest)


def peek(body: bytes) -> Peek:
    """Check the outline of a request without building it."""
    seen = read_outline(_peek_decoder, body)
    if seen.input is None and not (seen.previous_response_id or seen.conversation or seen.prompt):
        raise InvalidRequest("`input` is required", param="input")
    return Peek(seen.model, bool(seen.stream))


# --- decode -------------------------------------------------------------------------------------------------------


def _decode_tools(values: Any) -> Tools:
    with at("tools"):
        return () if values is None else decode_tools(as_list(values))


def decode_request(body: bytes, fields: Fields | None = None) -> Request:
    """Read a request body."""
    with reading_request():
        return _repeated.decode(body, fields)


def _decode_frame(value: JsonObject) -> Request:
    model = str_field(value, "model")
    with at("tool_choice"):
        choice = decode_choice(value.get("tool_choice"))
    fields = {**rest(value, _KNOWN), **_inner_fields(value)}
    if choice is None and value.get("tool_choice") is not None:
        fields["tool_choice"] = value["tool_choice"]
    stream = opt_bool(value, "stream") or False
    return Request(
        model=model,
        messages=(),
        system=_decode_instructions(value),
        tool_choice=choice,
        parallel_tool_calls=opt_bool(value, "parallel_tool_calls"),
        max_tokens=opt_int(value, "max_output_tokens"),
        temperature=opt_float(value, "temperature"),
        top_p=opt_float(value, "top_p"),
        reasoning=decode_reasoning(value),
        output=decode_output(value),
        stream=stream,
        stream_usage=stream,  # a Responses stream always ends with its usage
        previous_response_id=opt_str(value, "previous_response_id"),
        origin=Origin(
            _WIRE,
            fields,
            spelling={
                key: value[key] for key in value if key in _KNOWN and not (key in _BULK and _is_full(value[key]))
            },
        ),
    )


def _is_full(value: Any) -> bool:
    """Tell a list with elements, which are kept one by one, from other spellings."""
    return isinstance(value, list) and len(as_list(value)) > 0


def _decode_input(value: JsonObject) -> tuple[Message, ...]:
    with at("input"):
        return _decode_given(value)


def _decode_given(value: JsonObject) -> tuple[Message, ...]:
    given = value.get("input")
    if given is None:
        if not any(value.get(name) for name in _ELSEWHERE):
            raise ShapeError("is required")
        return ()
    if isinstance(given, str):
        item: JsonObject = {"role": "user", "content": given}
        return (Message(role=Role.USER, parts=(Text(text=given),), origin=Origin(_WIRE, raw=item)),)
    if not isinstance(given, list):
        raise ShapeError("a string or an array", given)
    return tuple(each(as_list(given), decode_input_item))


def _decode_instructions(value: JsonObject) -> Message | None:
    text = opt_str(value, "instructions")
    if text is None:
        return None
    return Message(role=Role.SYSTEM, parts=(Text(text=text),), origin=Origin(_WIRE, raw=text))


def _inner_fields(value: JsonObject) -> JsonObject:
    """Return what `text` and `reasoning` hold beside their canonical settings."""
    fields: JsonObject = {}
    text = opt_object(value, "text") or {}
    inner = {key: item for key, item in text.items() if key != "format" or _format_kind(item) is None}
    if inner.get("format", ...) is None:
        del inner["format"]
    if inner:
        fields["text"] = inner
    reasoning = rest(opt_object(value, "reasoning") or {}, _REASONING_KEYS)
    if reasoning:
        fields["reasoning"] = reasoning
    return fields


def _format_kind(value: Any) -> OutputKind | None:
    """Return the kind of a `text.format` that canonical fields can tell whole."""
    form = maybe_object(value)
    match form:
        case {"type": "text" | "json_object" as kind} if len(form) == 1:
            return OutputKind(kind)
        case {"type": "json_schema"} if form.keys() <= _SCHEMA_KEYS:
            return OutputKind.SCHEMA
        case _:
            return None


def decode_output(value: Mapping[str, Any]) -> OutputFormat | None:
    """Read `text.format`; None also for formats without a canonical word."""
    text = opt_object(value, "text")
    with at("text"):
        form = opt_object(text, "format") if text is not None else None
    kind = _format_kind(form)
    if form is None or kind is None:
        return None
    if kind is not OutputKind.SCHEMA:
        return OutputFormat(kind=kind)
    with at("text.format"):
        return OutputFormat(
            kind=kind,
            schema=opt_object(form, "schema"),
            name=opt_str(form, "name"),
            description=opt_str(form, "description"),
            strict=opt_bool(form, "strict"),
        )


def decode_reasoning(value: Mapping[str, Any]) -> ReasoningConfig | None:
    """Read `reasoning`."""
    reasoning = opt_object(value, "reasoning")
    if reasoning is None:
        return None
    with at("reasoning"):
        effort, summary = opt_str(reasoning, "effort"), opt_str(reasoning, "summary")
    if effort is None and summary is None:
        return None
    mode = ReasoningMode.DISABLED if effort == "none" else None
    return ReasoningConfig(mode=mode, effort=effort, summary=summary)


_repeated = RepeatedReader("input", decode_input_item, _decode_tools, _decode_frame, _decode_input)
