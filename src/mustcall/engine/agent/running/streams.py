"""A run as it happens, for who iterates over it.

The run goes on in a task of its own and waits when nobody takes its events. Leaving the iteration (closing it, being
cancelled in it, dropping it) cancels the run: the upstream is cut off and tools are stopped.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self

from mustcall.engine.agent.events import RunEvent
from mustcall.engine.agent.running.loop import AgentRun
from mustcall.engine.agent.running.plan import Emit
from mustcall.engine.parameters import Out_co
from mustcall.engine.run_records.results import RunResult

__all__ = ["RunStream"]

#: Events that may wait to be taken before the run itself waits.
_ROOM = 256


class RunStream(Generic[Out_co]):
    """An asynchronous iterator over the events of a run. Use `async with` to close it.

    A failed run yields `RunFinished` and then raises its error.
    """

    def __init__(self, run: AgentRun, drive: Callable[[Emit], Awaitable[RunResult[Any]]]) -> None:
        self._run = run
        self._drive = drive
        self._queue: asyncio.Queue[RunEvent | None] = asyncio.Queue(_ROOM)
        self._task: asyncio.Task[None] | None = None
        self._over = False

    @property
    def result(self) -> RunResult[Out_co]:
        """The state of the run so far: text, calls and answer, as a history that can be continued."""
        return self._run.result()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RunEvent:
        if self._over:
            raise StopAsyncIteration
        if self._task is None:
            self._task = asyncio.create_task(_follow(self._drive, self._queue))
        try:
            event = await self._queue.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if event is not None:
            return event
        self._over = True
        await self._task  # raises what the run failed with
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the run. Closing twice has no effect."""
        self._over = True
        task = self._task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        task = self._task
        if task is not None and not task.done():
            with suppress(RuntimeError):  # its loop is closed already
                task.get_loop().call_soon_threadsafe(task.cancel)


async def _follow(drive: Callable[[Emit], Awaitable[RunResult[Any]]], queue: "asyncio.Queue[RunEvent | None]") -> None:
    """Drive a run and put its events where they are taken from; knows nothing of the iterator, so that it can go."""
    try:
        await drive(queue.put)
    except asyncio.CancelledError:
        if queue.full():  # nobody will take it
            queue.get_nowait()
        queue.put_nowait(None)
        raise
    except BaseException:
        await queue.put(None)
        raise
    await queue.put(None)
