"""How many steps of work may be taken here and now, by whoever is called from here.

A decision may need one check or a thousand, each within its own bound. What bounds them together is the allowance of
the one who asked. There are two kinds. On an event loop little work may be done at once: more than that raises
`TooLong`, and the same pure function is called again where it holds nobody up. There, what goes beyond the allowance
is not done at all. Without an allowance nothing is bounded here, which is how the library's callers use the checks.

The unit is that of `workload`: about 25 ns.
"""

import threading
from typing import Any

__all__ = ["Allowance", "TooLong", "allow", "spend"]


class TooLong(Exception):
    """The work is more than may be done here; it can be done elsewhere. Never leaves the engine."""


class Allowance:
    """So many steps. `elsewhere`: there is a place for more of them."""

    __slots__ = ("elsewhere", "left")

    def __init__(self, steps: int, *, elsewhere: bool) -> None:
        self.left = steps
        self.elsewhere = elsewhere


class _Current(threading.local):
    """The allowance of a thread; nothing is awaited while it holds."""

    allowance: Allowance | None = None


_current = _Current()


def allow(allowance: Allowance, function: Any, args: tuple[Any, ...]) -> Any:
    """Call a function that may spend so much."""
    before = _current.allowance
    _current.allowance = allowance
    try:
        return function(*args)
    finally:
        _current.allowance = before


def spend(steps: int) -> bool:
    """Count steps that are about to be taken; tell whether they may be, or raise `TooLong`."""
    allowance = _current.allowance
    if allowance is None:
        return True
    allowance.left -= steps
    if allowance.left >= 0:
        return True
    if allowance.elsewhere:
        raise TooLong
    return False
