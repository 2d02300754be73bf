"""Whether a reply is settled before its end: by a demanded call (rule 137), or by a run of blanks.

It looks only where a call is demanded. What follows a settled reply is not looked at, wherever it was cut.
"""

import re
from collections.abc import Callable, Sequence
from enum import Enum

from mustcall.dialects import CallEnd, Malformed, ScanEvent, ScannedText, Scanner
from mustcall.policy.scanning.reply_slots import Slot, SlotKind

__all__ = ["EarlyEnd"]

#: Blanks behind which nothing more is expected: no model indents so far, and those that ramble write thousands.
_MOST_BLANKS = 40
_BLANKS = re.compile(rf"\s{{{_MOST_BLANKS}}}")


class _Settling(Enum):
    """How far a reply is from being settled by a demanded call."""

    OPEN = "open"
    MET = "met"
    OVER = "over"  # met, and what follows is not looked at
    SPOILT = "spoilt"  # a list of calls holds one that is not demanded


class EarlyEnd:
    """One reply's way to its demanded call. `demanded` tells whether a complete call, by name and arguments, is it."""

    __slots__ = ("_blanks", "_demanded", "_settling", "dry", "passed")

    def __init__(self, demanded: Callable[[str, str], bool]) -> None:
        self._demanded = demanded
        self._settling = _Settling.OPEN
        self._blanks = 0
        #: Whether the text went on in nothing but blanks.
        self.dry = False
        #: What came before the demanded call.
        self.passed: list[CallEnd | Malformed] = []

    @property
    def met(self) -> bool:
        """Whether the demanded call is there."""
        return self._settling is _Settling.MET or self._settling is _Settling.OVER

    @property
    def over(self) -> bool:
        """Whether the list of calls that it may stand in is over, too."""
        return self._settling is _Settling.OVER

    def scan(self, scanner: Scanner, text: str) -> list[ScanEvent]:
        """Return what a piece holds; behind a run of blanks that is too long it is text, wherever it was cut."""
        found: list[ScanEvent] = []
        while text and not self.dry:
            most = self._blanks + len(text) - len(text.lstrip())
            run = _BLANKS.search(text) if most < _MOST_BLANKS else None
            if most < _MOST_BLANKS and run is None:
                said = len(text.rstrip())
                self._blanks = len(text) - said + (0 if said else self._blanks)
                return found + scanner.feed(text)
            end = run.end() if run is not None else _MOST_BLANKS - self._blanks
            found += scanner.feed(text[:end])
            text, self._blanks = text[end:], 0
            self.dry = not scanner.in_call
        return [*found, ScannedText(text)] if text else found

    def take(self, call: CallEnd, calls: list[CallEnd], malformed: list[Malformed], slots: Sequence[Slot]) -> bool:
        """Take note of a complete call; tell whether it is behind the end.

        The first demanded one settles the reply, with the list it stands in; what came before it is dropped from
        `calls`, `malformed` and `slots`.
        """
        match self._settling:
            case _Settling.SPOILT:
                pass
            case _Settling.OPEN:
                if self._demanded(call.name, call.arguments):
                    self._settling = _Settling.MET
                    self.passed = [*calls, *malformed]
                    calls.clear()
                    malformed.clear()
                    for slot in slots:
                        if slot.kind is SlotKind.CALL:
                            slot.kind = SlotKind.DROPPED
                elif call.listed is not None:
                    self._settling = _Settling.SPOILT
            case _Settling.MET | _Settling.OVER:
                if call.listed is None or call.listed != calls[-1].listed:
                    self._settling = _Settling.OVER
                elif not self._demanded(call.name, call.arguments):
                    self._settling = _Settling.SPOILT
        return self._settling is _Settling.OVER
