"""A relay between a gateway and a real server: passes every byte on, and keeps what went either way.

It is how tests count the requests a server really got, and compare what it answered with what the caller received. A
caller that leaves is passed on too: the server's connection is closed. What the server has answered before is told from
its kept answers. One that `completes` reads every answer to its end before it passes it on, so that also those that a
caller leaves are kept.
"""

import asyncio
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web

from support.served import KeptServer, ServedAnswer

__all__ = ["Relay", "Relayed"]

_HOP = {"connection", "keep-alive", "transfer-encoding", "host", "content-length"}


@dataclass
class Relayed:
    """One exchange; `status` is 0 until the server has answered, `whole` says that the answer came to its end."""

    path: str
    request: bytes
    status: int = 0
    answer: bytearray = field(default_factory=bytearray)
    whole: bool = False


class Relay:
    """Listens on loopback in a thread of its own and passes on to a server what is not among its kept answers."""

    def __init__(self, server: KeptServer, *, completes: bool = False) -> None:
        self._completes = completes
        self.exchanges: list[Relayed] = []
        self._server = server
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)

    @property
    def base_url(self) -> str:
        """The address that ends in `/v1`."""
        return f"http://127.0.0.1:{self._port}/v1"

    def take(self) -> list[Relayed]:
        """Return the exchanges since the last time, and forget them."""
        taken, self.exchanges = self.exchanges, []
        return taken

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(20), "the relay did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(20)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._listen())

    async def _listen(self) -> None:
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(auto_decompress=False, timeout=timeout) as session:

            async def relay(request: web.BaseRequest) -> web.StreamResponse:
                return await self._relay(session, request)

            listener = web.Server(relay, handler_cancellation=True, access_log=None)
            server = await self._loop.create_server(listener, "127.0.0.1", 0)
            self._port = server.sockets[0].getsockname()[1]
            self._ready.set()
            await self._closing.wait()
            server.close()
            listener.pre_shutdown()
            await listener.shutdown(timeout=1)
            await server.wait_closed()

    async def _relay(self, session: aiohttp.ClientSession, request: web.BaseRequest) -> web.StreamResponse:
        kept = Relayed(request.path, await request.content.read())
        if request.method == "POST":
            self.exchanges.append(kept)
        known = self._server.known(request.method, request.path_qs, kept.request)
        if known is not None:
            return await self._tell(request, kept, known)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        target = f"{(await asyncio.to_thread(self._server.started)).url}{request.path_qs}"
        async with session.request(request.method, target, data=kept.request, headers=headers) as answer:
            passed = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
            if self._completes:
                read = [piece async for piece in answer.content.iter_any()]
                known = ServedAnswer(answer.status, passed, tuple(read))
                self._server.keep(request.method, request.path_qs, kept.request, known)
                return await self._tell(request, kept, known)
            response = web.StreamResponse(status=answer.status, headers=passed)
            kept.status = answer.status
            await response.prepare(request)
            pieces: list[bytes] = []
            async for piece in answer.content.iter_any():
                pieces.append(piece)
                kept.answer += piece
                await response.write(piece)
            self._server.keep(
                request.method, request.path_qs, kept.request, ServedAnswer(answer.status, passed, tuple(pieces))
            )
            kept.whole = True
            await response.write_eof()
            return response

    async def _tell(self, request: web.BaseRequest, kept: Relayed, known: ServedAnswer) -> web.StreamResponse:
        """Answer as the server did: the same pieces, one after the other."""
        response = web.StreamResponse(status=known.status, headers=known.headers)
        kept.status = known.status
        await response.prepare(request)
        for piece in known.pieces:
            kept.answer += piece
            await response.write(piece)
        kept.whole = True
        await response.write_eof()
        return response
