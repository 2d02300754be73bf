"""Where a line stands, and which text is code: markup inside code fences or inline code is never a call (rule 63).

Fences follow CommonMark with one leniency, any indentation, because models nest them in lists. Inline code ends with
as many ticks as began it, or with its paragraph: a lone tick is no code and must not hide what comes after.
"""

import re
from functools import lru_cache

from mustcall.core.text.possessive import any_number
from mustcall.dialects.leadin import LONGEST_LEAD_IN, is_lead_in
from mustcall.dialects.reading.reader import Reader

__all__ = ["Code", "Lines", "measure"]


# Both are bounded, so that what is held until a run's end is: ticks count 64 at a time, and a fence with more blanks
# behind it than these closes nothing.
_MOST_TICKS = 64
_TICKS_OR_LINE = re.compile(rf"`{{1,{_MOST_TICKS}}}+|\n")
_MOST_BLANKS = 256
_LINE_REST = re.compile(rf"[ \t\r]{{0,{_MOST_BLANKS}}}+")


_QUOTES = frozenset("\"'\N{LEFT DOUBLE QUOTATION MARK}\N{LEFT SINGLE QUOTATION MARK}„«「")


# What begins a line that quotes or comments: a Markdown quotation, a table's row, a comment; `//` does, too.
_QUOTING = frozenset(">|#")
# Columns by which code is indented.
_CODE_INDENT = 4


# A lead-in may have blank lines behind it.
_LONGEST_LEAD = LONGEST_LEAD_IN + 64
# What may indent a line: the blanks that separate markup, and no others.
_BLANKS = " \t\r\n"


class Lines:
    """Whether only blanks precede on the current line, whether the reply has only just begun, and what is quoted."""

    __slots__ = (
        "_before",
        "_code",
        "_head",
        "_indent",
        "_last",
        "_lead",
        "_prior",
        "_within",
        "_written",
        "blank",
        "fresh",
    )

    def __init__(self) -> None:
        self.blank = True
        self.fresh = True
        # The last character, the first two of the line that are not blank, and the blanks before them.
        self._last = self._head = self._indent = ""
        # Whether the line before this one is blank, or indented code, and whether this one is such code.
        self._prior = self._code = False
        # The last two pieces that were not blank: enough to find the last two characters that are not.
        self._before = self._written = ""
        # All text since the beginning while it may still be a lead-in, None once it is too long for one.
        self._lead: str | None = ""
        # Whether more of the same line changes nothing about the line.
        self._within = False

    @property
    def leads(self) -> bool:
        """Whether all text so far is at most a lead-in to a call (rule 63)."""
        return self._lead is not None and is_lead_in(self._lead)

    @property
    def bare(self) -> bool:
        """Whether a line begins here, and what stands before it is no JSON or list that goes on."""
        if self.fresh:
            return True
        if self._last != "\n":
            return False
        before = (self._before + self._written).rstrip()
        return not (before.endswith(("[", "{", "(", ",")) or (before[-1:] == ":" and before[:-1].rstrip()[-1:] == '"'))

    @property
    def quotes(self) -> bool:
        """Whether what comes next is quoted: by its line (a quotation, comment or table) or a quotation mark."""
        return self._head[:1] in _QUOTING or self._head == "//" or self._last in _QUOTES

    @property
    def encloses(self) -> bool:
        """Whether what comes next is quoted as a whole: right behind an opening quotation mark, or as indented code."""
        return self._last in _QUOTES or self.is_code

    @property
    def tight(self) -> bool:
        """Whether what comes next stands right behind a word or a sentence, without a blank."""
        last = self._last
        return not (last.isspace() or last in _QUOTES or last == "")

    @property
    def is_code(self) -> bool:
        """Whether the line is indented code: behind text, a blank line, and four columns or more."""
        return self._begins_code if self.blank else self._code

    @property
    def _begins_code(self) -> bool:
        return self._prior and not self.fresh and _is_indented(self._indent)

    def note(self, text: str) -> None:
        """Take released text into account; it is not empty."""
        if self._within and "\n" not in text:
            self._last = text[-1]
            if not text.isspace():
                self._before, self._written = self._written, text
            if self._lead is not None:
                self._lead = self._lead + text if len(self._lead) + len(text) <= _LONGEST_LEAD else None
            return
        line = text.rfind("\n") + 1
        if line:
            self._prior = self._ends_in_code(text, line - 1)
            # What stands on the lines before this one, if it came in the same piece.
            self.fresh = self.fresh and not text[:line].strip(_BLANKS)
            self._indent, self.blank = "", True
        if self.blank:
            rest = text[line:]
            written = rest.lstrip(_BLANKS)
            if len(written) < len(rest) and len(self._indent) < _CODE_INDENT:
                self._indent = (self._indent + rest[: len(rest) - len(written)])[:_CODE_INDENT]
            self.blank = not written
            self._head = written[:2]
            self._code = bool(written) and self._begins_code
        elif len(self._head) == 1:
            self._head += text[0]
        if self.fresh and not (self.blank and not text.strip(_BLANKS)):
            self.fresh = False
        self._last = text[-1]
        if self._lead is not None:
            self._lead = self._lead + text if len(self._lead) + len(text) <= _LONGEST_LEAD else None
        if not text.isspace():
            self._before, self._written = self._written, text
        self._within = not self.blank and len(self._head) > 1 and not self.fresh

    def _ends_in_code(self, text: str, end: int) -> bool:
        """Tell whether the line that ends here is blank or indented code: behind text, a blank line and such lines."""
        indented = False
        while True:
            start = text.rfind("\n", 0, end) + 1
            if not start:
                break
            line = text[start:end]
            if not line.strip(_BLANKS):
                return not indented or not self.fresh or bool(text[:start].strip(_BLANKS))
            if not _is_indented(line):
                return False
            indented = True
            end = start - 1
        if not self.blank:
            return self._code
        line = self._indent + text[:end]
        if not line.strip(_BLANKS):
            return not indented or not self.fresh
        return self._prior and not self.fresh and _is_indented(line)

    def begin(self) -> None:
        """Begin anew: what came before was markup."""
        self.blank = self.fresh = True
        self._last = self._head = self._indent = ""
        self._prior = self._code = self._within = False
        self._lead = ""


