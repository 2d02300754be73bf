"""Content blocks of the Messages wire, read into parts and written back when they came from this wire.

Requests and replies share them. A block no reader knows becomes `ProviderItem` (the provider's own tools) or
`Unknown`; neither is ever an error. What another wire's parts look like here is decided elsewhere (`prompt`,
`reply`): this file writes only what a part itself says.

Reasoning state of this wire is the whole block the upstream wants back (`OpaqueState.data` is
`{"type": "thinking", "thinking": …, "signature": …}` or `{"type": "redacted_thinking", "data": …}`): a signature
holds only for the exact text, and clients of other wires do not all return the text.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from mustcall.core.origin import JsonObject, Origin, Wire
from mustcall.core.parts import (
    Audio,
    File,
    Image,
    OpaqueState,
    Part,
    ProviderItem,
    Reasoning,
    Text,
    ToolCall,
    ToolReference,
    ToolResult,
    Unknown,
)
from mustcall.wire.crossing.sealing import unseal
from mustcall.wire.reading import (
    ShapeError,
    as_list,
    as_object,
    at,
    each,
    maybe_object,
    opt_bool,
    opt_object,
    opt_str,
    rest,
    str_field,
)

__all__ = [
    "dump_input",
    "native_signature",
    "read_block",
    "read_content",
    "redacted_data",
    "redacted_state",
    "thinking_state",
    "write_file",
    "write_image",
    "write_text",
]

_WIRE = Wire.MESSAGES

_TEXT_KEYS = frozenset({"type", "text"})
_CALL_KEYS = frozenset({"type", "id", "name", "input"})
_RESULT_KEYS = frozenset({"type", "tool_use_id", "content", "is_error"})
_THINKING_KEYS = frozenset({"type", "thinking", "signature"})
_REDACTED_KEYS = frozenset({"type", "data"})
_REFERENCE_KEYS = frozenset({"type", "tool_name"})
_IMAGE_KEYS = frozenset({"type", "source"})
_DOCUMENT_KEYS = frozenset({"type", "source", "title"})
_SOURCE_KEYS = frozenset({"type", "media_type", "data", "url", "file_id"})

#: Blocks about tools the provider runs by itself; every other `…_tool_result` is one too.
_PROVIDER_TYPES = frozenset({"server_tool_use", "mcp_tool_use", "mcp_tool_result", "container_upload", "compaction"})


def read_content(value: Any, issuer: str = "") -> tuple[Part, ...]:
    """Read a message's `content`: a string or a list of blocks."""
    if isinstance(value, str):
        return (Text(text=value),)
    if not isinstance(value, list):
        raise ShapeError("a string or an array", value)
    return tuple(each(as_list(value), lambda block: read_block(block, issuer)))


def read_block(value: Any, issuer: str = "", fallback_id: str = "") -> Part:
    """Read one block. `issuer` tags reasoning state; `fallback_id` names a call the upstream left without an id."""
    block = as_object(value)
    kind = str_field(block, "type")
    if kind == "tool_use":
        return _read_call(block, fallback_id)
    if kind == "thinking":
        return _read_thinking(block, issuer)
    if kind == "redacted_thinking":
        return _read_redacted(block, issuer)
    reader = _READERS.get(kind)
    if reader is not None:
        return reader(block)
    origin = Origin(_WIRE, raw=block)
    if kind in _PROVIDER_TYPES or kind.endswith("_tool_result"):
        return ProviderItem(wire=_WIRE, type=kind, value=block, origin=origin)
    return Unknown(wire=_WIRE, type=kind, value=block, origin=origin)


def dump_input(value: Any) -> str:
    """Return a call's arguments as text: compact JSON of `input`, a string as it is, nothing for null or absent."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def native_signature(state: OpaqueState) -> str:
    """Return the signature inside this wire's own state; the state went through other hands, so trust no shape."""
    data = maybe_object(state.data) or {}
    signature = data.get("signature")
    return signature if isinstance(signature, str) else ""


def redacted_data(state: OpaqueState) -> str | None:
    """Return the data of a redacted block if that is what this wire's state is."""
    data = maybe_object(state.data)
    if data is None or data.get("type") != "redacted_thinking":
        return None
    text = data.get("data")
    return text if isinstance(text, str) else None


def write_text(part: Text) -> JsonObject:
    """Write a text block."""
    return {"type": "text", "text": part.text, **part.fields_for(_WIRE)}


def write_image(part: Image) -> JsonObject:
    """Write an image block from data, URL or file id."""
    return _with_source("image", _source(part.data, part.media_type, part.url, part.file_id), part)


def write_file(part: File) -> JsonObject:
    """Write a document block from text, data, URL or file id."""
    if part.text is not None:
        source: JsonObject = {"type": "text", "media_type": part.media_type or "text/plain", "data": part.text}
    else:
        source = _source(part.data, part.media_type or "application/pdf", part.url, part.file_id)
    block = _with_source("document", source, part)
    if part.name is not None:
        block["title"] = part.name
    return block


def _source(data: str | None, media_type: str | None, url: str | None, file_id: str | None) -> JsonObject:
    if data is not None:
        return {"type": "base64", "media_type": media_type or "image/png", "data": data}
    if url is not None:
        return {"type": "url", "url": url}
    return {"type": "file", "file_id": file_id or ""}


