"""Requests as they are written, with what comes again in every one of an agent remembered: its tools and settings.

Reading gives the same objects for what was written the same way (`repeated`), so what was made of them for another wire
is found by their identity. What is noted while they are written is remembered with them and noted again.
"""

from collections.abc import Callable
from operator import is_
from typing import Any

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationLog
from mustcall.core.memo import Remembered
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.request import Request
from mustcall.core.tools import ProviderTool, Tool
from mustcall.wire.codec import Target
from mustcall.wire.offer import stands_alone

__all__ = ["WrittenSettings", "WrittenTools", "write_body"]

_Tools = tuple[Tool | ProviderTool, ...]
_bytes: Remembered[msgspec.Raw] = Remembered(32)

_FIELDS = Request.__struct_fields__
_MODEL, _MESSAGES, _ORIGIN = map(_FIELDS.index, ("model", "messages", "origin"))


def write_body(body: JsonObject) -> bytes:
    """Write a request body. The bytes of its tools are found again where the list is one that came before."""
    tools: Any = body.get("tools")
    if tools:
        known = _bytes.get(tools, make=lambda: msgspec.Raw(msgspec.json.encode(tools)))
        body = {**body, "tools": known}
    return msgspec.json.encode(body)


class WrittenTools:
    """The tools of one wire. The lists it returns come again, so nobody may change them."""

    __slots__ = ("_known", "_write")

    def __init__(self, write: Callable[[_Tools, AdaptationLog], list[JsonObject]]) -> None:
        self._write = write
        self._known: Remembered[tuple[list[JsonObject], tuple[Adaptation, ...]]] = Remembered()

    def get(self, tools: _Tools, log: AdaptationLog) -> list[JsonObject]:
        """Return tools in the form of the wire."""
        written, notes = self._known.get(tools, make=lambda: self._written(tools))
        log.extend(notes)
        return written

    def _written(self, tools: _Tools) -> tuple[list[JsonObject], tuple[Adaptation, ...]]:
        log = AdaptationLog()
        return self._write(tools, log), log.entries


class _Settings(msgspec.Struct, frozen=True):
    """What was said, which lives as long so that its identity stays its own, and how it was written.

    None stands for settings that depend on the conversation.
    """

    said: list[object]
    target: Target
    written: JsonObject | None
    notes: tuple[Adaptation, ...]


class WrittenSettings:
    """What callers of other wires say beside their conversation. The values in it come again: nobody may change them.

    `write` is given a request without its messages, unless what is on offer depends on them.
    """

    __slots__ = ("_known", "_wire", "_write")

    _MOST = 64

    def __init__(self, wire: Wire, write: Callable[[Request, Target, AdaptationLog], JsonObject]) -> None:
        self._wire = wire
        self._write = write
        self._known: dict[int, _Settings] = {}

    def get(self, request: Request, target: Target, log: AdaptationLog) -> JsonObject:
        """Return the settings in the form of the wire."""
        origin = request.origin
        if origin is None or origin.wire is self._wire:
            return self._write(request, target, log)
        said: list[object] = list(msgspec.structs.astuple(request))
        said[_MODEL], said[_MESSAGES], said[_ORIGIN] = None, origin.fields, origin.wire
        # All of it is compared by identity. One variant of each caller's request is enough to remember.
        place = id(origin.fields)
        known = self._known.get(place)
        if known is None or not all(map(is_, said, known.said)) or known.target != target:
            known = _Settings(said, target, *self._written(request, target))
            if len(self._known) >= self._MOST and place not in self._known:
                del self._known[next(iter(self._known))]
            self._known[place] = known
        if known.written is None:
            return self._write(request, target, log)
        if known.notes:
            log.extend(known.notes)
        return known.written

    def _written(self, request: Request, target: Target) -> tuple[JsonObject | None, tuple[Adaptation, ...]]:
        if not stands_alone(request.tools, self._wire):
            return None, ()
        log = AdaptationLog()
        return self._write(msgspec.structs.replace(request, messages=()), target, log), log.entries
