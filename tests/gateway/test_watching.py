"""Clients that go away: one timer for all requests begins to watch those that take long."""

import asyncio
import gc
import weakref
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any

from mustcall.gateway.connections.http_call import DisconnectWatches, HttpCall
from mustcall.gateway.connections.receiving import Gone

SCOPE: dict[str, Any] = {"type": "http", "method": "POST", "path": "/v1/x", "query_string": b"", "headers": []}


async def drop(_: MutableMapping[str, Any]) -> None:
    """Send nothing."""


def test_each_request_ends_with_its_own_client() -> None:
    """Of requests under way together, the one whose client goes away is cancelled; the others come to their end."""

    async def ask(watches: DisconnectWatches, number: int, *, leaves: bool) -> str:
        async def receive() -> MutableMapping[str, Any]:
            if not leaves:
                await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def work() -> None:
            if leaves:
                await asyncio.Event().wait()
            for _ in range(number):
                await asyncio.sleep(0)
            await left.wait()

        try:
            await HttpCall(SCOPE, receive, drop, ()).while_connected(work(), watches)
        except Gone:
            gone.append(number)
            if len(gone) == 2:
                left.set()
            return "gone"
        return "done"

    async def run() -> list[str]:
        watches = DisconnectWatches()
        return await asyncio.gather(*(ask(watches, number, leaves=number in (1, 3)) for number in range(5)))

    gone: list[int] = []
    left = asyncio.Event()
    assert asyncio.run(run()) == ["done", "gone", "done", "gone", "done"]
    assert gone == [1, 3]


def test_the_timer_keeps_nothing_of_the_request_that_began_it() -> None:
    """A timer runs as long as requests come; what the first one had in its context is another caller's."""

    class Content:
        """What belongs to one request."""

    async def ask(watches: DisconnectWatches, *, first: bool) -> None:
        async def receive() -> MutableMapping[str, Any]:
            await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        if first:
            content = Content()
            left.append(weakref.ref(content))
            held.set(content)
            del content
        await HttpCall(SCOPE, receive, drop, ()).while_connected(asyncio.sleep(0), watches)

    async def run() -> None:
        watches = DisconnectWatches()
        await asyncio.create_task(ask(watches, first=True))
        await asyncio.create_task(ask(watches, first=False))
        gc.collect()
        assert left[0]() is None

    held: ContextVar[Content] = ContextVar("held")
    left: list[weakref.ref[Content]] = []
    asyncio.run(run())


def test_a_gateway_that_outlives_its_loop_watches_in_the_next_one() -> None:
    """A timer that ended with its loop leaves nothing behind that keeps later requests from being watched."""

    async def quick() -> None:
        async def receive() -> MutableMapping[str, Any]:
            raise AssertionError("a reply that is there at once needs no watcher")

        await HttpCall(SCOPE, receive, drop, ()).while_connected(asyncio.sleep(0), watches)

    async def slow() -> bool:
        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.disconnect"}

        async def work() -> None:
            await asyncio.Event().wait()

        try:
            await HttpCall(SCOPE, receive, drop, ()).while_connected(work(), watches)
        except Gone:
            return True
        return False

    watches = DisconnectWatches()
    asyncio.run(quick())
    assert asyncio.run(slow())
