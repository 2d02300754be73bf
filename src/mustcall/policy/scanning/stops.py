"""Stop sequences that an upstream sends past: the text ends before the first of them, here.

Some servers take `stop` and ignore it, and one wire has no word for it. A text is cut where its first stop sequence is
complete. While it streams, only an end that may be the beginning of a stop sequence waits. Texts without a stop
sequence pass as the very same objects. Left as they came are texts that would be empty, and those that begin with a
tag: what stands in there may be reasoning.

Cost: linear in the text, for each of at most `_MOST` sequences of at most `_LONGEST` characters; others are left to the
upstream.
"""

from collections.abc import Sequence

from mustcall.core.adaptation import Adaptation, AdaptationKind
from mustcall.core.parts import Part, Text
from mustcall.core.reply import FinishReason, Reply
from mustcall.core.request import Request
from mustcall.core.streams.events import Event, PartEnded, PartStarted, PartTextDelta
from mustcall.policy.scanning.echo_removal import EchoFreeScanner
from mustcall.policy.scanning.echoes import Echoes
from mustcall.policy.scanning.scan_targets import ScanTargets

__all__ = ["CUT", "StopSequences", "StoppedScanner", "enforced_stops", "stopped"]

#: Sequences that are looked for; no provider takes more than a few, and they are short.
_MOST = 16
_LONGEST = 200
CUT = Adaptation(AdaptationKind.TEXT_DROPPED, "stop", "what the upstream said behind a stop sequence")


def enforced_stops(request: Request, *, as_call: bool) -> tuple[str, ...]:
    """Return the stop sequences that a reply's text is held to: none where it may be a call or a structured answer."""
    if not request.stop or as_call or request.tools or request.output is not None:
        return ()
    return tuple(stop for stop in request.stop if 0 < len(stop) <= _LONGEST)[:_MOST]


class StopSequences:
    """The stop sequences of one text as it comes."""

    __slots__ = ("_free", "_held", "_leading", "_longest", "_stops", "fed", "found")

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._longest = max(map(len, stops))
        self._held = ""
        self._leading = True
        self._free = False
        #: The sequence that ended the text, once one did.
        self.found: str | None = None
        #: How many characters were fed.
        self.fed = 0

    @property
    def holds(self) -> bool:
        """Whether some text waits because a stop sequence may have begun."""
        return bool(self._held)

    def feed(self, text: str) -> str:
        """Take more text and return what may be shown; the same object where all of it may."""
        self.fed += len(text)
        if self.found is not None:
            return ""
        if self._leading:
            rest = text.lstrip()
            if not rest:
                return text
            self._leading, self._free = False, rest.startswith("<")
            if len(rest) < len(text) and not self._free:
                shown = self._feed(rest)
                return text if shown is rest else text[: len(text) - len(rest)] + shown
        return text if self._free else self._feed(text)

    def _feed(self, text: str) -> str:
        data = self._held + text if self._held else text
        first = first_stop(data, self._stops)
        if first is not None:
            self._held, self.found = "", first[1]
            return data[: first[0]]
        held = self._begun(data)
        if not held and not self._held:
            return text
        self._held = data[len(data) - held :]
        return data[: len(data) - held]

    def close(self) -> str:
        """Take the end of the text and return what waited."""
        held, self._held = self._held, ""
        return held

    def _begun(self, data: str) -> int:
        """Return how many characters at the end may be the beginning of a stop sequence."""
        for size in range(min(len(data), self._longest - 1), 0, -1):
            tail = data[-size:]
            if any(len(stop) > size and stop.startswith(tail) for stop in self._stops):
                return size
        return 0


def first_stop(text: str, stops: Sequence[str], start: int = 0) -> tuple[int, str] | None:
    """Return where the stop sequence begins that is complete first, and which it is; the longest of those."""
    found = [(place + len(stop), place, stop) for stop in stops if (place := text.find(stop, start)) >= 0]
    return min(found)[1:] if found else None


def _first_behind_blanks(text: str, stops: Sequence[str]) -> tuple[int, str] | None:
    start = len(text) - len(text.lstrip())
    return None if text.startswith("<", start) else first_stop(text, stops, start)


def stopped(reply: Reply, stops: Sequence[str]) -> Reply:
    """Return a reply whose text ends before its first stop sequence; the same object if there is none.

    Text parts behind it are empty. Calls are no text: a reply with calls keeps them and its finish.
    """
    found: str | None = None
    parts: list[Part] = []
    for part in reply.parts:
        end: int | None = None
        if isinstance(part, Text):
            if found is not None:
                end = 0
            elif (first := _first_behind_blanks(part.text, stops)) is not None:
                end, found = first
        parts.append(part.evolve(text=part.text[:end]) if isinstance(part, Text) and end is not None else part)
    if found is None:
        return reply
    if reply.calls:
        return reply.evolve(parts=tuple(parts))
    return reply.evolve(parts=tuple(parts), finish=FinishReason.STOP, reported_finish=None, stop_sequence=found)


class StoppedScanner(EchoFreeScanner):
    """A lens that sees, and shows, a reply's text up to a stop sequence. The reply it is asked about must be cut."""

    __slots__ = ("_found", "_stops", "_texts")

    def __init__(self, lookout: ScanTargets | None, token: str, echoes: Echoes, stops: Sequence[str]) -> None:
        super().__init__(lookout, token, echoes)
        self._stops = stops
        self._texts: dict[int, StopSequences] = {}
        self._found: str | None = None

    @property
    def pending(self) -> bool:
        """Whether something went in that has not come out."""
        return super().pending or any(text.holds for text in self._texts.values())

    def feed(self, event: Event) -> list[Event]:
        """Take one event and return what may be shown."""
        match event:
            case PartTextDelta(index=index, text=text) if index in self._texts:
                shown = self._cut(self._texts[index], text)
                return super().feed(event if shown is text else PartTextDelta(index, shown)) if shown else []
            case PartStarted(index=index, part=Text(text=text) as part):
                seen = self._texts[index] = StopSequences(self._stops)
                shown = self._cut(seen, text)
                return super().feed(event if shown is text else PartStarted(index, part.evolve(text=shown)))
            case PartEnded(index=index, part=final) if index in self._texts:
                return self._end_part(self._texts.pop(index), event, final)
            case _:
                return super().feed(event)

    def fresh(self) -> "StoppedScanner":
        """Return a lens that has seen nothing yet."""
        return StoppedScanner(self._lookout, self._token, self._echoes, self._stops)

    def _end_part(self, seen: StopSequences, event: PartEnded, final: Part | None) -> list[Event]:
        beyond = final.text[seen.fed :] if isinstance(final, Text) else ""
        rest = (self._cut(seen, beyond) if beyond else "") + seen.close()
        out = super().feed(PartTextDelta(event.index, rest)) if rest else []
        return [*out, *super().feed(PartEnded(event.index) if self._found is not None else event)]

    def _cut(self, seen: StopSequences, text: str) -> str:
        if self._found is not None:
            seen.fed += len(text)
            return ""
        shown = seen.feed(text) if text else text
        if seen.found is not None:
            self._found, self.touched = seen.found, True
        return shown
