"""A turn leaves nothing for the garbage collector: what it held is free with its last use."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from typing import Any

import pytest

from mustcall.bench.bodies import PATHS, WIRES, Wire, request_body, stream_events, whole_body
from mustcall.gateway.app import Gateway
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.upstream.seam import UpstreamCall


class _Reply:
    """An answer that is there at once."""

    status = 200
    arrived = True

    def __init__(self, pieces: list[bytes], kind: str) -> None:
        self._pieces = pieces
        self.headers = {"content-type": kind}

    async def read(self) -> bytes:
        return b"".join(self._pieces)

    async def chunks(self) -> AsyncGenerator[bytes]:
        for piece in self._pieces:
            yield piece

    async def close(self) -> None:
        pass


class _Upstream:
    """A transport that always gives one answer."""

    def __init__(self, pieces: list[bytes], kind: str) -> None:
        self._pieces = pieces
        self._kind = kind

    async def send(self, call: UpstreamCall) -> _Reply:
        del call
        return _Reply(self._pieces, self._kind)

    async def close(self) -> None:
        pass


@pytest.fixture(scope="module", autouse=True)
def _collected() -> None:
    """Collect what earlier tests left, once."""
    gc.collect()


async def _left(ask: Callable[[], Awaitable[object]]) -> int:
    """Return the number of objects that three turns leave for the collector.

    What was there before is frozen and not looked at: walking the objects of thousands of tests takes most of a second.
    """
    gc.disable()
    gc.freeze()
    try:
        for _ in range(3):
            await ask()
        return gc.collect()
    finally:
        gc.enable()


async def _ask(gateway: Gateway, wire: Wire, body: bytes) -> list[MutableMapping[str, Any]]:
    sent: list[MutableMapping[str, Any]] = []
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": PATHS[wire], "query_string": b"", "headers": []}

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await gateway(scope, receive, send)
    return sent


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("upstream", WIRES)
@pytest.mark.parametrize("caller", WIRES)
def test_a_healthy_turn_leaves_no_cycles(caller: Wire, upstream: Wire, *, streams: bool) -> None:
    """Bodies that wait for the collector cost memory while they wait, and time when it comes."""
    pieces = stream_events(upstream) if streams else [whole_body(upstream, call=True)]
    kind = "text/event-stream" if streams else "application/json"
    settings = settings_from_flags(f"{upstream}=http://127.0.0.1:1/v1")
    body = request_body(caller, "groups" if streams else "call")

    async def scene() -> int:
        gateway = Gateway(settings, _Upstream(pieces, kind))
        for _ in range(3):  # what is remembered is made
            sent = await _ask(gateway, caller, body)
            assert sent[0]["status"] == 200
        return await _left(lambda: _ask(gateway, caller, body))

    assert asyncio.run(scene()) == 0


@pytest.mark.parametrize("body", [b"{", b'{"model":"m"}', b'{"model":"m","messages":[],"model":"n"}', b"[" * 5000])
@pytest.mark.parametrize("wire", WIRES)
def test_a_refused_request_leaves_no_cycles(wire: Wire, body: bytes) -> None:
    """An error that keeps its frames keeps the body in them, however large, until the collector comes."""
    settings = settings_from_flags(f"{wire}=http://127.0.0.1:1/v1")

    async def scene() -> int:
        gateway = Gateway(settings, _Upstream([whole_body(wire, call=True)], "application/json"))
        for _ in range(3):
            sent = await _ask(gateway, wire, body)
            assert sent[0]["status"] == 400
        return await _left(lambda: _ask(gateway, wire, body))

    assert asyncio.run(scene()) == 0