def _with_source(kind: str, source: JsonObject, part: Image | File) -> JsonObject:
    fields = dict(part.fields_for(_WIRE))
    extra = maybe_object(fields.pop("source", None)) or {}
    return {"type": kind, "source": {**extra, **source}, **fields}


def _read_text(block: JsonObject) -> Text:
    return Text(text=str_field(block, "text"), origin=Origin(_WIRE, rest(block, _TEXT_KEYS), block))


def _read_call(block: JsonObject, fallback_id: str) -> ToolCall:
    call_id = opt_str(block, "id") or fallback_id
    if not call_id:
        raise ShapeError("is required", path="id")
    return ToolCall(
        id=call_id,
        name=str_field(block, "name"),
        arguments_json=dump_input(block.get("input")),
        origin=Origin(_WIRE, rest(block, _CALL_KEYS), block),
    )


def thinking_state(text: str, signature: str, issuer: str) -> OpaqueState | None:
    """Return what an upstream wants back with its thinking, be it another upstream's; None without a signature."""
    if not signature:
        return None
    own = {"type": "thinking", "thinking": text, "signature": signature}
    return unseal(signature) or OpaqueState(_WIRE, own, issuer)


def redacted_state(data: str, issuer: str) -> OpaqueState:
    """Return what an upstream wants back for thinking that it does not show."""
    return unseal(data) or OpaqueState(_WIRE, {"type": "redacted_thinking", "data": data}, issuer)


def _read_thinking(block: JsonObject, issuer: str) -> Reasoning:
    text = opt_str(block, "thinking") or ""
    state = thinking_state(text, opt_str(block, "signature") or "", issuer)
    return Reasoning(text=text, state=state, origin=Origin(_WIRE, rest(block, _THINKING_KEYS), block))


def _read_redacted(block: JsonObject, issuer: str) -> Reasoning:
    state = redacted_state(str_field(block, "data"), issuer)
    return Reasoning(state=state, origin=Origin(_WIRE, rest(block, _REDACTED_KEYS), block))


def _read_image(block: JsonObject) -> Image | Unknown:
    source = opt_object(block, "source")
    known = None if source is None else _read_source(source)
    if source is None or known is None:
        return Unknown(wire=_WIRE, type="image", value=block, origin=Origin(_WIRE, raw=block))
    return Image(**known, origin=Origin(_WIRE, _source_fields(block, source, _IMAGE_KEYS), block))


def _read_document(block: JsonObject) -> File | Unknown:
    source = opt_object(block, "source")
    known: dict[str, str | None] | None = None
    if source is not None:
        with at("source"):
            if source.get("type") == "text":
                known = {"text": str_field(source, "data"), "media_type": opt_str(source, "media_type")}
            else:
                known = _read_source(source)
    if source is None or known is None:
        return Unknown(wire=_WIRE, type="document", value=block, origin=Origin(_WIRE, raw=block))
    fields = _source_fields(block, source, _DOCUMENT_KEYS)
    return File(**known, name=opt_str(block, "title"), origin=Origin(_WIRE, fields, block))


def _read_source(source: JsonObject) -> dict[str, str | None] | None:
    """Read where the bytes are; None for a kind of source this version has no word for."""
    match source.get("type"):
        case "base64":
            return {"data": str_field(source, "data"), "media_type": opt_str(source, "media_type")}
        case "url":
            return {"url": str_field(source, "url")}
        case "file":
            return {"file_id": str_field(source, "file_id")}
        case _:
            return None


def _source_fields(block: JsonObject, source: JsonObject, known: frozenset[str]) -> JsonObject:
    fields = rest(block, known)
    extra = rest(source, _SOURCE_KEYS)
    if extra:
        fields["source"] = extra
    return fields


def _read_reference(block: JsonObject) -> ToolReference:
    return ToolReference(name=str_field(block, "tool_name"), origin=Origin(_WIRE, rest(block, _REFERENCE_KEYS), block))


def _read_result(block: JsonObject) -> ToolResult:
    content = block.get("content")
    items: tuple[Text | Image | File | Audio | ToolReference | Unknown, ...]
    with at("content"):
        if content is None:
            items = ()
        elif isinstance(content, str):
            items = (Text(text=content),)
        elif isinstance(content, list):
            items = tuple(each(as_list(content), _read_result_item))
        else:
            raise ShapeError("a string or an array", content)
    return ToolResult(
        call_id=str_field(block, "tool_use_id"),
        content=items,
        is_error=opt_bool(block, "is_error") or False,
        origin=Origin(_WIRE, rest(block, _RESULT_KEYS), block),
    )


def _read_result_item(value: Any) -> Text | Image | File | ToolReference | Unknown:
    block = as_object(value)
    kind = str_field(block, "type")
    match kind:
        case "text":
            return _read_text(block)
        case "image":
            return _read_image(block)
        case "document":
            return _read_document(block)
        case "tool_reference":
            return _read_reference(block)
        case _:
            return Unknown(wire=_WIRE, type=kind, value=block, origin=Origin(_WIRE, raw=block))


_READERS: dict[str, Callable[[JsonObject], Part]] = {
    "text": _read_text,
    "image": _read_image,
    "document": _read_document,
    "tool_result": _read_result,
    "tool_reference": _read_reference,
}
