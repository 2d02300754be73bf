"""What a scan has read so far, and how text leaves it: the state that every mode of the scanner shares.

It releases text, keeps track of lines, and lets the lookout see what was released. What is read and why is decided in
`scan.py`.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any

from mustcall.dialects.events import ScanEvent, ScannedText
from mustcall.dialects.names import Offered
from mustcall.dialects.reading.reader import BLANKS, Parse, Reader
from mustcall.dialects.reading.span import Indices, Span
from mustcall.dialects.reasoning import Section
from mustcall.dialects.scanning.anchored import NameWatch
from mustcall.dialects.scanning.candidate import Candidate, Reading
from mustcall.dialects.scanning.code import Code, Lines
from mustcall.dialects.scanning.damage import Damage
from mustcall.dialects.scanning.effort import ScanEffort
from mustcall.dialects.scanning.grammar import Grammar, marks_of

__all__ = ["Alone", "ScanState", "Sections"]


class Alone(Enum):
    """What JSON without markup of its own is, and what stands in a code fence (rules 63, 137)."""

    REPLY = "reply"  # a call where it is the reply
    ANYWHERE = "anywhere"  # a call as soon as it is complete
    NEVER = "never"  # text
    INNER = "inner"  # a call: it is known to stand alone, and its fence is taken away


class Sections(Enum):
    """What reasoning sections in the text are."""

    READ = "read"  # reasoning, and their markers are taken away
    SHOWN = "shown"  # text that no call is read out of
    UNREAD = "unread"  # text like any other


class ScanState:
    """The state of one scan. `in_reasoning` scans read a section for its parent and take no markup out of it."""

    def __init__(
        self,
        grammar: Grammar,
        offered: Offered,
        indices: Indices,
        *,
        sections: Sections,
        in_reasoning: bool = False,
        effort: ScanEffort | None = None,
        alone: Alone = Alone.REPLY,
    ) -> None:
        self._grammar = grammar
        self._effort = effort or ScanEffort()
        self._offered = offered
        self._indices = indices
        self._sections = sections
        self._reads_sections = sections is not Sections.UNREAD
        self._keeps_markup = in_reasoning
        self._reader = Reader()
        self._events: list[ScanEvent] = []
        self._lookout = NameWatch(offered, in_reasoning=in_reasoning)
        self._unwatched: list[str] = []
        # The function that reads on; see there.
        self._mode: Callable[[Any], bool]
        self._lines = Lines()
        self._gap: list[str] | None = None
        self._gap_is_text = False
        self._gap_before_span: list[str] | None = None
        self._owed: set[str] = set()
        self._spare: frozenset[str] = frozenset()
        self._wrapping: set[str] = set()
        self._wrappers = 0
        self._tokens = 0
        self._span: Span | None = None
        self._parse: Parse[None] | None = None
        self._code: Code | None = None
        self._damage = Damage()
        self._passed = marks_of("\n")
        self._passed_closers: tuple[str, ...] = ()
        self._passed_then: tuple[str, ...] = ()
        self._passed_lookout: NameWatch | None = None
        self._called = False
        self._mentioned: set[str] = set()
        self._section: Section | None = None
        self._inner: Reading | None = None
        self._section_seen = False
        self._ended_open = False
        self._alone = alone
        self._inner_reading = alone is Alone.INNER
        # Whether what comes next was taken for calls and is none; whether its marker was taken for one and is none.
        self._given_back = self._unopened = False
        # Whether a text so far that was taken for such calls has turned out to be something else.
        self._accompanied = in_reasoning
        self._candidate: Candidate | None = None
        # Where in the buffer it began; None if that was in an earlier piece.
        self._candidate_at: int | None = None
        # Tells whether the user asked to be shown such calls; asked when one is met.
        self._shown: Callable[[], bool] | None = None

    def _to_prose(self) -> None:
        """Read prose from here on: the mode in which markers count."""
        raise NotImplementedError

    def _inner_scan(self) -> Reading:
        """Return a scan of a section's text."""
        raise NotImplementedError

    @property
    def in_call(self) -> bool:
        """Whether what comes next belongs to a call, or to what may be one."""
        return self._span is not None or (self._candidate is not None and self._candidate.scan.in_call)

    @property
    def open_list(self) -> int | None:
        """The number of the list of calls that is being read, None if none is or none of its calls is complete."""
        return self._span.open_list if self._span is not None else None

    @property
    def in_reasoning(self) -> bool:
        """Whether the text stands in a reasoning section; after `close`, whether one was never closed."""
        return self._section is not None

    @property
    def ended_open(self) -> bool:
        """Whether the input ended with a complete call whose closing marker had not come."""
        return self._ended_open

    def _take_events(self) -> list[ScanEvent]:
        events = self._events
        if not events:
            # Not the list itself, which goes on growing.
            return []
        self._events = []
        if self._span is not None:
            self._span.events = self._events
        return events

    def _say(self, text: str, *, watch: bool = True) -> None:
        """Release text and keep track of lines."""
        if not text:
            return
        self._events.append(ScannedText(text))
        self._lines.note(text)
        if watch:
            self._unwatched.append(text)

    def _watch_said(self) -> None:
        """Show the lookout what was released since the last time: once per piece, however many texts it made."""
        if self._unwatched:
            self._lookout.watch("".join(self._unwatched))
            self._unwatched.clear()

    def _report_seen(self) -> None:
        self._watch_said()
        self._lookout.close(self._events)

    def _skip(self, end: int) -> str:
        """Read up to `end` and return what was read."""
        reader = self._reader
        text = reader.buffer[reader.position : end]
        reader.position = reader.start = end
        if text:
            self._given_back = self._unopened = False
        return text

    def _give_back(self, text: str) -> None:
        """Put what was read before the rest of the buffer, to be read again."""
        reader = self._reader
        reader.buffer = text + reader.buffer[reader.position :]
        reader.position = reader.start = 0

    def _read_gap(self, gap: list[str]) -> bool:
        """Hold blanks that only separate a call or a reasoning section from what follows."""
        reader = self._reader
        found = BLANKS.match(reader.buffer, reader.position)
        assert found is not None
        if found.end() > reader.position:
            gap.append(self._skip(found.end()))
        if reader.position < len(reader.buffer):
            return True
        if reader.closed:
            self._flush_gap()
        return False

    def _flush_gap(self) -> None:
        if self._gap is not None:
            text = "".join(self._gap) if self._gap_is_text else ""
            self._gap = None
            self._wrapping.clear()
            self._say(text)

    def _open_gap(self, text: str = "", *, is_text: bool) -> None:
        self._gap = [text] if text else []
        self._gap_is_text = is_text or self._keeps_markup

    def _new_lookout(self) -> NameWatch:
        return NameWatch(self._offered, in_reasoning=self._keeps_markup)

    def _narrow(self) -> None:
        if self._effort.spent_on_bare_forms:
            self._grammar = self._grammar.without_soft
