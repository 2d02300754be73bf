"""Calls that a model wrote into its reasoning (rules 65, 148): seen as it streams, and read out of it at the end.

Reasoning goes out as it comes up to the first call in it. From there on it waits, with whatever follows, until the
reply says something else: then it was reasoning and goes out as it is. A reply that says nothing else is judged by the
calls. It decides nothing; each character is looked at once, and once more where a call was seen.
"""

from collections.abc import Iterable

from mustcall.core.events import Event, PartStarted, ReasoningDelta, TextDelta
from mustcall.core.parts import Part, Reasoning, Text
from mustcall.dialects import CallEnd, CallStart, ScanEvent, Scanner
from mustcall.dialects import Text as ScannedText
from mustcall.policy.lookout import Lookout

__all__ = ["Musing", "Watch", "draw_out", "is_silent"]


class Watch:
    """A reasoning part of the upstream's own: its scanner, where it comes out, and how much of it has."""

    __slots__ = ("emitted", "fed", "place", "scanner")

    def __init__(self, place: int, scanner: Scanner) -> None:
        self.place = place
        self.scanner = scanner
        self.fed = 0
        self.emitted = 0

    def read(self, found: Iterable[ScanEvent]) -> tuple[list[Event], int | None]:
        """Return what its scanner found as events, and how many of them come before the first call."""
        out: list[Event] = []
        call: int | None = None
        for event in found:
            if isinstance(event, ScannedText):
                out.append(ReasoningDelta(self.place, event.text))
            elif isinstance(event, CallStart) and call is None:
                call = len(out)
        return out, call


class Musing:
    """What waits because a call was seen in the reasoning before it. `marks` says where, by part: behind how much."""

    __slots__ = ("_held", "_holds", "_spoke", "marks")

    def __init__(self) -> None:
        self._held: list[Event] = []
        self._holds = self._spoke = False
        self.marks: dict[int, int] = {}

    @property
    def over(self) -> bool:
        """Whether the reply has said something else, so that nothing in its reasoning matters any more."""
        return self._spoke

    @property
    def pending(self) -> bool:
        """Whether something waits."""
        return bool(self._held)

    def end(self) -> None:
        """Say that the reply has something else to it."""
        self._spoke = True

    def pass_on(self, out: list[Event], call: int | None = None) -> list[Event]:
        """Return what of these events may be shown; `call` is the number of those before a call in reasoning."""
        if self._spoke or not (self._holds or call is not None):
            self._spoke = self._spoke or any(map(_speaks, out))
            return out
        split = 0 if self._holds else call
        self._holds = True
        shown, rest = out[:split], out[split:]
        self._held += rest
        if any(map(_speaks, rest)):
            self._spoke, self._holds = True, False
            shown += self._held
            self._held = []
        return shown


def _speaks(event: Event) -> bool:
    """Tell whether an event shows more than reasoning."""
    match event:
        case TextDelta(text=text):
            return bool(text) and not text.isspace()
        case PartStarted(part=Text(text=text)):
            return bool(text) and not text.isspace()
        case PartStarted(part=part):
            return not isinstance(part, Reasoning)
        case _:
            return False


def is_silent(parts: Iterable[Part]) -> bool:
    """Tell whether parts are reasoning and nothing else."""
    return all(isinstance(part, Reasoning) or (isinstance(part, Text) and not part.text.strip()) for part in parts)


def draw_out(text: str, lookout: Lookout) -> tuple[tuple[CallEnd, ...], str]:
    """Return the last calls that stand together in a reasoning's text, and the text without any call.

    What comes before them and other words is a draft of what the model thought of doing.
    """
    scanner = lookout.reader()
    calls: list[CallEnd] = []
    said: list[str] = []
    apart = False
    for event in (*scanner.feed(text), *scanner.close()):
        if isinstance(event, ScannedText):
            said.append(event.text)
            apart = apart or not event.text.isspace()
        elif isinstance(event, CallEnd):
            if apart:
                calls.clear()
            calls.append(event)
            apart = False
    return tuple(calls), "".join(said)
