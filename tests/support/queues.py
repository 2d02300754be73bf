"""An engine in memory for workers."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["Queue"]


class Queue:
    """An engine that gives everything out twice, and forgets nothing."""

    def __init__(self) -> None:
        self.tasks: list[str] = []
        self.closed = False

    async def submit(self, task: str) -> None:
        """Take a task, twice."""
        self.tasks += [task, task]

    async def cancel(self, task: str) -> None:
        """Forget a task."""
        self.tasks.remove(task)

    async def serve(self, resume: Callable[[str], Coroutine[Any, Any, None]], concurrency: int) -> None:
        """Carry out whatever comes."""
        del concurrency
        async with asyncio.TaskGroup() as group:
            while True:
                while self.tasks:
                    group.create_task(resume(self.tasks.pop()))
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Take note."""
        self.closed = True
