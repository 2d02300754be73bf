"""A long conversation made to fit: older results give way first, then older messages, and pinned ones never.

What is sent is shortened; the history itself stays whole. A call and its results stay or go together, so that what is
left is a conversation that every wire takes. The user's latest message and the latest tool rounds always stay. A result
gives way to a sentence of ours and is never cut: half a wrapper would let data pass for instructions.

The same messages always give the same outcome: a run that goes on after an interruption sends what it would have sent.
Cost: linear in the messages.
"""

from collections.abc import Sequence

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.message import Message, Role
from mustcall.core.parts import Part, Text, ToolResult
from mustcall.policy.facts.wording import Wording, fill
from mustcall.policy.words.grounding import input_of
from mustcall.wire.messages.count import estimate_message

__all__ = ["Compacted", "Compaction", "check_compaction", "compact"]


class Compaction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a long conversation is shortened before it is sent.

    `max_tokens` is the limit for the messages of a request, estimated from characters. The latest `keep_rounds` tool
    rounds stay complete. Results of at most `keep_result` characters are not replaced.
    """

    max_tokens: int
    keep_rounds: int = 2
    keep_result: int = 200


def check_compaction(compaction: Compaction) -> None:
    """Raise `ConfigError` for numbers that make no sense."""
    for name, least in (("max_tokens", 1), ("keep_rounds", 0), ("keep_result", 0)):
        value = getattr(compaction, name)
        if value < least:
            raise ConfigError(f"compaction: {name} must be {least} or more, got {value}")


class Compacted(msgspec.Struct, frozen=True):
    """What is sent. `left_out` counts messages, `emptied` results; both are 0 where nothing had to give way."""

    messages: tuple[Message, ...]
    left_out: int = 0
    emptied: int = 0


class _Unit:
    """Messages that stay or go together."""

    __slots__ = ("kept", "messages", "size")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.size = 0
        #: Whether it never goes.
        self.kept = False


def compact(messages: Sequence[Message], compaction: Compaction, wording: Wording | None = None) -> Compacted:
    """Return what of a conversation is sent; all of it where it fits, and where nothing more can give way."""
    words = wording or Wording()
    units = _units(messages)
    total = sum(unit.size for unit in units)
    if total <= compaction.max_tokens:
        return Compacted(tuple(messages))
    _keep(units, compaction.keep_rounds)
    emptied = left_out = 0
    for unit in units:
        if total <= compaction.max_tokens:
            break
        if not unit.kept:
            before = unit.size
            emptied += _empty(unit, compaction.keep_result, words)
            total += unit.size - before
    staying: list[Message] = []
    for unit in units:
        if total > compaction.max_tokens and not unit.kept:
            total -= unit.size
            left_out += len(unit.messages)
        else:
            staying += unit.messages
    if left_out:
        note = Text(text=fill(words.messages_left_out, count=str(left_out)))
        staying.insert(0, Message(role=Role.USER, parts=(note,)))
    return Compacted(tuple(staying), left_out, emptied)


def _units(messages: Sequence[Message]) -> list[_Unit]:
    """Lay messages together: calls with all that follows them up to their results, anything else by itself."""
    units: list[_Unit] = []
    waiting: set[str] = set()
    for message in messages:
        answers = {result.call_id for result in message.results}
        if not (units and (waiting or answers)):
            units.append(_Unit())
        unit = units[-1]
        unit.messages.append(message)
        unit.size += estimate_message(message)
        unit.kept = unit.kept or bool(message.pinned)
        waiting = (waiting | {call.id for call in message.calls}) - answers
    return units


def _keep(units: list[_Unit], rounds: int) -> None:
    """Keep the user's latest message, and the latest rounds."""
    latest = max((index for index, unit in enumerate(units) if _asks(unit)), default=None)
    if latest is not None:
        units[latest].kept = True
    with_results = [unit for unit in units if any(message.results for message in unit.messages)]
    for unit in with_results[len(with_results) - rounds :] if rounds else ():
        unit.kept = True


def _asks(unit: _Unit) -> bool:
    return any(each.role is Role.USER and input_of(each.parts) is not None for each in unit.messages)


def _empty(unit: _Unit, keep: int, words: Wording) -> int:
    """Put a sentence in the place of a unit's long results; return how many there were."""
    count = 0
    for index, message in enumerate(unit.messages):
        if not message.results:
            continue
        parts: list[Part] = []
        for part in message.parts:
            length = _length(part) if isinstance(part, ToolResult) else 0
            if isinstance(part, ToolResult) and length > keep:
                count += 1
                note = Text(text=fill(words.result_left_out, count=str(length)))
                parts.append(part.evolve(content=(note,)))
            else:
                parts.append(part)
        unit.messages[index] = message.evolve(parts=tuple(parts))
    if count:
        unit.size = sum(map(estimate_message, unit.messages))
    return count


def _length(result: ToolResult) -> int:
    return sum(len(part.text) if isinstance(part, Text) else _MEDIA for part in result.content)


#: What a part that is no text counts for, in characters.
_MEDIA = 4000
