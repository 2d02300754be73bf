"""A text that may be nothing but calls: held, and read ahead by a scan of its own (rule 63).

A JSON object without markup of its own, and whatever stands in a code fence, is a call only if it is the reply. So its
text is held while nothing else has come. It knows nothing of where such a text may begin; that is the scanner's
business.
"""

import re
from typing import Protocol

import msgspec

from mustcall.dialects.events import CallEnd, CallStart, Malformed, Reason, ScanEvent, ScannedText
from mustcall.dialects.prose import has_substance
from mustcall.dialects.scanning.fences import Unfenced

__all__ = ["Candidate", "Reading"]

#: The formats of a JSON object or array without markup, and what they are called in a fence.
_BARE = frozenset({"llama3_json", "json_array"})
_FENCED = "fenced_json"
_BLANKS = re.compile(r"\s+")


class Reading(Protocol):
    """What is used of a scan."""

    def feed(self, text: str) -> list[ScanEvent]:
        """Take the next piece."""
        ...

    def close(self) -> list[ScanEvent]:
        """End the text."""
        ...

    @property
    def ended_open(self) -> bool:
        """Whether the text ended with a call whose closer had not come."""
        ...

    @property
    def in_call(self) -> bool:
        """Whether what comes next belongs to a call."""
        ...


class Candidate:
    """What a text is as long as it holds nothing but calls, and the text itself.

    With `at_once` the first complete call decides: whatever follows it is what the scan makes of it.
    """

    __slots__ = ("_at_once", "_fenced", "_pieces", "_said", "_unfenced", "called", "complete", "events", "scan", "size")

    def __init__(self, scan: Reading, *, at_once: bool, fenced: bool) -> None:
        self.scan = scan
        self.events: list[ScanEvent] = []
        #: Whether a call of an offered tool has begun in it, and whether one is complete.
        self.called = self.complete = False
        self._at_once = at_once
        self._fenced = fenced
        self._unfenced = Unfenced()
        self._pieces: list[str] = []
        self.size = 0
        self._said = ""

    @property
    def text(self) -> str:
        """All of it so far."""
        return "".join(self._pieces)

    @property
    def certain(self) -> bool:
        """Whether it is nothing but calls, whatever follows."""
        return self._at_once and self.complete

    def take_events(self) -> list[ScanEvent]:
        """Return what was found since this was last asked."""
        events, self.events = self.events, []
        return events

    def feed(self, text: str, *, closed: bool) -> bool:
        """Take the next piece; tell whether it may still be nothing but calls, the last of them cut off at most."""
        if not self.certain:
            self._pieces.append(text)
        self.size += len(text)
        bare = self._unfenced.feed(text)
        if closed:
            bare += self._unfenced.close()
        found = self.scan.feed(bare) if bare else []
        if closed:
            found += self.scan.close()
        found = [self._told(event) for event in found]
        if self.certain:
            self.events += found
            return True
        if closed and self.called and _is_cut(found) and not self._unfenced.holds_code:
            self.events += found if self.complete else self._cut(found)
            return True
        for number, event in enumerate(found):
            match event:
                case ScannedText(text=said):
                    # A run of blanks is one: thousands of line breaks, one by one, must not add up.
                    self._said = _BLANKS.sub(" ", self._said + said).lstrip()
                    if self._said and (not self.called or has_substance(self._said)):
                        return False
                case Malformed():
                    return False
                case CallStart():
                    self.called = True
                    self._said = ""
                case CallEnd():
                    self.complete = True
                case _:
                    pass
            self.events.append(event)
            if self.certain:
                self.events += found[number + 1 :]
                return True
        return not self._unfenced.holds_code

    def _cut(self, found: list[ScanEvent]) -> list[ScanEvent]:
        """Return the end of a text that is one call cut off: all of it is text, its fence included."""
        whole = self.text
        kept = [event for event in found if not isinstance(event, ScannedText | Malformed)]
        cut = next(event for event in found if isinstance(event, Malformed))
        return [*kept, ScannedText(whole), msgspec.structs.replace(cut, raw=whole)]

    def _told(self, event: ScanEvent) -> ScanEvent:
        """Return an event with the name of the format as people know it: bare JSON in a fence is fenced JSON."""
        if self._fenced and isinstance(event, CallStart | CallEnd | Malformed) and event.dialect in _BARE:
            return msgspec.structs.replace(event, dialect=_FENCED)
        return event


def _is_cut(found: list[ScanEvent]) -> bool:
    """Tell whether what was found ends with a call that the end of the text cut off, and holds no other fault."""
    faults = [event for event in found if isinstance(event, Malformed)]
    return len(faults) == 1 and faults[0].reason is Reason.TRUNCATED
