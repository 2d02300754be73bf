"""The floor: the least a Python pass-through can do on the gateway's own server and client. Run as its own process.

uvicorn (raw ASGI, httptools, uvloop) in front, an aiohttp session with the gateway's connector settings behind.
Headers are copied, bodies are passed through, nothing is parsed, checked, timed or retried.
"""

import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import aiohttp
import uvicorn

__all__ = ["main"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_NOT_SENT = frozenset({b"host", b"content-length", b"connection", b"accept-encoding"})
_NOT_RETURNED = frozenset({b"transfer-encoding", b"connection"})
_READ_BUFFER = 256 * 1024


class Floor:
    """An ASGI application that passes everything on to one origin."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["path"] == "/healthz":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
            return
        message = await receive()
        body: bytes = message["body"]
        while message["more_body"]:
            message = await receive()
            body += message["body"]
        headers = {name.decode(): value.decode() for name, value in scope["headers"] if name not in _NOT_SENT}
        assert self._session is not None
        async with self._session.post(self._origin + scope["path"], data=body, headers=headers) as response:
            returned = [(name.lower(), value) for name, value in response.raw_headers]
            answer = [pair for pair in returned if pair[0] not in _NOT_RETURNED]
            await send({"type": "http.response.start", "status": response.status, "headers": answer})
            if len(answer) == len(returned):
                await send({"type": "http.response.body", "body": await response.read()})
                return
            content = response.content
            while chunk := await content.readany():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30, ttl_dns_cache=300),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            read_bufsize=_READ_BUFFER,
        )
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._session.close()
        await send({"type": "lifespan.shutdown.complete"})


def main() -> None:
    """Serve on the port of the first argument, passing on to the origin of the second, until killed."""
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=2048)
    config = uvicorn.Config(
        Floor(sys.argv[2]),
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=False,
        log_level="warning",
        server_header=False,
        date_header=False,
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
