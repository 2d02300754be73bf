"""Finds the first of many markers in a growing text, or the beginning of one that the text's end cuts off.

The markers become one trie and the trie one regular expression in which every inner node may also match the end of
the text. A search is a single pass in C, whatever the number of markers. It knows nothing of what markers mean.
"""

import re
from collections.abc import Iterable, Mapping

from mustcall.core.memo import compile_unkept

__all__ = ["NAMESPACE", "Marks"]

NAMESPACE = "\0"
"""In a marker: any XML namespace prefix. `<\\0:invoke` finds `<x:invoke`."""

_NAMESPACE_PATTERN = r"[A-Za-z_][A-Za-z0-9_.\-]{0,31}+"
_NAMESPACED = re.compile(rf"<(/?){_NAMESPACE_PATTERN}:")

# Behind a marker's first character: only blanks precede it on its line, as far as two characters tell. It lets through
# every true line start (the text's own beginning included) and keeps the search from stopping in mid-sentence.
_LINE_START = r"(?:(?<![^\n]{0})|(?<=[\n\r\t ][\r\t ]{0})|(?<=\A[\r\t ]{0}))"

_Trie = dict[str, "_Trie"]
_END = ""


class Marks:
    """A compiled set of markers; where one is the beginning of another, the longer one wins.

    Those in `lined` matter only at the start of a line; `follows` says with which characters (as an expression) what
    comes behind a marker must begin, blanks aside. Both keep the search from stopping for nothing; it may still stop
    for nothing now and then.
    """

    __slots__ = ("_extendable", "_last", "_longest", "_pattern", "_shorter", "markers")

    def __init__(
        self, markers: Iterable[str], lined: Iterable[str] = (), follows: Mapping[str, str] | None = None
    ) -> None:
        self.markers = frozenset(markers)
        self._extendable = frozenset(
            short for short in self.markers if any(m != short and m.startswith(short) for m in self.markers)
        )
        anchored = self.markers.intersection(lined)
        longer = {marker for marker in self.markers if any(marker.startswith(short) for short in anchored)}
        first = _trie(anchored | longer)
        second = _trie(self.markers - anchored)
        ends = {marker: rf"(?=[ \t\r\n]*+(?:{follow}|\Z))" for marker, follow in (follows or {}).items()}
        self._pattern = compile_unkept(_root(first, second, ends))
        self._longest = max(map(len, self.markers), default=0) + 32
        self._last: re.Pattern[str] | None = None
        self._shorter: dict[str, str] = {}

    def find(self, text: str, position: int, closed: bool) -> tuple[int, str]:
        """Return where the first marker begins and the marker as written.

        The marker is empty where the text's end cuts it off (and more may come); the position is the text's length
        where there is none.
        """
        found = (self._whole() if closed else self._pattern).search(text, position)
        if found is None:
            return len(text), ""
        return found.start(), self._judge(found, closed)

    def is_plain(self, text: str) -> bool:
        """Whether the text holds no marker and no beginning of one."""
        return self._pattern.search(text) is None

    def _whole(self) -> re.Pattern[str]:
        """Return the pattern for the end of the input, where nothing can be cut off; made when first needed."""
        if self._last is None:
            longest_first = sorted(self.markers, key=len, reverse=True)
            patterns = (re.escape(m).replace(re.escape(NAMESPACE), _NAMESPACE_PATTERN) for m in longest_first)
            self._last = compile_unkept("|".join(patterns))
        return self._last

    def at(self, text: str, position: int, closed: bool) -> str | None:
        """Return the marker at this position, "" if the text's end cuts it off, None if there is none.

        The position counts as the start of a line.
        """
        found = (self._whole() if closed else self._pattern).match(text[position : position + self._longest])
        return None if found is None else self._judge(found, closed)

    def _judge(self, found: re.Match[str], closed: bool) -> str:
        written = found.group()
        if not closed and written in self._extendable and found.end() == len(found.string):
            return ""
        return written if written in self.markers or self.key(written) in self.markers else ""

    def shorter(self, marker: str) -> str:
        """Return the longest other marker that this one begins with, "" if there is none."""
        found = self._shorter.get(marker)
        if found is None:
            beginnings = (m for m in self._extendable if m != marker and marker.startswith(m))
            found = max(beginnings, key=len, default="")
            if marker in self.markers:
                self._shorter[marker] = found
        return found

    def key(self, written: str) -> str:
        """Return the marker of the set that was written: the same, unless it carries a namespace."""
        return written if written in self.markers else _NAMESPACED.sub(rf"<\1{NAMESPACE}:", written, count=1)


def _trie(markers: Iterable[str]) -> _Trie:
    trie: _Trie = {}
    for marker in sorted(markers):
        node = trie
        for character in marker:
            node = node.setdefault(character, {})
        node[_END] = {}
    return trie


def _root(anchored: _Trie, anywhere: _Trie, ends: Mapping[str, str]) -> str:
    # Each branch begins with its literal character: the search then skips ahead by character set.
    branches: list[str] = []
    for character, child in anchored.items():
        literal = re.escape(character)
        branches.append(literal + _peek(child) + _LINE_START.format(literal) + _pattern(child, character, ends))
    for character, child in anywhere.items():
        branches.append(re.escape(character) + _pattern(child, character, ends))
    return "|".join(branches)


def _peek(node: _Trie) -> str:
    """Look at the next character before the line's start is looked for: in prose it is mostly another one."""
    if _END in node or NAMESPACE in node:
        return ""
    return f"(?=[{''.join(map(re.escape, node))}]|\\Z)"


def _pattern(node: _Trie, path: str, ends: Mapping[str, str]) -> str:
    branches: list[str] = []
    for character, child in sorted(node.items(), key=lambda item: item[0] == NAMESPACE):
        if character != _END:
            step = _NAMESPACE_PATTERN if character == NAMESPACE else re.escape(character)
            branches.append(step + _pattern(child, path + character, ends))
    if branches:
        branches.append(r"\Z")
    if _END in node:
        branches.append(ends.get(path, ""))
    return f"(?:{'|'.join(branches)})" if branches != [""] else ""
