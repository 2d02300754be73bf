"""The timer between the pieces of a stream, on a loop whose time passes only when nobody has anything to do."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from mustcall.upstream.http1.idle import IdleTimer
from support.instant import now, run, stall


def test_short_waits_are_left_alone() -> None:
    """Many waits that are each short enough pass, however long they are together."""

    async def main() -> float:
        with IdleTimer(1.0) as timer:
            for _ in range(10):
                await asyncio.sleep(0.9)
                timer.pause()
                timer.resume()
        return now()

    assert run(main) == 9.0


@pytest.mark.parametrize("earlier", [0.0, 0.3, 0.999, 5.5])
def test_long_wait_is_ended_on_time(earlier: float) -> None:
    """The wait that is too long ends exactly when it has become so, whatever came before it."""

    async def wait() -> None:
        with IdleTimer(1.0) as timer:
            timer.pause()
            await asyncio.sleep(earlier)
            timer.resume()
            await asyncio.sleep(100)

    async def main() -> float:
        with pytest.raises(TimeoutError):
            await wait()
        return now() - earlier

    assert run(main) == pytest.approx(1.0, abs=0.002)


def test_first_wait_counts() -> None:
    """The first wait begins with the block."""

    async def main() -> float:
        with pytest.raises(TimeoutError), IdleTimer(2.0):
            await asyncio.Event().wait()
        return now()

    assert run(main) == 2.0


def test_paused_timer_never_fires() -> None:
    """Time that somebody else takes is not waiting, and does not count for the wait that follows."""

    async def main() -> float:
        with IdleTimer(1.0) as timer:
            timer.pause()
            await asyncio.sleep(50)
            timer.resume()
            await asyncio.sleep(0.9)
        return now()

    assert run(main) == 50.9


def test_nothing_is_left_behind() -> None:
    """After the block the timer is gone: the task is neither cancelled later nor marked as cancelled."""

    async def main() -> float:
        task = asyncio.current_task()
        assert task is not None
        with IdleTimer(1.0):
            await asyncio.sleep(0.5)
        with pytest.raises(TimeoutError), IdleTimer(1.0):
            await asyncio.sleep(100)
        assert task.cancelling() == 0
        await asyncio.sleep(100)
        return now()

    assert run(main) == 101.5


def test_own_errors_pass() -> None:
    """An error inside the block is itself, not a timeout."""

    async def main() -> float:
        with pytest.raises(KeyError), IdleTimer(1.0):
            raise KeyError("mine")
        return now()

    assert run(main) == 0.0


def test_foreign_cancellation_is_not_swallowed() -> None:
    """A task that somebody else cancels is cancelled, and never told of a timeout."""

    async def wait() -> None:
        with IdleTimer(10.0):
            await asyncio.sleep(100)

    async def main() -> float:
        task = asyncio.create_task(wait())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        return now()

    assert run(main) == 1.0


def test_cancelled_and_timed_out_at_once() -> None:
    """When both happen in the same moment the foreign cancellation wins."""

    async def wait() -> None:
        with IdleTimer(1.0):
            await asyncio.sleep(100)

    async def main() -> float:
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_at(1.0, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        return now()

    assert run(main) == 1.0


@pytest.mark.parametrize(("outer", "ends"), [(0.5, 0.5), (1.0, 1.0), (3.0, 1.0)])
def test_inside_a_timeout(outer: float, ends: float) -> None:
    """Whichever of the two is due first ends the wait, as a timeout, and the task is not left cancelled."""

    async def wait(limit: asyncio.Timeout) -> None:
        async with limit:
            with IdleTimer(1.0):
                await asyncio.sleep(100)

    async def main() -> float:
        task = asyncio.current_task()
        assert task is not None
        limit = asyncio.timeout(outer)
        with pytest.raises(TimeoutError):
            await wait(limit)
        assert limit.expired() == (outer <= ends)
        assert task.cancelling() == 0
        return now()

    assert run(main) == ends


@pytest.mark.parametrize(("inner", "ends"), [(0.5, 0.5), (3.0, 1.0)])
def test_around_a_timeout(inner: float, ends: float) -> None:
    """A shorter timeout inside keeps its own error; a longer one does not keep the timer from firing."""

    async def main() -> float:
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(TimeoutError), IdleTimer(1.0):
            async with asyncio.timeout(inner):
                await asyncio.sleep(100)
        assert task.cancelling() == 0
        return now()

    assert run(main) == ends


def test_wait_in_another_task() -> None:
    """A stream begun in one task and read on in another: the one that waits gets the timeout."""

    async def pieces() -> AsyncGenerator[bytes]:
        with IdleTimer(1.0) as timer:
            timer.pause()
            yield b"piece"
            timer.resume()
            await asyncio.sleep(100)

    async def read_on(stream: AsyncGenerator[bytes]) -> bytes:
        return await anext(stream)

    async def main() -> float:
        stream = pieces()
        assert await anext(stream) == b"piece"
        with pytest.raises(TimeoutError):
            await asyncio.create_task(read_on(stream))
        me = asyncio.current_task()
        assert me is not None
        assert me.cancelling() == 0
        return now()

    assert run(main) == 1.0


def test_task_that_survived_a_cancellation() -> None:
    """A cancellation that the task outlived long ago does not turn a timeout into another one."""

    async def wait() -> float:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            with pytest.raises(TimeoutError), IdleTimer(1.0):  # the last words of a task that is going away
                await asyncio.sleep(100)
        return now()

    async def main() -> float:
        task = asyncio.create_task(wait())
        await asyncio.sleep(1)
        task.cancel()
        return await task

    assert run(main) == 2.0


@pytest.mark.parametrize(("stalled", "ends"), [(0.5, 1.0), (1.4, 1.4), (1.6, 2.2), (5.0, 6.0), (3600.0, 3601.0)])
def test_time_in_which_nothing_ran_is_given_back(stalled: float, ends: float) -> None:
    """A wait that ran out while the process was stopped lasts as long again as it was over, at most its own length."""

    async def wait() -> None:
        with IdleTimer(1.0):
            stall(stalled)
            await asyncio.sleep(100)

    async def main() -> float:
        with pytest.raises(TimeoutError):
            await wait()
        return now()

    assert run(main) == ends


def test_what_came_during_a_stall_is_taken() -> None:
    """A step that is due after a stall comes before the timeout, also where it needs a second step."""

    async def answer() -> str:
        stall(5.0)
        for _ in range(3):
            await asyncio.sleep(0)
        return "here"

    async def main() -> float:
        with IdleTimer(1.0):
            assert await asyncio.create_task(answer()) == "here"
        return now()

    assert run(main) == 5.0


def test_time_is_given_back_once() -> None:
    """A process that is stopped again and again still ends its waits; the next wait may have time back again."""

    async def wait() -> None:
        for _ in range(1000):
            stall(2.0)
            await asyncio.sleep(0)

    async def main() -> float:
        ends = []
        for _ in range(2):
            begun = now()
            with pytest.raises(TimeoutError), IdleTimer(1.0):
                await wait()
            ends.append(round(now() - begun, 3))
        assert ends[0] == ends[1]
        return ends[0]

    # The timer looks after each second step: at 4, and because time was given back to 5, at 8 (6 is before the step).
    assert run(main) == 8.0


def test_a_wait_after_a_stall_is_as_short_as_others() -> None:
    """Time that was given back to one wait makes the next one no longer."""

    async def wait() -> None:
        with IdleTimer(1.0) as timer:
            stall(60.0)
            await asyncio.sleep(0.1)
            timer.resume()
            await asyncio.sleep(100)

    async def main() -> float:
        with pytest.raises(TimeoutError):
            await wait()
        return now()

    assert run(main) == 61.1