def _is_indented(line: str) -> bool:
    """Tell whether a line that begins so is indented as code is."""
    return line.startswith("    ") or "\t" in line[: len(line) - len(line.lstrip(" \t"))][:_CODE_INDENT]


def measure(reader: Reader, character: str) -> int:
    """Return how many of this character come next, at most 64, or 0 if the text ends before it can be told."""
    run = reader.buffer[reader.position : reader.position + _MOST_TICKS]
    size = len(run) - len(run.lstrip(character))
    ends = reader.position + size == len(reader.buffer)
    return 0 if ends and size < _MOST_TICKS and not reader.closed else size


@lru_cache(maxsize=_MOST_TICKS)
def _inside_inline(size: int) -> re.Pattern[str]:
    """Return what certainly goes on inside inline code: text, ticks of another number, newlines within a paragraph."""
    # A full count of ticks is a run of its own, whatever follows it.
    ends = "" if size == _MOST_TICKS else "(?!`)"
    other_run = rf"(?!`{{{size}}}{ends})`{{1,{_MOST_TICKS}}}+(?!\Z)"
    return re.compile(any_number(rf"[^`\n]++|{other_run}|\n(?=[^\S\n]*+\S)"))


@lru_cache(maxsize=2 * _MOST_TICKS)
def _fence_runs(character: str, size: int) -> re.Pattern[str]:
    """Return what may end a fence: a run of its character that is long enough, or that the text's end cuts off."""
    return re.compile(rf"{character}{{{size}}}|{character}++\Z")


class Code:
    """A stretch of code whose opening ticks or fence were read.

    `doubtful` holds the text of inline code as long as its closing ticks have not come: without them it was no code.
    """

    __slots__ = ("_character", "_first_line", "_read", "_size", "doubtful")

    def __init__(self, character: str, size: int, *, fenced: bool, first_line: bool = True) -> None:
        self._character = character
        self._size = size
        self._first_line = first_line
        self._read = self._fenced if fenced else self._inline
        self.doubtful: list[str] | None = None if fenced else []

    def read(self, reader: Reader, lines: Lines) -> tuple[str, bool]:
        """Read what can be told; return it, and whether the code ends there."""
        begin = reader.position
        over = self._read(reader, lines)
        text = reader.buffer[begin : reader.position]
        if self.doubtful is not None:
            self.doubtful.append(text)
        return text, over

    @staticmethod
    def _to(end: int, reader: Reader, lines: Lines) -> None:
        if end > reader.position:
            lines.note(reader.buffer[reader.position : end])
            reader.position = end

    def _inline(self, reader: Reader, lines: Lines) -> bool:
        buffer = reader.buffer
        inside = _inside_inline(self._size)
        while True:
            if not lines.blank and (skipped := inside.match(buffer, reader.position)):
                self._to(skipped.end(), reader, lines)
            found = _TICKS_OR_LINE.search(buffer, reader.position)
            self._to(found.start() if found else len(buffer), reader, lines)
            if found is None:
                return False
            if found.group() == "\n":
                over = lines.blank
            elif found.end() == len(buffer) and not reader.closed and len(found.group()) < _MOST_TICKS:
                return False
            else:
                over = found.end() - found.start() == self._size
                if over:
                    self.doubtful = None
            self._to(found.end(), reader, lines)
            if over:
                return True

    def _fenced(self, reader: Reader, lines: Lines) -> bool:
        """A line of at least as many fence characters ends it; so does a run of them in the first line."""
        buffer = reader.buffer
        runs = _fence_runs(self._character, self._size)
        while True:
            found = runs.search(buffer, reader.position)
            at = found.start() if found is not None else -1
            end = at if at >= 0 else len(buffer)
            if self._first_line and buffer.find("\n", reader.position, end) >= 0:
                self._first_line = False
            self._to(end, reader, lines)
            if at < 0:
                return False
            size = measure(reader, self._character)
            if not size:
                return False
            end = at + size
            over = size >= self._size and (lines.blank or self._first_line)
            if over and not self._first_line:
                rest = _LINE_REST.match(buffer, end)
                assert rest is not None
                if rest.end() == len(buffer) and not reader.closed and rest.end() - end < _MOST_BLANKS:
                    return False
                over = buffer[rest.end() : rest.end() + 1] in ("\n", "") and rest.end() - end < _MOST_BLANKS
            self._to(end, reader, lines)
            if over:
                return True
