"""What an engine that hands out work owes: to carry out every task that was submitted at least once.

Nothing else is asked of it. That a run is driven by one process at a time, that nothing is done twice and nothing lost,
is the journal's business; an engine that forgets, repeats or reorders tasks costs time and never truth.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

__all__ = ["Resume", "TaskQueue"]

Resume = Callable[[str], Coroutine[Any, Any, None]]
"""Carries a task out, and returns when nothing is left to do for it."""


class TaskQueue(Protocol):
    """A queue of tasks, shared by every process that serves it. A task is a name; the same name is one task."""

    async def submit(self, task: str) -> None:
        """Put a task into the queue."""
        ...

    async def cancel(self, task: str) -> None:
        """Take a task out of the queue; one that is under way is not waited for."""
        ...

    async def serve(self, resume: Resume, concurrency: int) -> None:
        """Carry tasks out, so many at a time, until this is cancelled."""
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...
