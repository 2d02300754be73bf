"""All the markers of a set of dialects in one table, compiled once and shared by every scan.

It says which marker means what; when it counts is the scanner's business. Reading a table costs one dictionary
lookup per marker found.
"""

# ruff: noqa: RUF001 - the formats themselves are written with U+FF5C

import re
from collections.abc import Iterable
from functools import lru_cache
from html import escape

import msgspec

from mustcall.core.memo import Bounded, Store
from mustcall.core.memory import footprint
from mustcall.dialects.dialect import A_NAME, TOOL, Dialect, Opener
from mustcall.dialects.reading.reader import Reader
from mustcall.dialects.reasoning import (
    CONTROLS,
    FIRST_CONTROLS,
    LATE_ENDS,
    PARAGRAPH_ENDS,
    QUOTATIONS,
    RESULTS,
    SECTIONS,
    Anchor,
    Control,
    Section,
)
from mustcall.dialects.scanning.marks import NAMESPACE, Marks

__all__ = ["TOKEN", "Grammar", "MarkerEntry", "compile_grammar", "is_stray", "marks_of", "starts"]

_CODE = ("`", "~~~")
_TAG = re.compile(r"<[A-Za-z_]")
_CALL_CLOSER = re.compile(
    r"(?:\]<\]minimax\[>\[)?</[\w:]*(?:tool_?call|function_call)s?>\Z|\[END_TOOL_REQUEST\]\Z", re.IGNORECASE
)
# Tokens: `<|…|>`, with bars of either width, or with one at the end.
TOKEN = re.compile(r"</?[|｜].*[|｜]>\Z|<\w+\|>\Z")
_NAME = re.compile(r"\w[\w.\-]{0,255}+[ \t]{0,16}+")


class MarkerEntry:
    """What one marker may be."""

    __slots__ = ("anchor", "closer", "code", "control", "late", "openers", "quotation", "result", "section")

    def __init__(self) -> None:
        self.openers: list[tuple[Dialect, Opener]] = []
        self.section: Section | None = None
        self.control: Control | None = None
        self.late = False
        self.result = ""
        self.quotation: tuple[str, ...] = ()
        self.closer = False
        self.code = False
        self.anchor = Anchor.FIRST

    @property
    def follow(self) -> str:
        """What must come behind the marker for it to be more than text, as an expression; "" if it is always more."""
        pairs = self.openers
        if self.section or self.control or self.late or self.closer or self.code or self.result or self.quotation:
            return ""
        if not all(opener.soft and opener.starts for _, opener in pairs):
            return ""
        firsts = {start[0] for _, opener in pairs for start in opener.starts}
        return "|".join(sorted(r"\w" if first == A_NAME else re.escape(first) for first in firsts))

    def is_followed(self, behind: str) -> bool:
        """Whether what stands behind the marker is what it needs to be more than text."""
        follow = self.follow
        return not follow or re.match(follow, behind.lstrip(" \t\r\n")) is not None

    @property
    def stops(self) -> bool:
        """Whether the search stops at the marker wherever it stands, however the text was cut."""
        return self.anchor is Anchor.ANYWHERE and not self.follow

    @property
    def counts_first(self) -> bool:
        """Whether the marker may be more than text at the reply's first character though nowhere else."""
        return self.anchor is Anchor.FIRST or any(opener.anchor is Anchor.FIRST for _, opener in self.openers)

    @property
    def only_closes(self) -> bool:
        """Whether the marker means nothing but the end of something."""
        return self.closer and not (self.section or self.late or self._is_more)

    @property
    def only_marks_sections(self) -> bool:
        """Whether the marker means nothing but a reasoning section's beginning or end."""
        return not self.closer and not self._is_more

    @property
    def _is_more(self) -> bool:
        return bool(self.openers or self.control or self.code or self.result or self.quotation)

    def counts(self, anchor: Anchor) -> None:
        """Widen where the marker is looked for at all."""
        self.anchor = min(self.anchor, anchor)


