"""A request's JSON, with what comes again in every request of an agent read once: its tools and its earlier messages.

A turn of an agent is the last request and a few messages more, so nearly every byte of it has been read before. Equal
bytes give the same objects: JSON, messages, tools. Nobody may change them, and nobody does; values here are changed by
making others. What depends on the tools alone is found by their identity (`core.memo`).

Memory: of the bytes as they were written at most `_MOST_BYTES` are remembered, the oldest forgotten first; a message
over `_LONGEST` (a picture) is not. JSON made to be large in memory (`[[],[],…]`) takes about 23 times its bytes. Cost
of what is known: one pass that finds it, and a hash.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from mustcall.core.message import Message
from mustcall.core.origin import JsonObject
from mustcall.core.tools import ProviderTool, Tool
from mustcall.wire.reading import ShapeError, as_object, decode_json

__all__ = ["RepeatedReader", "Store", "Tools"]

Tools = tuple[Tool | ProviderTool, ...]
T = TypeVar("T")

_MOST_BYTES = 2 * 1024 * 1024
_MOST_ENTRIES = 8192
_LONGEST = 128 * 1024
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_elements = msgspec.json.Decoder(list[msgspec.Raw])
_value = msgspec.json.Decoder()


class Store(Generic[T]):
    """What was read, by the bytes it was read from: the JSON and the value."""

    __slots__ = ("_known", "_read", "size")

    def __init__(self, read: Callable[[Any], T]) -> None:
        self._read = read
        self._known: dict[bytes, tuple[Any, T]] = {}
        #: The bytes that are remembered.
        self.size = 0

    def get(self, written: msgspec.Raw) -> tuple[Any, T]:
        """Return what these bytes are."""
        key = bytes(written)
        known = self._known.get(key)
        if known is None:
            json = _value.decode(key)
            known = (json, self._read(json))
            if len(key) <= _LONGEST:
                self._keep(key, known)
        return known

    def _keep(self, key: bytes, known: tuple[Any, T]) -> None:
        self._known[key] = known
        self.size += len(key)
        while self.size > _MOST_BYTES or len(self._known) > _MOST_ENTRIES:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self.size -= len(oldest)


class RepeatedReader:
    """Reads the requests of one wire, whose messages stand in the field `listed`."""

    __slots__ = ("_listed", "_messages", "_read_message", "_read_tools", "_tools")

    def __init__(self, listed: str, read_message: Callable[[Any], Message], read_tools: Callable[[Any], Tools]) -> None:
        self._listed = listed
        self._read_message = read_message
        self._read_tools = read_tools
        self._messages = Store(read_message)
        self._tools = Store(read_tools)

    def decode(self, body: bytes) -> tuple[JsonObject, Tools, tuple[Message, ...] | None]:
        """Return a request's JSON, its tools, and its messages if they are a list; raise `ShapeError`.

        What cannot be read this way is read as one, so that an error names its place in the whole; messages are then
        left to the caller.
        """
        try:
            fields = _fields.decode(body)
            listed = fields.get(self._listed)
            tools = fields.get("tools")
            value: JsonObject = {
                name: None if raw is listed or raw is tools else _value.decode(raw) for name, raw in fields.items()
            }
            offered: Tools = ()
            if tools is not None:
                value["tools"], offered = self._tools.get(tools)
            if listed is None:
                return value, offered, None
            try:
                elements = _elements.decode(listed)
            except msgspec.ValidationError:  # no list; some wires take a string
                value[self._listed] = _value.decode(listed)
                return value, offered, None
            pairs = [self._messages.get(element) for element in elements]
        except (ShapeError, msgspec.DecodeError, ValueError, RecursionError):
            value = as_object(decode_json(body))
            return value, self._read_tools(value.get("tools")), None
        value[self._listed] = [json for json, _ in pairs]
        return value, offered, tuple([message for _, message in pairs])
