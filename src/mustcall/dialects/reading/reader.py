"""The buffer every dialect reads from, and the few ways to read it.

A parser is a generator: it reads from the buffer and yields when it needs more text than has come. Whoever drives it
pushes the next piece and resumes it. All reading steps decide by the text alone, never by where a piece ended, so
the result cannot depend on chunking.

Complexity: `push` joins the unread rest (at most the look-ahead of one step: a marker or a name) with the new piece,
`settle` moves what was read into a list. Nothing read is looked at again, so the cost of a stream is linear in its
length and flat per piece.
"""

# ruff: noqa: RUF001 - the formats themselves are written with U+FF5C

import re
from collections.abc import Callable, Generator
from typing import TypeVar

from mustcall.dialects.events import Reason
from mustcall.dialects.scanning.marks import Marks

__all__ = [
    "NotACall",
    "Parse",
    "Reader",
    "accept",
    "accept_any",
    "ahead",
    "blanks",
    "copy_until",
    "expect",
    "more",
    "run",
    "word",
]

T = TypeVar("T")
Parse = Generator[None, None, T]

BLANKS = re.compile(r"[ \t\r\n]*+")
WORD = re.compile(r"[^\s<>\"'`|\[\]{}()=,;｜]*+")
MAX_WORD = 256


class NotACall(Exception):
    """The span being read is not a call, for this reason. Never leaves the scanner."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class Reader:
    """Text that has come, how far it was read, and what was read since the last release.

    `buffer[start:position]` and before it `raw` are the span read so far. With a `tap` set, all text read from
    `mark` on is also handed to it, piece by piece.
    """

    __slots__ = ("buffer", "closed", "mark", "position", "raw", "start", "tap")

    def __init__(self) -> None:
        self.buffer = ""
        self.position = 0
        self.start = 0
        self.mark = 0
        self.closed = False
        self.raw: list[str] = []
        self.tap: Callable[[str], None] | None = None

    def push(self, text: str) -> None:
        """Add a piece; all that was read must have been settled."""
        self.buffer = self.buffer + text if self.buffer else text

    def settle(self) -> None:
        """Set aside what was read, so that the buffer holds only what was not."""
        position = self.position
        if not position:
            return
        buffer = self.buffer
        if self.tap is not None:
            if position > self.mark:
                self.tap(buffer[self.mark : position])
            self.mark = 0
        if position > self.start:
            self.raw.append(buffer[self.start : position])
        self.buffer = buffer[position:]
        self.position = self.start = 0

    def take_span(self) -> str:
        """Return the span read so far and begin a new one here."""
        span = self.buffer[self.start : self.position]
        if self.raw:
            self.raw.append(span)
            span = "".join(self.raw)
            self.raw.clear()
        self.start = self.position
        return span

    def open_tap(self, tap: Callable[[str], None]) -> None:
        """Hand all text read from here on to `tap`."""
        self.tap = tap
        self.mark = self.position

    def close_tap(self) -> None:
        """Hand over what is left and stop."""
        if self.tap is not None and self.position > self.mark:
            self.tap(self.buffer[self.mark : self.position])
        self.tap = None


def more(reader: Reader) -> Parse[bool]:
    """Wait for a character; False at the end of the input."""
    while reader.position >= len(reader.buffer):
        if reader.closed:
            return False
        yield
    return True


def ahead(reader: Reader) -> Parse[str]:
    """Return the next character without reading it, "" at the end of the input."""
    while reader.position >= len(reader.buffer):
        if reader.closed:
            return ""
        yield
    return reader.buffer[reader.position]


def blanks(reader: Reader) -> Parse[str]:
    """Read blanks; return the first other character without reading it, "" at the end of the input."""
    while True:
        buffer = reader.buffer
        found = BLANKS.match(buffer, reader.position)
        assert found is not None
        reader.position = position = found.end()
        if position < len(buffer):
            return buffer[position]
        if reader.closed:
            return ""
        yield


def accept(reader: Reader, literal: str) -> Parse[bool]:
    """Read this literal if it comes next."""
    while True:
        if reader.buffer.startswith(literal, reader.position):
            reader.position += len(literal)
            return True
        rest = reader.buffer[reader.position : reader.position + len(literal)]
        if reader.closed or not literal.startswith(rest):
            return False
        yield


def accept_any(reader: Reader, literals: tuple[str, ...]) -> Parse[str]:
    """Read the first of these literals that comes next and return it, "" if none does.

    Where one is the beginning of another, the longer one stands first in the tuple.
    """
    while True:
        buffer, position = reader.buffer, reader.position
        waiting = False
        for literal in literals:
            if buffer.startswith(literal, position):
                if waiting:
                    break
                reader.position += len(literal)
                return literal
            if not reader.closed and literal.startswith(buffer[position : position + len(literal)]):
                waiting = True
        if not waiting:
            return ""
        yield


def expect(reader: Reader, literal: str, reason: Reason = Reason.BAD_MARKUP) -> Parse[None]:
    """Read this literal or fail, as truncated if the input ends within it."""
    if not (yield from accept(reader, literal)):
        rest = reader.buffer[reader.position :]
        cut = reader.closed and literal.startswith(rest)
        raise NotACall(Reason.TRUNCATED if cut else reason)


def run(reader: Reader, pattern: re.Pattern[str], limit: int, reason: Reason) -> Parse[str]:
    """Read the longest run of a pattern of single characters; a run over the limit fails where it passes it."""
    pieces: list[str] = []
    size = 0
    while True:
        found = pattern.match(reader.buffer, reader.position)
        assert found is not None
        end = found.end()
        size += end - reader.position
        if size > limit:
            reader.position = end - (size - limit)
            raise NotACall(reason)
        if end > reader.position:
            pieces.append(reader.buffer[reader.position : end])
            reader.position = end
        if end < len(reader.buffer) or reader.closed:
            return "".join(pieces)
        yield


def word(reader: Reader, reason: Reason = Reason.MISSING_NAME) -> Parse[str]:
    """Read a tool or parameter name: characters that no markup uses."""
    name = yield from run(reader, WORD, MAX_WORD, reason)
    if not name:
        ended = reader.closed and reader.position == len(reader.buffer)
        raise NotACall(Reason.TRUNCATED if ended else reason)
    return name


def copy_until(reader: Reader, marks: Marks, write: Callable[[str], None]) -> Parse[str]:
    """Read text up to the first marker, handing it to `write` as it comes; return the marker, unread.

    Fails as truncated if the input ends first.
    """
    while True:
        buffer, position = reader.buffer, reader.position
        found, marker = marks.find(buffer, position, reader.closed)
        if found > position:
            reader.position = found
            write(buffer[position:found])
        if marker:
            return marker
        if reader.closed:
            raise NotACall(Reason.TRUNCATED)
        yield
