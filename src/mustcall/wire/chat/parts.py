"""Chat Completions content parts, tool calls and assistant messages, both ways.

Requests and replies share them: a reply's message is an assistant message of the next request.
"""

from typing import Any

import msgspec

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.origin import JsonObject, Origin, Wire
from mustcall.core.parts import (
    Audio,
    CallKind,
    File,
    Image,
    OpaqueState,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    Unknown,
)
from mustcall.wire.crossing.sealing import unseal
from mustcall.wire.dataurl import from_data_url, to_data_url
from mustcall.wire.reading import (
    ShapeError,
    as_list,
    as_object,
    as_str,
    at,
    each,
    maybe_object,
    opt_list,
    opt_str,
    rest,
    str_field,
)

__all__ = [
    "EXTRA_CONTENT",
    "REASONING_FIELDS",
    "SEALED_DETAIL",
    "arguments_text",
    "call_state",
    "decode_assistant_parts",
    "decode_call",
    "decode_content",
    "encode_call",
    "encode_content",
    "encode_content_part",
    "encode_reasoning",
    "is_sealed",
    "join_reasoning",
    "names_field_only",
    "reasoning_parts",
    "reasoning_state",
    "state_of_call",
    "thinking_text",
]

_CHAT = Wire.CHAT

#: Where chat servers put thinking, in the order they are looked for.
REASONING_FIELDS = ("reasoning_content", "reasoning")

#: The kind of `reasoning_details` entry in which another wire's state travels; clients return these unread.
SEALED_DETAIL = "reasoning.encrypted"

_TEXT_KEYS = frozenset({"type", "text"})
_IMAGE_KEYS = frozenset({"type", "image_url"})
_REFUSAL_KEYS = frozenset({"type", "refusal"})
_AUDIO_KEYS = frozenset({"type", "input_audio"})
_FILE_KEYS = frozenset({"type", "file"})
#: The field beside a call that its server wants back with it.
EXTRA_CONTENT = "extra_content"
_CALL_KEYS = frozenset({"id", "type", "function", "custom", "index"})


def decode_content(value: Any) -> tuple[Part, ...]:
    """Read a message's `content`: a string, a list of parts, or null."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (Text(text=value),)
    if not isinstance(value, list):
        raise ShapeError("a string or an array", value)
    return tuple(each(as_list(value), _decode_content_part))


def _decode_content_part(value: Any) -> Part:
    part = as_object(value)
    kind = str_field(part, "type")
    match kind:
        case "text":
            return Text(text=str_field(part, "text"), origin=Origin(_CHAT, rest(part, _TEXT_KEYS), part))
        case "refusal":
            return Refusal(text=str_field(part, "refusal"), origin=Origin(_CHAT, rest(part, _REFUSAL_KEYS), part))
        case "image_url":
            with at("image_url"):
                image = as_object(part.get("image_url"))
                url = str_field(image, "url")
                inline = from_data_url(url)
                return Image(
                    media_type=inline[0] if inline else None,
                    data=inline[1] if inline else None,
                    url=None if inline else url,
                    detail=opt_str(image, "detail"),
                    origin=Origin(_CHAT, rest(part, _IMAGE_KEYS), part),
                )
        case "input_audio":
            with at("input_audio"):
                audio = as_object(part.get("input_audio"))
                return Audio(
                    data=str_field(audio, "data"),
                    format=str_field(audio, "format"),
                    origin=Origin(_CHAT, rest(part, _AUDIO_KEYS), part),
                )
        case "file":
            with at("file"):
                file = as_object(part.get("file"))
                data = opt_str(file, "file_data")
                inline = from_data_url(data) if data is not None else None
                return File(
                    media_type=inline[0] if inline else None,
                    data=inline[1] if inline else data,
                    file_id=opt_str(file, "file_id"),
                    name=opt_str(file, "filename"),
                    origin=Origin(_CHAT, rest(part, _FILE_KEYS), part),
                )
        case _:
            return Unknown(wire=_CHAT, type=kind, value=part, origin=Origin(_CHAT, raw=part))


def encode_content_part(part: Part, log: AdaptationLog) -> JsonObject | None:
    """Write one part of a user or system message; None (and a note) if the wire has no form for it."""
    raw = part.raw_for(_CHAT)
    if raw is not None:
        return raw
    fields = part.fields_for(_CHAT)
    match part:
        case Text(text=text):
            return {"type": "text", "text": text, **fields}
        case Refusal(text=text):
            return {"type": "refusal", "refusal": text, **fields}
        case Image():
            url = part.url if part.data is None else to_data_url(part.media_type, part.data)
            if url is None:
                log.add(AdaptationKind.PART_DROPPED, "image", "a provider file id means nothing to another provider")
                return None
            image: JsonObject = {"url": url}
            if part.detail is not None:
                image["detail"] = part.detail
            return {"type": "image_url", "image_url": image, **fields}
        case Audio(data=data, format=form):
            return {"type": "input_audio", "input_audio": {"data": data, "format": form}, **fields}
        case File():
            return _encode_file(part, log)
        case _:
            log.add(AdaptationKind.PART_DROPPED, getattr(part, "type", type(part).__name__), "no form on the chat wire")
            return None


def _encode_file(part: File, log: AdaptationLog) -> JsonObject | None:
    if part.text is not None:
        log.add(AdaptationKind.PART_RESHAPED, "file", "a plain text document became text")
        return {"type": "text", "text": part.text}
    file: JsonObject = {}
    if part.data is not None:
        file["file_data"] = part.data if part.media_type is None else to_data_url(part.media_type, part.data)
    elif part.file_id is not None and part.origin is not None and part.origin.wire is _CHAT:
        file["file_id"] = part.file_id
    else:
        log.add(AdaptationKind.PART_DROPPED, "file", "the chat wire takes files inline only")
        return None
    if part.name is not None:
        file["filename"] = part.name
    return {"type": "file", "file": file, **part.fields_for(_CHAT)}


def encode_content(parts: list[Part], log: AdaptationLog) -> str | list[JsonObject]:
    """Write a message's content: a plain string where one text is all there is, parts otherwise."""
    if not parts:
        return ""
    if len(parts) == 1 and isinstance(parts[0], Text) and not parts[0].fields_for(_CHAT):
        return parts[0].text
    # A list with nothing in it is refused by servers that take an empty string.
    return [encoded for part in parts if (encoded := encode_content_part(part, log)) is not None] or ""


