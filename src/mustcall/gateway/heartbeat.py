"""Signs of life on a stream whose turn holds back what it has, or tries again (rule 113).

A timer per stream looks now and then whether anything was sent lately; a stream that flows costs one assignment for
each write. The first sign begins the answer, so from then on a failure is an event of the stream.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from mustcall.engine.records import Progress

__all__ = ["Heartbeat"]


class Heartbeat:
    """`with Heartbeat(seconds, progress, send):` calls `send` when a held turn has been silent for that long."""

    __slots__ = ("_handle", "_loop", "_progress", "_seconds", "_send", "_task", "last")

    def __init__(self, seconds: float, progress: Progress, send: Callable[[], Awaitable[None]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._progress = progress
        self._send = send
        self._handle: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        #: When something was last sent, in the loop's seconds.
        self.last = self._loop.time()

    def __enter__(self) -> Self:
        if self._seconds > 0:
            self._handle = self._loop.call_later(self._seconds, self._look)
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._task is not None:
            self._task.cancel()  # nothing may follow the answer's end; one that is done does not mind

    async def settle(self) -> None:
        """Wait for a sign that is just being sent, so that nothing is written in between."""
        if self._task is not None and not self._task.done():
            await asyncio.wait((self._task,))

    def _look(self) -> None:
        silent = self._loop.time() - self.last
        wait = self._seconds - silent
        if wait <= 0:
            if self._progress.holding and (self._task is None or self._task.done()):
                self._task = self._loop.create_task(self._beat())
            wait = self._seconds
        self._handle = self._loop.call_later(wait, self._look)

    async def _beat(self) -> None:
        await self._send()
        self.last = self._loop.time()
