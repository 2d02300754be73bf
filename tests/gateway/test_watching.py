"""Clients that go away: one timer for all requests begins to watch those that take long."""

import asyncio
from collections.abc import MutableMapping
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