def decode_call(value: Any, fallback_id: str = "") -> ToolCall:
    """Read one entry of `tool_calls`. Arguments given as an object are written as JSON text."""
    call = as_object(value)
    kind = opt_str(call, "type") or "function"
    origin = Origin(_CHAT, rest(call, _CALL_KEYS), call)
    call_id = opt_str(call, "id") or fallback_id
    if kind == "custom":
        with at("custom"):
            custom = as_object(call.get("custom"))
            return ToolCall(
                id=call_id,
                name=str_field(custom, "name"),
                arguments_json=str_field(custom, "input"),
                kind=CallKind.CUSTOM,
                origin=origin,
            )
    with at("function"):
        function = as_object(call.get("function"))
        return ToolCall(
            id=call_id, name=str_field(function, "name"), arguments_json=arguments_text(function), origin=origin
        )


def arguments_text(function: JsonObject) -> str:
    """Return the arguments as the text they are or stand for; null and absent are the empty text."""
    arguments = function.get("arguments")
    if arguments is None:
        return ""
    if isinstance(arguments, str):
        return arguments
    if isinstance(arguments, dict):
        return msgspec.json.encode(arguments).decode()
    raise ShapeError("a string", arguments, "arguments")


def encode_call(call: ToolCall, name: str, call_id: str) -> JsonObject:
    """Write one entry of `tool_calls` under the name and id the receiver knows."""
    raw = call.raw_for(_CHAT)
    # A server that gives no id gets back the one that was made for its call, as the result names it.
    if raw is not None and call.name == name and call.id == call_id and (raw.get("id") or "") == call_id:
        return raw
    fields = call.fields_for(_CHAT)
    if call.kind is CallKind.CUSTOM:
        return {"id": call_id, "type": "custom", "custom": {"name": name, "input": call.arguments_json}, **fields}
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": call.arguments_json}, **fields}


def call_state(call: ToolCall, issuer: str) -> Reasoning | None:
    """Return what a call must be handed back with, as a thought of its own; None if there is nothing.

    Gemini signs its calls in `extra_content` and refuses them without it (observed: docs).
    """
    extra = call.fields_for(_CHAT).get(EXTRA_CONTENT)
    if not extra:
        return None
    return Reasoning(state=OpaqueState(_CHAT, {"call": call.id, EXTRA_CONTENT: extra}, issuer))


def state_of_call(state: OpaqueState) -> tuple[str, Any] | None:
    """Read what `call_state` wrote: the call's id and its content. It went through the caller's hands."""
    data = maybe_object(state.data) or {}
    call, extra = data.get("call"), data.get(EXTRA_CONTENT)
    return (call, extra) if isinstance(call, str) and extra else None


