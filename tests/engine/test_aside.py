"""Where long steps run: short ones where they are called, heavy ones and those that spend too much in a thread."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import UpstreamGarbage
from mustcall.core.origin import Wire
from mustcall.core.parts import Reasoning, Text, ToolCall
from mustcall.core.streams.events import Event, PartStarted, PartTextDelta, Started
from mustcall.engine.off_loop import LARGE, Aside, heavily, heft, here
from mustcall.engine.replies.delivery import Delivery
from mustcall.policy.limits.work_allowance import spend
from mustcall.wire.codec import ReplyStamp
from mustcall.wire.registry import codec_for
from support.values import asked, replied


async def unhurried(weight: int, function: Callable[..., Any], *args: Any) -> Any:
    """Take a step as a turn does: here if it is light and takes few steps, else aside."""
    done = here(function, *args) if weight <= LARGE else Aside.ASIDE
    return await heavily(function, *args) if done is Aside.ASIDE else done


def _where(steps: int) -> tuple[int, bool]:
    return threading.get_ident(), spend(steps)


async def test_a_short_step_runs_where_it_is_called() -> None:
    """Rule 68: neither weight nor steps: no thread."""
    assert await unhurried(LARGE, _where, 400_000) == (threading.get_ident(), True)


async def test_a_heavy_step_runs_in_a_thread() -> None:
    """Rule 68: above 256 KiB of text."""
    thread, allowed = await unhurried(LARGE + 1, _where, 400_000)
    assert thread != threading.get_ident()
    assert allowed


async def test_a_step_that_spends_too_much_is_done_again_in_a_thread() -> None:
    """Rule 68: the loop's allowance is small, the thread's is not without end."""
    thread, allowed = await unhurried(0, _where, 400_001)
    assert thread != threading.get_ident()
    assert allowed
    assert (await unhurried(0, _where, 20_000_001))[1] is False


async def test_others_run_meanwhile() -> None:
    """Rule 68: the loop goes on while a heavy step runs; the step ends only once the loop has."""
    went_on = threading.Event()
    waiting = asyncio.ensure_future(unhurried(LARGE + 1, went_on.wait, 60.0))
    await asyncio.sleep(0)
    went_on.set()
    assert await waiting is True


async def test_errors_are_raised_as_they_are() -> None:
    """An error of a step is the caller's to handle, wherever the step ran."""

    def fail() -> None:
        raise UpstreamGarbage("no")

    for weight in (0, LARGE + 1):
        with pytest.raises(UpstreamGarbage, match="no"):
            await unhurried(weight, fail)


def test_arguments_weigh_more_than_text() -> None:
    """Arguments are checked and repaired, text and reasoning are only read."""
    call = ToolCall(id="c", name="f", arguments_json="a" * 10)
    assert heft(replied(Text("a" * 10), Reasoning(text="b" * 5), call)) == 10 + 5 + 80


@pytest.mark.parametrize(("characters", "beside"), [(LARGE, False), (LARGE + 1, True)])
async def test_a_long_stream_is_told_to_its_encoder_beside_the_loop(
    characters: int, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 113: an error behind megabytes of forwarded text is written without reading them again on the loop."""
    threads: list[int] = []
    codec = codec_for(Wire.CHAT)
    log = AdaptationLog()
    outlet = Delivery(codec, asked(), ReplyStamp(token="t", created=1), log)
    events: list[Event] = [Started("r", "m"), PartStarted(0, Text(text="")), PartTextDelta(0, "x" * characters)]
    outlet.forward(b"data: {}\n\n", events)
    made = outlet._writer

    def noted(_: Delivery) -> Any:
        threads.append(threading.get_ident())
        return made()

    monkeypatch.setattr(Delivery, "_writer", noted)
    await outlet.ready()
    outlet.fail(UpstreamGarbage("no"))
    here_now = [thread == threading.get_ident() for thread in threads]
    assert here_now == ([False, True] if beside else [True])
