"""An event loop in a thread of its own, so that a person's terminal stays theirs.

The main thread reads lines and prints; it is the one that Ctrl-C interrupts. Everything that awaits runs here: an
answer can be stopped at any moment, and servers are still listened to while somebody thinks about the next question.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import AsyncIterator, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

__all__ = ["Background"]

_T = TypeVar("_T")

#: Seconds that cancelled work gets to clean up after itself.
_PATIENCE = 15.0
#: How often a waiting thread looks up: a signal that another thread was interrupted by is seen no later.
_GLANCE = 0.5


class _Ended:
    """The mark behind the last item."""


class Background:
    """A running event loop: `run` waits for one result, `iterate` for many. A `KeyboardInterrupt` stops the work."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mustcall-background", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ending = _Running(self._loop, _end_all())
        ending.begin()
        ending.wait_at_most(_PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        if not self._thread.is_alive():
            self._loop.close()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return what a coroutine returns; stop it first if the wait is interrupted."""
        running = _Running(self._loop, work)
        try:
            running.begin()
            running.wait()
        except BaseException:
            running.stop()
            raise
        return running.result()

    def iterate(self, items: AsyncIterator[_T]) -> Generator[_T]:
        """Yield what an asynchronous iterator yields; stop it if the one who reads goes away or is interrupted."""
        arrived: queue.SimpleQueue[_T | _Ended] = queue.SimpleQueue()

        async def pump() -> None:
            try:
                async for item in items:
                    arrived.put(item)
            finally:
                close = getattr(items, "aclose", None)
                if close is not None:
                    await close()
                arrived.put(_Ended())

        running = _Running(self._loop, pump())
        try:
            running.begin()
            while True:
                try:
                    item = arrived.get(timeout=_GLANCE)
                except queue.Empty:
                    continue
                if isinstance(item, _Ended):
                    break
                yield item
            running.wait()
            running.result()
        finally:
            running.stop()


class _Running(Generic[_T]):
    """A task of the loop's, as the other thread sees it.

    The end is waited for by a queue: Ctrl-C at the wrong moment in the wait of a `threading.Event` ends in a
    `RuntimeError` of its lock, or leaves it locked.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, _T]) -> None:
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[_T] | None = None
        self._finished = False
        self._ended: queue.SimpleQueue[None] = queue.SimpleQueue()

    def begin(self) -> None:
        """Start the task. Not done on creation, so that an interrupt at any moment finds something to stop."""
        self._loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if self._finished:  # stopped before it began
            return
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(lambda _: self._end())

    def _end(self) -> None:
        self._finished = True
        self._ended.put(None)

    def wait(self) -> None:
        """Wait until the task has ended."""
        while not self._finished:
            self.wait_at_most(_GLANCE)

    def wait_at_most(self, seconds: float) -> None:
        """Wait until the task has ended or the time is over."""
        if not self._finished:
            with contextlib.suppress(queue.Empty):
                self._ended.get(timeout=seconds)

    def result(self) -> _T:
        """Return what the finished task returned, or raise what it raised."""
        assert self._task is not None  # it has finished
        return self._task.result()

    def stop(self) -> None:
        """Cancel the task if it still runs, and wait until it has cleaned up."""
        if not self._finished:
            self._loop.call_soon_threadsafe(self._cancel)
            self.wait_at_most(_PATIENCE)

    def _cancel(self) -> None:
        if self._task is None:
            self._work.close()
            self._end()
        else:
            self._task.cancel()


async def _end_all() -> None:
    """Cancel what is left, and what asynchronous generators hold."""
    current = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks() if task is not current]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
