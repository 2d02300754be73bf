"""Which parts of a streamed reply may go out before its verdict (rules 53, 113, 135).

Text and reasoning go out as they come, once there is something to see. From the first call on everything waits for
the verdict, and where a force is unmet everything waits from the start. Calls of an upstream that is trusted go out as
they come while their arguments may still become valid (rule 139): the first wrong byte and everything behind it wait,
and so do the end of a call that is not complete and a call whose id another call has (rules 67, 143). `Released` knows
what went out, so that the rest of an accepted reply can follow it; what went out is never taken back.
"""

from collections.abc import Callable, Iterable, Mapping

from mustcall.core.errors import UpstreamGarbage
from mustcall.core.origin import JsonObject
from mustcall.core.parts import CallKind, Part, ProviderItem, Reasoning, Refusal, Text, ToolCall
from mustcall.core.reply import Reply
from mustcall.core.request import Request
from mustcall.core.streams.coalesce import coalesce
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
from mustcall.core.streams.unroll import unroll, unroll_part
from mustcall.policy.history.in_order import ids_called
from mustcall.policy.reply.provider_calls import is_client_call
from mustcall.policy.schema.growing import Growing

__all__ = ["EVERY", "Gate", "Released"]

#: Stands for every tool, whatever its calls are.
EVERY: Mapping[str, JsonObject | None] = {}


class Gate:
    """Lets events of one attempt through, in order, until something has to wait for the verdict."""

    __slots__ = (
        "_admitted",
        "_calls",
        "_cut",
        "_ids",
        "_items",
        "_request",
        "_trusted",
        "_waiting",
        "begun",
        "finished",
        "stopped",
    )

    def __init__(
        self,
        *,
        closed: bool,
        trusted: Mapping[str, JsonObject | None] | None = None,
        items: Callable[[ProviderItem], bool] | None = None,
        request: Request | None = None,
        begun: bool = False,
    ) -> None:
        #: Tells which calls in the provider's own form go out as they come; None if none does.
        self._items = items
        #: The tools whose calls go out as they come, with their schemas; None if those of no tool do.
        self._trusted = trusted
        #: The request with the conversation's earlier calls.
        self._request = request
        self._ids: set[str] = set()
        self._admitted: set[int] = set()
        self._cut = False
        self._calls: dict[int, Growing] = {}
        self._waiting: list[Event] = []
        #: Whether anything a reader sees has gone out.
        self.begun = begun
        #: Whether everything from here on waits for the verdict.
        self.stopped = closed
        #: Whether the stream came to its end while its events flowed: nothing waits but the verdict itself.
        self.finished = False

    def expect_cut(self) -> None:
        """Let no further call end: the events that follow say that the reply was cut off (rule 26)."""
        self._cut = True

    def stop(self) -> None:
        """Let nothing more out before the verdict."""
        self.stopped = True
        self._waiting.clear()

    def feed(self, event: Event) -> list[Event]:
        """Take one event and return what may go out now."""
        if self.stopped:
            return []
        match event:
            case PartTextDelta(text=text) | PartReasoningDelta(text=text):
                if self.begun:
                    return [event]
                shows = bool(text) and not text.isspace()
            case PartStarted(part=ToolCall() as call) if not self._admits(event.index, call):
                self.stop()
                return []
            case PartStarted(part=ProviderItem() as item) if item.client_tools and not self._passes(item):
                self.stop()
                return []
            case ArgumentsDelta(index=index, text=text) if index in self._calls and not self._calls[index].feed(text):
                self.stop()
                return []
            case PartEnded(index=index) if index in self._calls and not self._calls[index].done:
                self.stop()
                return []
            case PartEnded(index=index) if self._cut and index in self._admitted:
                self.stop()
                return []
            case PartStarted(part=part):
                shows = not isinstance(part, Text | Reasoning | Refusal) or bool(getattr(part, "text", "").strip())
            case Finished() | Ended() | Failed():
                self.finished = True
                self.stop()
                return []
            case _:
                shows = False
        if self.begun:
            return [event]
        self._waiting.append(event)
        if not shows:
            return []
        self.begun = True
        out, self._waiting = self._waiting, []
        return out

    def _passes(self, item: ProviderItem) -> bool:
        """Tell whether a call in the provider's own form may go out."""
        return self._trusted is EVERY or (self._items is not None and self._items(item))

    def _admits(self, index: int, call: ToolCall) -> bool:
        """Tell whether a call that begins may go out; its arguments are read from here on."""
        if self._trusted is EVERY:
            return True
        if self._trusted is None or call.name not in self._trusted or not self._is_new(call.id):
            return False
        self._admitted.add(index)
        if call.kind is not CallKind.FUNCTION:
            return True
        growing = self._calls[index] = Growing(self._trusted[call.name])
        return growing.feed(call.arguments_json)

    def _is_new(self, identifier: str) -> bool:
        """Tell whether a call has an id that no other call of the conversation has, and note it."""
        earlier = () if self._request is None else ids_called(self._request)
        if not identifier or identifier in self._ids or any(identifier in ids for ids in earlier):
            return False
        self._ids.add(identifier)
        return True


