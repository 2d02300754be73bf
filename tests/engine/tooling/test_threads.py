"""Synchronous functions beside the event loop: values, errors, context, and nobody waits for the hanging ones."""

import asyncio
import contextvars
import subprocess
import sys
import threading

import pytest

from mustcall.engine.tooling.threads import in_thread

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


async def test_values_errors_and_context() -> None:
    """What the function returns or raises comes back; it sees the caller's context."""
    WHO.set("me")
    assert await in_thread(WHO.get) == "me"
    assert await in_thread(threading.current_thread) is not threading.main_thread()
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0)


async def test_cancelled() -> None:
    """A cancelled call does not wait for its function, whose value is dropped."""
    began, let_go = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        let_go.wait(180)

    task = asyncio.create_task(in_thread(wait))
    assert await asyncio.to_thread(began.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    let_go.set()


def test_a_hanging_function_does_not_hang_the_program() -> None:
    """The process ends although the function never does (it would run into the timeout otherwise)."""
    code = (
        "import asyncio, time\n"
        "from mustcall import FunctionTool, ToolSettings\n"
        "from mustcall.engine.tooling.threads import in_thread\n"
        "async def main():\n"
        "    task = asyncio.create_task(in_thread(lambda: time.sleep(600)))\n"
        "    await asyncio.sleep(0)\n"
        "    task.cancel()\n"
        "asyncio.run(main())\n"
        "print('over')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=180)  # noqa: S603  our own line
    assert done.stdout == "over\n"
