"""Requests, with what comes again in every one of an agent read once: its settings, its tools, its earlier messages.

A turn of an agent is the last request and a few messages more, so nearly every byte of it has been read before. Equal
bytes give the same objects: JSON, messages, tools, and the request around its messages (its frame). Nobody may change
them, and nobody does; values here are changed by making others. What depends on the tools alone is kept in them
(`core.memo`). Who reads keeps nothing: what was read before is in the stores that come with an opened body
(`request_stores`, `conversations`). Cost of what is known: one pass that finds it, and a hash.
"""

import sys
from collections.abc import Callable
from typing import Any

import msgspec

from mustcall.core.elements import signs_of
from mustcall.core.history import Beginning, begin
from mustcall.core.memory import Weighed, weigh
from mustcall.core.message import Message
from mustcall.core.origin import JsonObject, Origin
from mustcall.core.parts import Part, Text, ToolResult
from mustcall.core.request import Request
from mustcall.wire.caching.conversations import New, ends_of, first_element
from mustcall.wire.caching.request_stores import LEAST_KNOWN, Frame, Tools
from mustcall.wire.crossing.sealing import holds_seal
from mustcall.wire.opening import Fields, Opened, place_of
from mustcall.wire.reading import ShapeError, as_object, decode_json

__all__ = ["RepeatedReader", "Tools"]

_fields = msgspec.json.Decoder(Fields)
_elements = msgspec.json.Decoder(list[msgspec.Raw])
_value = msgspec.json.Decoder()
#: What is made of each message whatever it holds (measured: up to 1,700 bytes), and in how many forms the rest.
_EACH = 1792
_FORMS = 3
#: Stands for what is read apart.
_NOTHING = msgspec.Raw(b"")


