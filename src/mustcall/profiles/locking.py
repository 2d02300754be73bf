"""A lock for values that threads share: each public method of such a value runs alone.

Turns of one event loop never interrupt each other between two awaits. Blocking callers bring a thread and an event loop
each (LangChain's `batch`), and read and write the same facts and counts at the same time.
"""

import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

__all__ = ["Locked", "alone"]

P = ParamSpec("P")
R = TypeVar("R")


class Locked(Protocol):
    """A value with a lock. Methods may call each other, so the lock is reentrant."""

    lock: threading.RLock


S = TypeVar("S", bound=Locked)


def alone(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Return the method so that it holds the value's lock while it runs. It must not wait for anything else."""

    @wraps(method)
    def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.lock:
            return method(self, *args, **kwargs)

    return run
