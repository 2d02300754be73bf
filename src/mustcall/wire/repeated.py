"""Requests, with what comes again in every one of an agent read once: its settings, its tools, its earlier messages.

A turn of an agent is the last request and a few messages more, so nearly every byte of it has been read before. Equal
bytes give the same objects: JSON, messages, tools, and the request around its messages (its frame). Nobody may change
them, and nobody does; values here are changed by making others. What depends on the tools alone is found by their
identity (`core.memo`).

Memory: of the bytes as they were written at most `_MOST_BYTES` are remembered, the oldest forgotten first; a message
over `_LONGEST` (a picture) is not. JSON made to be large in memory (`[[],[],…]`) takes about 23 times its bytes. Cost
of what is known: one pass that finds it, and a hash.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from mustcall.core.message import Message
from mustcall.core.origin import JsonObject, Origin
from mustcall.core.request import Request
from mustcall.core.tools import ProviderTool, Tool
from mustcall.wire.opening import Fields
from mustcall.wire.reading import ShapeError, as_object, decode_json
from mustcall.wire.sealing import holds_seal

__all__ = ["RepeatedReader", "Store", "Tools"]

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
#: Stands for what is read apart.
_NOTHING = msgspec.Raw(b"")


class Store(Generic[T]):
    """What was read, by the bytes it was read from: the JSON, the value, and whether they may hold sealed state."""

    __slots__ = ("_known", "_read", "size")

    def __init__(self, read: Callable[[Any], T]) -> None:
        self._read = read
        self._known: dict[_Place, tuple[bytes, tuple[Any, T, bool]]] = {}
        #: The bytes that are remembered.
        self.size = 0

    def get(self, written: msgspec.Raw) -> tuple[Any, T, bool]:
        """Return what these bytes are."""
        key = bytes(written)
        # Comparing is twenty times as fast as hashing: of long texts only samples are hashed, and all is compared.
        size = len(key)
        middle = size >> 1
        place = key if size <= _HASHED else (size, key[:_SAMPLE], key[middle : middle + _SAMPLE], key[-_SAMPLE:])
        known = self._known.get(place)
        if known is not None and known[0] == key:
            return known[1]
        json = _value.decode(key)
        value = (json, self._read(json), holds_seal(key))
        if size <= _LONGEST:
            self._keep(place, key, value)
        return value

    def _keep(self, place: _Place, key: bytes, value: tuple[Any, T, bool]) -> None:
        replaced = self._known.pop(place, None)
        self._known[place] = (key, value)
        self.size += len(key) - (len(replaced[0]) if replaced is not None else 0)
        while self.size > _MOST_BYTES or len(self._known) > _MOST_ENTRIES:
            oldest, _ = self._known.pop(next(iter(self._known)))
            self.size -= len(oldest)


class _Frames:
    """Requests without their messages, by what was written of them: settings, and the identity of the tools' JSON."""

    __slots__ = ("_known", "size")

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[JsonObject, Request, int]] = {}
        #: The bytes that are remembered.
        self.size = 0

    def get(self, key: tuple[object, ...]) -> tuple[JsonObject, Request] | None:
        """Return what was read of these bytes before: the JSON and the request."""
        known = self._known.get(key)
        return None if known is None else known[:2]

    def keep(self, key: tuple[object, ...], json: JsonObject, frame: Request, tools: int) -> None:
        """Remember a request; its tools, of so many bytes, live as long, so that their identity stays their own."""
        size = tools + sum(len(written) for written in key if isinstance(written, bytes))
        if size > _LONGEST:
            return
        self._known[key] = (json, frame, size)
        self.size += size
        while self.size > _MOST_BYTES or len(self._known) > _MOST_FRAMES:
            self.size -= self._known.pop(next(iter(self._known)))[2]


class RepeatedReader:
    """Reads the requests of one wire, whose messages stand in the field `listed`.

    `read_frame` reads a request without its messages and tools, whether they stand in the JSON it is given or not.
    """

    __slots__ = ("_frames", "_listed", "_messages", "_read_frame", "_read_messages", "_read_tools", "_tools")

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
        self._messages = Store(read_message)
        self._tools = Store(read_tools)
        self._frames = _Frames()

    def decode(self, body: bytes, opened: Fields | None = None) -> Request:
        """Return a request, of which `opened` is the top level; raise `ShapeError`.

        What cannot be read piece by piece is read as one, so that an error names its place in the whole.
        """
        listed = self._listed
        try:
            fields = _fields.decode(body) if opened is None else opened.copy()
            written, tools = fields.get(listed), fields.get("tools")
            elements = _elements.decode(written) if written is not None else None
            if not elements:
                return self._whole(body)
            fields[listed] = _NOTHING
            offer, offered = None, ()
            if tools is not None:
                fields["tools"] = _NOTHING
                offer, offered, _ = self._tools.get(tools)
            key = (*fields, *map(bytes, fields.values()), id(offer))
            known = self._frames.get(key)
            if known is None:
                known = self._frame(fields, offer, offered)
                self._frames.keep(key, *known, len(bytes(tools)) if tools is not None else 0)
            value, frame = known
            pairs = [self._messages.get(element) for element in elements]
        except (ShapeError, msgspec.DecodeError, ValueError, RecursionError):
            return self._whole(body)
        value = {**value, listed: [json for json, _, _ in pairs]}
        sealed = any([seal for _, _, seal in pairs])  # noqa: C419  a generator costs more than the few it saves
        return _filled(frame, None if sealed else value, tuple([message for _, message, _ in pairs]))

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


def _filled(frame: Request, value: JsonObject | None, messages: tuple[Message, ...]) -> Request:
    """Return the request of a frame with its messages; one that may hold sealed state (rule 124) has no exact form."""
    origin = frame.origin
    assert origin is not None, "a frame says where it came from"
    if value is None:
        return msgspec.structs.replace(frame, messages=messages)
    whole = Origin(origin.wire, origin.fields, value, origin.spelling)
    return msgspec.structs.replace(frame, messages=messages, origin=whole)
