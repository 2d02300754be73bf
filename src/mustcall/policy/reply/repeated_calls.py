"""Whether a reply makes the same call once more, round after round (rule 108).

It counts and compares; what follows from a loop (advice, an error) is the judge's and the remedy's. Only the rounds
since the user's latest message count: a user who asks again may well get the same call again.

Two calls are the same if they name the same tool and their arguments mean the same JSON, whatever the order of keys;
arguments that are not JSON are compared as text. However often a round makes a call, it counts once.

Cost: linear in the calls of the rounds that are looked at, and these are looked at from the last one back only as long
as the run goes on. A reply whose calls are new reads one round.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

import msgspec

from mustcall.core.message import Role
from mustcall.core.parts import Text, ToolCall, ToolResult
from mustcall.core.request import Request
from mustcall.policy.facts.controls import ToolControls
from mustcall.policy.words.grounding import input_of
from mustcall.wire.crossing.naming import flat_name

__all__ = ["Loop", "loop_of", "may_loop"]

_DEFAULTS = ToolControls()


class Loop(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was made before. `times` counts the rounds in a row, this one included."""

    name: str
    times: int
    #: Whether this is the round in which the advice is due: it is given once.
    advise: bool
    block: bool
    #: Whether the last two rounds brought the same output.
    same_output: bool

    @property
    def told(self) -> str:
        """The loop in words, for an error."""
        same = " and brought the same output twice" if self.same_output else ""
        return f"the call of {self.name!r} was made {self.times} times in a row{same}"


class _Key(msgspec.Struct, frozen=True):
    """What makes two calls the same."""

    name: str
    namespace: str | None
    arguments: bytes | str


class _Round(msgspec.Struct):
    """One round of the model's: its calls, the last one first, and the results that came for them."""

    calls: list[ToolCall]
    results: dict[str, ToolResult]


def may_loop(request: Request) -> bool:
    """Tell whether tool results came lately and the user has not just spoken, so that there can be a loop at all."""
    recent = request.messages[-4:]
    for message in reversed(recent):
        for part in message.parts:
            if isinstance(part, ToolResult):
                return True
        if message is recent[-1] and message.role is Role.USER and input_of(message.parts) is not None:
            return False
    return False


def loop_of(request: Request, calls: Iterable[ToolCall], tools: Mapping[str, ToolControls]) -> Loop | None:
    """Return the worst loop the calls of a reply go on with: one that blocks, else the longest; None if there is none.

    A loop is what reaches a tool's `loop_advice` or `loop_block`, or repeats after the same output twice.
    """
    made = list(calls)
    rounds = _rounds(request)
    last = next(rounds, None)
    if not made or last is None or not _may_repeat(made, last.calls):
        return None
    alive = {_key(call): call for call in made}
    names = {key.name for key in alive}
    times = dict.fromkeys(alive, 1)
    outputs: dict[_Key, list[tuple[object, ...] | None]] = {key: [] for key in alive}
    for round_ in chain((last,), rounds):
        again = {_key(call): call for call in round_.calls if call.name in names}
        alive = {key: call for key, call in alive.items() if key in again}
        if not alive:
            break
        names = {key.name for key in alive}
        for key in alive:
            times[key] += 1
            if len(outputs[key]) < 2:
                outputs[key].append(_output(round_.results.get(again[key].id)))
    loops = [_judged(key, times[key], outputs[key], tools) for key in times]
    return max((loop for loop in loops if loop is not None), key=_weight, default=None)


def _may_repeat(made: list[ToolCall], before: list[ToolCall]) -> bool:
    """Tell whether a call may be one of the round before. Most are not, which is seen without writing them anew."""
    names = {call.name for call in made}
    alike = [call for call in before if call.name in names]
    if len(alike) != 1 or len(made) != 1:
        return bool(alike)
    try:  # what is written the same when its keys are in order is the same value
        return bool(msgspec.json.decode(made[0].arguments_json) == msgspec.json.decode(alike[0].arguments_json))
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return True


def _weight(loop: Loop) -> tuple[bool, int]:
    return loop.block, loop.times


def _judged(
    key: _Key, times: int, outputs: list[tuple[object, ...] | None], tools: Mapping[str, ToolControls]
) -> Loop | None:
    settings = tools.get(key.name) or tools.get(flat_name(key.namespace, key.name)) or _DEFAULTS
    same = len(outputs) == 2 and outputs[0] is not None and outputs[0] == outputs[1]
    block = (0 < settings.loop_block <= times and times > 1) or (same and settings.loop_block_same)
    advised = 0 < settings.loop_advice <= times and times > 1
    if not (same or block or advised):
        return None
    return Loop(name=key.name, times=times, advise=times == settings.loop_advice, block=block, same_output=same)


def _rounds(request: Request) -> Iterator[_Round]:
    """Yield the rounds since the user's latest message, the last one first. Results stand behind their calls."""
    calls: list[ToolCall] = []
    results: dict[str, ToolResult] = {}
    for message in reversed(request.messages):
        if message.role is Role.USER and input_of(message.parts) is not None:
            break
        for part in reversed(message.parts):
            if isinstance(part, ToolCall):
                calls.append(part)
            elif isinstance(part, ToolResult):
                if calls:
                    yield _Round(calls, results)
                    calls, results = [], {}
                results[part.call_id] = part
    if calls:
        yield _Round(calls, results)


def _key(call: ToolCall) -> _Key:
    try:
        value = msgspec.json.decode(call.arguments_json)
        arguments: bytes | str = msgspec.json.encode(value, order="deterministic")
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        arguments = call.arguments_json
    return _Key(call.name, call.namespace, arguments)


def _output(result: ToolResult | None) -> tuple[object, ...] | None:
    """Return what a result says, without where it came from; None if there is no result."""
    if result is None:
        return None
    said = (
        item.text if isinstance(item, Text) else msgspec.structs.replace(item, origin=None) for item in result.content
    )
    return (result.is_error, *said)
