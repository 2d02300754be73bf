"""One stretch of markup while it is read: its calls, its events, and what becomes of its text.

A dialect's parser talks to a `Span` and its `OpenCall`s; it never sees the scanner. The span decides what is released:
a finished call takes its markup with it, everything else goes back to the text, in order and once.
"""

from collections.abc import Callable

from mustcall.core.origin import JsonObject
from mustcall.dialects.events import (
    ArgumentDelta,
    CallEnd,
    CallStart,
    Malformed,
    Reason,
    ScanEvent,
    ScannedText,
)
from mustcall.dialects.names import Offered
from mustcall.dialects.reading.jsontext import read_value, read_wrapped_object
from mustcall.dialects.reading.reader import NotACall, Parse, Reader, accept_any, blanks
from mustcall.dialects.reasoning import Section
from mustcall.dialects.scanning.code import Lines
from mustcall.dialects.scanning.effort import CALL, ScanEffort

__all__ = ["Indices", "OpenCall", "Span"]

_SEPARATORS = " \t\r\n,;"


class Indices:
    """Numbers for the calls of one scan, none given twice."""

    __slots__ = ("_next",)

    def __init__(self, first: int = 0) -> None:
        self._next = first

    def take(self) -> int:
        """Return the next number."""
        self._next += 1
        return self._next - 1

    def copy(self) -> "Indices":
        """Return a count that goes on from here, for text that may be read again."""
        return Indices(self._next)


class Span:
    """What a parser may know and do between an opener and the end of its last call.

    `soft` spans began with something that is usually no markup (a bare `{`): until a call is certain, a fault means
    "plain text" and is not reported. A span that was soft calls `harden` before it says anything. `opened_by` is the
    dialect whose opener was found, `dialect` the one that was read behind it where relatives share an opener. `enters`
    names a reasoning section that the span's markup opened. `owes` holds closers that did not come where they belong,
    so that they do not leak as text when they come later. `silences` are the ends of text behind the span in which no
    call counts. `fresh` tells that the reply begins here. `wraps` tells that another dialect's opener follows. In
    reasoning no markup is taken out of the text.
    """

    __slots__ = (
        "_effort",
        "_harden",
        "_indices",
        "_lines",
        "_list",
        "_lists",
        "_soft",
        "call",
        "dialect",
        "enters",
        "events",
        "flowed",
        "fresh",
        "gap",
        "in_reasoning",
        "marker",
        "offered",
        "open_ended",
        "open_list",
        "opened_by",
        "owes",
        "reader",
        "rejected",
        "silences",
        "succeeded",
        "wraps",
    )

    def __init__(
        self,
        reader: Reader,
        events: list[ScanEvent],
        offered: Offered,
        indices: Indices,
        effort: ScanEffort,
        *,
        marker: str,
        gap: str,
        lines: Lines,
        in_reasoning: bool,
        harden: Callable[[], None],
    ) -> None:
        self.reader = reader
        self.events = events
        self.offered = offered
        self.marker = marker
        self.dialect = ""
        self.opened_by = ""
        self.gap = gap
        self._soft = False
        self._harden = harden
        self.flowed: list[str] = []
        self.call: OpenCall | None = None
        self.enters: Section | None = None
        self.owes: set[str] = set()
        self.silences: tuple[str, ...] = ()
        self.fresh = lines.fresh
        self.in_reasoning = in_reasoning
        self.succeeded = False
        self.rejected = False
        self.open_ended = False
        self.wraps = False
        #: The number of the list that is being read.
        self.open_list: int | None = None
        self._lists = False
        self._list: int | None = None
        self._indices = indices
        self._effort = effort
        self._lines = lines

    @property
    def soft(self) -> bool:
        """Whether this may still turn out to be ordinary text."""
        return self._soft

    @soft.setter
    def soft(self, soft: bool) -> None:
        if self._soft and not soft:
            self._harden()
        self._soft = soft

    def begin(self, written: str | None = None) -> "OpenCall":
        """Begin a call; the name may come now or later. What separates it from one that stayed text is text."""
        self._effort.spend(CALL)
        if self._effort.spent:
            raise NotACall(Reason.TOO_MUCH)
        if self.rejected:
            span = self.reader.take_span()
            own = span.lstrip(_SEPARATORS)
            self._say(span[: len(span) - len(own)])
            self.reader.raw.append(own)
        self.call = call = OpenCall(self)
        if written is not None:
            call.named(written)
        return call

    def next_index(self) -> int:
        """Return an index no call of this scan has had."""
        return self._indices.take()

    def begin_list(self) -> None:
        """Say that the calls from here on stand in one list."""
        self._lists, self._list = True, None

    def end_list(self) -> None:
        """Say that the list has ended."""
        self.open_list = None

    def list_of(self, index: int) -> int | None:
        """Return the number of the list that the call just read stands in: the index of the first call in it."""
        if self._lists and self._list is None:
            self._list = self.open_list = index
        return self._list

    def release(self) -> None:
        """Give what was read so far back to the text."""
        span = self.reader.take_span()
        if self.gap or span:
            self._say(self.gap + span)
            self.flowed.append(span)
        self.gap = ""

    def _say(self, text: str) -> None:
        if text:
            self.events.append(ScannedText(text))
            self._lines.note(text)

    def drop(self) -> None:
        """Take what was read so far out of the text: markup of the calls. With one of them in the text, so is this."""
        if self.rejected:
            self.release()
            self.flowed.clear()
        else:
            self.drop_call()

    def drop_call(self) -> None:
        """Take what was read so far out of the text: it was markup of a complete call alone."""
        if self.in_reasoning:
            self.release()
        else:
            self.reader.take_span()
        self.gap = ""
        self.flowed.clear()

    def reject(self, reason: Reason) -> str:
        """Report what was read so far as no call and return it; it becomes text."""
        call, self.call = self.call, None
        if call is not None:
            call.flush()
        self.rejected = True
        self.release()
        raw = "".join(self.flowed)
        self.flowed.clear()
        self.events.append(
            Malformed(
                reason,
                raw,
                self.dialect,
                call.index if call is not None else None,
                call.written if call is not None else None,
                self.in_reasoning,
            )
        )
        return raw

    def finish(self, *closers: str) -> Parse[bool]:
        """Read the closer of a wrapper whose calls are all complete; one that is missing is owed."""
        first = yield from blanks(self.reader)
        if first and (yield from accept_any(self.reader, closers)):
            self.drop()
            return True
        rest = self.reader.buffer[self.reader.position :]
        if self.reader.closed and any(closer.startswith(rest) for closer in closers):
            # The input ends before or inside the closer. The call is complete; what is there of the closer is markup.
            self.reader.position = len(self.reader.buffer)
            self.open_ended = True
            self.drop()
        else:
            self.owes.update(closers)
        return False

    def finish_turn(self, token: str) -> Parse[None]:
        """Read the token that ends a turn, if it stands right here; elsewhere it may be text."""
        yield from blanks(self.reader)
        if (yield from accept_any(self.reader, (token,))):
            self.drop()