class Grammar:
    """The compiled table of one set of dialects."""

    __slots__ = (
        "_hard",
        "_lined",
        "_namespaced",
        "closing",
        "closing_or_sections",
        "dialects",
        "entries",
        "first",
        "marks",
        "names",
        "names_matter",
    )

    def __init__(self, dialects: tuple[Dialect, ...], names: tuple[str, ...]) -> None:
        self._hard: Grammar | None = None
        self.names_matter = any(TOOL in opener.marker for dialect in dialects for opener in dialect.openers)
        #: The names that are part of a marker.
        self.names = names if self.names_matter else ()
        self.dialects = {dialect.name: dialect for dialect in dialects}
        self.entries: dict[str, MarkerEntry] = {}
        for marker in _CODE:
            self._entry(marker).code = True
        for dialect in dialects:
            for opener in dialect.openers:
                for marker in _expand(opener.marker, names):
                    self._entry(marker, opener.anchor).openers.append((dialect, opener))
            for closer in dialect.closers:
                # A fence that is still owed cannot be told from one that opens: it stays code.
                if not closer.startswith(_CODE):
                    self._entry(closer).closer = True
        for control in CONTROLS:
            self._entry(control.marker).control = control
            if control.closer:
                self._entry(control.closer).closer = True
        for section in SECTIONS:
            self._entry(section.opener, section.anchor).section = section
        for end in LATE_ENDS:
            self._entry(end).late = True
        for result, closer in RESULTS.items():
            self._entry(result).result = closer
        for quotation, closers in (*QUOTATIONS.items(), *_escaped(dialects)):
            self._entry(quotation).quotation = closers
        for first in FIRST_CONTROLS:
            self._entry(first, Anchor.FIRST)
        # What counts at the reply's first character only is not looked for in prose.
        self.first = Marks(marker for marker, entry in self.entries.items() if entry.counts_first)
        sought = {marker: entry for marker, entry in self.entries.items() if entry.anchor is not Anchor.FIRST}
        self.marks = Marks(
            sought,
            (marker for marker, entry in sought.items() if entry.anchor is not Anchor.ANYWHERE),
            {marker: entry.follow for marker, entry in sought.items() if entry.follow},
        )
        self._namespaced = any(NAMESPACE in marker for marker in self.entries)
        self._lined = self._collect_lined()
        # Where nothing is open that these close, they are text; so are those of sections where none are looked for.
        alone = {marker: entry for marker, entry in sought.items() if not self.marks.shorter(marker)}
        self.closing = frozenset(m for m, entry in alone.items() if entry.only_closes and not is_stray(m))
        self.closing_or_sections = self.closing.union(m for m, entry in alone.items() if entry.only_marks_sections)

    def dialect_of(self, read: str, opened: str) -> Dialect:
        """Return the dialect that was read, or where it is not active the one whose opener was found."""
        return self.dialects.get(read) or self.dialects[opened]

    def closers_of(self, marker: str) -> frozenset[str]:
        """Return what closes the markup that this marker opens, in any dialect."""
        entry = self.entries[self.marks.key(marker)] if marker else None
        return frozenset(closer for dialect, _ in entry.openers for closer in dialect.closers) if entry else frozenset()

    def is_control(self, marker: str) -> bool:
        """Whether a marker is a token that is never text."""
        entry = self.entries.get(marker)
        return entry is not None and entry.control is not None and not entry.control.after_reasoning

    def _entry(self, marker: str, anchor: Anchor = Anchor.ANYWHERE) -> MarkerEntry:
        entry = self.entries.setdefault(marker, MarkerEntry())
        entry.counts(anchor)
        return entry

    @property
    def without_soft(self) -> "Grammar":
        """The table without the openers that are usually no markup; of such a table, the table itself."""
        if not any(opener.soft for dialect in self.dialects.values() for opener in dialect.openers):
            return self
        if self._hard is None:
            hard = tuple(
                msgspec.structs.replace(dialect, openers=tuple(o for o in dialect.openers if not o.soft))
                for dialect in self.dialects.values()
            )
            self._hard = Grammar(hard, self.names)
        return self._hard

    def is_lined(self, beginning: str) -> bool:
        """Whether what begins so matters only at the start of a line: elsewhere it is not held back."""
        return beginning in self._lined and not (self._namespaced and _TAG.match(beginning))

    def _collect_lined(self) -> frozenset[str]:
        beginnings: dict[str, Anchor] = {}
        anywhere = tuple(marker for marker, entry in self.entries.items() if entry.anchor is Anchor.ANYWHERE)
        for marker in self.marks.markers:
            anchor = self.entries[marker].anchor
            for end in range(1, len(marker) + 1):
                beginning = marker[:end]
                beginnings[beginning] = min(beginnings.get(beginning, Anchor.START), anchor)
        return frozenset(
            beginning
            for beginning, anchor in beginnings.items()
            if anchor is not Anchor.ANYWHERE and not beginning.startswith(anywhere)
        )


