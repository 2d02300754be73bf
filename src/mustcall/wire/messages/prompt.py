"""The system prompt and the messages of a request, written for a Messages upstream.

A message that came from this wire goes out one for one: untouched as it was, changed from its parts. All others are
joined into turns, tool results first in a user turn and thinking first in an assistant turn, because the wire
refuses any other order. System and developer messages before the conversation become the `system` prompt; later
ones stay where they are as marked user text, so that the prefix before them keeps its bytes. Reasoning is sent only
with state that this upstream issued: the wire refuses any other.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Any, assert_never

import msgspec

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.errors import UnsupportedFeature
from mustcall.core.message import Message, Role
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.parts import (
    Audio,
    CallKind,
    File,
    Image,
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
from mustcall.core.request import Request
from mustcall.wire.caching.encode_cache import WrittenTurns
from mustcall.wire.caching.written_history import Pieces, WrittenHistory
from mustcall.wire.crossing.naming import flat_name, legal_id
from mustcall.wire.crossing.sealing import open_state
from mustcall.wire.crossing.turns import drop_foreign_item, turns
from mustcall.wire.dataurl import from_data_url
from mustcall.wire.messages.blocks import native_signature, redacted_data, write_file, write_image, write_text
from mustcall.wire.messages.inputs import Schemas
from mustcall.wire.reading import maybe_object

__all__ = ["PromptWriter", "answers_bare_call", "carries_foreign_state", "in_pieces"]

_WIRE = Wire.MESSAGES
_SYSTEM_ROLES = (Role.SYSTEM, Role.DEVELOPER)
_THINKING_TYPES = ("thinking", "redacted_thinking")


def carries_foreign_state(message: Message) -> bool:
    """Tell whether a message's own form holds another wire's reasoning state, which no Messages upstream may get."""
    return message.role is Role.ASSISTANT and any(
        isinstance(part, Reasoning) and part.state is not None and part.state.form is not _WIRE
        for part in message.parts
    )


def _is_native(message: Message) -> bool:
    return message.origin is not None and message.origin.wire is _WIRE


class PromptWriter:
    """Writes one request's prompt; what it changes goes to the log.

    `kept` says that how each turn was written is remembered with it.
    """

    __slots__ = ("_issuer", "_kept", "_log", "_request", "asked_tools", "leading")

    def __init__(self, request: Request, issuer: str, log: AdaptationLog, *, kept: bool = True) -> None:
        self._kept = kept
        #: Whether what was written depends on the tools on offer.
        self.asked_tools = False
        self._request = request
        self._issuer = issuer
        self._log = log
        leading = 0
        for message in request.messages:
            if message.role not in _SYSTEM_ROLES or _is_native(message):
                break
            leading += 1
        #: How many messages at the beginning are part of the system prompt.
        self.leading = leading

    def system(self) -> str | list[JsonObject] | None:
        """Return the `system` prompt: the request's own, then leading system messages; None if there is none."""
        own = self._request.system
        hoisted = self._request.messages[: self.leading]
        if own is not None:
            if not hoisted:
                raw = own.raw_for(_WIRE)
                if raw is not None:
                    return raw
            hoisted = (own, *hoisted)
        return self._repeat(hoisted, _BlockWriter.system)[0] if hoisted else None

    def messages(self) -> list[JsonObject]:
        """Return the `messages`."""
        return self.write(self._request.messages[self.leading :])

    def write(self, messages: Sequence[Message]) -> list[JsonObject]:
        """Return neighbouring messages; those before them end where a turn does."""
        written: list[JsonObject] = []
        run: list[Message] = []
        for message in messages:
            if not _is_native(message):
                if message.role is Role.ASSISTANT and run and run[-1].role is not Role.ASSISTANT:
                    self._join(run, written)
                    run.clear()
                run.append(self._as_user_text(message) if message.role in _SYSTEM_ROLES else message)
                continue
            self._join(run, written)
            run.clear()
            raw = message.raw_for(_WIRE)
            if raw is not None and not carries_foreign_state(message):
                written.append(raw)
            else:
                writer = self._writer(self._log)
                written += writer.native(message)
                self.asked_tools |= writer.asked_tools
        self._join(run, written)
        return written

    def _join(self, run: list[Message], written: list[JsonObject]) -> None:
        for turn in turns(run):
            written += self._repeat(turn.messages, _BlockWriter.turn)

    def _repeat(
        self, messages: Sequence[Message], write: "Callable[[_BlockWriter, Sequence[Message]], list[Any]]"
    ) -> list[Any]:
        """Write neighbours, or find how they were written before."""
        written = _turns.find(messages, self._issuer, self._log) if self._kept else None
        if written is None:
            log = AdaptationLog()
            writer = self._writer(log)
            written = write(writer, messages)
            self._log.extend(log.entries)
            self.asked_tools |= writer.asked_tools
            if self._kept and not writer.asked_tools:
                _turns.keep(messages, self._issuer, written, log)
        return written

    def _writer(self, log: AdaptationLog) -> "_BlockWriter":
        return _BlockWriter(self._request, self._issuer, log)

    def _as_user_text(self, message: Message) -> Message:
        self._log.add(AdaptationKind.MESSAGE_MOVED, message.role.value, "stays in place as user text in <system> marks")
        texts = [part.text for part in message.parts if isinstance(part, Text) and part.text]
        marked = "<system>\n" + "\n\n".join(texts) + "\n</system>"
        others = [part for part in message.parts if not isinstance(part, Text)]
        return message.evolve(role=Role.USER, parts=((Text(text=marked), *others) if texts else tuple(others)))


