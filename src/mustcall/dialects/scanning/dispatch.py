"""Chooses who reads what follows a marker: dialects share openers, and one's wrapper may stand around another's.

It decides by the text behind the marker alone, as the openers' data says. What is read there is the chosen parser's
business, and where the marker counts the scanner's.
"""

import re
from collections.abc import Sequence

from mustcall.dialects.dialect import Dialect, Opener
from mustcall.dialects.events import Reason
from mustcall.dialects.reading.reader import NotACall, Parse, Reader, blanks
from mustcall.dialects.reading.span import Span
from mustcall.dialects.scanning.grammar import Grammar, starts

__all__ = ["choose", "dispatch"]

# Behind more blanks than these nothing is looked for that must stand alone: what is held while it may is bounded.
_BLANKS = re.compile(r"[ \t\r\n]{0,64}+")


def choose(
    reader: Reader, marker: str, openers: Sequence[tuple[Dialect, Opener]]
) -> list[tuple[Dialect, Opener]] | None:
    """Return the openers that may stand alone if one of them is meant, else the others; None if more text must tell.

    Dialects share a marker of which some count anywhere and some only as the reply (rule 63): what follows it decides.
    """
    alone = [pair for pair in openers if pair[1].alone]
    others = [pair for pair in openers if not pair[1].alone]
    if not alone or not others:
        return alone or others
    found = _BLANKS.match(reader.buffer, reader.position + len(marker))
    assert found is not None
    if found.end() == len(reader.buffer) and not reader.closed:
        return None
    for pair in openers:
        for start in pair[1].starts or ("",):
            fits = starts(reader, start, found.end())
            if fits is None:
                return None
            if fits:
                return alone if pair[1].alone else others
    return others


def dispatch(span: Span, openers: Sequence[tuple[Dialect, Opener]], grammar: Grammar, *, may_wrap: bool) -> Parse[None]:
    """Choose among the dialects that share a marker by what follows it, then let the chosen one read."""
    reader = span.reader
    if any(opener.starts for _, opener in openers):
        yield from blanks(reader)
    for dialect, opener in openers:
        for start in opener.starts or ("",):
            while (fits := starts(reader, start, reader.position)) is None:
                yield
            if fits and start == "[":
                while (wraps := _wraps(span, grammar, len(start), may_wrap=may_wrap)) is None:
                    yield
                fits = not wraps
            if fits:
                span.dialect = span.opened_by = dialect.name
                span.soft = opener.soft
                yield from opener.body(span)
                return
    while (wraps := _wraps(span, grammar, may_wrap=may_wrap)) is None:
        yield
    if wraps:
        # A wrapper around another dialect's wrapper: one call, not two, and no marker left in the text.
        span.wraps = True
        span.owes.update(grammar.dialects[span.opened_by].closers)
        return
    ended = reader.position == len(reader.buffer) and reader.closed
    raise NotACall(Reason.TRUNCATED if ended else Reason.STRAY_MARKER)


def _wraps(span: Span, grammar: Grammar, longer_than: int = 0, *, may_wrap: bool) -> bool | None:
    """Tell whether another opener, one longer than this, follows at once; None if more text must tell."""
    if span.soft or not may_wrap:
        return False
    reader, marks = span.reader, grammar.marks
    following = marks.at(reader.buffer, reader.position, reader.closed)
    if not following:
        return None if following == "" else False
    if len(following) <= longer_than:
        return False
    entry = grammar.entries[marks.key(following)]
    if not entry.follow:
        return bool(entry.openers)
    behind = reader.position + len(following)
    if behind == len(reader.buffer) and not reader.closed:
        return None
    return re.compile(entry.follow).match(reader.buffer, behind) is not None
