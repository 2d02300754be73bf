"""What people pass as a prompt, as messages, and what is said back, as text."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from mustcall.core.errors import InvalidRequest
from mustcall.core.message import Message, Role
from mustcall.core.origin import Wire
from mustcall.core.parts import Refusal, Text
from mustcall.core.reply import Reply
from mustcall.core.request import Request
from mustcall.wire.registry import codec_for

__all__ = [
    "History",
    "Prompt",
    "latest_only",
    "question_only",
    "read_history",
    "read_prompt",
    "text_message",
    "text_of",
]

Prompt = str | Message | Sequence[Message | Mapping[str, Any]]
"""A question, a message, or a conversation; dicts are Chat Completions messages, or what `RunResult.history` gave."""

History = Sequence[Message | Mapping[str, Any]]
"""A conversation so far, as messages or as plain data."""


def text_message(role: Role, text: str) -> Message:
    """Return a message of one text."""
    return Message(role=role, parts=(Text(text=text),))


def text_of(reply: Reply) -> str:
    """Return what a reply says, a refusal included."""
    return "".join(part.text for part in reply.parts if isinstance(part, Text | Refusal))


def latest_only(request: Request) -> Request:
    """Return a request without what was said before the user's latest message."""
    place = max((index for index, each in enumerate(request.messages) if each.role is Role.USER), default=0)
    return request.evolve(messages=request.messages[place:])


def question_only(request: Request) -> Request:
    """Return a request without what came after the user's latest message, and without tools."""
    place = max((index for index, each in enumerate(request.messages) if each.role is Role.USER), default=0)
    return request.evolve(messages=request.messages[: place + 1], tools=(), parallel_tool_calls=None)


def read_prompt(prompt: Prompt) -> tuple[Message, ...]:
    """Return the messages of a prompt; raise `InvalidRequest` for what is none."""
    if isinstance(prompt, str):
        if not prompt.strip():
            raise InvalidRequest("the prompt is empty", param="prompt")
        return (text_message(Role.USER, prompt),)
    if isinstance(prompt, Message):
        return _read(prompt, 0)
    messages = read_history(prompt)
    if not messages:
        raise InvalidRequest("the prompt has no messages", param="prompt")
    return messages


def read_history(history: History) -> tuple[Message, ...]:
    """Return the messages of a conversation; raise `InvalidRequest` for what is none."""
    if not _is_iterable(history):
        kind = type(history).__name__
        raise InvalidRequest(f"a prompt is a text, a message or a list of messages, not {kind}", param="prompt")
    return tuple(read for number, each in enumerate(history) for read in _read(each, number))


def _is_iterable(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))


def _is_dict(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_part(value: object) -> bool:
    return isinstance(value, msgspec.Struct)


def _read(given: Message | Mapping[str, Any], number: int) -> tuple[Message, ...]:
    if isinstance(given, Message):
        if not _is_iterable(given.parts) or not all(map(_is_part, given.parts)):
            raise InvalidRequest(f"message {number} of the prompt: its parts must be Text, Image, …", param="prompt")
        return (given,)
    if not _is_dict(given):
        kind = type(given).__name__
        raise InvalidRequest(f"message {number} of the prompt is neither a Message nor a dict: {kind}", param="prompt")
    if "parts" in given:  # our own form; no wire has that field
        try:
            return (msgspec.convert(given, Message),)
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"message {number} of the prompt cannot be read: {error}", param="prompt") from None
    try:
        body = msgspec.json.encode({"model": "", "messages": [given]})
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"message {number} of the prompt is no JSON: {error}", param="prompt") from None
    try:
        return codec_for(Wire.CHAT).decode_request(body).messages
    except InvalidRequest as error:
        raise InvalidRequest(f"message {number} of the prompt: {error.message}", param="prompt") from None
