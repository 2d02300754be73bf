"""Every call has exactly one result, right behind it, and every result has its call (rule 101).

The history is read as turns: neighbouring assistant messages, and what follows them up to the next one. For each
result the latest call of its id is the one it answers; calls that share an id within one turn are answered in order,
because some servers start their ids anew each round. Then:

- a call without a result gets an error result that says so, also at the very end of the history;
- a result that comes later than the next assistant turn, or behind other content of its own turn, is moved up to its
  call, because it is known and the model should see it;
- a result without a call before it, and a second result for the same call, are removed.

A result whose call the server keeps (`previous_response_id`, a conversation, an item reference) or that answers a call
of the provider's own kind is no orphan. A well-paired history comes back as the same tuple. Linear in the history.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.message import Message, Role
from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import Part, ProviderItem, Text, ToolCall, ToolResult, Unknown
from mustcall.policy.facts.wording import Wording

__all__ = ["pair_results"]

_WORDING = Wording()


class _Slot:
    """One call and whether its result was found."""

    __slots__ = ("answered", "call", "holder")

    def __init__(self, call: ToolCall, holder: Message) -> None:
        self.call = call
        self.holder = holder
        self.answered = False


class _Turn:
    """Neighbouring assistant messages and what follows them; `late` are results found further on."""

    __slots__ = ("assistant", "follow", "late", "number", "slots", "start")

    def __init__(self, number: int, start: int) -> None:
        self.number = number
        self.start = start
        self.assistant: list[Message] = []
        self.follow: list[Message] = []
        self.slots: list[_Slot] = []
        self.late: list[tuple[Message, ToolResult]] = []

    @property
    def follow_start(self) -> int:
        """The place in the history where the turn's results belong."""
        return self.start + len(self.assistant)

    def continues(self) -> bool:
        """Whether a further assistant message belongs to this turn."""
        if self.follow or not self.assistant:
            return False
        last = self.assistant[-1]
        # The chat wire wants results right behind the very message that holds the calls.
        return not (last.origin is not None and last.origin.wire is Wire.CHAT and last.calls)


class _Reading:
    """One pass over the history: what answers what, and which parts must go from where they are."""

    def __init__(self, *, kept_by_server: bool, bound: int) -> None:
        self.turns: list[_Turn] = [_Turn(0, 0)]
        self.taken: set[tuple[int, int]] = set()
        self.orphans = self.doubles = self.moved = self.left = 0
        self._open: dict[str, tuple[_Turn, deque[_Slot]]] = {}
        self._provider_ids: set[str] = set()
        self._kept_by_server = kept_by_server
        self._bound = bound

    def read(self, index: int, message: Message) -> None:
        """Take the next message."""
        turn = self.turns[-1]
        assistant = message.role is Role.ASSISTANT
        if assistant:
            if not turn.continues():
                turn = _Turn(turn.number + 1, index)
                self.turns.append(turn)
            turn.assistant.append(message)
        else:
            turn.follow.append(message)
        for position, part in enumerate(message.parts):
            match part:
                case ToolCall() if assistant:
                    self._call(part, message, turn)
                case ToolResult():
                    self._result(part, message, turn, (index, position))
                case ProviderItem(value=value) | Unknown(value=value):
                    if value.get("type") == "item_reference":
                        self._kept_by_server = True
                    self._provider_ids.update(
                        found for key in ("call_id", "id") if isinstance(found := value.get(key), str)
                    )
                case _:
                    pass

    def _call(self, call: ToolCall, message: Message, turn: _Turn) -> None:
        slot = _Slot(call, message)
        turn.slots.append(slot)
        known = self._open.get(call.id)
        if known is None or known[0] is not turn:
            self._open[call.id] = (turn, deque((slot,)))
        else:
            known[1].append(slot)

    def _result(self, result: ToolResult, message: Message, turn: _Turn, place: tuple[int, int]) -> None:
        known = self._open.get(result.call_id)
        if known is None:
            if self._kept_by_server or result.call_id in self._provider_ids:
                return
            self.orphans += self._take(place)
            return
        asking, waiting = known
        if not waiting:
            self.doubles += self._take(place)
            return
        if asking is turn and message.role is not Role.ASSISTANT:
            waiting.popleft().answered = True
        elif asking.follow_start < self._bound or place[0] < self._bound:
            self.left += 1  # it can neither be taken from here nor put there
            waiting.popleft().answered = True
        else:
            waiting.popleft().answered = True
            asking.late.append((message, result))
            self.moved += self._take(place)

    def _take(self, place: tuple[int, int]) -> bool:
        if place[0] < self._bound:
            self.left += 1
            return False
        self.taken.add(place)
        return True


