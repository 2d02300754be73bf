"""A script as its author writes it: the replies in order, or a function, and what counts as a reply.

`ScriptedModel` and `ScriptedUpstream` read their scripts here, so that both take the same ones. What is no reply is a
`ConfigError` that names the value and the fix. Nothing here knows a wire or a connection.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import cast

from msgspec import UNSET, UnsetType

from mustcall.core.errors import ConfigError
from mustcall.testing.recording import Recorded
from mustcall.testing.script import (
    Answer,
    Call,
    Cut,
    Delayed,
    Fail,
    Hang,
    Line,
    Raw,
    RawStream,
    Refuse,
    Reset,
    Say,
    StreamError,
    Think,
    Turn,
)

__all__ = ["Script", "ScriptLines", "read_line"]

Script = Iterable[Line] | Callable[[Recorded], Line]
"""Replies in the order of the requests, or a function that makes one for each."""

_REPLIES = "a text, a Call, a Say, a Turn, or another answer of mustcall.testing (Fail, Raw, Hang, ...)"
#: How much of a value an error shows.
_SHOWN = 200


class ScriptLines:
    """The lines of a script, one for each request. Raise `ConfigError` for what can be no script."""

    def __init__(self, script: Script, default: Line | None) -> None:
        _check_script(script)
        if default is not None:
            read_line(default, "default")
        self._make = script if callable(script) else None
        self._rest = iter(()) if callable(script) else iter(script)
        self._default: Line | UnsetType = UNSET if default is None else default

    def take(self, recorded: Recorded) -> Line | UnsetType:
        """Return the line for a request, unread; UNSET once the script has run out. A function's errors pass."""
        return next(self._rest, self._default) if self._make is None else self._make(recorded)


def read_line(line: object, what: str = "the answer") -> Answer:
    """Return the answer that a line stands for; raise `ConfigError` for any other value. `what` names it there."""
    match line:
        case str():
            return Turn(Say(line))
        case Say() | Think() | Call() | Refuse():
            return Turn(line)
        case Turn():
            _check_turn(line, what)
            return line
        case Delayed() | Hang() | Cut() | Reset():
            read_line(line.answer, f"the answer of {type(line).__name__} in {what}")
            return line
        case StreamError():
            _check_turn(line.turn, f"the turn of StreamError in {what}")
            return line
        case Fail() | Raw() | RawStream():
            return line
        case _:
            raise ConfigError(f"{what} must be {_REPLIES}, got {_shown(line)}{_hint(line)}")


def _check_script(script: object) -> None:
    if callable(script) or (isinstance(script, Iterable) and not isinstance(script, (str, bytes, Mapping))):
        return
    given = cast("object", script)
    fix = f"[{_shown(given)}]" if isinstance(given, str) else '["Hello."]'
    raise ConfigError(
        f"script must be a list of replies, or a function that returns one, got {_shown(given)}: write a list: {fix}"
    )


def _check_turn(turn: object, what: str) -> None:
    if not isinstance(turn, Turn):
        raise ConfigError(f"{what} must be a Turn, got {_shown(turn)}: write Turn(Say(...))")
    for part in turn.parts:
        _check_part(part, what)


def _check_part(part: object, what: str) -> None:
    if isinstance(part, Say | Think | Call | Refuse):
        return
    shown = _shown(part)
    fix = f"write Turn(Say({shown}))" if isinstance(part, str) else "write Turn(Say(...), Call(...))"
    raise ConfigError(f"{what} has the part {shown}, but the parts of a Turn are Say, Think, Call and Refuse: {fix}")


def _hint(line: object) -> str:
    """Return the likely fix."""
    if inspect.iscoroutine(line):
        line.close()  # nobody awaits it, and Python would warn of that
        return ": write the script's function with def, not async def"
    if line is None:
        return ": a function of the script must return its reply"
    return ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
