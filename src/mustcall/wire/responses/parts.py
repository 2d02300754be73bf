"""Responses content parts, both ways: what stands inside a message or a tool output.

Knows nothing of items. A part that came on this wire and was not changed goes out as it came.
"""

from typing import Any, assert_never

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.message import Role
from mustcall.core.origin import JsonObject, Origin, Value, Wire
from mustcall.core.parts import (
    Audio,
    File,
    Image,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolReference,
    ToolResult,
    Unknown,
)
from mustcall.wire.dataurl import from_data_url, to_data_url
from mustcall.wire.reading import ShapeError, as_list, as_object, at, each, opt_str, rest, str_field

__all__ = [
    "ENVELOPE",
    "Content",
    "decode_content",
    "encode_content_part",
    "is_foreign",
    "is_native",
    "note_foreign",
    "part_word",
]

_WIRE = Wire.RESPONSES

#: The unknown field under which a reply's text keeps what its message item said beside it (`phase`).
ENVELOPE = "mustcall.message"

Content = Text | Refusal | Image | File | Audio | Unknown

_TEXT_KEYS = frozenset({"type", "text"})
_REFUSAL_KEYS = frozenset({"type", "refusal"})
_IMAGE_KEYS = frozenset({"type", "image_url", "file_id", "detail"})
_FILE_KEYS = frozenset({"type", "file_data", "file_url", "file_id", "filename"})
_AUDIO_KEYS = frozenset({"type", "input_audio"})
_INLINE_AUDIO_KEYS = frozenset({"data", "format"})


def is_foreign(*values: Value) -> bool:
    """Tell whether any of the values was read from another wire."""
    return any(value.origin is not None and value.origin.wire is not _WIRE for value in values)


def is_native(value: Value) -> bool:
    """Tell whether the value was read from this wire (not from another wire, nor created by mustcall)."""
    return value.origin is not None and value.origin.wire is _WIRE


def note_foreign(value: Value, log: AdaptationLog) -> None:
    """Note the unknown fields of a value from another wire: they are not sent."""
    origin = value.origin
    if origin is not None and origin.wire is not _WIRE:
        for name in origin.fields:
            log.add(AdaptationKind.FIELD_DROPPED, name, "no counterpart on the responses wire")


def part_word(part: Part) -> str:
    """Return the word for a part in notes."""
    return part.type if isinstance(part, ProviderItem | Unknown) else str(part.__struct_config__.tag)


