"""Which tools are on offer, and which of them a written name means.

Exact names win; else the one offered name that differs only in case or in `-`, `_` and `.` (rules 59, 106). With
no tools given every name counts as offered. It decides nothing about arguments.
"""

from collections.abc import Iterable

from mustcall.core.origin import JsonObject
from mustcall.core.tools import Tool

__all__ = ["Offered", "fold"]

_SEPARATORS = str.maketrans("", "", "-_.")


def fold(name: str) -> str:
    """Return the name without what models get wrong: case and separators."""
    return name.casefold().translate(_SEPARATORS)


class Offered:
    """The tools of one request, by name. `anything` is true when none were given."""

    __slots__ = ("_folded", "_tools", "anything", "names")

    def __init__(self, tools: Iterable[Tool] | None) -> None:
        self._tools = {tool.name: tool for tool in tools or ()}
        self.anything = tools is None
        #: The offered names, in order.
        self.names = tuple(self._tools)
        self._folded: dict[str, list[str]] = {}
        for name in self._tools:
            self._folded.setdefault(fold(name), []).append(name)

    def resolve(self, written: str) -> str | None:
        """Return the offered name that was meant, None if there is none or more than one."""
        if self.anything or written in self._tools:
            return written or None
        matches = self._folded.get(fold(written), ())
        return matches[0] if len(matches) == 1 else None

    def parameters(self, name: str) -> JsonObject | None:
        """Return the JSON schema of a tool's arguments, if it has one."""
        tool = self._tools.get(name)
        return tool.parameters if tool is not None else None
