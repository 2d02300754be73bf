"""The scanner's machine: where a marker counts, who reads what follows it, and what becomes of the text.

It decides where a marker counts: not in code, not in a reasoning section, not in the middle of a line if its dialect
says so. What follows a marker is read by the dialect's own parser (`Span`, `Reader`); what is not a complete call goes
back to the text. It knows no tool beyond its name and schema, and never raises on any text.

Complexity: plain text is passed over by one compiled expression; at most one cut-off marker is held. A span is read
once, by generators that keep their place. After a fault, reading goes on where the fault was found. Only a text that
might have been nothing but calls (`Candidate`) is read a second time. So time is linear in the input.
"""

import re

from mustcall.core.text.possessive import at_least_one
from mustcall.dialects.dialect import Opener
from mustcall.dialects.events import ScanEvent, ScannedText
from mustcall.dialects.names import Offered
from mustcall.dialects.reading.span import Indices
from mustcall.dialects.reasoning import PARAGRAPH_ENDS, QUOTATION_MARKS, Anchor
from mustcall.dialects.scanning.candidate import Candidate
from mustcall.dialects.scanning.code import Code, measure
from mustcall.dialects.scanning.dispatch import choose
from mustcall.dialects.scanning.effort import MARK, ScanEffort
from mustcall.dialects.scanning.grammar import TOKEN, Grammar, MarkerEntry, is_stray
from mustcall.dialects.scanning.spans import SpanScan
from mustcall.dialects.scanning.state import Alone, Sections

__all__ = ["Scan"]

# Inline code that is whole: in single ticks, over as many lines as its paragraph has.
_INLINE_CODE = re.compile("`" + at_least_one(r"[^`\n]++|\n(?=[^\S\n]*+\S)") + "`(?=[^`])")
_BARE_OPENERS = ("{", "[")
#: Characters of a text that are tried at first.
_FIRST_TRIED = 32
_MOST_TOKENS = 4
#: Blanks that are waited for behind a quoted marker which only counts with something behind it.
_MOST_BLANKS = 256