def pair_results(
    messages: tuple[Message, ...],
    bound: int,
    log: AdaptationLog,
    *,
    kept_by_server: bool = False,
    wording: Wording = _WORDING,
) -> tuple[Message, ...]:
    """Return the messages with every call answered once; the same tuple if they are. The first `bound` stay."""
    reading = _Reading(kept_by_server=kept_by_server, bound=bound)
    for index, message in enumerate(messages):
        reading.read(index, message)
    out: list[Message] = []
    made = reordered = 0
    changed = bool(reading.taken)
    for turn in reading.turns:
        follow_start = turn.follow_start
        out.extend(_kept(turn.assistant, turn.start, reading.taken))
        missing = [slot for slot in turn.slots if not slot.answered]
        if follow_start < bound:
            reading.left += len(missing)
            out.extend(_kept(turn.follow, follow_start, reading.taken))
            continue
        follow = _kept(turn.follow, follow_start, reading.taken)
        ordered = _results_first(follow) if turn.assistant else follow
        if ordered is not follow:
            changed = True
            reordered += 1
        added = [_error_result(slot, wording) for slot in missing] + [
            _moved(message, part) for message, part in turn.late
        ]
        made += len(missing)
        changed = changed or bool(added)
        out.extend(_put_before(added, ordered))
    _note(log, made=made, reordered=reordered, reading=reading)
    return tuple(out) if changed else messages


def _note(log: AdaptationLog, *, made: int, reordered: int, reading: _Reading) -> None:
    for count, subject, detail in (
        (made, "tool_call", "without a result: answered with an error"),
        (reading.moved, "tool_result", "moved up to the call it answers"),
        (reordered, "tool_result", "turns in which results were put before other content"),
        (reading.orphans, "tool_result", "without a call: removed"),
        (reading.doubles, "tool_result", "for a call already answered: removed"),
    ):
        if count:
            log.add(AdaptationKind.HISTORY_MENDED, subject, f"{count} {detail}")
    if reading.left:
        detail = f"{reading.left} calls or results without their counterpart, in turns that reasoning is bound to"
        log.add(AdaptationKind.REPORTED, "history", detail)


def _kept(messages: Sequence[Message], start: int, taken: set[tuple[int, int]]) -> list[Message]:
    """Return the messages without the parts that were taken; one that held nothing else is left out."""
    if not taken:
        return list(messages)
    kept: list[Message] = []
    for index, message in enumerate(messages, start):
        parts = tuple(part for position, part in enumerate(message.parts) if (index, position) not in taken)
        if len(parts) == len(message.parts):
            kept.append(message)
        elif parts:
            kept.append(message.evolve(parts=parts))
    return kept


def _results_first(messages: list[Message]) -> list[Message]:
    """Return the messages with all results before any other content; the same list if they are so."""
    other = misplaced = False
    for message in messages:
        for part in message.parts:
            if not isinstance(part, ToolResult):
                other = True
            elif other:
                misplaced = True
        other = other or not message.parts
    if not misplaced:
        return messages
    first: list[Message] = []
    then: list[Message] = []
    for message in messages:
        results = message.results
        others = tuple(part for part in message.parts if not isinstance(part, ToolResult))
        if not results:
            then.append(message)
        elif not others:
            first.append(message)
        elif not then:
            then.append(message.evolve(parts=(*results, *others)))
        else:
            first.append(_message(results, message))
            then.append(message.evolve(parts=others))
    return [*first, *then]


def _error_result(slot: _Slot, wording: Wording) -> Message:
    call = slot.call
    origin = None if call.origin is None else Origin(call.origin.wire)
    said = (Text(text=wording.no_result),)
    result = ToolResult(call_id=call.id, content=said, is_error=True, kind=call.kind, origin=origin)
    return _message((result,), slot.holder)


def _moved(message: Message, result: ToolResult) -> Message:
    """Return a late result as a message: its own, if that holds nothing else."""
    return message if len(message.parts) == 1 and message.role is Role.TOOL else _message((result,), message)


def _message(parts: Iterable[Part], like: Message) -> Message:
    """Return a message of results, of the same wire as another, so that ids are spelled alike."""
    origin = None if like.origin is None else Origin(like.origin.wire)
    return Message(role=Role.TOOL, parts=tuple(parts), origin=origin)


def _put_before(added: list[Message], follow: list[Message]) -> list[Message]:
    """Put results before what follows the calls; on the Messages wire they join its turn, because turns alternate."""
    if not added or added[0].origin is None or added[0].origin.wire is not Wire.MESSAGES:
        return added + follow
    parts = tuple(part for message in added for part in message.parts)
    if follow and follow[0].origin is not None and follow[0].origin.wire is Wire.MESSAGES:
        head = follow[0]
        if head.role is Role.TOOL or head.role is Role.USER:
            return [head.evolve(parts=(*parts, *head.parts)), *follow[1:]]
    return [_message(parts, added[0]), *follow]
