"""How many steps of work may be taken here and now, by whoever is called from here.

A decision may need one check or a thousand, each within its own bound. What bounds them together is the allowance of
the one who asked. There are two kinds. On an event loop little work may be done at once: more than that raises
`TooLong`, and the same pure function is called again where it holds nobody up. There, what goes beyond the allowance
is not done at all. Without an allowance nothing is bounded here, which is how the library's callers use the checks.

The unit is that of `workload`: about 25 ns.
"""

from threading import local
from typing import Any

__all__ = ["TooLong", "allow", "allowance", "spend"]


class TooLong(Exception):
    """The work is more than may be done here; it can be done elsewhere. Never leaves the engine."""


class _Allowance(local):
    """What a thread may do. An event loop sets it for each step and takes it back; nothing is awaited meanwhile."""

    #: Steps that may be taken now, None where they are not counted.
    left: int | None = None
    #: Whether there is no other place for more of them.
    last: bool = False


allowance = _Allowance()


def allow(steps: int, function: Any, args: tuple[Any, ...]) -> Any:
    """Call a function that may spend so much and no more."""
    allowance.left, allowance.last = steps, True
    try:
        return function(*args)
    finally:
        allowance.left, allowance.last = None, False


def spend(steps: int) -> bool:
    """Count steps that are about to be taken; tell whether they may be, or raise `TooLong`."""
    rest = allowance.left
    if rest is None:
        return True
    rest -= steps
    allowance.left = rest
    if rest >= 0:
        return True
    if not allowance.last:
        raise TooLong
    return False
