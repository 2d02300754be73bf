"""A synchronous function beside the event loop, in a thread that nobody has to wait for.

The loop's own executor joins its threads at the end of the program; a tool that hangs would then hang everything.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any

__all__ = ["in_thread"]


async def in_thread(function: Callable[[], Any]) -> Any:
    """Return what the function returns, or raise what it raises; when cancelled, leave it behind."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = copy_context()

    def deliver(outcome: tuple[Any, BaseException | None]) -> None:
        if not done.done():
            done.set_result(outcome)

    def work() -> None:
        try:
            outcome = (context.run(function), None)
        except BaseException as error:  # noqa: BLE001  it is raised where the function was called
            outcome = (None, error)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(deliver, outcome)

    threading.Thread(target=work, name="mustcall-tool", daemon=True).start()
    value, error = await done
    if error is not None:
        raise error
    return value