class Scan(SpanScan):
    """One scan. Its modes are functions that read on until they need more text, and say whether to go on.

    Modes are not bound to the scan, which would then outlive its last use.
    """

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
        super().__init__(
            grammar,
            offered,
            indices,
            sections=sections,
            in_reasoning=in_reasoning,
            effort=effort,
            alone=alone,
        )
        self._mode = Scan._prose if in_reasoning else Scan._beginning

    def feed(self, text: str) -> list[ScanEvent]:
        """Take the next piece of the reply; return what is certain now."""
        reader = self._reader
        if (
            self._mode is Scan._prose
            and text
            and not reader.buffer
            and self._gap is None
            and self._grammar.marks.is_plain(text)
        ):
            # Most pieces of most replies: plain text in plain text.
            self._lines.note(text)
            self._lookout.watch(text)
            return [ScannedText(text)]
        reader.buffer = reader.buffer + text if reader.buffer else text
        while self._mode(self):
            pass
        self._watch_said()
        if reader.position:
            reader.settle()
            self._candidate_at = None
        return self._take_events()

    def close(self) -> list[ScanEvent]:
        """End the reply; return what was held back."""
        self._reader.closed = True
        while self._mode(self):
            pass
        self._report_seen()
        if self._passed_lookout is not None:
            self._passed_lookout.close(self._events)
        return self._take_events()

    def _beginning(self) -> bool:
        """Read what only the very beginning of a reply may hold: tokens of the prompt, and the rest of its header."""
        reader, grammar = self._reader, self._grammar
        if reader.position == len(reader.buffer):
            return False
        marker = grammar.first.at(reader.buffer, reader.position, reader.closed)
        if marker == "":
            return False
        self._mode = Scan._prose
        if marker is None:
            return True
        openers = [pair for pair in grammar.entries[marker].openers if pair[1].anchor is Anchor.FIRST]
        if openers:
            self._open_span(marker, openers)
        else:
            self._effort.spend(MARK)
            self._skip(reader.position + len(marker))
            # What follows begins the reply, and its line.
            reader.settle()
            self._tokens += 1
            if self._tokens < _MOST_TOKENS:  # each one costs a copy of what follows
                self._mode = Scan._beginning
        return True

    def _prose(self) -> bool:
        reader = self._reader
        grammar = self._grammar
        marks = grammar.marks
        idle = grammar.closing if self._reads_sections else grammar.closing_or_sections
        # One character that is known to begin no marker; it is released with what follows.
        plain = 0
        while True:
            if self._effort.spent:
                self._flush_gap()
                self._mode = Scan._give_up
                return True
            if self._gap is not None and not self._read_gap(self._gap):
                return False
            buffer, position = reader.buffer, reader.position
            here = marks.at(buffer, position, reader.closed) if self._gap is not None else None
            at, marker = marks.find(buffer, position + plain, reader.closed) if here is None else (position, here)
            plain = 0
            while marker in idle and not self._closes(marker):
                at, marker = marks.find(buffer, at + 1, reader.closed)
            if at > position:
                self._flush_gap()
                self._say(self._skip(at))
            if not marker:
                if at == len(buffer):
                    return False
                if self._lines.blank or not self._grammar.is_lined(buffer[at:]):
                    return False
                self._flush_gap()
                plain = 1
                continue
            if marker == "`" and (inline := _INLINE_CODE.match(buffer, at)):
                self._flush_gap()
                self._say(self._skip(inline.end()), watch=False)
                self._effort.spend(MARK)
                continue
            stops = grammar.entries[marks.key(marker)].stops
            while marker:
                taken = self._meet(marker, grammar.entries[marks.key(marker)])
                if taken is not None:
                    return taken
                marker = marks.shorter(marker)
            if stops:
                self._effort.spend(MARK)
            self._flush_gap()
            plain = 1

    # Markers

    def _meet(self, marker: str, entry: MarkerEntry) -> bool | None:
        """Act on a marker; None if it is plain text here, False if more text is needed to know."""
        reader = self._reader
        openers = [pair for pair in entry.openers if self._is_opener(pair[1])]
        quotable = openers or entry.result or (entry.quotation and not self._lines.encloses)
        if quotable and self._is_quoted(marker):
            followed = self._is_followed(marker, entry)
            return self._meet_quoted(marker) if followed else followed
        if entry.result:
            return self._meet_result(marker, (entry.result,), ("\n",))
        if entry.quotation and not (marker in QUOTATION_MARKS and self._lines.tight):
            return self._meet_result(marker, entry.quotation, PARAGRAPH_ENDS)
        if openers:
            meant = openers if self._inner_reading else choose(reader, marker, openers)
            if meant is None:
                return False
            if not self._inner_reading and meant[0][1].alone:
                self._begin_candidate()
            else:
                self._open_span(marker, meant)
            return True
        if entry.code:
            return self._meet_code(marker)
        end = reader.position + len(marker)
        section = entry.section if self._reads_sections else None
        if section is not None and self._in_place(max(section.anchor, section.opens)):
            self._begin_section(section, end)
            return True
        if section is not None:
            self._mentioned.update(section.closers)
        if entry.closer and self._closes(marker):
            self._owed.discard(marker)
            self._drop_marker(end)
            return True
        if self._reads_sections and entry.late:
            ended = self._meet_late_end(marker)
            if ended is not None:
                return ended
        control = entry.control
        if control is not None and (not control.after_reasoning or (self._gap is not None and not self._gap_is_text)):
            if control.closer:
                self._owed.add(control.closer)
            self._drop_marker(end)
            return True
        return self._meet_stray(marker, end) if entry.closer and is_stray(marker) else None

    def _meet_stray(self, marker: str, end: int) -> bool | None:
        """Take out the end of a call that never began: a token, or a tag that ends its line; prose about one stays."""
        reader = self._reader
        if marker in self._mentioned or self._keeps_markup:
            return None
        if TOKEN.match(marker) is None:
            if not (self._lines.blank or self._lines.tight or self._gap is not None):
                return None
            if end == len(reader.buffer) and not reader.closed:
                return False
            if reader.buffer[end : end + 1] not in ("", "\r", "\n", "<"):
                return None
        self._drop_marker(end)
        return True

    def _is_quoted(self, marker: str) -> bool:
        """Tell whether a marker is quoted; fences are indented in lists, too."""
        quoted = self._lines.quotes or (self._lines.is_code and marker[0] not in "`~")
        return quoted and not any("\n" in blank for blank in self._gap or ())

    def _is_followed(self, marker: str, entry: MarkerEntry) -> bool | None:
        """Tell whether what a marker needs stands behind it: False if more text must tell, None if it does not."""
        if not entry.follow:
            return True
        reader = self._reader
        end = reader.position + len(marker)
        behind = reader.buffer[end : end + _MOST_BLANKS]
        if not reader.closed and len(behind) < _MOST_BLANKS and not behind.strip():
            return False
        return entry.is_followed(behind) or None

    def _closes(self, marker: str) -> bool:
        """Tell whether a closer is owed, or repeats the one of the call that stands right before it."""
        return marker in self._owed or (self._gap is not None and marker in self._spare)

    def _is_opener(self, opener: Opener) -> bool:
        """Tell whether an opener counts here; one that must stand alone counts behind a lead-in only (rule 63)."""
        if not self._in_place(opener.anchor) or (self._unopened and opener.soft):
            return False
        return not opener.alone or self._inner_reading or self._may_stand_alone()

    def _may_stand_alone(self) -> bool:
        """Tell whether what begins here is a call if nothing else follows; under a force that is not asked."""
        if self._given_back or self._effort.spent_on_bare_forms:
            return False  # it was read as calls already and is none, or too much was
        if self._alone is Alone.ANYWHERE:
            return not self._keeps_markup
        if self._alone is Alone.NEVER or self._accompanied or not self._lines.leads:
            return False
        if self._shown is not None:  # asked once: from then on it is text
            self._accompanied = self._shown()
            self._shown = None
        return not self._accompanied

    def _in_place(self, anchor: Anchor) -> bool:
        match anchor:
            case Anchor.ANYWHERE:
                return True
            case Anchor.LINE:
                return self._lines.blank
            case Anchor.BARE:
                return self._lines.bare
            case Anchor.START:
                return self._lines.fresh
            case Anchor.FIRST:
                return False

    def _drop_marker(self, end: int) -> None:
        """Take a token out of the text; blanks between it and markup before it go along."""
        self._effort.spend(MARK)
        text = self._skip(end)
        if self._keeps_markup:
            self._flush_gap()
            self._say(text)
        elif self._gap is None:
            self._open_gap(is_text=True)
        else:
            self._gap.clear()

    def _meet_code(self, marker: str) -> bool:
        size = measure(self._reader, marker[0])
        if not size:
            return False
        fenced = size >= 3 and self._lines.blank
        if fenced and not self._inner_reading and self._may_stand_alone():
            self._begin_candidate(fenced=True)
            return True
        self._effort.spend(MARK)
        self._flush_gap()
        self._say(self._skip(self._reader.position + size), watch=False)
        if fenced or marker[0] == "`":
            self._enter_code(Code(marker[0], size, fenced=fenced))
        return True

    # Calls that are the reply

    def _fork(self) -> "Scan":
        """Return a scan of the text from here on in which calls count at once."""
        return Scan(
            self._grammar,
            self._offered,
            self._indices.copy(),
            sections=self._sections,
            effort=self._effort.copy(),
            alone=Alone.INNER,
        )

    def _to_prose(self) -> None:
        self._mode = Scan._prose

    def _inner_scan(self) -> "Scan":
        return Scan(
            self._grammar,
            self._offered,
            self._indices,
            sections=Sections.UNREAD,
            in_reasoning=True,
            effort=self._effort,
        )

    def _begin_candidate(self, *, fenced: bool = False) -> None:
        self._candidate = Candidate(self._fork(), at_once=self._alone is Alone.ANYWHERE, fenced=fenced)
        self._candidate_at = self._reader.position
        self._mode = Scan._in_candidate

    def _in_candidate(self) -> bool:
        """Hold the text while it may be nothing but calls; the first thing that is none gives it back.

        What is given back is read once more, as prose or code, and the next fence or object may be tried again. So that
        this is linear, a text is tried in pieces that grow with it, and those that were no calls are counted.
        """
        candidate, reader = self._candidate, self._reader
        assert candidate is not None
        end = min(len(reader.buffer), reader.position + max(_FIRST_TRIED, candidate.size))
        fits = candidate.feed(self._skip(end), closed=reader.closed and end == len(reader.buffer))
        if fits and end < len(reader.buffer):
            return True
        if fits and (candidate.certain or (reader.closed and candidate.called)):
            if not self._called:
                self._report_seen()
                self._flush_gap()
            self._called = True
            self._events += candidate.take_events()
            self._ended_open = candidate.scan.ended_open
            return False
        if fits and not reader.closed:
            return False
        self._candidate = None
        # A call that something followed: the reply shows calls, it does not make them. What began like one and was
        # none says nothing, and whether it was tried depends on where the text was cut.
        self._accompanied = self._accompanied or (candidate.called and self._alone is not Alone.ANYWHERE)
        self._decline(candidate)
        if self._candidate_at is None:  # begun in an earlier piece
            self._give_back(candidate.text)
        else:
            reader.position = reader.start = self._candidate_at
        self._given_back = True
        self._mode = Scan._prose
        return True

    def _decline(self, candidate: Candidate) -> None:
        """Count what was tried and was no call; that a cut made a bracket look like one is no sign."""
        first = candidate.text[:1]
        bare = first in _BARE_OPENERS
        if candidate.called and (bare or self._alone is not Alone.ANYWHERE):
            return
        entry = self._grammar.entries.get(first)
        if not bare or (entry is not None and entry.is_followed(candidate.text[1:])):
            self._effort.decline()
            self._narrow()