def is_stray(closer: str) -> bool:
    """Whether a closer can be nothing but a call's end, so that one without its call is no text, either."""
    return (TOKEN.match(closer) or _CALL_CLOSER.match(closer)) is not None


def _escaped(dialects: tuple[Dialect, ...]) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Yield the openers as HTML spells them, and what closes them: markup that is shown, not used."""
    for dialect in dialects:
        closers = tuple(escape(closer, quote=False) for closer in dialect.closers if closer.startswith("<"))
        for opener in dialect.openers:
            if opener.marker.startswith("<") and NAMESPACE not in opener.marker and TOOL not in opener.marker:
                yield escape(opener.marker, quote=False), (*closers, *PARAGRAPH_ENDS)


def _expand(marker: str, names: tuple[str, ...]) -> Iterable[str]:
    return (marker.replace(TOOL, name) for name in names) if TOOL in marker else (marker,)


_COMPILED: dict[tuple[int, ...], Grammar] = {}
_MOST_COMPILED = 64


def compile_grammar(dialects: tuple[Dialect, ...], names: tuple[str, ...]) -> Grammar:
    """Return the table for these dialects; `names` are the offered tools, needed where a marker contains one."""
    # A table holds its dialects, so their ids stay theirs as long as the table is kept.
    key = tuple(map(id, dialects))
    known, named = _COMPILED.get(key), _named.here()
    if known is None and named is not None:
        known = named.get((key, names))
    if known is not None:
        return known
    grammar = Grammar(dialects, names)
    if grammar.names_matter:
        if named is not None:
            named.keep((key, names), grammar, footprint(names))
        return grammar
    if len(_COMPILED) >= _MOST_COMPILED:
        _COMPILED.clear()
    _COMPILED[key] = grammar
    return grammar


#: Tables that hold the names of tools.
_named: Store[Bounded[tuple[tuple[int, ...], tuple[str, ...]], Grammar]] = Store(lambda: Bounded(64, 256 * 1024))


@lru_cache(maxsize=256)
def marks_of(*markers: str) -> Marks:
    """Return these markers compiled, once for all who ask: markers of ours, and none that a model wrote."""
    return Marks(markers)


def starts(reader: Reader, start: str, position: int) -> bool | None:
    """Tell whether this comes there: a literal, or a name with a literal behind it. None if more text must tell."""
    buffer = reader.buffer
    literal = start
    if start.startswith(A_NAME):
        found = _NAME.match(buffer, position)
        if found is None:
            return False
        position = found.end()
        literal = start[1:]
    if buffer.startswith(literal, position):
        return True
    rest = buffer[position : position + len(literal)]
    return False if reader.closed or not literal.startswith(rest) else None
