"""One content block of a Messages stream while it is open: its start, and what its deltas brought.

What deltas of known kinds mean is the decoder's. Those of a kind to come, such as `compaction_delta`, are laid over
the start of a block that no reader here knows: each field but `type`, texts joined, so that the block can be written
again with its content.
"""

from typing import Any

from mustcall.core.origin import JsonObject

__all__ = ["OpenBlock"]

#: Kinds whose deltas are all known here.
_READ_KINDS = frozenset({"text", "thinking", "tool_use"})


class OpenBlock:
    """One content block under construction."""

    __slots__ = (
        "_later",
        "_texts",
        "citations",
        "closed",
        "fragments",
        "index",
        "kind",
        "number",
        "signature",
        "start",
    )

    def __init__(self, number: int, index: int, start: JsonObject) -> None:
        self.number = number
        self.index = index
        self.start = start
        self.kind: str = start["type"]
        self.fragments: list[str] = []
        self.citations: list[Any] = []
        self.signature: str | None = None
        self.closed = False
        self._texts: dict[str, list[str]] = {}
        self._later: JsonObject = {}

    def keep(self, delta: JsonObject) -> None:
        """Take a delta of a kind to come; null says nothing."""
        if self.kind in _READ_KINDS:
            return
        for name, value in delta.items():
            if isinstance(value, str) and name != "type":
                self._texts.setdefault(name, []).append(value)
            elif value is not None and name != "type":
                self._later[name] = value

    def value(self) -> JsonObject:
        """Return the start with what such deltas brought."""
        texts = {name: "".join(pieces) for name, pieces in self._texts.items()}
        return {**self.start, **self._later, **texts}
