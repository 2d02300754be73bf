"""A transport for each test, and no proxy of the machine's own environment."""

from collections.abc import AsyncGenerator

import pytest

from mustcall.upstream.http import HttpTransport
from support.loopback import PROXY_VARIABLES


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
async def transport() -> AsyncGenerator[HttpTransport]:
    """A transport that is closed after the test."""
    made = HttpTransport()
    try:
        yield made
    finally:
        await made.close()
