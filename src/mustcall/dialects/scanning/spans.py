"""Markup while it is read: who reads what follows a marker, and what becomes of it.

What follows a marker is read by the dialect's own parser (`Span`, `Reader`); what is not a complete call goes back to
the text. After a fault, reading goes on where the fault was found.
"""

from mustcall.dialects.dialect import Dialect, Opener
from mustcall.dialects.events import Reason
from mustcall.dialects.reading.reader import NotACall
from mustcall.dialects.reading.span import Span
from mustcall.dialects.scanning.code import Code
from mustcall.dialects.scanning.damage import damage_of
from mustcall.dialects.scanning.dispatch import dispatch
from mustcall.dialects.scanning.effort import MARK
from mustcall.dialects.scanning.sections import SectionScan

__all__ = ["SpanScan"]

_MOST_WRAPPERS = 4


class SpanScan(SectionScan):
    """The modes that read markup."""

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
        self._mode = SpanScan._in_span

    def _in_span(self) -> bool:
        span, parse = self._span, self._parse
        assert span is not None
        assert parse is not None
        try:
            next(parse)
        except StopIteration:
            self._end_span(span)
        except NotACall as fault:
            self._fail_span(span, fault)
        else:
            self._reader.settle()
            if span.call is not None:
                span.call.flush()
            return False
        return True

    def _end_span(self, span: Span) -> None:
        self._span = self._parse = None
        self._to_prose()
        self._ended_open = span.open_ended
        self._called = self._called or span.succeeded
        if span.rejected:
            self._wrapping.clear()
            self._mentioned.update(self._grammar.closers_of(span.marker))
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

    def _fail_span(self, span: Span, fault: NotACall) -> None:
        """Give the span back to the text; report it unless it was ordinary text all along."""
        reader = self._reader
        reader.close_tap()
        self._span = self._parse = None
        self._to_prose()
        self._wrapping.clear()
        if span.soft:
            text = reader.take_span()
            fence = span.marker.startswith("```")
            behind = text[len(span.marker) :] + reader.buffer[reader.position : reader.position + 1]
            # Otherwise only a cut before what stands behind the marker made it look like a bare form.
            met = self._grammar.entries[span.marker].is_followed(behind)
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
        if self._is_framing(span, fault):
            text = reader.take_span()
            self._open_gap(span.gap, is_text=True)
            self._give_back(text[len(span.marker) :])
            return
        self._mentioned.update(self._grammar.closers_of(span.marker))
        if span.call is not None:
            span.call.flush()
        self._report_seen()
        damage = damage_of(span, fault, self._grammar.dialect_of(span.dialect, span.opened_by))
        raw = span.reject(fault.reason)
        self._effort.fail()
        over = "\n\n" in damage.ends and raw[len(raw.rstrip()) :].count("\n") > 1
        if damage.ends and not over and not self._effort.spent:
            self._damage = damage
            self._mode = SpanScan._behind_fault

    def _is_framing(self, span: Span, fault: NotACall) -> bool:
        """Tell whether a span is no more than a token that frames messages, and text: the token is never text."""
        if self._keeps_markup or not self._grammar.is_control(span.marker):
            return False
        reader = self._reader
        ends = len(span.marker) == sum(map(len, reader.raw)) + reader.position - reader.start
        return fault.reason is Reason.STRAY_MARKER or (fault.reason is Reason.TRUNCATED and ends)

    def _behind_fault(self) -> bool:
        """Wait for the character behind a fault, which may tell that the text just goes on."""
        reader, damage = self._reader, self._damage
        if damage.spares_words and reader.position == len(reader.buffer):
            return False
        if damage.spares_words and reader.buffer[reader.position].isalpha():
            self._to_prose()
        else:
            self._pass_over(damage.ends, *damage.openers, lookout=self._new_lookout())
        return True