class RepeatedReader:
    """Reads the requests of one wire, whose messages stand in the field `listed`.

    `read_frame` reads a request without its messages and tools, whether they stand in the JSON it is given or not.
    """

    __slots__ = ("_listed", "_read_frame", "_read_message", "_read_messages", "_read_tools")

    def __init__(
        self,
        listed: str,
        read_message: Callable[[Any], Message],
        read_tools: Callable[[Any], Tools],
        read_frame: Callable[[JsonObject], Request],
        read_messages: Callable[[JsonObject], tuple[Message, ...]],
    ) -> None:
        self._listed = listed
        self._read_tools = read_tools
        self._read_frame = read_frame
        self._read_messages = read_messages
        self._read_message = read_message

    def decode(self, body: bytes, opened: Fields | None = None) -> Request:
        """Return a request, of which `opened` is the top level; raise `ShapeError`.

        Nothing is remembered where nobody keeps what was read: then `opened` is no `Opened`.
        What cannot be read piece by piece is read as one, so that an error names its place in the whole.
        """
        listed = self._listed
        try:
            fields = _fields.decode(body) if opened is None else dict(opened)
            written, tools = fields.get(listed), fields.get("tools")
            elements = _elements.decode(written) if written is not None else None
            if not elements:
                return self._whole(body)
            fields[listed] = _NOTHING
            if isinstance(opened, Opened):
                value, frame, _ = self._kept_frame(opened, fields, tools)
                last = self._conversation(body, opened, elements)
            else:
                offer, offered = None, ()
                if tools is not None:
                    fields["tools"] = _NOTHING
                    offer = _value.decode(tools)
                    offered = self._read_tools(offer)
                value, frame = self._frame(fields, offer, offered)
                last = self._extended(None, elements)
        except (ShapeError, msgspec.DecodeError, ValueError, RecursionError):
            return self._whole(body)
        assert last is not None, "there are elements"
        messages, values = last.all()
        value = {**value, listed: values}
        return begin(_filled(frame, None if last.sealed else value, messages), last)

    def _kept_frame(self, opened: Opened, fields: Fields, tools: msgspec.Raw | None) -> Frame:
        """Read a request without its messages as `_frame` does, or find it."""
        stores, conversations = opened.stores, opened.conversations
        mark: object = None
        if tools is not None:
            fields["tools"] = _NOTHING
            mark = id(tools) if len(tools) >= LEAST_KNOWN else bytes(tools)
        whose = None if conversations is None else conversations.key
        key = (self, whose, mark, *fields, *map(bytes, fields.values()))
        known = stores.frames.get(key)
        if known is None:
            offer, offered = None, ()
            if tools is not None:
                offer, offered, _ = stores.tools(self, self._read_tools).get(tools)
            known = stores.frames.keep(key, *self._frame(fields, offer, offered), tools)
        return known

    def _conversation(self, body: bytes, opened: Opened, elements: list[msgspec.Raw]) -> Beginning | None:
        """Read the messages that are new in a conversation, and keep it."""
        if opened.conversations is None:
            return self._extended(None, elements)
        known = opened.known
        if known is not None:
            first, at, new = known.first, known.end, elements[1:]
            last = self._extended(known.beginning, new)
        else:
            new, last = elements, self._extended(None, elements)
            place = place_of(body, opened, self._listed)
            if place is None:
                return last
            first = at = first_element(body, place)
        ends = ends_of(body, at, new)
        if ends and last is not None:
            opened.conversations.keep(body, New(first, ends, last), known)
        return last

    def _extended(self, last: Beginning | None, elements: list[msgspec.Raw]) -> Beginning | None:
        for element in elements:
            written = bytes(element)
            json = _value.decode(written)
            message = self._read_message(json)
            weighed = weigh(json)
            signs = 1 + (signs_of(written) if weighed is None else weighed.signs)
            weight = sys.maxsize if weighed is None else _weight(len(written), weighed, message)
            last = Beginning(last, message, json, sealed=holds_seal(written), signs=signs, weight=weight)
        return last

    def _frame(self, fields: Fields, offer: Any, offered: Tools) -> tuple[JsonObject, Request]:
        """Read a request without its messages: its JSON, with None in their place, and the request."""
        value = {name: None if raw is _NOTHING else _value.decode(raw) for name, raw in fields.items()}
        if "tools" in value:
            value["tools"] = offer
        settings = {name: read for name, read in value.items() if name != self._listed}
        return value, msgspec.structs.replace(self._read_frame(settings), tools=offered)

    def _whole(self, body: bytes) -> Request:
        """Read a request as one value."""
        value = as_object(decode_json(body))
        frame, tools = self._read_frame(value), self._read_tools(value.get("tools"))
        messages = self._read_messages(value)
        return _filled(msgspec.structs.replace(frame, tools=tools), None if holds_seal(body) else value, messages)


def _weight(size: int, weighed: Weighed, message: Message) -> int:
    """Return the memory that a message takes when it was read, looked at and written for another wire."""
    # One text is shared by all forms of its message. Arguments are a text in one and values in another, and several
    # texts are joined.
    texts = weighed.texts if _is_one_text(message.parts) else weighed.texts * _FORMS
    return _EACH + texts + weighed.structure * _FORMS + (size if weighed.wide else 0)


def _is_one_text(parts: tuple[Part, ...]) -> bool:
    if len(parts) == 1 and isinstance(parts[0], ToolResult):
        parts = parts[0].content
    return len(parts) == 1 and isinstance(parts[0], Text)


def _filled(frame: Request, value: JsonObject | None, messages: tuple[Message, ...]) -> Request:
    """Return the request of a frame with its messages; one that may hold sealed state (rule 124) has no exact form."""
    origin = frame.origin
    assert origin is not None, "a frame says where it came from"
    if value is None:
        return msgspec.structs.replace(frame, messages=messages)
    whole = Origin(origin.wire, origin.fields, value, origin.spelling)
    return msgspec.structs.replace(frame, messages=messages, origin=whole)
