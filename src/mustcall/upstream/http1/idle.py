"""A timer for waits that come one after the other, cheap enough to run around every piece of a stream.

One scheduled call serves the whole stream: it looks, when it is due, how long the current wait has lasted, and comes
back later if that is not too long. Starting and ending a wait is one assignment.

A call that comes late says that this process did not run: its loop was blocked, the process or its machine was
stopped. What arrived meanwhile has not been read yet, so the wait goes on for as long as the call was late. Each wait
gets that once, and at most its own length: a loop that is always late, or a stop of hours, makes no wait endless.
"""

import asyncio
from types import TracebackType
from typing import Self

__all__ = ["STALLED", "IdleTimer"]

#: A scheduled call that comes more than so many seconds late gives time back.
STALLED = 0.5


class IdleTimer:
    """`with IdleTimer(seconds) as timer:` raises `TimeoutError` when a wait lasts longer than that.

    The first wait begins at once; `pause` ends a wait, `resume` begins the next one, in the task that then waits.
    """

    __slots__ = ("_before", "_due", "_fired", "_given", "_handle", "_loop", "_seconds", "_since", "_task")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        self._since: float | None = None
        self._given: float | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._fired = False
        self._before = 0

    @property
    def expired(self) -> bool:
        """Whether a wait lasted too long."""
        return self._fired

    @property
    def stalled(self) -> bool:
        """Whether a wait was given time back: of what passed meanwhile, nobody knows how much could be used."""
        return self._given is not None

    def pause(self) -> None:
        """End the current wait."""
        self._since = None

    def resume(self) -> None:
        """Begin a wait."""
        self._task = asyncio.current_task()
        self._before = self._task.cancelling() if self._task is not None else 0
        self._since = self._loop.time()

    def __enter__(self) -> Self:
        self.resume()
        self._look_at(self._loop.time() + self._seconds)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            self._handle.cancel()
        if self._fired and self._task is not None:
            # Take our own cancellation back; one that somebody else asked for stays.
            others = self._task.uncancel()
            if kind is not None and issubclass(kind, asyncio.CancelledError) and others <= self._before:
                raise TimeoutError from error

    def _look_at(self, due: float) -> None:
        self._due = due
        self._handle = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        """Cancel a wait that has lasted too long; otherwise look again when it would have."""
        now = self._loop.time()
        end = now + self._seconds if self._since is None else self._since + self._seconds
        if end > now:
            self._look_at(end)
        elif self._given != self._since and (late := now - max(end, self._due)) > STALLED:
            self._given = self._since
            self._look_at(now + min(late, self._seconds))
        elif self._task is not None:
            self._fired = True
            self._task.cancel()
