"""The one fold of stream events into a reply.

`feed` takes events in the order `core.streams.events` promises and costs O(length of the delta); `reply` joins once.
"""

from typing import assert_never

from mustcall.core.errors import ErrorInfo, UpstreamGarbage, UpstreamRejected, UpstreamUnavailable
from mustcall.core.limits import MOST_PARTS
from mustcall.core.parts import OpaqueState, Part, Reasoning, Refusal, Text, ToolCall
from mustcall.core.reply import FinishReason, Reply, Usage, derive_finish
from mustcall.core.streams.events import (
    ArgumentsDelta,
    Ended,
    Event,
    Failed,
    Finished,
    PartEnded,
    PartReasoningDelta,
    PartStarted,
    PartTextDelta,
    Started,
    StateDelta,
    UsageUpdated,
)

__all__ = ["Assembler"]


#: So many fragments are kept as they came before they are joined: a hundred thousand take long to free, all at once.
_LOOSE = 1_024
#: So many characters are not copied only for that: their fragments are few.
_LONG = 1024 * 1024


class _Slot:
    """One part under construction: its first form and the fragments that came since."""

    __slots__ = ("_full", "final", "fragments", "part", "state", "summaries")

    def __init__(self, part: Part) -> None:
        self.part = part
        self.fragments: list[str] = []
        self._full = _LOOSE
        self.summaries: dict[int, list[str]] = {}
        self.state: OpaqueState | None = None
        self.final: Part | None = None

    def add(self, text: str) -> None:
        """Take the next fragment."""
        fragments = self.fragments
        fragments.append(text)
        if len(fragments) > self._full:
            last = self._full - _LOOSE
            if sum(map(len, fragments[last:])) < _LONG:
                fragments[last:] = ["".join(fragments[last:])]
            self._full = len(fragments) + _LOOSE

    def build(self) -> Part:
        """Return the part as it stands."""
        if self.final is not None:
            return self.final
        part = self.part
        grown = "".join(self.fragments)
        match part:
            case Text() | Refusal():
                return part.evolve(text=part.text + grown) if grown else part
            case ToolCall():
                return part.evolve(arguments_json=part.arguments_json + grown) if grown else part
            case Reasoning():
                if not (grown or self.summaries or self.state):
                    return part
                added = tuple("".join(self.summaries[number]) for number in sorted(self.summaries))
                return part.evolve(
                    text=part.text + grown,
                    summary=part.summary + added,
                    state=self.state or part.state,
                )
            case _:
                return part

    @property
    def contradicted(self) -> bool:
        """Whether its final form says another text than what was streamed of it; white space around it is no matter."""
        final, part = self.final, self.part
        if not isinstance(final, Text) or not isinstance(part, Text):
            return False
        streamed = part.text + "".join(self.fragments)
        return not (final.text.startswith(streamed) or final.text.strip() == streamed.strip())


class Assembler:
    """Builds a `Reply` from events; `reply()` may be called at any time and raises what the stream failed with."""

    __slots__ = ("_ended", "_error", "_finish", "_slots", "_started", "_usage")

    def __init__(self) -> None:
        self._started: Started | None = None
        self._slots: dict[int, _Slot] = {}
        self._usage: Usage | None = None
        self._finish: Finished | None = None
        self._error: ErrorInfo | None = None
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether the stream came to its regular end."""
        return self._ended

    @property
    def finish(self) -> Finished | None:
        """Return why the model stopped, once known."""
        return self._finish

    @property
    def usage(self) -> Usage | None:
        """Return the last token counts seen."""
        return self._usage

    def feed(self, event: Event) -> None:
        """Take one event; raise `UpstreamGarbage` for more parts than a reply may have."""
        match event:
            case PartTextDelta() | ArgumentsDelta():
                self._slots[event.index].add(event.text)
            case PartReasoningDelta():
                slot = self._slots[event.index]
                if event.summary is None:
                    slot.add(event.text)
                else:
                    slot.summaries.setdefault(event.summary, []).append(event.text)
            case PartStarted():
                self._slots[event.index] = _Slot(event.part)
                if len(self._slots) > MOST_PARTS:
                    raise UpstreamGarbage(f"the upstream's reply has more than {MOST_PARTS} parts")
            case PartEnded():
                if event.part is not None:
                    self._slots[event.index].final = event.part
            case StateDelta():
                self._slots[event.index].state = event.state
            case UsageUpdated():
                self._usage = event.usage
            case Started():
                self._started = event
            case Finished():
                self._finish = event
            case Ended():
                self._ended = True
            case Failed():
                self._error = event.error
            case _:
                assert_never(event)

    @property
    def contradicted(self) -> bool:
        """Whether a text's final form says something else than what was streamed: then only that form counts."""
        return any(slot.contradicted for slot in self._slots.values())

    def part(self, index: int) -> Part:
        """Return one part as it stands."""
        return self._slots[index].build()

    def parts(self) -> tuple[Part, ...]:
        """Return all parts as they stand, in the order they started."""
        return tuple(self._slots[index].build() for index in sorted(self._slots))

    def so_far(self, usage: Usage) -> Reply:
        """Return the reply as if it ended here, with `usage` where none has come."""
        started = self._started or Started(id="", model="")
        return Reply(
            id=started.id,
            model=started.model,
            parts=self.parts(),
            finish=FinishReason.STOP,
            reported_finish=None,
            usage=self._usage or usage,
        )

    def reply(self) -> Reply:
        """Return the reply; raise the stream's own error, or `UpstreamUnavailable` if it never finished."""
        if self._error is not None:
            raise UpstreamRejected(self._error)
        if self._started is None or self._finish is None:
            raise UpstreamUnavailable("the upstream's stream ended before the reply was complete")
        parts = self.parts()
        return Reply(
            id=self._started.id,
            model=self._started.model,
            parts=parts,
            finish=derive_finish(self._finish.reason, parts),
            reported_finish=self._finish.reported,
            stop_sequence=self._finish.stop_sequence,
            usage=self._usage,
        )