def decode_content(value: Any) -> tuple[Content, ...]:
    """Read `content` or `output`: a string, a list of parts, or null."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (Text(text=value),)
    if not isinstance(value, list):
        raise ShapeError("a string or an array", value)
    return tuple(each(as_list(value), _decode_part))


def _decode_part(value: Any) -> Content:
    part = as_object(value)
    kind = str_field(part, "type")
    match kind:
        case "input_text" | "output_text" | "text":
            return Text(text=str_field(part, "text"), origin=Origin(_WIRE, rest(part, _TEXT_KEYS), part))
        case "refusal":
            return Refusal(text=str_field(part, "refusal"), origin=Origin(_WIRE, rest(part, _REFUSAL_KEYS), part))
        case "input_image":
            return _decode_image(part)
        case "input_file":
            return _decode_file(part)
        case "input_audio":
            with at("input_audio"):
                audio = as_object(part.get("input_audio"))
                if audio.keys() - _INLINE_AUDIO_KEYS:
                    return _unknown(kind, part)
                return Audio(
                    data=str_field(audio, "data"),
                    format=str_field(audio, "format"),
                    origin=Origin(_WIRE, rest(part, _AUDIO_KEYS), part),
                )
        case _:
            return _unknown(kind, part)


def _unknown(kind: str, part: JsonObject) -> Unknown:
    return Unknown(wire=_WIRE, type=kind, value=part, origin=Origin(_WIRE, raw=part))


def _decode_image(part: JsonObject) -> Image | Unknown:
    url, file_id = opt_str(part, "image_url"), opt_str(part, "file_id")
    if (url is None) is (file_id is None):
        return _unknown("input_image", part)
    inline = from_data_url(url) if url is not None else None
    return Image(
        media_type=inline[0] if inline else None,
        data=inline[1] if inline else None,
        url=None if inline else url,
        file_id=file_id,
        detail=opt_str(part, "detail"),
        origin=Origin(_WIRE, rest(part, _IMAGE_KEYS), part),
    )


def _decode_file(part: JsonObject) -> File | Unknown:
    data, url, file_id = opt_str(part, "file_data"), opt_str(part, "file_url"), opt_str(part, "file_id")
    if sum(source is not None for source in (data, url, file_id)) != 1:
        return _unknown("input_file", part)
    inline = from_data_url(data) if data is not None else None
    return File(
        media_type=inline[0] if inline else None,
        data=inline[1] if inline else data,
        url=url,
        file_id=file_id,
        name=opt_str(part, "filename"),
        origin=Origin(_WIRE, rest(part, _FILE_KEYS), part),
    )


def encode_content_part(part: Part, role: Role, log: AdaptationLog) -> JsonObject | None:
    """Write one content part of a message; None (and a note) if the wire has no form for it in this role."""
    raw = part.raw_for(_WIRE)
    if raw is not None:
        return raw
    note_foreign(part, log)
    fields = {name: value for name, value in part.fields_for(_WIRE).items() if name != ENVELOPE}
    assistant = role is Role.ASSISTANT
    match part:
        case Text(text=text):
            return {"type": "output_text" if assistant else "input_text", "text": text, **fields}
        case Refusal(text=text):
            if assistant:
                return {"type": "refusal", "refusal": text, **fields}
            return {"type": "input_text", "text": text}
        case Image() if not assistant:
            return _encode_image(part, fields, log)
        case File() if not assistant:
            return _encode_file(part, fields, log)
        case Audio(data=data, format=form) if not assistant:
            return {"type": "input_audio", "input_audio": {"data": data, "format": form}, **fields}
        case ToolReference(name=name):
            log.add(AdaptationKind.PART_RESHAPED, "tool_reference", "written as a sentence")
            return {"type": "input_text", "text": f"The tool {name} is now available."}
        case Unknown(wire=wire, value=value) if wire is _WIRE:
            return value
        case Image() | File() | Audio() | Unknown() | ProviderItem() | Reasoning() | ToolCall() | ToolResult():
            log.add(AdaptationKind.PART_DROPPED, part_word(part), f"no form in {role} content on the responses wire")
            return None
        case _:
            assert_never(part)


def _encode_image(part: Image, fields: JsonObject, log: AdaptationLog) -> JsonObject | None:
    image: JsonObject = {"type": "input_image"}
    if part.data is not None:
        image["image_url"] = to_data_url(part.media_type or "image/png", part.data)
    elif part.url is not None:
        image["image_url"] = part.url
    elif part.file_id is not None and not is_foreign(part):
        image["file_id"] = part.file_id
    else:
        log.add(AdaptationKind.PART_DROPPED, "image", "a provider file id means nothing to another provider")
        return None
    if part.detail is not None:
        image["detail"] = part.detail
    return {**image, **fields}


def _encode_file(part: File, fields: JsonObject, log: AdaptationLog) -> JsonObject | None:
    if part.text is not None:
        log.add(AdaptationKind.PART_RESHAPED, "file", "a plain text document written as text")
        return {"type": "input_text", "text": part.text}
    file: JsonObject = {"type": "input_file"}
    if part.data is not None:
        file["file_data"] = part.data if part.media_type is None else to_data_url(part.media_type, part.data)
    elif part.url is not None:
        file["file_url"] = part.url
    elif part.file_id is not None and not is_foreign(part):
        file["file_id"] = part.file_id
    else:
        log.add(AdaptationKind.PART_DROPPED, "file", "a provider file id means nothing to another provider")
        return None
    if part.name is not None:
        file["filename"] = part.name
    elif part.data is not None and is_foreign(part):
        file["filename"] = "document.pdf" if part.media_type == "application/pdf" else "document"
        log.add(AdaptationKind.FIELD_DEFAULTED, "filename", "the responses wire wants a name for inline files")
    return {**file, **fields}
