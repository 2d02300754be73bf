"""What a server, or an upstream of the library, keeps of the requests it has read beside their conversations.

Equal bytes give the same objects: tools, their JSON, and the request around its messages (its frame). What is made of
them, compiled schemas above all, is kept in these objects (`core.memo`) and goes with them. No module keeps any of it:
it is gone when its owner is.

Tools and schemas are found by their bytes, by whoever sends the same bytes: hundreds of tenants send the lists of the
same few agents, and compiling them for each took six times as long. A frame holds settings and a system prompt, which
are a tenant's own words: each tenant has its own.

Memory: each store is bounded by what its entries take when everything was made of them (measured), and the least
recently used is forgotten first. Cost of what is known: a hash and a comparison.
"""

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import msgspec

from mustcall.core.memo import Bounded, Listed, Mapped
from mustcall.core.origin import JsonObject, Origin, Wire
from mustcall.core.request import Request
from mustcall.core.tools import ProviderTool, Tool, ToolList
from mustcall.wire.crossing.sealing import holds_seal

__all__ = ["LEAST_KNOWN", "MOST_KNOWN", "DecodeStore", "Frame", "Frames", "KnownTools", "RequestStores", "Tools"]

Tools = tuple[Tool | ProviderTool, ...]
T = TypeVar("T")

_MOST_BYTES = 12 * 1024 * 1024
#: What a tool takes once its schema was compiled, beside the forms of what was written of it (measured).
_COMPILED = 8 * 1024
_FORMS = 4
_MOST_ENTRIES = 8192
_MOST_FRAMES = 1024
_LONGEST = 128 * 1024
_HASHED = 1024
_SAMPLE = 48
_Place = bytes | tuple[int, bytes, bytes, bytes]
_value = msgspec.json.Decoder()


#: What is shorter is read as fast as it is compared; what is longer is no agent's. Between them a list is the same
#: object when it comes again.
LEAST_KNOWN, MOST_KNOWN = 1024, 256 * 1024


def _weight(size: int, tools: Tools) -> int:
    """Return the memory that tools take, with what they were read from: so many bytes."""
    return size * _FORMS + _COMPILED * len(tools)


class KnownTools:
    """Lists of tools that came before, by how they begin."""

    __slots__ = ("_lists",)

    _BEGINNING = 96

    def __init__(self, most_bytes: int = 4 * 1024 * 1024) -> None:
        self._lists: Bounded[bytes, tuple[bytes, msgspec.Raw]] = Bounded(4096, most_bytes)

    @property
    def size(self) -> int:
        """The bytes that are remembered."""
        return self._lists.size

    def find(self, body: bytes, start: int) -> tuple[bytes, msgspec.Raw] | None:
        """Return the list that stands at this place of a body, if it came before."""
        known = self._lists.use(body[start : start + self._BEGINNING])
        return known if known is not None and body.startswith(known[0], start) else None

    def note(self, tools: msgspec.Raw) -> msgspec.Raw:
        """Remember a list; return what it will be given as."""
        written = bytes(tools)
        if not LEAST_KNOWN <= len(written) <= MOST_KNOWN:
            return tools
        tools = msgspec.Raw(written)  # the one of the body would keep all of it
        self._lists.keep(written[: self._BEGINNING], (written, tools), len(written))
        return tools


class DecodeStore(Generic[T]):
    """What was read, by the bytes it was read from: the JSON, the value, and whether they may hold sealed state."""

    __slots__ = ("_known", "_read", "_weigh")

    def __init__(self, read: Callable[[Any], T], weigh: Callable[[int, T], int] = lambda size, _: size) -> None:
        self._read = read
        self._weigh = weigh
        self._known: Bounded[_Place, tuple[bytes, tuple[Any, T, bool]]] = Bounded(_MOST_ENTRIES, _MOST_BYTES)

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
        known = self._known.use(place)
        if known is not None and known[0] == key:
            return known[1]
        json = _value.decode(key)
        if json.__class__ is list:
            json = Listed[Any](json)
        value = (json, self._read(json), holds_seal(key))
        if size <= _LONGEST:
            self._known.keep(place, (key, value), self._weigh(size, value[1]))
        return value


#: The JSON of a request without its messages, the request, and its tools as they were written.
Frame = tuple[JsonObject, Request, msgspec.Raw | None]


class Frames:
    """Requests without their messages, by who reads them, whose they are and what was written of them."""

    __slots__ = ("_known", "get")

    def __init__(self) -> None:
        self._known: Bounded[tuple[object, ...], Frame] = Bounded(_MOST_FRAMES, _MOST_BYTES)
        #: What was read of these bytes before: the JSON, the request and its tools as they were written.
        self.get = self._known.use

    @property
    def size(self) -> int:
        """The bytes that are remembered."""
        return self._known.size

    def keep(self, key: tuple[object, ...], json: JsonObject, frame: Request, tools: msgspec.Raw | None) -> Frame:
        """Remember a request; its tools as they were written live as long, so that their identity stays their own.

        Returned is the request that is remembered: what is made of its settings is kept in its unknown fields.
        """
        origin = frame.origin
        size = sum(len(written) for written in key if isinstance(written, bytes)) + (0 if tools is None else len(tools))
        weight = _weight(size, frame.tools)
        if size > _LONGEST or origin is None:
            return json, frame, tools
        origin = Origin(origin.wire, Mapped(origin.fields), origin.raw, origin.spelling)
        kept = (json, msgspec.structs.replace(frame, origin=origin), tools)
        self._known.keep(key, kept, weight)
        return kept


class RequestStores:
    """All that is kept of requests beside their conversations. Threads may share one, as they may a `Bounded`."""

    __slots__ = ("_schemas", "_tools", "frames", "known_tools")

    #: What all of it can come to: written lists, schemas, frames, and the tools of each wire.
    MOST_BYTES = 4 * 1024 * 1024 + (2 + len(Wire)) * _MOST_BYTES

    def __init__(self) -> None:
        self.known_tools = KnownTools()
        self.frames = Frames()
        self._schemas: Bounded[bytes, Mapped] = Bounded(_MOST_ENTRIES, _MOST_BYTES)
        self._tools: dict[Hashable, DecodeStore[Tools]] = {}

    @property
    def size(self) -> int:
        """The memory that is taken."""
        tools = sum(store.size for store in list(self._tools.values()))
        return self.known_tools.size + self._schemas.size + self.frames.size + tools

    def tools(self, reader: Hashable, read: Callable[[Any], Tools]) -> DecodeStore[Tools]:
        """Return the tools of a reader's wire, which reads them like this."""
        store = self._tools.get(reader)
        if store is None:
            schemas = self._schemas
            store = self._tools.setdefault(reader, DecodeStore(lambda json: _shared(read(json), schemas), _weight))
        return store


def _shared(tools: Tools, schemas: Bounded[bytes, Mapped]) -> Tools:
    """Return tools that were just read as a list that takes what is made of it; equal schemas are one object.

    Lists that differ in one tool have all others compiled once.
    """
    for tool in tools:
        schema = tool.parameters if isinstance(tool, Tool) else None
        if not isinstance(schema, Mapped):
            continue
        text = msgspec.json.encode(schema)
        known = schemas.use(text)
        if known is not None:
            msgspec.structs.force_setattr(tool, "parameters", known)  # nobody has seen it yet
        elif len(text) <= _LONGEST:
            schemas.keep(text, schema, _weight(len(text), (tool,)))
    return ToolList(tools)