class _Progress:
    """One part as far as it went out."""

    __slots__ = ("arguments", "ended", "part", "stated", "summaries", "text")

    def __init__(self, part: Part) -> None:
        self.part = part
        self.text: list[str] = [part.text] if isinstance(part, Text | Refusal | Reasoning) else []
        self.arguments: list[str] = [part.arguments_json] if isinstance(part, ToolCall) else []
        self.summaries: dict[int, list[str]] = {}
        self.stated = isinstance(part, Reasoning) and part.state is not None
        self.ended = False


#: How many events of one stream are kept as they went out before their deltas are joined: a few milliseconds of work.
_LOOSE = 1_024
#: Deltas of so many characters are not joined: there are few of them, and a thousand would be copied for milliseconds.
_LONG = 4_096


class Released:
    """What the caller has been sent of this turn. Events are only noted as they go out, and read when it is asked.

    Of a long stream the deltas are joined, a thousand at a time: they are few when they are read, all in one step.
    """

    __slots__ = ("_known", "_read", "_started", "events", "full")

    def __init__(self) -> None:
        #: Everything that went out, in order.
        self.events: list[Event] = []
        #: From how many events on `join` is called for.
        self.full = _LOOSE
        self._read = 0
        self._started = False
        self._known: dict[int, _Progress] = {}

    def __bool__(self) -> bool:
        return bool(self.events)

    @property
    def weight(self) -> int:
        """How many characters went out as text, reasoning and arguments."""
        return sum(
            len(event.text)
            for event in self.events
            if isinstance(event, PartTextDelta | PartReasoningDelta | ArgumentsDelta)
        )

    def record(self, events: Iterable[Event]) -> None:
        """Note events that went out."""
        self.events += events
        if len(self.events) > self.full:
            self.join()

    def join(self) -> None:
        """Join the deltas that were not joined yet and not read."""
        start = max(self.full - _LOOSE, self._read)
        self.events[start:] = coalesce(self.events[start:], _LONG)
        self.full = len(self.events) + _LOOSE

    @property
    def _parts(self) -> dict[int, _Progress]:
        """The parts as far as they went out."""
        if self._read < len(self.events):
            new = self.events[self._read :]
            self._read = len(self.events)
            self._note(new)
        return self._known

    def _note(self, events: list[Event]) -> None:
        parts = self._known
        for event in events:
            match event:
                case PartTextDelta(index=index, text=text):
                    parts[index].text.append(text)
                case PartReasoningDelta(index=index, text=text, summary=summary):
                    if summary is None:
                        parts[index].text.append(text)
                    else:
                        parts[index].summaries.setdefault(summary, []).append(text)
                case ArgumentsDelta(index=index, text=text):
                    parts[index].arguments.append(text)
                case PartStarted(index=index, part=part):
                    parts[index] = _Progress(part)
                case PartEnded(index=index):
                    parts[index].ended = True
                case StateDelta(index=index):
                    parts[index].stated = True
                case Started():
                    self._started = True
                case _:
                    pass

    def rest(self, reply: Reply) -> list[Event]:
        """Return the events that complete a reply; raise `UpstreamGarbage` if it contradicts what went out."""
        parts = self._parts
        if not self._started:
            return list(unroll(reply))
        out: list[Event] = []
        following: list[Part] = []
        for index, part in enumerate(reply.parts):
            progress = parts.get(index)
            if progress is None:
                following.append(part)
            elif not progress.ended:
                out += _complete(index, part, progress)
        if any(index >= len(reply.parts) for index in parts):
            raise _contradiction()
        return [*out, *self._append(following), *_ending(reply)]

    @property
    def spoke(self) -> bool:
        """Whether more than reasoning went out: then a later attempt can add its calls and nothing else."""
        return any(not isinstance(part, Reasoning) for part in self._begun())

    @property
    def called(self) -> bool:
        """Whether some of a call went out: then no other attempt can follow."""
        return any(isinstance(part, ToolCall) or is_client_call(part) for part in self._begun())

    def _begun(self) -> list[Part]:
        """Return the parts that began to go out. Most events are deltas, which are not looked at one by one."""
        begun: list[Part] = []
        kinds, place = list(map(type, self.events)), -1
        for _ in range(kinds.count(PartStarted)):
            place = kinds.index(PartStarted, place + 1)
            event = self.events[place]
            assert isinstance(event, PartStarted)
            begun.append(event.part)
        return begun

    def more(self, reply: Reply) -> list[Event]:
        """Return the events that end what went out and add what a later attempt may add to it.

        After reasoning alone that is its text and its calls; after text it is its calls.
        """
        kinds = ToolCall if self.spoke else Text | Refusal | ToolCall
        ends: list[Event] = [PartEnded(index) for index, progress in self._parts.items() if not progress.ended]
        added = [part for part in reply.parts if isinstance(part, kinds) or is_client_call(part)]
        return [*ends, *self._append(added), *_ending(reply)]

    def _append(self, parts: list[Part]) -> list[Event]:
        out: list[Event] = []
        place = max(self._parts, default=-1) + 1
        for part in parts:
            if isinstance(part, Text) and not part.text:
                continue
            out += unroll_part(place, part)
            place += 1
        return out


