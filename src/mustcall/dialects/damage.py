"""How far the damage of a malformed call reaches: up to where no call may be read out of the text behind it.

The rest of a damaged call may be the inside of an argument, a file being written or a quoted example. A marker that
prose only mentions must not swallow the calls behind it, either.
"""

from mustcall.dialects.events import Reason
from mustcall.dialects.reader import Fault
from mustcall.dialects.reasoning import PARAGRAPH_ENDS
from mustcall.dialects.span import Span

__all__ = ["ends_of_damage"]

# After these the text goes on as text: nothing of a call was opened that could still be running.
_HARMLESS = (Reason.STRAY_MARKER, Reason.TRUNCATED)


def ends_of_damage(span: Span, fault: Fault, closers: tuple[str, ...]) -> tuple[str, ...]:
    """Return what ends the text behind a fault in which no call counts, nothing if the text just goes on.

    As long as no offered tool was named and nothing of an argument written, the damage ends with its paragraph, and if
    a word of prose stands there it is none.
    """
    if fault.reason in _HARMLESS:
        return ()
    call, reader = span.call, span.reader
    if span.succeeded or span.rejected:
        return closers
    if call is None and fault.reason is Reason.MISSING_NAME:
        return ()
    following = reader.buffer[reader.position : reader.position + 1]
    if fault.reason is not Reason.BAD_JSON and following.isalpha() and (call is None or not call.has_arguments):
        return ()
    named = call is not None and call.name is not None and not span.offered.anything
    if named or (call is not None and call.has_content):
        return closers
    return (*closers, *PARAGRAPH_ENDS)
