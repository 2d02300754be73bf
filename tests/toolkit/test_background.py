"""An event loop beside the main thread."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import AsyncGenerator, Generator

import pytest

from mustcall.toolkit.background import Background


@pytest.fixture
def background() -> Generator[Background]:
    """A loop for one test."""
    with Background() as running:
        yield running


def test_results_and_errors_come_across(background: Background) -> None:
    """A result is returned, an error raised, in the thread that asked."""

    async def succeed() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    async def fail() -> None:
        raise ValueError("no")

    assert background.run(succeed()) == "mustcall-background"
    with pytest.raises(ValueError, match="no"):
        background.run(fail())


def test_items_come_across(background: Background) -> None:
    """Every item arrives in order, then the iterator's own error."""

    async def numbers() -> AsyncGenerator[int]:
        yield 1
        yield 2
        raise ValueError("three")

    items = background.iterate(numbers())
    assert (next(items), next(items)) == (1, 2)
    with pytest.raises(ValueError, match="three"):
        next(items)


def test_leaving_early_cleans_up(background: Background) -> None:
    """Who stops reading stops the work: the generator is cancelled and cleans up before the next line runs."""
    ended: list[str] = []

    async def endless() -> AsyncGenerator[int]:
        try:
            while True:
                yield 1
                await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            ended.append("clean")

    items = background.iterate(endless())
    assert next(items) == 1
    with contextlib.closing(items):
        pass
    assert ended == ["clean"]


def test_ctrl_c_stops_the_work(background: Background) -> None:
    """A `KeyboardInterrupt` while waiting cancels the work, which has ended when the interrupt is seen."""
    ended: list[str] = []

    async def wait() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)
        finally:
            ended.append("clean")

    async def stuck() -> AsyncGenerator[int]:
        await wait()
        yield 1

    with pytest.raises(KeyboardInterrupt):
        background.run(wait())
    with pytest.raises(KeyboardInterrupt):
        next(background.iterate(stuck()))
    assert ended == ["clean", "clean"]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timer that sends a signal")
def test_an_interrupt_at_any_moment_is_one(background: Background, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that begins again all the time is interrupted at every place of it, and ends in nothing else."""
    monkeypatch.setattr("mustcall.toolkit.background._GLANCE", 0.000001)

    async def interrupted(seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)  # not before the wait has begun: nobody else expects it
        await asyncio.sleep(60)

    alarm = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for number in range(200):
            with pytest.raises(KeyboardInterrupt):
                background.run(interrupted(0.001 + number * 1e-5))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, alarm)


def test_closing_ends_what_is_left() -> None:
    """Work that nobody waits for any more is cancelled when the loop is closed."""
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("clean")

    tasks: list[asyncio.Task[None]] = []

    async def start() -> None:
        tasks.append(asyncio.create_task(forever()))
        await asyncio.sleep(0)

    with Background() as running:
        running.run(start())
    assert ended == ["clean"]
