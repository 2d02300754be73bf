"""Runs coroutines of the engine for callers that wait: in their own thread, on an event loop that lives for one answer.

Nothing is left behind: no thread, no task, no loop. Inside a running event loop the steps go through a thread that ends
with each of them, because a thread runs one loop at a time; the caller waits either way. A caller who is interrupted
there leaves the step behind: it is cancelled, and ends when the upstream lets it.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import copy_context
from math import inf
from typing import TypeVar

from mustcall.upstream.retry import SystemClock

__all__ = ["BlockingClock", "Driver", "Turnstile"]

T = TypeVar("T")

#: Seconds after which an interrupt is heard that came in the instant before a wait.
_HEARD_WITHIN = 0.5


class Turnstile:
    """Lets one thread at a time run steps of the engine, as an event loop does with tasks; who waits lets others in.

    Turns share what they learn. On an event loop nothing happens between two awaits; threads need this for the same.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def inside(self) -> threading.Lock:
        """Return what is held while steps run, for `with`."""
        return self._lock

    @contextmanager
    def outside(self) -> Generator[None]:
        """Let others in while this thread waits for something."""
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire()


class BlockingClock(SystemClock):
    """The real clock for a thread that waits: its sleep lets other threads in."""

    def __init__(self, turnstile: Turnstile) -> None:
        self._turnstile = turnstile

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        with self._turnstile.outside():
            time.sleep(seconds)  # noqa: ASYNC251  this loop has one task, and its thread is the one that waits


class Driver:
    """Carries out the steps of one answer, one after the other. It must be closed."""

    def __init__(self, turnstile: Turnstile | None = None) -> None:
        self._loop = asyncio.SelectorEventLoop()
        self._loop.slow_callback_duration = inf  # steps that wait are what it is for
        self._turnstile = turnstile
        self._given_up = False

    @property
    def closed(self) -> bool:
        """Whether it was closed, or closes as soon as it can."""
        return self._given_up or self._loop.is_closed()

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return what the work comes to, or raise what it raises."""
        return _in_a_thread(lambda: self._step(work), self._give_up) if _inside_a_loop() else self._step(work)

    def close(self) -> None:
        """End what is left. Closing twice is fine."""
        if self.closed or self._loop.is_running():
            return
        self.run(self._end)
        self._loop.close()

    def drop(self) -> None:
        """Close without a step more, for who was forgotten."""
        if not self._given_up and not self._loop.is_running():
            self._loop.close()

    def _give_up(self) -> Callable[[], None]:
        """Cancel the step that another thread runs, and return what that thread does at its end."""
        self._given_up = True
        self._loop.call_soon_threadsafe(self._cancel)
        return self._leave

    def _cancel(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def _leave(self) -> None:
        try:
            with suppress(asyncio.CancelledError):  # the step may have been over when it was cancelled
                self._step(self._end)
        finally:
            self._loop.close()

    def _step(self, work: Callable[[], Awaitable[T]]) -> T:
        with self._turnstile.inside() if self._turnstile is not None else nullcontext():
            return self._loop.run_until_complete(_awaited(work))

    async def _end(self) -> None:
        left = asyncio.all_tasks(self._loop) - {asyncio.current_task(self._loop)}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()


def _inside_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _awaited(work: Callable[[], Awaitable[T]]) -> T:
    return await work()


def _in_a_thread(work: Callable[[], T], give_up: Callable[[], Callable[[], None]]) -> T:
    """Do the work in a thread that ends with it, in the caller's context.

    A caller who is interrupted does not wait for it: `give_up` is called, and what it returns is done at its end.
    """
    done: list[T] = []
    failed: list[BaseException] = []
    leaving: list[Callable[[], None]] = []
    context = copy_context()
    ending = threading.Lock()
    ended = threading.Event()

    def do() -> None:
        try:
            done.append(context.run(work))
        except BaseException as error:  # noqa: BLE001  it is raised where it was asked for
            failed.append(error)
        with ending:
            ended.set()
        if leaving:
            leaving.pop()()

    # Whoever waits is interrupted at once, and a program that ends does not wait for an upstream.
    thread = threading.Thread(target=do, name="mustcall-step", daemon=True)
    try:
        thread.start()
        while not ended.wait(_HEARD_WITHIN):
            pass  # a signal that came right before the wait is heard now
    except BaseException:
        with ending:
            if not ended.is_set():
                leaving.append(give_up())
        raise
    thread.join()
    if failed:
        raise failed.pop()
    return done.pop()
