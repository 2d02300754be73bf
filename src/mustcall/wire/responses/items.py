"""Responses items, both ways: each entry of `input` or `output` and the canonical parts it stands for.

A message item is its content parts; reasoning, calls and tool outputs are one part each; every other item is
carried unread as a `ProviderItem` (content that is not understood is `Unknown`, so the two never mix). Requests and
replies share the readers: what a reply's output was is the next request's input.
"""

from typing import Any

import msgspec

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.message import Message, Role
from mustcall.core.origin import JsonObject, Origin, Wire
from mustcall.core.parts import (
    Audio,
    CallKind,
    OpaqueState,
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
from mustcall.wire.codec import Provenance
from mustcall.wire.crossing.naming import flat_name, legal_id
from mustcall.wire.crossing.sealing import open_state, unseal
from mustcall.wire.crossing.turns import result_text
from mustcall.wire.reading import (
    ShapeError,
    as_object,
    at,
    each,
    list_field,
    maybe_object,
    opt_list,
    opt_str,
    rest,
    str_field,
)
from mustcall.wire.responses.parts import (
    ENVELOPE,
    decode_content,
    encode_content_part,
    is_foreign,
    is_native,
    note_foreign,
    part_word,
)

__all__ = ["ItemWriter", "decode_input_item", "decode_output_item", "in_envelope"]

_WIRE = Wire.RESPONSES

_ROLES = frozenset({"user", "assistant", "system", "developer"})
_MESSAGE_KEYS = frozenset({"type", "role", "content"})
_OUTPUT_MESSAGE_KEYS = _MESSAGE_KEYS | {"id", "status"}
_REASONING_KEYS = frozenset({"type", "id", "summary", "content", "encrypted_content"})
_FUNCTION_KEYS = frozenset({"type", "id", "call_id", "name", "namespace", "arguments"})
_CUSTOM_KEYS = frozenset({"type", "id", "call_id", "name", "namespace", "input"})
_RESULT_KEYS = frozenset({"type", "call_id", "output"})
#: Items that the client carries out, and how the types of their tools begin.
_CLIENT_ITEMS = {
    "apply_patch_call": ("apply_patch",),
    "computer_call": ("computer",),
    "local_shell_call": ("local_shell",),
    "shell_call": ("shell",),
}

#: What a caller sends back as the results of such items.
_CLIENT_RESULTS = frozenset(f"{kind}_output" for kind in _CLIENT_ITEMS)


# --- decode -------------------------------------------------------------------------------------------------------


def decode_input_item(value: Any) -> Message:
    """Read one item of a caller's `input`."""
    item = as_object(value)
    kind = opt_str(item, "type")
    if kind is None or kind == "message":
        role = str_field(item, "role")
        if role not in _ROLES:
            raise ShapeError('one of "user", "assistant", "system", "developer"', role, "role")
        with at("content"):
            if "content" not in item:
                raise ShapeError("is required")
            parts = decode_content(item["content"])
        return Message(role=Role(role), parts=parts, origin=Origin(_WIRE, rest(item, _MESSAGE_KEYS), item))
    match kind:
        case "function_call_output" | "custom_tool_call_output" if item.get("call_id") is not None:
            return Message(role=Role.TOOL, parts=(_decode_result(kind, item),), origin=Origin(_WIRE, raw=item))
        case _:
            part = _decode_single(kind, item, None, "")
    # Reasoning whose state belongs to another wire has no true raw form: the slot holds our seal, not the server's.
    raw = item if part.origin is not None and part.origin.raw is not None else None
    return Message(role=Role.ASSISTANT, parts=(part,), origin=Origin(_WIRE, raw=raw))


def decode_output_item(value: Any, provenance: Provenance, position: int) -> tuple[Part, ...]:
    """Read one item of an upstream's `output`."""
    item = as_object(value)
    kind = str_field(item, "type")
    if kind != "message":
        return (_decode_single(kind, item, provenance, f"call_{provenance.token}_{position}"),)
    with at("content"):
        return in_envelope(decode_content(item.get("content")), item)


def in_envelope(parts: tuple[Part, ...], item: JsonObject) -> tuple[Part, ...]:
    """Return a message item's parts with what the item says beside them."""
    envelope = rest(item, _OUTPUT_MESSAGE_KEYS)
    if not any(value is not None for value in envelope.values()):
        return parts
    enclosed: list[Part] = []
    for part in parts:
        origin = part.origin or Origin(_WIRE)
        fields = {**origin.fields, ENVELOPE: envelope}
        enclosed.append(msgspec.structs.replace(part, origin=Origin(_WIRE, fields, origin.raw)))
    return tuple(enclosed)


def _decode_single(kind: str, item: JsonObject, provenance: Provenance | None, fallback: str) -> Part:
    """Read an item that is one part: a call by its `call_id`, `name` and `arguments` (rule 77), or any other."""
    match kind:
        case "reasoning":
            return _decode_reasoning(item, provenance)
        case "function_call":
            return ToolCall(
                id=_call_id(item, fallback),
                name=str_field(item, "name"),
                arguments_json=_arguments(item.get("arguments")),
                namespace=opt_str(item, "namespace"),
                item_id=opt_str(item, "id"),
                origin=Origin(_WIRE, rest(item, _FUNCTION_KEYS), item),
            )
        case "custom_tool_call":
            return ToolCall(
                id=_call_id(item, fallback),
                name=str_field(item, "name"),
                arguments_json=opt_str(item, "input") or "",
                kind=CallKind.CUSTOM,
                namespace=opt_str(item, "namespace"),
                item_id=opt_str(item, "id"),
                origin=Origin(_WIRE, rest(item, _CUSTOM_KEYS), item),
            )
        case _:
            client_tools = _CLIENT_ITEMS.get(kind, ())
            # In a reply it is the result of a call that the provider ran.
            result_of = _result_of(item) if provenance is None and kind in _CLIENT_RESULTS else None
            return ProviderItem(_WIRE, kind, item, client_tools, result_of, origin=Origin(_WIRE, raw=item))


def _result_of(item: JsonObject) -> str:
    """Return the id of the call that a result in the provider's own form is of; the item is forwarded unread."""
    call_id = item.get("call_id")
    return call_id if isinstance(call_id, str) else ""


def _call_id(item: JsonObject, fallback: str) -> str:
    call_id = opt_str(item, "call_id")
    if call_id:
        return call_id
    if fallback:  # an upstream's reply: a call without an id is still a call
        return opt_str(item, "id") or fallback
    return str_field(item, "call_id")


def _arguments(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    raise ShapeError("a string", value, "arguments")


def _decode_reasoning(item: JsonObject, provenance: Provenance | None) -> Reasoning:
    encrypted = opt_str(item, "encrypted_content")
    state: OpaqueState | None = None
    raw: JsonObject | None = item
    if encrypted is not None:
        sealed = unseal(encrypted) if provenance is None else None
        if sealed is not None:
            state, raw = sealed, None
        else:
            state = OpaqueState(_WIRE, encrypted, provenance.issuer if provenance is not None else "")
    return Reasoning(
        text="".join(each(opt_list(item, "content") or (), _text_of, "content")),
        summary=tuple(each(opt_list(item, "summary") or (), _text_of, "summary")),
        state=state,
        id=opt_str(item, "id"),
        origin=Origin(_WIRE, rest(item, _REASONING_KEYS), raw),
    )


def _text_of(value: Any) -> str:
    return str_field(as_object(value), "text")


def _decode_result(kind: str, item: JsonObject) -> ToolResult:
    output = item.get("output")
    if not isinstance(output, str):
        output = list_field(item, "output")
    with at("output"):
        content = decode_content(output) if output != "" else ()
    # A refusal has no place in a tool's output; found there, it is carried unread.
    parts = tuple(
        Unknown(wire=_WIRE, type="refusal", value=part.raw_for(_WIRE), origin=part.origin)
        if isinstance(part, Refusal)
        else part
        for part in content
    )
    return ToolResult(
        call_id=str_field(item, "call_id"),
        content=parts,
        kind=CallKind.CUSTOM if kind == "custom_tool_call_output" else CallKind.FUNCTION,
        origin=Origin(_WIRE, rest(item, _RESULT_KEYS), item),
    )


# --- encode -------------------------------------------------------------------------------------------------------


class ItemWriter:
    """Writes canonical messages as items for an upstream; `custom` holds the ids of custom calls in the history."""

    __slots__ = ("_custom", "_issuer", "_log")

    def __init__(self, issuer: str, custom: frozenset[str], log: AdaptationLog) -> None:
        self._issuer = issuer
        self._custom = custom
        self._log = log

    def items(self, message: Message) -> list[JsonObject]:
        """Return the items of one message: neighbouring content in one message item, everything else alone."""
        raw = message.raw_for(_WIRE)
        if raw is not None:
            return [raw]
        note_foreign(message, self._log)
        items: list[JsonObject] = []
        run: list[Part] = []
        extra: JsonObject = dict(message.fields_for(_WIRE))

        def flush() -> None:
            if not run:
                return
            role = Role.USER if message.role is Role.TOOL else message.role
            content = [one for part in run if (one := encode_content_part(part, role, self._log)) is not None]
            if content:
                items.append(_message_item(role, content, {**_envelope(run[0]), **extra}))
                extra.clear()
            run.clear()

        for part in message.parts:
            if not isinstance(part, Reasoning | ToolCall | ToolResult | ProviderItem):
                if run and _envelope(run[0]) != _envelope(part):
                    flush()
                run.append(part)
                continue
            flush()
            item = self._single(part, message)
            if item is not None:
                items.append(item)
        flush()
        if not message.parts and not is_foreign(message):
            items.append(_message_item(message.role, [], extra))
        return items

    def _single(self, part: Reasoning | ToolCall | ToolResult | ProviderItem, message: Message) -> JsonObject | None:
        raw = part.raw_for(_WIRE)
        if raw is not None and not isinstance(part, Reasoning):
            return raw
        note_foreign(part, self._log)
        match part:
            case Reasoning():
                return self._reasoning(part, message)
            case ToolCall():
                return self._call(part, message)
            case ToolResult():
                return self._result(part, message)
            case ProviderItem():
                if part.wire is _WIRE:
                    return part.value
                self._log.add(AdaptationKind.PART_DROPPED, part_word(part), "no form on the responses wire")
                return None

    def _reasoning(self, part: Reasoning, message: Message) -> JsonObject | None:
        state = open_state(part.state, _WIRE, self._issuer)
        native = is_native(part)
        if state is None and (part.state is not None or not native):
            # A reasoning item that the server neither stored nor can decrypt is answered with a 400.
            self._log.add(AdaptationKind.STATE_DROPPED, "reasoning", "not issued by this upstream")
            return None
        raw = part.raw_for(_WIRE)
        if raw is not None:
            return raw
        summary = part.summary
        item: JsonObject = {"type": "reasoning"}
        if part.id is not None:
            item["id"] = part.id
        if part.text and is_foreign(part, message):
            # OpenAI refuses `content` on a reasoning input item (array_above_max_length, observed: issue threads).
            summary = (*summary, part.text)
        elif part.text:
            item["content"] = [{"type": "reasoning_text", "text": part.text}]
        item["summary"] = [{"type": "summary_text", "text": text} for text in summary]
        if state is not None:
            item["encrypted_content"] = state.data
        return {**item, **part.fields_for(_WIRE)}

    def _call(self, call: ToolCall, message: Message) -> JsonObject:
        custom = call.kind is CallKind.CUSTOM
        item: JsonObject = {"type": "custom_tool_call" if custom else "function_call"}
        if call.item_id is not None and not is_foreign(call, message):
            item["id"] = call.item_id
        item["call_id"] = self._id(call.id, call, message)
        name, namespace = call.name, call.namespace
        if is_foreign(call, message):
            name, namespace = flat_name(namespace, name), None
            if name != call.name:
                self._log.add(AdaptationKind.NAME_MAPPED, call.name, name)
        item["name"] = name
        if namespace is not None:
            item["namespace"] = namespace
        item["input" if custom else "arguments"] = call.arguments_json
        return {**item, **call.fields_for(_WIRE)}

    def _result(self, result: ToolResult, message: Message) -> JsonObject:
        foreign = is_foreign(result, message)
        custom = result.kind is CallKind.CUSTOM or (foreign and result.call_id in self._custom)
        return {
            "type": "custom_tool_call_output" if custom else "function_call_output",
            "call_id": self._id(result.call_id, result, message),
            "output": self._output(result, foreign),
            **result.fields_for(_WIRE),
        }

    def _output(self, result: ToolResult, foreign: bool) -> str | list[JsonObject]:
        content = result.content
        referring = any(isinstance(part, ToolReference) for part in content)
        if not (foreign or result.is_error or referring):
            match content:
                case ():
                    return ""
                case (Text(text=text) as only,) if text and only.raw_for(_WIRE) is None and not only.fields_for(_WIRE):
                    return text
                case _:
                    return self._output_list(content)
        if result.is_error:
            self._log.add(AdaptationKind.PART_RESHAPED, "tool_result", "the error flag is said in the text")
        if referring:
            self._log.add(AdaptationKind.PART_RESHAPED, "tool_reference", "written as a sentence")
        for part in content:
            note_foreign(part, self._log)
        written = result_text(result)
        if not written.media:
            return written.text
        head = (Text(text=written.text),) if written.text else ()
        return self._output_list((*head, *written.media)) or ""

    def _output_list(self, parts: tuple[Part, ...]) -> list[JsonObject]:
        items: list[JsonObject] = []
        for part in parts:
            if isinstance(part, Audio) and part.raw_for(_WIRE) is None:
                self._log.add(AdaptationKind.PART_DROPPED, "audio", "no form in a tool output on the responses wire")
                continue
            item = encode_content_part(part, Role.TOOL, self._log)
            if item is not None:
                items.append(item)
        return items

    def _id(self, identifier: str, *holders: Part | Message) -> str:
        if not is_foreign(*holders):
            return identifier
        legal = legal_id(identifier)
        if legal != identifier:
            self._log.add(AdaptationKind.ID_MAPPED, identifier, legal)
        return legal


def _message_item(role: Role, content: list[JsonObject], extra: JsonObject) -> JsonObject:
    return {"type": "message", "role": str(role), "content": content, **extra}


_NO_ENVELOPE: JsonObject = {}


def _envelope(part: Part) -> JsonObject:
    return maybe_object(part.fields_for(_WIRE).get(ENVELOPE)) or _NO_ENVELOPE
