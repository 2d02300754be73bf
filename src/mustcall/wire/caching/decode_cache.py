"""Requests, with what comes again in every one of an agent read once: its settings, its tools, its earlier messages.

A turn of an agent is the last request and a few messages more, so nearly every byte of it has been read before. Equal
bytes give the same objects: JSON, messages, tools, and the request around its messages (its frame). Nobody may change
them, and nobody does; values here are changed by making others. What depends on the tools alone is found by their
identity (`core.memo`).

Memory: of the bytes as they were written at most `_MOST_BYTES` are remembered, the oldest forgotten first; a message
over `_LONGEST` (a picture) is not. JSON made to be large in memory (`[[],[],…]`) takes about 23 times its bytes. Cost
of what is known: one pass that finds it, and a hash.
"""

import sys
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from mustcall.core.elements import signs_of
from mustcall.core.history import Beginning, begin
from mustcall.core.memo import Bounded, Store
from mustcall.core.memory import Weighed, weigh
from mustcall.core.message import Message
from mustcall.core.origin import JsonObject, Origin
from mustcall.core.parts import Part, Text, ToolResult
from mustcall.core.request import Request
from mustcall.core.tools import ProviderTool, Tool
from mustcall.wire.caching.conversations import New, ends_of, first_element
from mustcall.wire.crossing.sealing import holds_seal
from mustcall.wire.opening import Fields, Opened, place_of
from mustcall.wire.reading import ShapeError, as_object, decode_json

__all__ = ["DecodeStore", "RepeatedReader", "Tools", "bytes_of"]

Tools = tuple[Tool | ProviderTool, ...]
T = TypeVar("T")

_MOST_BYTES = 2 * 1024 * 1024
_MOST_ENTRIES = 8192
_MOST_FRAMES = 1024
_LONGEST = 128 * 1024
_HASHED = 1024
_SAMPLE = 48
_Place = bytes | tuple[int, bytes, bytes, bytes]
_fields = msgspec.json.Decoder(Fields)
_elements = msgspec.json.Decoder(list[msgspec.Raw])
_value = msgspec.json.Decoder()
#: What is made of each message whatever it holds (measured: up to 1,700 bytes), and in how many forms the rest.
_EACH = 1792
_FORMS = 3
#: Stands for what is read apart.
_NOTHING = msgspec.Raw(b"")


#: The bytes from which the tools and frames that are remembered were read, by identity.
_sizes: Store[dict[int, int]] = Store(dict)


def bytes_of(read: object) -> int | None:
    """Return how many bytes tools, or a request with these unknown fields, were read from.

    None stands for what will be another object when it comes again.
    """
    sizes = _sizes.here()
    return None if sizes is None else sizes.get(id(read))


class DecodeStore(Generic[T]):
    """What was read, by the bytes it was read from: the JSON, the value, and whether they may hold sealed state."""

    __slots__ = ("_known", "_read", "_sizes")

    def __init__(self, read: Callable[[Any], T], sizes: dict[int, int] | None = None) -> None:
        self._read = read
        self._sizes = {} if sizes is None else sizes
        self._known: Bounded[_Place, tuple[bytes, tuple[Any, T, bool]]] = Bounded(
            _MOST_ENTRIES, _MOST_BYTES, self._forget
        )

    @property
    def size(self) -> int:
        """The bytes that are remembered."""
        return self._known.size

    def get(self, written: msgspec.Raw) -> tuple[Any, T, bool]:
        """Return what these bytes are."""
        key = bytes(written)
        # Comparing is twenty times as fast as hashing: of long texts only samples are hashed, and all is compared.
        size = len(key)
        place: _Place = key
        if size > _HASHED:
            middle = size >> 1
            place = (size, key[:_SAMPLE], key[middle : middle + _SAMPLE], key[-_SAMPLE:])
        known = self._known.get(place)
        if known is not None and known[0] == key:
            return known[1]
        value = _read_anew(key, self._read)
        if size <= _LONGEST:
            self._known.keep(place, (key, value), size)
            self._sizes[id(value[1])] = size
        return value

    def _forget(self, _: _Place, value: tuple[bytes, tuple[Any, T, bool]]) -> None:
        self._sizes.pop(id(value[1][1]), None)


