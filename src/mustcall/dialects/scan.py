"""The scanner's machine: where a marker counts, who reads what follows it, and what becomes of the text.

It decides where a marker counts: not in code, not in a reasoning section, not in the middle of a line if its dialect
says so. What follows a marker is read by the dialect's own parser (`Span`, `Reader`); what is not a complete call goes
back to the text. It knows no tool beyond its name and schema, and never raises on any text.

Complexity: plain text is passed over by one compiled expression; at most one cut-off marker is held. A span is read
once, by generators that keep their place. After a fault, reading goes on where the fault was found. Only a text that
might have been nothing but calls (`Candidate`) is read a second time. So time is linear in the input.
"""

import re

from mustcall.dialects.anchored import Lookout
from mustcall.dialects.candidate import Candidate
from mustcall.dialects.code import Code, measure
from mustcall.dialects.damage import damage_of
from mustcall.dialects.dialect import Dialect, Opener
from mustcall.dialects.dispatch import dispatch
from mustcall.dialects.effort import MARK, SECTION, Effort
from mustcall.dialects.events import LateReasoningEnd, Reasoning, ScanEvent, Text
from mustcall.dialects.grammar import Entry, Grammar, marks_of
from mustcall.dialects.names import Offered
from mustcall.dialects.reader import Fault
from mustcall.dialects.reasoning import PARAGRAPH_ENDS, Anchor, Section
from mustcall.dialects.scan_state import Alone, ScanState
from mustcall.dialects.span import Indices, Span

__all__ = ["Scan"]

# Inline code that is whole: in single ticks, over as many lines as its paragraph has.
_INLINE_CODE = re.compile(r"`(?:[^`\n]++|\n(?=[^\S\n]*+\S))++`(?=[^`])")
_BARE_OPENERS = ("{", "[")
_MOST_WRAPPERS = 4
#: Characters of a text that are tried at first.
_FIRST_TRIED = 32
_MOST_TOKENS = 4