def _ending(reply: Reply) -> list[Event]:
    out: list[Event] = [] if reply.usage is None else [UsageUpdated(reply.usage)]
    return [*out, Finished(reply.finish, reply.reported_finish, reply.stop_sequence), Ended()]


def _complete(index: int, part: Part, progress: _Progress) -> list[Event]:
    """Return the events that end a part of which some went out already."""
    out: list[Event] = []
    match part, progress.part:
        case (Text(text=text), Text()) | (Refusal(text=text), Refusal()):
            out += _tail(index, text, progress.text, PartTextDelta)
        case ToolCall(arguments_json=arguments), ToolCall():
            out += _tail(index, arguments, progress.arguments, ArgumentsDelta)
        case Reasoning() as thought, Reasoning():
            out += _tail(index, thought.text, progress.text, PartReasoningDelta)
            for number, summary in enumerate(thought.summary):
                sent = "".join(progress.summaries.get(number, ()))
                if not summary.startswith(sent):
                    raise _contradiction()
                if len(summary) > len(sent):
                    out.append(PartReasoningDelta(index, summary[len(sent) :], number))
            if thought.state is not None and not progress.stated:
                out.append(StateDelta(index, thought.state))
        case _:
            if type(part) is not type(progress.part):
                raise _contradiction()
            return [PartEnded(index, part)]  # it began without what its deltas brought
    return [*out, PartEnded(index)]


def _tail(
    index: int,
    whole: str,
    pieces: list[str],
    make: type[PartTextDelta] | type[ArgumentsDelta] | type[PartReasoningDelta],
) -> list[Event]:
    sent = "".join(pieces)
    if not whole.startswith(sent):
        raise _contradiction()
    return [make(index, whole[len(sent) :])] if len(whole) > len(sent) else []


def _contradiction() -> UpstreamGarbage:
    return UpstreamGarbage("the upstream contradicted at its end what it had streamed before")
