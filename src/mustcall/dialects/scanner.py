"""Finds tool calls in text while it streams, in many dialects at once.

    feed(text) -> events      close() -> events

The scanner decides where a marker counts: not in code, not in a reasoning section, not in the middle of a line if its
dialect says so. What follows a marker is read by the dialect's own parser (`Span`, `Reader`); what is not a complete
call goes back to the text. It knows no tool beyond its name and schema, and never raises on any text.

Complexity: plain text is passed over by one compiled expression; at most one cut-off marker is held. A span is read
once, by generators that keep their place. After a fault, reading goes on where the fault was found: nothing is read
twice. So time is linear in the input and the cost of a piece does not depend on what came before.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Literal

from mustcall.core.tools import Tool
from mustcall.dialects.anchored import Lookout
from mustcall.dialects.catalogue import select
from mustcall.dialects.dialect import A_NAME, Dialect, Opener
from mustcall.dialects.events import LateReasoningEnd, Reason, Reasoning, ScanEvent, Text
from mustcall.dialects.grammar import Entry, Grammar, compile_grammar, marks_of
from mustcall.dialects.names import Offered
from mustcall.dialects.reader import BLANKS, Fault, Parse, Reader, blanks
from mustcall.dialects.reasoning import THINK, Anchor, Section
from mustcall.dialects.span import Span

__all__ = ["Scanner"]

_TICKS = re.compile(r"`++")
_TICKS_OR_LINE = re.compile(r"`++|\n")
_UNPOISONED = (Reason.STRAY_MARKER, Reason.TRUNCATED)


class Scanner:
    """One scan of one reply.

    `dialects` is `"auto"` (every unambiguous one) or the ones to look for, by name or as values of your own.
    `tools` are the ones on offer; None means that every name counts. `loose` admits the formats that need the
    prompt protocol to be trusted (rule 64). `reasoning` says who separates it: `"marked"` - the markers in the
    text do; `"opened"` - so they do, and the prompt opened a section; `"separated"` - the upstream already did.
    """

    def __init__(
        self,
        *,
        dialects: Literal["auto"] | Iterable[str | Dialect] = "auto",
        tools: Iterable[Tool] | None = None,
        loose: bool = False,
        reasoning: Literal["marked", "opened", "separated"] = "marked",
    ) -> None:
        offered = Offered(tools)
        chosen = select(dialects, loose=loose)
        self._chosen = chosen
        self._setup(
            compile_grammar(chosen, offered.names, reasoning != "separated"),
            offered,
            itertools.count(),
            keep_markup=False,
        )
        if reasoning == "opened":
            self._enter(THINK)

    def _setup(self, grammar: Grammar, offered: Offered, indices: Iterator[int], *, keep_markup: bool) -> None:
        self._grammar = grammar
        self._offered = offered
        self._indices = indices
        self._keep_markup = keep_markup
        self._reader = Reader()
        self._events: list[ScanEvent] = []
        self._lookout = Lookout(offered, in_reasoning=keep_markup)
        self._mode = self._prose
        self._line_blank = True
        self._fresh = True
        self._gap: list[str] | None = None
        self._gap_is_text = False
        self._owed: set[str] = set()
        self._span: Span | None = None
        self._parse: Parse[None] | None = None
        self._ticks = 0
        self._fence = "`"
        self._fence_info = False
        self._damage = marks_of("\n")
        self._damage_closers: tuple[str, ...] = ()
        self._section: Section | None = None
        self._seen_section = False
        self._inner: Scanner | None = None
        self.ended_open = False

    @property
    def in_reasoning(self) -> bool:
        """Whether the text stands in a reasoning section; after `close`, whether one was never closed."""
        return self._section is not None

    def feed(self, text: str) -> list[ScanEvent]:
        """Take the next piece of the reply; return what is certain now."""
        reader = self._reader
        reader.buffer = reader.buffer + text if reader.buffer else text
        while self._mode():
            pass
        if reader.position:
            reader.settle()
        events = self._events
        if events:
            self._rebind([])
        return events

    def close(self) -> list[ScanEvent]:
        """End the reply; return what was held back. `ended_open` tells if a last call's closing marker never came."""
        self._reader.closed = True
        while self._mode():
            pass
        self._lookout.close(self._events)
        events = self._events
        self._rebind([])
        return events

    def _rebind(self, events: list[ScanEvent]) -> None:
        self._events = events
        if self._span is not None:
            self._span.events = events

    # Plain text

    def _say(self, text: str, *, watch: bool = True) -> None:
        """Release text and keep track of lines."""
        if not text:
            return
        self._events.append(Text(text))
        line = text.rfind("\n")
        if line >= 0:
            self._line_blank = not text[line + 1 :].strip()
        elif self._line_blank:
            self._line_blank = not text.strip()
        if self._fresh and not (self._line_blank and not text.strip()):
            self._fresh = False
        if watch:
            self._lookout.watch(text)

    def _skip(self, end: int) -> str:
        """Read up to `end` and return what was read."""
        reader = self._reader
        text = reader.buffer[reader.position : end]
        reader.position = reader.start = end
        return text

    def _prose(self) -> bool:
        reader = self._reader
        if self._gap is not None and not self._read_gap(self._gap):
            return False
        buffer = reader.buffer
        while True:
            position = reader.position
            at, marker = self._grammar.marks.find(buffer, position, reader.closed)
            if at > position:
                self._flush_gap()
                self._say(self._skip(at))
            if not marker:
                if at == len(buffer):
                    return False
                if self._line_blank or buffer[at:] not in self._grammar.lined:
                    return False
                self._say(self._skip(at + 1))
                continue
            entry = self._grammar.entries[self._grammar.marks.key(marker)]
            taken = self._meet(marker, entry)
            if taken is not None:
                return taken
            self._flush_gap()
            self._say(self._skip(at + 1))

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
            self._say(text)

    def _open_gap(self, text: str = "", *, is_text: bool) -> None:
        if self._keep_markup:
            self._say(text)
            return
        self._gap = [text] if text else []
        self._gap_is_text = is_text

    # Markers

    def _meet(self, marker: str, entry: Entry) -> bool | None:
        """Act on a marker; None if it is plain text here, False if more text is needed to know."""
        reader = self._reader
        if entry.openers:
            openers = [pair for pair in entry.openers if self._in_place(pair[1].anchor)]
            if openers:
                self._open_span(marker, openers)
                return True
        if entry.code:
            return self._meet_code(marker)
        end = reader.position + len(marker)
        if entry.section is not None and self._in_place(entry.section.anchor):
            self._flush_gap()
            self._skip(end)
            self._enter(entry.section)
            return True
        if entry.closer and marker in self._owed:
            self._owed.discard(marker)
            self._drop_marker(end)
            return True
        if entry.late and self._line_blank:
            if not self._seen_section:
                self._lookout.close(self._events)
                self._events.append(LateReasoningEnd())
            self._seen_section = True
            self._after_reasoning(end)
            return True
        control = entry.control
        if control is not None and (not control.after_reasoning or (self._gap is not None and not self._gap_is_text)):
            if control.closer:
                self._owed.add(control.closer)
            self._drop_marker(end)
            return True
        return None

    def _in_place(self, anchor: Anchor) -> bool:
        match anchor:
            case Anchor.ANYWHERE:
                return True
            case Anchor.LINE:
                return self._line_blank
            case Anchor.START:
                return self._fresh

    def _drop_marker(self, end: int) -> None:
        """Take a token out of the text; the gap around it stays a gap."""
        if self._keep_markup:
            self._say(self._skip(end))
        else:
            self._skip(end)

    def _meet_code(self, marker: str) -> bool:
        reader = self._reader
        if marker == "~~~":
            if not self._line_blank:
                self._flush_gap()
                self._say(self._skip(reader.position + 3))
                return True
            size = 3
        else:
            run = _TICKS.match(reader.buffer, reader.position)
            assert run is not None
            if run.end() == len(reader.buffer) and not reader.closed:
                return False
            size = run.end() - reader.position
        self._flush_gap()
        fenced = size >= 3 and self._line_blank
        self._say(self._skip(reader.position + size), watch=False)
        self._ticks = size
        if fenced:
            self._enter_fence(marker[0], size)
        else:
            self._mode = self._inline_code
        return True

    # Code

    def _inline_code(self) -> bool:
        """Pass over inline code: up to as many ticks as opened it, or to the end of the paragraph."""
        reader = self._reader
        while True:
            found = _TICKS_OR_LINE.search(reader.buffer, reader.position)
            if found is None:
                self._say(self._skip(len(reader.buffer)), watch=False)
                return False
            if found.group() == "\n":
                self._say(self._skip(found.start()), watch=False)
                ended = self._line_blank
                self._say(self._skip(found.end()), watch=False)
            else:
                if found.end() == len(reader.buffer) and not reader.closed:
                    self._say(self._skip(found.start()), watch=False)
                    return False
                ended = found.end() - found.start() == self._ticks
                self._say(self._skip(found.end()), watch=False)
            if ended:
                self._mode = self._prose
                return True

    def _enter_fence(self, character: str, size: int) -> None:
        self._fence = character
        self._ticks = size
        self._fence_info = True
        self._mode = self._fenced_code

    def _fenced_code(self) -> bool:
        """Pass over fenced code: up to a line of at least as many fence characters, or a run of them in line one."""
        reader = self._reader
        while True:
            buffer = reader.buffer
            at = buffer.find(self._fence, reader.position)
            if self._fence_info:
                line = buffer.find("\n", reader.position, at if at >= 0 else len(buffer))
                self._fence_info = line < 0
            if at < 0:
                self._say(self._skip(len(buffer)), watch=False)
                return False
            self._say(self._skip(at), watch=False)
            end = at
            while end < len(buffer) and buffer[end] == self._fence:
                end += 1
            if end == len(buffer) and not reader.closed and end - at < 4096:
                return False
            closing = end - at >= self._ticks and (self._line_blank or self._fence_info)
            if closing and not self._fence_info:
                rest = re.compile(r"[ \t\r]{0,256}").match(buffer, end)
                assert rest is not None
                if rest.end() == len(buffer) and not reader.closed and rest.end() - end < 256:
                    return False
                closing = rest.end() == len(buffer) or buffer[rest.end()] == "\n"
            self._say(self._skip(end), watch=False)
            if closing:
                self._mode = self._prose
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
            marker,
            gap=gap if self._gap_is_text else "",
            fresh=self._fresh,
            in_reasoning=self._keep_markup,
        )
        self._gap = None
        reader.start = reader.position
        reader.position += len(marker)
        span.dialect = span.opened_by = openers[0][0].name
        span.soft = all(opener.soft for _, opener in openers)
        self._parse = self._dispatch(span, openers)
        self._mode = self._in_span

    def _dispatch(self, span: Span, openers: list[tuple[Dialect, Opener]]) -> Parse[None]:
        """Choose among the dialects that share a marker by what follows it, then let the chosen one read."""
        reader = span.reader
        first = ""
        if any(opener.starts for _, opener in openers):
            first = yield from blanks(reader)
        for dialect, opener in openers:
            for start in opener.starts or ("",):
                if start == A_NAME:
                    fits = first.isalnum() or first == "_"
                else:
                    while (
                        not (fits := reader.buffer.startswith(start, reader.position))
                        and not reader.closed
                        and start.startswith(reader.buffer[reader.position : reader.position + len(start)])
                    ):
                        yield
                if fits:
                    span.dialect = span.opened_by = dialect.name
                    span.soft = opener.soft
                    yield from opener.body(span)
                    return
        marks = self._grammar.marks
        while (following := marks.at(reader.buffer, reader.position, reader.closed)) == "":
            yield
        if following and not span.soft and self._grammar.entries[marks.key(following)].openers:
            # A wrapper around another dialect's wrapper: one call, not two, and no marker left in the text.
            span.owes.update(self._grammar.dialects[span.opened_by].closers)
            return
        ended = not first and reader.position == len(reader.buffer) and reader.closed
        raise Fault(Reason.TRUNCATED if ended else Reason.STRAY_MARKER)

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
        self._mode = self._prose
        self._owed |= span.owes
        self.ended_open = span.open_ended
        left = self._reader.take_span()
        if span.rejected:
            self._line_blank = self._fresh = False
        if span.enters is not None:
            self._enter(span.enters)
            return
        if span.succeeded:
            self._line_blank = self._fresh = True
            self._lookout.close(self._events)
            self._open_gap(left, is_text=True)
        elif span.owes:
            self._open_gap(span.gap + left, is_text=True)
        elif self._keep_markup:
            self._say(left, watch=False)
        elif span.gap:
            self._open_gap(span.gap, is_text=True)

    def _fail_span(self, span: Span, fault: Fault) -> None:
        """Give the span back to the text; report it unless it was ordinary text all along."""
        reader = self._reader
        reader.close_tap()
        self._span = self._parse = None
        self._mode = self._prose
        if span.soft:
            text = span.gap + reader.take_span()
            self._say(text)
            if span.marker.startswith("```"):
                self._enter_fence("`", 3)
            return
        self._owed |= span.owes
        self._lookout.close(self._events)
        mark = len(self._events)
        span.reject(fault.reason)
        released = "".join(event.text for event in self._events[mark:] if isinstance(event, Text))
        self._note_line(released)
        if fault.reason not in _UNPOISONED:
            dialect = self._grammar.dialects.get(span.dialect) or self._grammar.dialects[span.opened_by]
            openers = {opener.marker for opener in dialect.openers if not opener.soft}
            self._damage_closers = dialect.closers or ("\n",)
            self._damage = marks_of(*sorted({*self._damage_closers, *openers}))
            self._mode = self._damaged

    def _note_line(self, text: str) -> None:
        line = text.rfind("\n")
        self._line_blank = not text[line + 1 :].strip() and (line >= 0 or self._line_blank)
        self._fresh = self._fresh and not text.strip()

    def _damaged(self) -> bool:
        """Pass over the rest of a malformed call, up to its closer or a new opener of its dialect.

        What stands there may be the inside of a damaged argument; no call may be read out of it.
        """
        reader = self._reader
        at, marker = self._damage.find(reader.buffer, reader.position, reader.closed)
        self._say(self._skip(at), watch=False)
        if not marker:
            return False
        if marker in self._damage_closers:
            self._say(self._skip(at + len(marker)), watch=False)
        self._mode = self._prose
        return True

    # Reasoning

    def _enter(self, section: Section) -> None:
        self._section = section
        self._seen_section = True
        self._lookout.close(self._events)
        inner = Scanner.__new__(Scanner)
        inner._setup(
            compile_grammar(self._chosen, self._offered.names, sections=False),
            self._offered,
            self._indices,
            keep_markup=True,
        )
        inner._chosen = self._chosen
        self._inner = inner
        self._mode = self._in_section

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
        self._line_blank = self._fresh = True
        self._mode = self._prose
        self._open_gap(is_text=False)