_turns = WrittenTurns(_WIRE)


def in_pieces(request: Request, issuer: str, log: AdaptationLog) -> Pieces | None:
    """Write the `messages` of a conversation that is kept; what was written before is found."""
    return _history.get(request, issuer, log)


def _passage(
    request: Request, messages: Sequence[Message], issuer: str, log: AdaptationLog
) -> tuple[list[JsonObject], bool]:
    writer = PromptWriter(request, issuer, log, kept=False)
    first = messages[0] is request.messages[0]
    return writer.write(messages[writer.leading :] if first else messages), writer.asked_tools


def answers_bare_call(bare: bool, message: JsonObject) -> bool:
    """Tell whether a call without thinking is being answered, from what was told before a message and the message."""
    content = message["content"]
    kinds: list[str] = [] if isinstance(content, str) else [block["type"] for block in content]
    if message["role"] == "assistant":
        return bare or ("tool_use" in kinds and kinds[0] not in _THINKING_TYPES)
    return bare and "tool_result" in kinds


_history = WrittenHistory(_passage, answers_bare_call)


class _BlockWriter:
    """Writes messages as the blocks of one turn."""

    __slots__ = ("_issuer", "_log", "_request", "_schemas", "asked_tools")

    def __init__(self, request: Request, issuer: str, log: AdaptationLog) -> None:
        self._request = request
        self._issuer = issuer
        self._log = log
        self._schemas = Schemas(request.tools)
        #: Whether what was written depends on the tools on offer.
        self.asked_tools = False

    def system(self, messages: Sequence[Message]) -> list[str | list[JsonObject] | None]:
        """Return the one `system` prompt of these messages."""
        blocks: list[JsonObject] = []
        for message in messages:
            self._note_message_fields(message)
            blocks.extend(self._blocks(message.parts))
        return [_plain(blocks) if blocks else None]

    def native(self, message: Message) -> list[JsonObject]:
        """Write a message of this wire; nothing if nothing of it may be sent."""
        blocks = self._blocks(message.parts)
        if not blocks:
            self._log.add(AdaptationKind.PART_DROPPED, "message", "nothing of it can be sent")
            return []
        role = "user" if message.role is Role.TOOL else message.role.value
        return [{"role": role, "content": _as_it_came(blocks, message.parts), **message.fields_for(_WIRE)}]

    def turn(self, messages: Sequence[Message]) -> list[JsonObject]:
        """Write the messages of one side as one; nothing if nothing of them can be sent."""
        for message in messages:
            self._note_message_fields(message)
        blocks = self._blocks([part for message in messages for part in message.parts])
        if not blocks:
            return []
        if messages[0].role is Role.ASSISTANT:
            if blocks[0]["type"] not in _THINKING_TYPES:
                blocks.sort(key=lambda block: block["type"] not in _THINKING_TYPES)
            return [{"role": "assistant", "content": _plain(blocks)}]
        ordered = sorted(blocks, key=lambda block: block["type"] != "tool_result")
        if ordered != blocks:
            self._log.add(AdaptationKind.MESSAGE_MOVED, "tool_result", "results come first in a user turn")
        return [{"role": "user", "content": _plain(ordered)}]

    def _note_message_fields(self, message: Message) -> None:
        if message.origin is not None and message.origin.wire is not _WIRE:
            for field in message.origin.fields:
                self._log.add(AdaptationKind.FIELD_DROPPED, field, "a message field of another wire")

    def _blocks(self, parts: Sequence[Part]) -> list[JsonObject]:
        return [block for part in parts if (block := self._block(part)) is not None]

    def _block(self, part: Part) -> JsonObject | None:
        """Write one part; None (and a note) if it cannot be sent."""
        if isinstance(part, Reasoning):
            return self._reasoning(part)
        raw = part.raw_for(_WIRE)
        if raw is not None:
            return raw
        foreign = self._note_part_fields(part)
        match part:
            case Text():
                return write_text(part) if part.text.strip() else None
            case Refusal(text=text):
                return {"type": "text", "text": text} if text.strip() else None
            case ToolCall():
                return self._call(part, foreign=foreign)
            case ToolResult():
                return self._result(part, foreign=foreign)
            case Image():
                return write_image(self._inline_image(part))
            case File():
                return write_file(self._inline_file(part))
            case Audio(format=form):
                raise UnsupportedFeature(
                    f"the Messages wire takes no audio (got {form!r}); send a transcript as text, or route the model "
                    f"{self._request.model!r} to an upstream on the chat wire",
                    param="messages",
                )
            case ToolReference(name=name):
                return {"type": "tool_reference", "tool_name": name, **part.fields_for(_WIRE)}
            case ProviderItem() | Unknown():
                if part.wire is _WIRE:
                    return part.value
                drop_foreign_item(part, _WIRE, self._log)
                return None
            case _:
                assert_never(part)

    def _note_part_fields(self, part: Part) -> bool:
        """Note the unknown fields of a part of another wire; tell whether it is one (or of none)."""
        origin = part.origin
        if origin is not None and origin.wire is _WIRE:
            return False
        if origin is not None:
            for field in origin.fields:
                self._log.add(AdaptationKind.FIELD_DROPPED, field, "a content field of another wire")
        return True

    def _reasoning(self, part: Reasoning) -> JsonObject | None:
        raw = part.raw_for(_WIRE)
        if raw is not None and part.state is None:
            return raw  # the caller's own unsigned block: the upstream is the judge of it
        state = open_state(part.state, _WIRE, self._issuer)
        if state is None:
            self._log.add(AdaptationKind.STATE_DROPPED, "reasoning", "another upstream's, or without state")
            return None
        if raw is not None:
            return raw
        return {**_thinking_block(part, state), **part.fields_for(_WIRE)}

    def _call(self, call: ToolCall, *, foreign: bool) -> JsonObject:
        found, empty = self._schemas.input_of(call)
        self.asked_tools |= found is None or empty
        if found is None:
            self._log.add(AdaptationKind.PART_RESHAPED, call.name, "arguments that are no JSON object, wrapped")
            found = {"_raw_arguments": call.arguments_json}
        elif empty:
            self._log.add(AdaptationKind.PART_RESHAPED, call.name, "no arguments, and none required: {}")
        elif call.kind is CallKind.CUSTOM:
            self._log.add(AdaptationKind.PART_RESHAPED, call.name, "custom call as a function call")
        return {
            "type": "tool_use",
            "id": self._id(call.id) if foreign else call.id,
            "name": flat_name(call.namespace, call.name) if foreign else call.name,
            "input": found,
            **call.fields_for(_WIRE),
        }

    def _result(self, result: ToolResult, *, foreign: bool) -> JsonObject:
        call_id = self._id(result.call_id) if foreign else result.call_id
        written: JsonObject = {"type": "tool_result", "tool_use_id": call_id}
        blocks: list[JsonObject] = []
        for item in result.content:
            if isinstance(item, Unknown) and item.wire is not _WIRE:
                self._log.add(AdaptationKind.PART_RESHAPED, item.type, "written as JSON text")
                blocks.append({"type": "text", "text": msgspec.json.encode(item.value).decode()})
                continue
            block = self._block(item)
            if block is not None:
                blocks.append(block)
        if blocks:
            written["content"] = _as_it_came(blocks, result.content)
        if result.is_error:
            written["is_error"] = True
        return {**written, **result.fields_for(_WIRE)}

    def _id(self, identifier: str) -> str:
        legal = legal_id(identifier)
        if legal != identifier:
            self._log.add(AdaptationKind.ID_MAPPED, identifier, legal)
        return legal

    def _inline_image(self, image: Image) -> Image:
        if image.detail not in (None, "auto"):
            self._log.add(AdaptationKind.FIELD_DROPPED, "detail", "images have no detail setting here")
        inline = from_data_url(image.url) if image.url is not None else None
        return image if inline is None else image.evolve(media_type=inline[0], data=inline[1], url=None)

    def _inline_file(self, file: File) -> File:
        """Return the file as the wire takes it: text as text, everything else as the bytes it is."""
        for text in (file.url, file.data):
            inline = from_data_url(text) if text is not None else None
            if inline is not None:
                file = file.evolve(media_type=inline[0], data=inline[1], url=None)
        if file.data is None:
            return file
        if file.media_type is None and not _looks_like_pdf(file):
            self._log.add(AdaptationKind.FIELD_DEFAULTED, "media_type", "application/pdf")
        elif file.media_type is not None and file.media_type.startswith("text/"):
            try:
                text = base64.b64decode(file.data, validate=True).decode()
            except (binascii.Error, ValueError):
                return file
            self._log.add(AdaptationKind.PART_RESHAPED, "file", f"{file.media_type} as a plain-text document")
            return file.evolve(text=text, data=None, media_type="text/plain")
        return file


def _looks_like_pdf(file: File) -> bool:
    return (file.data or "").startswith("JVBER") or (file.name or "").lower().endswith(".pdf")


def _plain(blocks: list[JsonObject]) -> str | list[JsonObject]:
    """Return a lone plain text as the string it may be."""
    only = blocks[0]
    return only["text"] if len(blocks) == 1 and only.keys() == {"type", "text"} else blocks


def _as_it_came(blocks: list[JsonObject], parts: Sequence[Part]) -> str | list[JsonObject]:
    """Return a lone plain text as a string, unless it was a block: text with a JSON form of its own was one."""
    origin = parts[0].origin
    return blocks if origin is not None and origin.wire is _WIRE else _plain(blocks)


def _thinking_block(part: Reasoning, state: OpaqueState) -> JsonObject:
    """Write the block the upstream issued; its text is the state's own, because the signature holds for no other."""
    data = redacted_data(state)
    if data is not None:
        return {"type": "redacted_thinking", "data": data}
    text = (maybe_object(state.data) or {}).get("thinking")
    return {
        "type": "thinking",
        "thinking": text if isinstance(text, str) else part.text,
        "signature": native_signature(state),
    }