class OpenCall:
    """One call under construction: its name, its arguments' text so far, and whether it may become a call."""

    __slots__ = ("_parts", "_sent", "index", "name", "refused", "span", "written")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.index: int | None = None
        self.name: str | None = None
        self.written: str | None = None
        self.refused = False
        self._parts: list[str] = []
        self._sent = 0

    def named(self, written: str) -> None:
        """Set the name. A name that is not offered is read to its end and reported there, never called."""
        if self.written is not None:
            raise NotACall(Reason.BAD_MARKUP)
        self.written = written
        self.name = self.span.offered.resolve(written)
        if self.name is None:
            if self.span.soft:
                raise NotACall(Reason.UNKNOWN_TOOL)
            self.refused = True
        elif not self.span.soft:
            self._start()

    @property
    def schema(self) -> JsonObject | None:
        """The schema of the arguments, where the tool is known and has one."""
        return self.span.offered.parameters(self.name) if self.name is not None else None

    @property
    def has_arguments(self) -> bool:
        """Whether any of the arguments was written."""
        return bool(self._parts)

    @property
    def has_content(self) -> bool:
        """Whether anything of the arguments was written but their opening brace."""
        return "".join(self._parts).strip() not in ("", "{")

    def commit(self) -> None:
        """Say that this is certainly meant as a call: from here on a fault is reported."""
        if self.span.soft and self.name is not None:
            self.span.soft = False
            self._start()

    def _start(self) -> None:
        span = self.span
        assert self.name is not None
        assert self.written is not None
        self.index = span.next_index()
        span.events.append(CallStart(self.index, self.name, span.dialect, self.written, span.in_reasoning))

    def write(self, fragment: str) -> None:
        """Add a fragment of the arguments' JSON text; it goes out with the next flush if the name is known."""
        self._parts.append(fragment)

    def flush(self) -> None:
        """Send what was written since the last time: once per piece of input, however many fragments it made."""
        if self.index is not None and self._sent < len(self._parts):
            fragment = "".join(self._parts[self._sent :])
            self._sent = len(self._parts)
            self.span.events.append(ArgumentDelta(self.index, fragment))

    def read_arguments(self) -> Parse[None]:
        """Read the arguments as a JSON object, or as a JSON string that holds one (rule 60)."""
        if self._parts:
            raise NotACall(Reason.AMBIGUOUS_ARGUMENTS)
        reader = self.span.reader
        first = yield from blanks(reader)
        if first == '"':
            yield from read_wrapped_object(reader, self.write)
            return
        if first != "{":
            raise NotACall(Reason.NOT_OBJECT if first else Reason.TRUNCATED)
        reader.open_tap(self.write)
        yield from read_value(reader)
        reader.close_tap()

    def end(self) -> None:
        """Complete the call, or report why it is none; its markup up to here is settled."""
        span = self.span
        if self.written is None:
            raise NotACall(Reason.MISSING_NAME)
        if not self._parts:
            raise NotACall(Reason.MISSING_ARGUMENTS)
        if self.refused:
            span.reject(Reason.UNKNOWN_TOOL)
            return
        if self.index is None:
            span.soft = False
            self._start()
        assert self.index is not None
        assert self.name is not None
        self.flush()
        span.succeeded = True
        span.drop_call()
        arguments = "".join(self._parts)
        listed = span.list_of(self.index)
        span.events.append(CallEnd(self.index, self.name, arguments, span.dialect, span.in_reasoning, listed))
        span.call = None
