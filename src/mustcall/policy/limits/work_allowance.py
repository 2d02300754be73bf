"""How many steps of work may be taken here and now, by whoever is called from here.

A decision may need one check or a thousand, each within its own bound. What bounds them together is the allowance of
the one who asked. There are two kinds. On an event loop little work may be done at once: more than that raises
`TooLong`, and the same pure function is called again where it holds nobody up. There, what goes beyond the allowance
is not done at all. Without an allowance nothing is bounded here, which is how the library's callers use the checks.

The unit is that of `workload`: about 25 ns.
"""

from contextvars import ContextVar
from typing import Any

__all__ = ["TooLong", "allow", "left", "spend"]


class TooLong(Exception):
    """The work is more than may be done here; it can be done elsewhere. Never leaves the engine."""


#: Steps that may be taken now, None where they are not counted. An event loop sets it for each step and takes it back;
#: nothing is awaited while it holds, and each thread has its own.
left: ContextVar[int | None] = ContextVar("left", default=None)
#: Whether there is no other place for more of them.
_last: ContextVar[bool] = ContextVar("last", default=False)


def allow(steps: int, function: Any, args: tuple[Any, ...]) -> Any:
    """Call a function that may spend so much and no more."""
    left.set(steps)
    _last.set(True)
    try:
        return function(*args)
    finally:
        left.set(None)
        _last.set(False)


def spend(steps: int) -> bool:
    """Count steps that are about to be taken; tell whether they may be, or raise `TooLong`."""
    rest = left.get()
    if rest is None:
        return True
    rest -= steps
    left.set(rest)
    if rest >= 0:
        return True
    if not _last.get():
        raise TooLong
    return False
