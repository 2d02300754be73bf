"""Requests as they are written, with what comes again in every one of an agent remembered: tools, settings, messages.

Reading gives the same objects for most of what comes again (`repeated`), so what was made of them for another wire is
found by their identity. What is noted while they are written is remembered with them and noted again.
"""

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, Generic, TypeVar

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationLog
from mustcall.core.memo import Bounded, Remembered, Store
from mustcall.core.memory import weigh, weigh_structure
from mustcall.core.message import Message
from mustcall.core.origin import JsonObject, Origin, Wire
from mustcall.core.request import Request
from mustcall.core.tools import ProviderTool, Tool
from mustcall.wire.caching.decode_cache import bytes_of
from mustcall.wire.caching.written_history import Pieces, splice
from mustcall.wire.codec import Target
from mustcall.wire.crossing.offer import stands_alone

__all__ = ["OfSettings", "WrittenSettings", "WrittenTools", "WrittenTurns", "tools_as_bytes", "write_body"]

T = TypeVar("T")
_Tools = tuple[Tool | ProviderTool, ...]

_MOST_BYTES = 2 * 1024 * 1024
#: The bytes that objects and arrays of a written message take without a closer look.
_STRUCTURE = 4096
#: The fields that hold messages.
_LISTED = ("messages", "input")
_FIELDS = Request.__struct_fields__
_MODEL, _MESSAGES, _ORIGIN = map(_FIELDS.index, ("model", "messages", "origin"))


def write_body(body: JsonObject) -> bytes:
    """Write a request body. The bytes of its tools are found again where the list is one that came before."""
    tools: Any = body.get("tools")
    if tools:
        body = {**body, "tools": tools_as_bytes(tools)}
    for listed in _LISTED:
        pieces: Any = body.get(listed)
        if isinstance(pieces, Pieces):
            return splice(body, listed, pieces)
    return msgspec.json.encode(body)


def tools_as_bytes(tools: list[JsonObject]) -> msgspec.Raw:
    """Write a list of tools, or find the bytes of this very list again."""
    return _bytes.of(tools)


def _encoded(tools: list[JsonObject]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(tools))


_bytes = Remembered(_encoded, most=32)


class WrittenTools:
    """The tools of one wire. The lists it returns come again, so nobody may change them."""

    __slots__ = ("_known",)

    def __init__(self, write: Callable[[_Tools, AdaptationLog], list[JsonObject]]) -> None:
        def written(tools: _Tools) -> tuple[list[JsonObject], tuple[Adaptation, ...]]:
            log = AdaptationLog()
            return write(tools, log), log.entries

        self._known = Remembered(written)

    def get(self, tools: _Tools, log: AdaptationLog) -> list[JsonObject]:
        """Return tools in the form of the wire."""
        written, notes = self._known.of(tools)
        log.extend(notes)
        return written


class _Made(msgspec.Struct, Generic[T], frozen=True):
    """What was said, which lives as long so that its identity stays its own, and what was made of it."""

    said: list[object]
    target: Target | None
    value: T


class OfSettings(Generic[T]):
    """What was made of what requests say beside their conversation and their model, found by the identity of all of it.

    One variant of each caller's request is remembered, of those that are the same object when they come again.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: Store[Bounded[int, _Made[T]]] = Store(lambda: Bounded(64, _MOST_BYTES))

    def get(self, request: Request, origin: Origin, target: Target | None, make: Callable[[], T]) -> T:
        """Return what was made of these very settings for the same target, or make it."""
        store = self._known.here()
        if store is None:
            return make()
        said: list[object] = list(msgspec.structs.astuple(request))
        said[_MODEL], said[_MESSAGES], said[_ORIGIN] = origin.spelling, origin.fields, origin.wire
        place = id(origin.fields)
        known = store.get(place)
        if known is not None and all(map(is_, said, known.said)) and known.target == target:
            return known.value
        value = make()
        size = bytes_of(origin.fields)
        if size is not None:
            store.keep(place, _Made(said, target, value), size)
        return value


class WrittenSettings:
    """What callers of other wires say beside their conversation. The values in it come again: nobody may change them.

    `write` is given a request without its messages, unless what is on offer depends on them.
    """

    __slots__ = ("_known", "_wire", "_write")

    def __init__(self, wire: Wire, write: Callable[[Request, Target, AdaptationLog], JsonObject]) -> None:
        self._wire = wire
        self._write = write
        self._known: OfSettings[tuple[JsonObject, tuple[Adaptation, ...]] | None] = OfSettings()

    def get(self, request: Request, target: Target, log: AdaptationLog) -> JsonObject:
        """Return the settings in the form of the wire."""
        origin = request.origin
        if origin is None or origin.wire is self._wire:
            return self._write(request, target, log)
        known = self._known.get(request, origin, target, lambda: self._written(request, target))
        if known is None:
            return self._write(request, target, log)
        written, notes = known
        if notes:
            log.extend(notes)
        return written

    def _written(self, request: Request, target: Target) -> tuple[JsonObject, tuple[Adaptation, ...]] | None:
        """Write settings; None if they depend on the conversation."""
        if not stands_alone(request.tools, self._wire):
            return None
        log = AdaptationLog()
        return self._write(msgspec.structs.replace(request, messages=()), target, log), log.entries


class _Turn(msgspec.Struct, frozen=True):
    """What follows a message in its turn, and how the turn was written for an upstream."""

    following: tuple[Message, ...]
    issuer: str
    written: list[Any]
    notes: tuple[Adaptation, ...]


class WrittenTurns:
    """The turns of conversations: each request of an agent has all those of the last one, and a few more.

    How a turn was written is kept in its first message, and forgotten with it (`wire.caching.conversations`).
    """

    __slots__ = ("_name",)

    def __init__(self, wire: Wire) -> None:
        self._name = f"written for {wire}"

    def find(self, messages: Sequence[Message], issuer: str, log: AdaptationLog) -> list[Any] | None:
        """Return how these very messages were written before, and note what was noted then."""
        known: _Turn | None = messages[0].__dict__.get(self._name)
        if known is None or known.issuer != issuer:
            return None
        before = known.following
        if len(before) != len(messages) - 1 or not all(map(is_, before, messages[1:])):
            return None
        if known.notes:
            log.extend(known.notes)
        return known.written

    def keep(self, messages: Sequence[Message], issuer: str, written: list[Any], log: AdaptationLog) -> None:
        """Remember how messages were written, with what was noted.

        What was written must depend on nothing but the messages and the issuer. What holds far more values than the
        messages have text is not kept: it is not counted where they are.
        """
        structure = weigh_structure(written)
        if structure is None or structure > _STRUCTURE * len(messages):
            weighed = weigh(written)
            if weighed is None or weighed.structure > _STRUCTURE + 2 * weighed.texts:
                return
        first, *following = messages
        held: Any = first.__dict__  # a plain dict, whatever the type of a frozen value says
        held[self._name] = _Turn(tuple(following), issuer, written, log.entries)
