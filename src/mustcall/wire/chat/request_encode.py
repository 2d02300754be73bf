"""How a canonical request is spelled for a Chat Completions server.

A message or tool that came on this wire and was not changed goes out as it came; everything else is written from its
canonical parts, and what has no form here is noted or refused.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.message import Message, Role
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.parts import (
    CallKind,
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
from mustcall.wire.chat.parts import (
    EXTRA_CONTENT,
    encode_call,
    encode_content,
    encode_reasoning,
    join_reasoning,
    state_of_call,
)
from mustcall.wire.chat.settings_encode import CHAT_SETTINGS, note_fields
from mustcall.wire.codec import Target
from mustcall.wire.crossing.naming import flat_name, legal_id
from mustcall.wire.crossing.offer import custom_arguments
from mustcall.wire.crossing.sealing import open_state
from mustcall.wire.crossing.turns import drop_foreign_item, is_billing_header, result_text

__all__ = ["encode_request"]

_CHAT = Wire.CHAT


def encode_request(request: Request, target: Target, log: AdaptationLog, *, pieces: bool = False) -> JsonObject:
    """Write a request for a chat upstream."""
    raw = request.raw_for(_CHAT)
    if raw is not None:
        return raw
    messages: object = _in_pieces(request, target.issuer, log) if pieces else None
    if messages is None:
        messages = _Conversation(target.issuer, log).encode(request)
    return {"model": request.model, "messages": messages, **CHAT_SETTINGS.get(request, target, log)}


def _kind_of(part: Part) -> str:
    return part.type if isinstance(part, Unknown | ProviderItem) else str(part.__struct_config__.tag)


_turns = WrittenTurns(_CHAT)


def _in_pieces(request: Request, issuer: str, log: AdaptationLog) -> Pieces | None:
    """Write the `messages` of a conversation that is kept; what was written before is found."""
    system = request.system
    return _history.get(request, issuer, log, None if system is None else lambda: _prompt(system, issuer, log))


def _prompt(system: Message, issuer: str, log: AdaptationLog) -> list[JsonObject]:
    return _Conversation(issuer, log).prompt(system)


def _passage(_: Request, messages: Sequence[Message], issuer: str, log: AdaptationLog) -> tuple[list[JsonObject], bool]:
    return _Conversation(issuer, log, kept=False).write(messages), False


_history = WrittenHistory(_passage)


class _Conversation:
    """Writes messages in order: assistant neighbours of finer wires joined, results split, their media after them.

    `kept` says that how each turn was written is remembered with it.
    """

    def __init__(self, issuer: str, log: AdaptationLog, *, kept: bool = True) -> None:
        self._issuer = issuer
        self._log = log
        self._kept = kept
        self._out: list[JsonObject] = []
        self._assistant: list[Message] = []
        self._media: list[Part] = []

    def encode(self, request: Request) -> list[JsonObject]:
        """Return the `messages` array."""
        if request.system is not None:
            self._repeat(request.system, _Conversation._system)
        return self.write(request.messages)

    def prompt(self, system: Message) -> list[JsonObject]:
        """Return the system prompt that stands outside the messages."""
        self._repeat(system, _Conversation._system)
        return self._out

    def write(self, messages: Iterable[Message]) -> list[JsonObject]:
        """Return neighbouring messages, behind what was written before."""
        for message in messages:
            raw = message.raw_for(_CHAT)
            if raw is not None:
                self._flush_assistant()
                if message.role is not Role.TOOL:  # media wait until the turn's last result
                    self._flush_media()
                self._out.append(raw)
            elif message.role is Role.ASSISTANT:
                self._flush_media()
                self._assistant.append(message)
            else:
                self._flush_assistant()
                self._repeat(message, _Conversation._other)
        self._flush()
        return self._out

    def _flush(self) -> None:
        self._flush_assistant()
        self._flush_media()

    def _flush_media(self) -> None:
        if self._media:
            self._out.append({"role": "user", "content": encode_content(self._media, self._log)})
            self._media = []

    def _flush_assistant(self) -> None:
        run = self._assistant
        if run:
            written = _turns.find(run, self._issuer, self._log) if self._kept else None
            if written is None:
                alone = _Conversation(self._issuer, AdaptationLog())
                encoded = alone._encode_assistant(run)
                written = [encoded] if encoded is not None else []
                self._log.extend(alone._log.entries)
                if self._kept:
                    _turns.keep(run, self._issuer, written, alone._log)
            self._out += written
            self._assistant = []

    def _repeat(self, message: Message, write: "Callable[[_Conversation, Message], None]") -> None:
        """Write a message, or find how it was written before; media beside results wait for what comes next."""
        if self._media or not self._kept:
            write(self, message)
            return
        written = _turns.find((message,), self._issuer, self._log)
        if written is None:
            alone = _Conversation(self._issuer, AdaptationLog())
            write(alone, message)
            written, self._media = alone._out, alone._media
            self._log.extend(alone._log.entries)
            if not alone._media:
                _turns.keep((message,), self._issuer, written, alone._log)
        self._out += written

    def _system(self, message: Message) -> None:
        system = message.evolve(parts=self._system_parts(message))
        if system.parts:
            self._other(system)

    def _system_parts(self, message: Message) -> tuple[Part, ...]:
        kept: list[Part] = []
        for part in message.parts:
            if is_billing_header(part):
                self._log.add(AdaptationKind.PART_DROPPED, "system", "a billing header means nothing here, and varies")
            else:
                kept.append(part)
        return tuple(kept)

    def _other(self, message: Message) -> None:
        note_fields(message, self._log)
        others: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                self._result(part, message)
            else:
                note_fields(part, self._log)
                others.append(part)
        role = message.role
        if role is Role.TOOL:
            self._media.extend(others)
            return
        if role is not Role.USER:
            self._flush_media()
        media, self._media = self._media, []
        foreign = message.origin is not None and message.origin.wire is not _CHAT
        if foreign and role is not Role.USER and others and all(isinstance(part, Text) for part in others):
            # Many chat servers take instructions only as one string.
            content = "\n\n".join(part.text for part in others if isinstance(part, Text))
        else:
            content = encode_content([*media, *others], self._log)
        if role is Role.DEVELOPER and (message.origin is None or message.origin.wire is not _CHAT):
            # OpenAI reads `system` as `developer`; most other chat servers know only `system`.
            role = Role.SYSTEM
        if content or not message.results:
            self._out.append({"role": str(role), "content": content, **message.fields_for(_CHAT)})

    def _result(self, result: ToolResult, message: Message) -> None:
        note_fields(result, self._log)
        written = result_text(result)
        if result.is_error:
            self._log.add(AdaptationKind.PART_RESHAPED, "tool_result", "the error flag became a word")
        for item in result.content:
            note_fields(item, self._log)
            if isinstance(item, ToolReference | Unknown):
                self._log.add(AdaptationKind.PART_RESHAPED, "tool_result", f"{_kind_of(item)} became text")
        if written.media:
            self._log.add(AdaptationKind.PART_RESHAPED, "tool_result", "media moved to a user message")
            self._media.extend(written.media)
        self._out.append(
            {
                "role": "tool",
                "tool_call_id": self._id(result.call_id, message),
                "content": written.text or ("The result is attached below." if written.media else ""),
                **(message.fields_for(_CHAT) if message.role is Role.TOOL else {}),
            }
        )

    def _id(self, identifier: str, message: Message) -> str:
        if message.origin is not None and message.origin.wire is _CHAT:
            return identifier
        legal = legal_id(identifier)
        if legal != identifier:
            self._log.add(AdaptationKind.ID_MAPPED, identifier, legal)
        return legal

    def _encode_assistant(self, run: list[Message]) -> JsonObject | None:
        texts: list[str] = []
        refusals: list[str] = []
        calls: list[JsonObject] = []
        extra: JsonObject = {}
        thinking: JsonObject = {}
        signed: dict[str, Any] = {}  # what belongs to calls, by their ids, and which of them came last
        latest = ""
        for message in run:
            note_fields(message, self._log)
            extra.update(message.fields_for(_CHAT))
            text = "".join(part.text for part in message.parts if isinstance(part, Text))
            if text:
                texts.append(text)
            for part in message.parts:
                note_fields(part, self._log)
                match part:
                    case Text():
                        pass
                    case Refusal(text=words):
                        refusals.append(words)
                    case Reasoning():
                        state = open_state(part.state, _CHAT, self._issuer)
                        if state is None:
                            self._log.add(AdaptationKind.STATE_DROPPED, "reasoning", "not issued by this upstream")
                        elif (of_call := state_of_call(state)) is not None:
                            latest = of_call[0]
                            signed[latest] = of_call[1]
                        else:
                            join_reasoning(thinking, encode_reasoning(part, state))
                    case ToolCall():
                        written = self._call(part, message)
                        extra_content = signed.pop(part.id if part.id in signed else latest, None)
                        calls.append(written if extra_content is None else {**written, EXTRA_CONTENT: extra_content})
                        latest = ""
                    case ProviderItem() | Unknown():
                        drop_foreign_item(part, _CHAT, self._log)
                    case _:
                        self._log.add(AdaptationKind.PART_DROPPED, _kind_of(part), "no form on the chat wire")
        extra.update(thinking)
        if not texts and not calls and not refusals and not extra:
            return None
        encoded: JsonObject = {"role": "assistant", "content": "\n\n".join(texts) if texts or not calls else None}
        if refusals:
            encoded["refusal"] = "\n\n".join(refusals)
        encoded.update(extra)
        if calls:
            encoded["tool_calls"] = calls
        return encoded

    def _call(self, call: ToolCall, message: Message) -> JsonObject:
        if call.kind is CallKind.CUSTOM and (call.origin is None or call.origin.wire is not _CHAT):
            call = call.evolve(kind=CallKind.FUNCTION, arguments_json=custom_arguments(call.arguments_json))
        return encode_call(call, flat_name(call.namespace, call.name), self._id(call.id, message))
