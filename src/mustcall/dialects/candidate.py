"""A text that may be nothing but calls: held, and read ahead by a scan of its own (rule 63).

A JSON object without markup of its own is a call only if it is the reply. So its text is held while nothing else has
come. It knows nothing of where such a text may begin; that is the scanner's business.
"""

import re
from typing import Protocol

from mustcall.dialects.events import CallStart, Malformed, Reason, ScanEvent, Text

__all__ = ["Candidate"]


#: More than this behind a call is prose of substance.
_MOST_WORDS = 3
_MOST_CHARACTERS = 40
_WORD = re.compile(r"\w+")


class _Reading(Protocol):
    """What is used of a scan."""

    def feed(self, text: str) -> list[ScanEvent]: ...
    def close(self) -> list[ScanEvent]: ...

    @property
    def ended_open(self) -> bool: ...


class Candidate:
    """What a text is as long as it holds nothing but calls, and the text itself."""

    __slots__ = ("_pieces", "_said", "called", "events", "scan")

    def __init__(self, scan: _Reading) -> None:
        self.scan = scan
        self.events: list[ScanEvent] = []
        #: Whether a call of an offered tool has begun in it.
        self.called = False
        self._pieces: list[str] = []
        self._said = ""

    @property
    def text(self) -> str:
        """All of it so far."""
        return "".join(self._pieces)

    def feed(self, text: str, *, closed: bool) -> bool:
        """Take the next piece; tell whether it may still be nothing but calls, the last of them cut off at most."""
        self._pieces.append(text)
        found = self.scan.feed(text) if text else []
        if closed:
            found += self.scan.close()
        if closed and self.called and _is_cut(found):
            self.events += found
            return True
        for event in found:
            self.events.append(event)
            match event:
                case Text(text=said):
                    self._said = (self._said + said).lstrip()
                    if self._said and (not self.called or _has_substance(self._said)):
                        return False
                case Malformed():
                    return False
                case CallStart():
                    self.called = True
                    self._said = ""
                case _:
                    pass
        return True


def _has_substance(said: str) -> bool:
    """Tell whether a text beside calls is more than a closing word or what is left of a control token."""
    said = said.rstrip()
    return len(said) > _MOST_CHARACTERS or sum(1 for _ in _WORD.finditer(said)) > _MOST_WORDS


def _is_cut(found: list[ScanEvent]) -> bool:
    """Tell whether what was found ends with a call that the end of the text cut off, and holds no other fault."""
    faults = [event for event in found if isinstance(event, Malformed)]
    return len(faults) == 1 and faults[0].reason is Reason.TRUNCATED
