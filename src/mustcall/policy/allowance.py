"""How many steps of work may be taken here and now, by whoever is called from here.

A decision may need one check or a thousand, each within its own bound. What bounds them together is the allowance of
the one who asked. There are two kinds. On an event loop little work may be done at once: more than that raises
`TooLong`, and the same pure function is called again where it holds nobody up. There, what goes beyond the allowance
is not done at all. Without an allowance nothing is bounded here, which is how the library's callers use the checks.

The unit is that of `workload`: about 25 ns.
"""

import threading
from typing import Any

__all__ = ["TooLong", "allow", "current", "spend"]


class TooLong(Exception):
    """The work is more than may be done here; it can be done elsewhere. Never leaves the engine."""


class _Current(threading.local):
    """The allowance of a thread; nothing is awaited while it holds."""

    #: Steps that may be taken, None where they are not counted.
    left: int | None = None
    #: Whether there is no other place for more of them.
    last: bool = False


#: What is allowed now. An event loop sets `left` for each step and takes it back.
current = _Current()


def allow(steps: int, function: Any, args: tuple[Any, ...]) -> Any:
    """Call a function that may spend so much and no more."""
    current.left, current.last = steps, True
    try:
        return function(*args)
    finally:
        current.left, current.last = None, False


def spend(steps: int) -> bool:
    """Count steps that are about to be taken; tell whether they may be, or raise `TooLong`."""
    left = current.left
    if left is None:
        return True
    current.left = left = left - steps
    if left >= 0:
        return True
    if not current.last:
        raise TooLong
    return False
