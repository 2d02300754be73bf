"""Calls that a model wrote into its reasoning (rules 65, 148): seen as it streams, and read out of it at the end.

Reasoning goes out as it comes up to the first call in it. From there on it waits, with whatever follows, until the
reply says something else: then it was reasoning and goes out as it is. A reply that says nothing else is judged by the
calls. It decides nothing; each character is looked at once, and once more where a call was seen.
"""

from collections.abc import Iterable, Iterator

from mustcall.core.parts import Part, Reasoning, Text
from mustcall.core.streams.events import Event, PartReasoningDelta, PartStarted, PartTextDelta
from mustcall.dialects import CallEnd, CallStart, ScanEvent, ScannedText, Scanner
from mustcall.policy.scanning.scan_targets import ScanTargets
from mustcall.wire.chat.parts import names_field_only

__all__ = ["Channel", "Musing", "Watch", "channels_of", "draw_out", "is_silent"]

#: One of the texts a reasoning part has: a summary by its number, or None, the reasoning itself.
Channel = int | None


class Watch:
    """One text of a reasoning part of the upstream's own: its scanner, where it comes out, and how much of it has."""

    __slots__ = ("channel", "closed", "emitted", "fed", "place", "scanner")

    def __init__(self, place: int, channel: Channel, scanner: Scanner) -> None:
        self.place = place
        self.channel = channel
        self.scanner = scanner
        self.fed = 0
        self.emitted = 0
        #: Whether another text of the part has begun: this one is not expected to go on.
        self.closed = False

    def read(self, found: Iterable[ScanEvent]) -> tuple[list[Event], int | None]:
        """Return what its scanner found as events, and how many of them come before the first call."""
        out: list[Event] = []
        call: int | None = None
        for event in found:
            if isinstance(event, ScannedText):
                out.append(PartReasoningDelta(self.place, event.text, self.channel))
            elif isinstance(event, CallStart) and call is None:
                call = len(out)
        return out, call


class Musing:
    """What waits because a call was seen in the reasoning before it. `marks` says where, by text: behind how much."""

    __slots__ = ("_held", "_holds", "marks", "over")

    def __init__(self) -> None:
        self._held: list[Event] = []
        self._holds = False
        #: Whether the reply has said something else, so that nothing in its reasoning matters any more.
        self.over = False
        self.marks: dict[tuple[int, Channel], int] = {}

    @property
    def pending(self) -> bool:
        """Whether something waits."""
        return bool(self._held)

    def end(self) -> None:
        """Say that the reply has something else to it."""
        self.over = True

    def pass_on(self, out: list[Event], call: int | None = None) -> list[Event]:
        """Return what of these events may be shown; `call` is the number of those before a call in reasoning."""
        if self.over or not (self._holds or call is not None):
            self.over = self.over or any(map(_speaks, out))
            return out
        split = 0 if self._holds else call
        self._holds = True
        shown, rest = out[:split], out[split:]
        self._held += rest
        if any(map(_speaks, rest)):
            self.over, self._holds = True, False
            shown += self._held
            self._held = []
        return shown


def _speaks(event: Event) -> bool:
    """Tell whether an event shows more than reasoning."""
    match event:
        case PartTextDelta(text=text):
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


def channels_of(part: Part | None) -> Iterator[tuple[Channel, str]]:
    """Yield the texts of a reasoning part that are not empty, in the order they are shown."""
    if isinstance(part, Reasoning):
        yield from ((number, text) for number, text in enumerate(part.summary) if text)
        if part.text:
            yield None, part.text


def draw_out(
    part: Reasoning, channel: Channel, shown: int, lookout: ScanTargets
) -> tuple[tuple[CallEnd, ...], Reasoning]:
    """Return the calls in one text of a reasoning part behind what was shown of it, and the part without their markup.

    State that vouches for the reasoning as it was does not vouch for another one; a summary it never covered.
    """
    text = dict(channels_of(part)).get(channel, "")
    calls, rest = _read_calls(text[shown:], lookout)
    left = text[:shown] + rest
    if channel is None:
        state = part.state if part.state is None or names_field_only(part.state) else None
        return calls, part.evolve(text=left, state=state)
    summary = tuple(left if number == channel else one for number, one in enumerate(part.summary))
    return calls, part.evolve(summary=summary)


def _read_calls(text: str, lookout: ScanTargets) -> tuple[tuple[CallEnd, ...], str]:
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