def decode_assistant_parts(message: JsonObject, issuer: str, token: str = "", *, crosses: bool = False) -> list[Part]:
    """Read an assistant message: thinking, then text and refusal, then calls.

    Where it crosses to another wire, what belongs to a call comes before it.
    """
    parts: list[Part] = []
    parts.extend(_decode_reasoning(message, issuer))
    with at("content"):
        content = message.get("content")
        if content != "":
            parts.extend(_as_thinking(part) for part in decode_content(content))
    refusal = opt_str(message, "refusal")
    if refusal:
        parts.append(Refusal(text=refusal))
    calls = opt_list(message, "tool_calls") or ()
    for number, value in enumerate(calls):
        with at(f"tool_calls[{number}]"):
            call = decode_call(value, f"call_{token}_{number}" if token else "")
            state = call_state(call, issuer) if crosses else None
            parts += (call,) if state is None else (state, call)
    return parts


def _as_thinking(part: Part) -> Part:
    """Read a `thinking` content part of an assistant message as the reasoning it is."""
    text = thinking_text(part.value) if isinstance(part, Unknown) else None
    return part if text is None else Reasoning(text=text, origin=part.origin)


def thinking_text(part: JsonObject) -> str | None:
    """Return the text of a `thinking` content part (Mistral's form), None for any other part."""
    if part.get("type") != "thinking":
        return None
    thinking = part.get("thinking")
    if isinstance(thinking, str):
        return thinking
    pieces = [maybe_object(piece) or {} for piece in as_list(thinking)] if isinstance(thinking, list) else []
    return "".join(text for piece in pieces if isinstance(text := piece.get("text"), str))


def is_sealed(message: JsonObject) -> bool:
    """Tell whether the message carries another wire's reasoning state, so that its raw form must not be sent."""
    details = message.get("reasoning_details")
    return isinstance(details, list) and any(_sealed(as_list(details)))


def _sealed(details: list[Any]) -> list[OpaqueState]:
    states: list[OpaqueState] = []
    for value in details:
        detail = maybe_object(value)
        if detail is not None and detail.get("type") == SEALED_DETAIL:
            data = detail.get("data")
            state = unseal(as_str(data)) if isinstance(data, str) else None
            if state is not None:
                states.append(state)
    return states


def _decode_reasoning(message: JsonObject, issuer: str) -> list[Reasoning]:
    text, field = "", ""
    for name in REASONING_FIELDS:
        value = opt_str(message, name)
        if value:
            text, field = value, name
            break
    return reasoning_parts(text, field, opt_list(message, "reasoning_details") or [], issuer)


def reasoning_parts(text: str, field: str, details: list[Any], issuer: str) -> list[Reasoning]:
    """Return a message's thinking, which came in `field`, with the state it must come back with."""
    if not text and not details:
        return []
    states = _sealed(details) or [reasoning_state(field, details, issuer)]
    return [Reasoning(text=text if number == 0 else "", state=state) for number, state in enumerate(states)]


def reasoning_state(field: str, details: list[Any], issuer: str) -> OpaqueState:
    """Return what a chat upstream must get back: the field its thinking came in, and its details unread."""
    data: JsonObject = {"field": field or REASONING_FIELDS[0]}
    if details:
        data["details"] = details
    return OpaqueState(_CHAT, data, issuer)


def names_field_only(state: OpaqueState) -> bool:
    """Tell whether a state says no more than the field its text came in: then it fits any text."""
    data = maybe_object(state.data)
    return state.form is _CHAT and data is not None and set(data) == {"field"}


def encode_reasoning(part: Reasoning, state: OpaqueState | None) -> JsonObject:
    """Write thinking in the field it came in. The state went through the caller's hands: trust no shape."""
    data = (maybe_object(state.data) if state is not None else None) or {}
    field = data.get("field")
    details = data.get("details")
    text = part.text or "\n\n".join(part.summary)
    fields: JsonObject = {}
    if text:
        fields[field if field in REASONING_FIELDS else REASONING_FIELDS[0]] = text
    if isinstance(details, list) and details:
        fields["reasoning_details"] = as_list(details)
    return fields


def join_reasoning(into: JsonObject, fields: JsonObject) -> None:
    """Add the fields of one more thought to a message: a chat message has room for one text and one list."""
    for name, value in fields.items():
        if name == "reasoning_details":
            into[name] = [*into.get(name, ()), *value]
        else:
            into[name] = f"{into[name]}\n\n{value}" if name in into else value
