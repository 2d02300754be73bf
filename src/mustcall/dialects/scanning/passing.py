"""Text that no call is read out of: code, quotations, tools' results, and the rest of a malformed call.

It decides where such text ends, and releases it. Where it begins is decided by who meets its marker.
"""

from mustcall.dialects.events import ScannedText
from mustcall.dialects.reasoning import PARAGRAPH_ENDS
from mustcall.dialects.scanning.anchored import NameWatch
from mustcall.dialects.scanning.code import Code
from mustcall.dialects.scanning.effort import MARK
from mustcall.dialects.scanning.grammar import marks_of
from mustcall.dialects.scanning.state import ScanState

__all__ = ["PassingScan"]

#: Blanks behind a quoted marker that are looked through, and what shows that more of the markup follows them.
_MOST_SPACES = 16
_GOES_ON = "\r\n{[<"


class PassingScan(ScanState):
    """The modes that pass text over."""

    def _enter_code(self, code: Code) -> None:
        self._code = code
        self._mode = PassingScan._in_code

    def _in_code(self) -> bool:
        code, reader = self._code, self._reader
        assert code is not None
        text, over = code.read(reader, self._lines)
        reader.start = reader.position
        if text:
            self._events.append(ScannedText(text))
        if over:
            self._to_prose()
        if code.doubtful and (over or reader.closed):
            # The ticks never closed, so it was no code. Nothing is read out of it, but a call in it is seen.
            self._unwatched += code.doubtful
        return over

    def _pass_over(
        self,
        closers: tuple[str, ...],
        *openers: str,
        lookout: NameWatch | None = None,
        then: tuple[str, ...] = (),
    ) -> None:
        """Pass over text up to one of these. What the lookout sees there is reported unless its own closer comes.

        Behind a closer that is more than blanks, text is passed over up to one of `then`.
        """
        self._passed_lookout = lookout
        self._passed_then = then
        self._passed_closers = closers
        self._passed = marks_of(*sorted({*closers, *openers}))
        self._mode = PassingScan._passing

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
        if closed and (entry is None or not (entry.control or entry.openers)):
            self._say(self._skip(at + len(marker)), watch=False)
        if self._passed_then and closed and marker.strip():
            self._pass_over(self._passed_then)
        else:
            self._to_prose()
        return True

    def _meet_quoted(self, marker: str) -> bool:
        """Pass over quoted markup, and what stands in it (rule 122): to the end of the line.

        Behind a quotation mark and in indented code, markup that goes on behind its marker is quoted as a whole.
        """
        reader = self._reader
        end = reader.position + len(marker)
        closers = tuple(sorted(self._grammar.closers_of(marker)))
        whole = bool(closers) and self._lines.encloses
        if whole and not marker.endswith("="):
            behind = reader.buffer[end : end + _MOST_SPACES].lstrip(" \t")
            if not behind and not reader.closed and len(reader.buffer) < end + _MOST_SPACES:
                return False
            whole = behind[:1] in _GOES_ON and behind != ""
        self._effort.spend(MARK)
        self._mentioned.update(closers)
        self._flush_gap()
        if whole:
            self._pass_over((*closers, *PARAGRAPH_ENDS), then=("\n",))
        else:
            self._pass_over(("\n",))
        return True

    def _meet_result(self, marker: str, closers: tuple[str, ...], ends: tuple[str, ...]) -> bool:
        """Pass over a tool's result or a quotation. In mid-line its marker may be a mere mention, which ends sooner."""
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

    def _give_up(self) -> bool:
        """Release everything: who wrote so much markup is not calling tools."""
        self._say(self._skip(len(self._reader.buffer)))
        return False