def _read_anew(written: bytes | msgspec.Raw, read: Callable[[Any], T]) -> tuple[Any, T, bool]:
    json = _value.decode(written)
    return json, read(json), holds_seal(bytes(written))


class _Frames:
    """Requests without their messages, by what was written of them: settings, and the identity of the tools' JSON."""

    __slots__ = ("_known", "_sizes")

    def __init__(self, sizes: dict[int, int] | None = None) -> None:
        self._sizes = {} if sizes is None else sizes
        self._known: Bounded[tuple[object, ...], tuple[JsonObject, Request]] = Bounded(
            _MOST_FRAMES, _MOST_BYTES, self._forget
        )

    @property
    def size(self) -> int:
        """The bytes that are remembered."""
        return self._known.size

    def get(self, key: tuple[object, ...]) -> tuple[JsonObject, Request] | None:
        """Return what was read of these bytes before: the JSON and the request."""
        return self._known.get(key)

    def keep(self, key: tuple[object, ...], json: JsonObject, frame: Request, tools: int) -> None:
        """Remember a request; its tools, of so many bytes, live as long, so that their identity stays their own."""
        size = tools + sum(len(written) for written in key if isinstance(written, bytes))
        if size <= _LONGEST and frame.origin is not None:
            self._known.keep(key, (json, frame), size)
            self._sizes[id(frame.origin.fields)] = size
            if frame.system is not None:
                self._sizes[id(frame.system)] = size

    def _forget(self, _: tuple[object, ...], value: tuple[JsonObject, Request]) -> None:
        frame = value[1]
        if frame.origin is not None:
            self._sizes.pop(id(frame.origin.fields), None)
        if frame.system is not None:
            self._sizes.pop(id(frame.system), None)


class RepeatedReader:
    """Reads the requests of one wire, whose messages stand in the field `listed`.

    `read_frame` reads a request without its messages and tools, whether they stand in the JSON it is given or not.
    """

    __slots__ = ("_frames", "_listed", "_read_frame", "_read_message", "_read_messages", "_read_tools", "_tools")

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
        self._tools = Store(lambda: DecodeStore(read_tools, _sizes.here()))
        self._frames = Store(lambda: _Frames(_sizes.here()))

    def decode(self, body: bytes, opened: Fields | None = None) -> Request:
        """Return a request, of which `opened` is the top level; raise `ShapeError`.

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
            offer, offered = None, ()
            if tools is not None:
                fields["tools"] = _NOTHING
                store = self._tools.here()
                offer, offered, _ = _read_anew(tools, self._read_tools) if store is None else store.get(tools)
            value, frame = self._framed(fields, tools, offer, offered, opened)
            if isinstance(opened, Opened):
                last = self._conversation(body, opened, elements)
            else:
                last = self._extended(None, elements)
        except (ShapeError, msgspec.DecodeError, ValueError, RecursionError):
            return self._whole(body)
        assert last is not None, "there are elements"
        messages, values = last.all()
        value = {**value, listed: values}
        return begin(_filled(frame, None if last.sealed else value, messages), last)

    def _framed(
        self, fields: Fields, tools: msgspec.Raw | None, offer: Any, offered: Tools, opened: Fields | None
    ) -> tuple[JsonObject, Request]:
        """Return what a request is without its messages, as it was read before where its tenant sent the same."""
        frames = self._frames.here()
        if frames is None:
            return self._frame(fields, offer, offered)
        tenant = opened.conversations.name if isinstance(opened, Opened) else ""
        key = (tenant, *fields, *map(bytes, fields.values()), id(offer))
        known = frames.get(key)
        if known is None:
            known = self._frame(fields, offer, offered)
            frames.keep(key, *known, len(bytes(tools)) if tools is not None else 0)
        return known

    def _conversation(self, body: bytes, opened: Opened, elements: list[msgspec.Raw]) -> Beginning | None:
        """Read the messages that are new in a conversation, and keep it."""
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