class Scan(ScanState):
    """One scan. Its modes are functions that read on until they need more text, and say whether to go on.

    Modes are not bound to the scan, which would then outlive its last use.
    """

    def __init__(
        self,
        grammar: Grammar,
        offered: Offered,
        indices: Indices,
        *,
        sections: bool,
        in_reasoning: bool = False,
        effort: Effort | None = None,
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
        self._inner: Scan | None = None

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
            return [Text(text)]
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

    def _meet(self, marker: str, entry: Entry) -> bool | None:
        """Act on a marker; None if it is plain text here, False if more text is needed to know."""
        reader = self._reader
        openers = [pair for pair in entry.openers if self._is_opener(pair[1])]
        quotable = openers or entry.result or entry.quotation
        if quotable and self._lines.quotes and not any("\n" in blank for blank in self._gap or ()):
            # Quoted markup is no call; neither is what stands in it (rule 122).
            self._effort.spend(MARK)
            self._flush_gap()
            self._pass_over(("\n",))
            return True
        if entry.result:
            return self._meet_result(marker, (entry.result,), ("\n",))
        if entry.quotation:
            return self._meet_result(marker, entry.quotation, PARAGRAPH_ENDS)
        if openers:
            if not self._inner_reading and all(opener.alone for _, opener in openers):
                self._begin_candidate()
            else:
                self._open_span(marker, openers)
            return True
        if entry.code:
            return self._meet_code(marker)
        end = reader.position + len(marker)
        section = entry.section if self._reads_sections else None
        if section is not None and self._in_place(max(section.anchor, section.opens)):
            self._flush_gap()
            self._skip(end)
            self._enter(section)
            return True
        if section is not None:
            self._mentioned.update(section.closers)
        if entry.closer and self._closes(marker):
            self._owed.discard(marker)
            self._drop_marker(end)
            return True
        if self._reads_sections and entry.late and self._ends_late(marker):
            if not self._section_seen and not self._called:
                self._report_seen()
                self._events.append(LateReasoningEnd())
            self._section_seen = True
            self._effort.spend(MARK)
            self._after_reasoning(end)
            return True
        control = entry.control
        if control is not None and (not control.after_reasoning or (self._gap is not None and not self._gap_is_text)):
            if control.closer:
                self._owed.add(control.closer)
            self._drop_marker(end)
            return True
        return None

    def _closes(self, marker: str) -> bool:
        """Tell whether a closer is owed, or repeats the one of the call that stands right before it."""
        return marker in self._owed or (self._gap is not None and marker in self._spare)

    def _meet_result(self, marker: str, closers: tuple[str, ...], ends: tuple[str, ...]) -> bool:
        """Pass over a tool's result or quoted HTML. In mid-line its marker may be a mere mention, which ends sooner."""
        reader = self._reader
        end = reader.position + len(marker)
        mentioned = self._gap is None and not self._lines.blank
        if mentioned and end == len(reader.buffer) and not reader.closed:
            return False
        mentioned = mentioned and reader.buffer[end : end + 1] not in ("\r", "\n")
        self._effort.spend(MARK)
        self._flush_gap()
        self._pass_over((*closers, *ends) if mentioned else closers, lookout=self._new_lookout())
        return True

    def _ends_late(self, marker: str) -> bool:
        """Tell whether a section's end without a start is one, and not prose about tags."""
        if self._lines.blank:
            self._mentioned.discard(marker)
            return True
        return self._lines.tight and marker not in self._mentioned and not self._called

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

    def _enter_code(self, code: Code) -> None:
        self._code = code
        self._mode = Scan._in_code

    def _in_code(self) -> bool:
        code, reader = self._code, self._reader
        assert code is not None
        text, over = code.read(reader, self._lines)
        reader.start = reader.position
        if text:
            self._events.append(Text(text))
        if over:
            self._mode = Scan._prose
        if code.doubtful and (over or reader.closed):
            # The ticks never closed, so it was no code. Nothing is read out of it, but a call in it is seen.
            self._unwatched += code.doubtful
        return over

    # Calls that are the reply

    def _fork(self) -> "Scan":
        """Return a scan of the text from here on in which calls count at once."""
        return Scan(
            self._grammar,
            self._offered,
            self._indices.copy(),
            sections=self._reads_sections,
            effort=self._effort.copy(),
            alone=Alone.INNER,
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

    # Spans

    def _open_span(self, marker: str, openers: list[tuple[Dialect, Opener]]) -> None:
        reader = self._reader
        gap = "".join(self._gap) if self._gap is not None else ""
        self._span = span = Span(
            reader,
            self._events,
            self._offered,
            self._indices,
            self._effort,
            marker=marker,
            gap=gap if self._gap_is_text else "",
            lines=self._lines,
            in_reasoning=self._keeps_markup,
            harden=self._report_seen,
        )
        self._gap_before_span, self._gap = self._gap, None
        self._given_back = False
        reader.start = reader.position
        reader.position += len(marker)
        span.dialect = span.opened_by = openers[0][0].name
        span.soft = all(opener.soft for _, opener in openers)
        if not span.soft:
            self._effort.spend(MARK)
            self._report_seen()
        self._parse = dispatch(span, openers, self._grammar, may_wrap=self._wrappers < _MOST_WRAPPERS)
        self._mode = Scan._in_span

    def _in_span(self) -> bool:
        span, parse = self._span, self._parse
        assert span is not None
        assert parse is not None
        try:
            next(parse)
        except StopIteration:
            self._end_span(span)
        except Fault as fault:
            self._fail_span(span, fault)
        else:
            self._reader.settle()
            if span.call is not None:
                span.call.flush()
            if span.flow:
                span.release()
            return False
        return True

    def _end_span(self, span: Span) -> None:
        self._span = self._parse = None
        self._mode = Scan._prose
        self._ended_open = span.open_ended
        self._called = self._called or span.succeeded
        if span.rejected:
            self._wrapping.clear()
        elif span.succeeded:
            self._owed |= span.owes | self._wrapping
            self._wrapping.clear()
        else:
            self._wrapping |= span.owes
        self._wrappers += span.wraps
        left = self._reader.take_span()
        if span.enters is not None and not self._keeps_markup:
            self._enter(span.enters)
            return
        if span.silences:
            self._pass_over(span.silences)
        if span.succeeded:
            self._wrappers = 0
            if not span.rejected:
                self._lines.begin()
                self._spare = frozenset(self._grammar.dialect_of(span.dialect, span.opened_by).closers)
            self._report_seen()
        if span.rejected:
            # What stands behind a call that stayed text is text, blanks included.
            self._wrappers = 0
            self._say(span.gap + left, watch=False)
        else:
            self._open_gap(span.gap + left, is_text=True)

    def _fail_span(self, span: Span, fault: Fault) -> None:
        """Give the span back to the text; report it unless it was ordinary text all along."""
        reader = self._reader
        reader.close_tap()
        self._span = self._parse = None
        self._mode = Scan._prose
        self._wrapping.clear()
        if span.soft:
            text = reader.take_span()
            fence = span.marker.startswith("```")
            behind = text[len(span.marker) :] + reader.buffer[reader.position : reader.position + 1]
            # Otherwise only a cut before what stands behind the marker made it look like a bare form.
            met = self._grammar.is_followed(span.marker, behind)
            if fence and not met and behind.strip():
                self._give_back(text)
                self._gap, self._unopened = self._gap_before_span, True
                return
            self._say(span.gap)
            self._say(text, watch=met or not fence)
            if met:
                self._effort.decline()
                self._narrow()
            if fence:
                self._effort.spend(MARK)
                self._enter_code(Code("`", 3, fenced=True, first_line="\n" not in text))
            return
        if span.succeeded and not span.rejected:
            self._owed |= span.owes
        self._called = self._called or span.succeeded
        self._wrappers = 0
        if span.call is not None:
            span.call.flush()
        self._report_seen()
        damage = damage_of(span, fault, self._grammar.dialect_of(span.dialect, span.opened_by))
        raw = span.reject(fault.reason)
        self._effort.fail()
        over = "\n\n" in damage.ends and raw[len(raw.rstrip()) :].count("\n") > 1
        if damage.ends and not over and not self._effort.spent:
            self._damage = damage
            self._mode = Scan._behind_fault

    def _behind_fault(self) -> bool:
        """Wait for the character behind a fault, which may tell that the text just goes on."""
        reader, damage = self._reader, self._damage
        if damage.spares_words and reader.position == len(reader.buffer):
            return False
        if damage.spares_words and reader.buffer[reader.position].isalpha():
            self._mode = Scan._prose
        else:
            self._pass_over(damage.ends, *damage.openers, lookout=self._new_lookout())
        return True

    def _decline(self, candidate: Candidate) -> None:
        """Count what was tried and was no call; that a cut made a bracket look like one is no sign."""
        first = candidate.text[:1]
        bare = first in _BARE_OPENERS
        if candidate.called and (bare or self._alone is not Alone.ANYWHERE):
            return
        if not bare or (first in self._grammar.entries and self._grammar.is_followed(first, candidate.text[1:])):
            self._effort.decline()
            self._narrow()

    def _narrow(self) -> None:
        if self._effort.spent_on_bare_forms:
            self._grammar = self._grammar.without_soft

    def _give_up(self) -> bool:
        """Release everything: who wrote so much markup is not calling tools."""
        self._say(self._skip(len(self._reader.buffer)))
        return False

    def _pass_over(self, closers: tuple[str, ...], *openers: str, lookout: Lookout | None = None) -> None:
        """Pass over text up to one of these. What the lookout sees there is reported unless its own closer comes."""
        self._passed_lookout = lookout
        self._passed_closers = closers
        self._passed = marks_of(*sorted({*closers, *openers}))
        self._mode = Scan._passing

    def _passing(self) -> bool:
        """Pass over text that no call may be read out of: quoted markup, or the rest of a malformed call.

        The latter may be the inside of a damaged argument. It goes up to its closer, or a new opener of its dialect.
        """
        reader = self._reader
        at, marker = self._passed.find(reader.buffer, reader.position, reader.closed)
        text = self._skip(at)
        self._say(text, watch=False)
        lookout = self._passed_lookout
        if lookout is not None and text:
            lookout.watch(text)
        if not marker:
            return False
        entry = self._grammar.entries.get(marker)
        closed = marker in self._passed_closers
        if lookout is not None and not (closed and marker.strip()):
            lookout.close(self._events)
        self._passed_lookout = None
        if closed and (entry is None or entry.control is None):
            self._say(self._skip(at + len(marker)), watch=False)
        self._mode = Scan._prose
        return True

    # Reasoning

    def _enter(self, section: Section) -> None:
        self._section = section
        self._section_seen = True
        self._effort.spend(SECTION)
        self._report_seen()
        self._inner = Scan(
            self._grammar, self._offered, self._indices, sections=False, in_reasoning=True, effort=self._effort
        )
        self._mode = Scan._in_section

    def _in_section(self) -> bool:
        """Pass reasoning on; its closer ends it whatever the text inside looks like."""
        reader, section, inner = self._reader, self._section, self._inner
        assert section is not None
        assert inner is not None
        at, marker = marks_of(*section.closers).find(reader.buffer, reader.position, reader.closed)
        if at > reader.position:
            self._pass_on(inner.feed(self._skip(at)))
        if marker:
            self._pass_on(inner.close())
            self._section = self._inner = None
            self._after_reasoning(at + len(marker))
            return True
        if reader.closed:
            self._pass_on(inner.close())
        return False

    def _pass_on(self, events: list[ScanEvent]) -> None:
        self._events.extend(Reasoning(event.text) if isinstance(event, Text) else event for event in events)

    def _after_reasoning(self, end: int) -> None:
        self._skip(end)
        self._narrow()
        self._lines.begin()
        self._mode = Scan._prose
        self._open_gap(is_text=False)
