"""Signs of life on a stream whose turn holds back what it has, tries again, or waits for its upstream's first byte.

A timer per stream looks now and then whether anything was sent lately; a stream that flows costs two assignments for
each write. The first sign begins the answer, so from then on a failure is an event of the stream (rules 113, 145). That
is why an upstream gets some patience first: most refusals come within it, and keep their HTTP status. What a sign is,
the wire's own event or a comment, is decided in `engine.replies.delivery`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from mustcall.engine.records import TurnProgress

__all__ = ["Heartbeat"]

#: The first sign of a held stream comes after so many seconds of silence, if others do not come sooner.
_FIRST = 1.0
#: What is due within so many seconds is due: a timer cannot wait for less.
_NEAR = 0.001


class Heartbeat:
    """`with Heartbeat(seconds, progress, send):` calls `send` when a held stream has been silent for that long.

    `patience` is after how many seconds one counts as held for which the upstream has nothing; 0 for never.
    """

    __slots__ = (
        "_began",
        "_first",
        "_handle",
        "_last",
        "_loop",
        "_patience",
        "_progress",
        "_seconds",
        "_send",
        "_signed",
        "_time",
        "task",
    )

    def __init__(
        self,
        seconds: float,
        progress: TurnProgress,
        send: Callable[[], Awaitable[None]],
        *,
        patience: float = 0.0,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._patience = patience
        self._first = min(_FIRST, seconds)
        #: Whether the last that was sent is a sign.
        self._signed = False
        self._progress = progress
        self._send = send
        self._handle: asyncio.TimerHandle | None = None
        #: The sign that is being sent, or was last.
        self.task: asyncio.Task[None] | None = None
        self._time = self._loop.time
        self._last = self._began = self._time()

    def __enter__(self) -> Self:
        self._progress.streams = self.start
        return self

    def start(self) -> None:
        """Begin to look: a stream was asked for."""
        if self._seconds > 0 and self._handle is None:
            self._handle = self._loop.call_later(self._first, self._look)

    def __exit__(self, *_: object) -> None:
        self._progress.streams = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self.task is not None:
            self.task.cancel()  # nothing may follow the answer's end; one that is done does not mind

    def note(self) -> None:
        """Take note that something is being sent."""
        self._last = self._time()
        self._signed = False

    async def settle(self) -> None:
        """Wait for a sign that is just being sent, so that nothing is written in between."""
        if self.task is not None and not self.task.done():
            await asyncio.wait((self.task,))

    def _look(self) -> None:
        silent = self._time() - self._last
        wait = (self._seconds if self._signed else self._first) - silent
        if wait <= _NEAR:
            wait = self._first
            if self._is_due() and (self.task is None or self.task.done()):
                self.task = self._loop.create_task(self._beat())
                wait = self._seconds
        self._handle = self._loop.call_later(wait, self._look)

    def _is_due(self) -> bool:
        progress = self._progress
        if progress.holding:
            return True
        return progress.waiting and 0 < self._patience <= self._time() - self._began + _NEAR

    async def _beat(self) -> None:
        await self._send()
        self.note()
        self._signed = True
