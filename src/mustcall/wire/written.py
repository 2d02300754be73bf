"""Requests as they are written, with the tools remembered: an agent offers the same ones every time.

What is noted while tools are written is remembered with them and noted again.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationLog
from mustcall.core.memo import Remembered
from mustcall.core.origin import JsonObject
from mustcall.core.tools import ProviderTool, Tool

__all__ = ["WrittenTools", "write_body"]

_Tools = tuple[Tool | ProviderTool, ...]
_bytes: Remembered[msgspec.Raw] = Remembered(32)


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
