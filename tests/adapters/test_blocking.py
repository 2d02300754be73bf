"""The driver of blocking callers: steps one after the other, in this thread or beside a loop, and nothing left."""

import asyncio
import gc
import signal
import threading
from contextvars import ContextVar

import pytest

from mustcall.adapters.blocking import BlockingClock, Driver, Turnstile

NAME: ContextVar[str] = ContextVar("NAME", default="nobody")


async def _who() -> tuple[int, str]:
    await asyncio.sleep(0)
    return threading.get_ident(), NAME.get()


async def _fail() -> None:
    raise LookupError("here")


def test_steps_run_in_this_thread() -> None:
    """Without a running loop the caller's own thread does the work; errors are raised as they are."""
    driver = Driver()
    token = NAME.set("caller")
    try:
        assert driver.run(_who) == (threading.get_ident(), "caller")
        with pytest.raises(LookupError, match="here"):
            driver.run(_fail)
    finally:
        NAME.reset(token)
        driver.close()
    driver.close()
    assert driver.closed


async def test_steps_beside_a_running_loop() -> None:
    """Inside a loop each step has a thread, in the caller's context, and none of them stays."""
    driver, before = Driver(), threading.active_count()
    token = NAME.set("caller")
    try:
        thread, name = driver.run(_who)
        assert (thread == threading.get_ident(), name) == (False, "caller")
        with pytest.raises(LookupError, match="here"):
            driver.run(_fail)
        assert threading.active_count() == before
    finally:
        NAME.reset(token)
        driver.close()


def test_what_is_left_is_ended() -> None:
    """A task that a step began and did not wait for is cancelled when the driver closes."""
    driver = Driver()
    ends: list[str] = []

    async def linger() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    async def begin() -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(linger())
        await asyncio.sleep(0)
        return task

    task = driver.run(begin)
    driver.close()
    assert ends == ["cancelled"]
    assert task.cancelled()


def test_who_waits_lets_others_in() -> None:
    """A step that waits, or sleeps, lets steps of other threads run; a step that does not, keeps them out."""
    turnstile = Turnstile()
    first, second = Driver(turnstile), Driver(turnstile)
    order: list[str] = []
    begun, inside = threading.Event(), threading.Event()

    async def wait() -> None:
        order.append("first begins")
        await BlockingClock(turnstile).sleep(0)
        with turnstile.outside():
            begun.set()
            inside.wait()
        order.append("first ends")

    async def pass_by() -> None:
        order.append("second")

    waiting = threading.Thread(target=first.run, args=(wait,))
    waiting.start()
    begun.wait()
    second.run(pass_by)
    inside.set()
    waiting.join()
    assert order == ["first begins", "second", "first ends"]
    first.close()
    second.close()


def test_an_interrupt_beside_a_running_loop() -> None:
    """Who is interrupted while a step waits goes on at once; the step is cancelled, and its loop closed."""
    waits, ended = threading.Event(), threading.Event()
    main = threading.get_ident()

    async def linger() -> None:
        waits.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    def interrupt() -> None:
        waits.wait()
        signal.pthread_kill(main, signal.SIGINT)

    async def ask() -> None:
        driver = Driver(Turnstile())
        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                driver.run(linger)
        finally:
            thread.join()
        driver.close()
        assert driver.closed

    before = set(threading.enumerate())
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        loop.run_until_complete(ask())  # `Runner.run` has a handler of its own, which cancels the task first
    for thread in set(threading.enumerate()) - before:
        thread.join()
    assert ended.is_set()
    gc.collect()  # which tells of a loop that was not closed
