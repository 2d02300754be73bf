"""A transport for each test, on the loop of the gateway and on Python's own; no proxy of the machine's environment."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping

import pytest
import uvloop

from mustcall.upstream.http import HttpTransport
from support.loopback import PROXY_VARIABLES


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run what has sockets on both loops: they order events differently, and must give the same results."""
    if "embedded" in item.path.parts:
        return {"asyncio": asyncio.new_event_loop}
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def transport() -> AsyncGenerator[HttpTransport]:
    """A transport that is closed after the test."""
    made = HttpTransport()
    try:
        yield made
    finally:
        await made.close()
