"""How far the damage of a malformed call reaches: up to where no call may be read out of the text behind it.

The rest of a damaged call may be the inside of an argument, a file being written or a quoted example. A marker that
prose only mentions must not swallow the calls behind it, either.
"""

import msgspec

from mustcall.dialects.dialect import Dialect
from mustcall.dialects.events import Reason
from mustcall.dialects.reading.reader import NotACall
from mustcall.dialects.reading.span import Span
from mustcall.dialects.reasoning import PARAGRAPH_ENDS

__all__ = ["Damage", "damage_of"]

# After these the text goes on as text: nothing of a call was opened that could still be running.
_HARMLESS = (Reason.STRAY_MARKER, Reason.TRUNCATED)


class Damage(msgspec.Struct, frozen=True):
    """What ends the text behind a fault in which no call counts, nothing if the text just goes on.

    An opener of the same dialect ends it, too, as a new attempt. With `spares_words` there is no damage where a word of
    prose stands right behind the fault. That character may be still to come, so it is not looked at here.
    """

    ends: tuple[str, ...] = ()
    openers: tuple[str, ...] = ()
    spares_words: bool = False


def damage_of(span: Span, fault: NotACall, dialect: Dialect) -> Damage:
    """Return how far the damage of this fault reaches.

    As long as no offered tool was named and nothing of an argument written, it ends with its paragraph.
    """
    if fault.reason in _HARMLESS:
        return Damage()
    call = span.call
    closers = dialect.closers or ("\n",)
    openers = tuple(opener.marker for opener in dialect.openers if not opener.soft)
    if span.succeeded or span.rejected:
        return Damage(closers, openers)
    if call is None and fault.reason is Reason.MISSING_NAME:
        return Damage()
    spares_words = fault.reason is not Reason.BAD_JSON and (call is None or not call.has_arguments)
    named = call is not None and call.name is not None and not span.offered.anything
    if not named and (call is None or not call.has_content):
        closers = (*closers, *PARAGRAPH_ENDS)
    return Damage(closers, openers, spares_words)
