"""Writes of one loop step leave in one system call, and the headers of an answer are written with one join.

An ASGI server sends the head of a response and its body as two messages; on uvloop each is a `send` of its own, and
for short replies those calls are most of what a gateway costs. The protocol below hands uvicorn a transport that
gathers what is written within one step of the loop. Back-pressure is untouched: the real transport still says when to
pause, and nothing is held for longer than the step.

uvicorn looks at every header of an answer by itself. Here it writes the status and what frames the body; the others
are checked together and put behind the status line. What cannot be written so is left to uvicorn.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Scope
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

__all__ = ["JoiningProtocol"]

#: What uvicorn frames a body by. Of these only a length that comes last is known to be in order.
_LENGTH = b"content-length"
_FRAMING = frozenset({_LENGTH, b"transfer-encoding", b"connection"})
#: Bytes that a header cannot hold.
_CONTROLS = bytes([*range(0x09), *range(0x0A, 0x20), 0x7F])
#: Bytes of a piece that is not joined with others: to copy it costs more than one more system call.
_LARGE = 256 * 1024
_name_of = itemgetter(0)


class _JoiningTransport:
    """A transport whose writes are sent together at the end of the step; everything else goes straight through."""

    __slots__ = ("_call_soon", "_held", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._held: list[bytes] = []
        self._call_soon = asyncio.get_running_loop().call_soon

    def write(self, data: bytes) -> None:
        """Hold data until the end of the step."""
        if not self._held:
            self._call_soon(self._flush)
        self._held.append(data)

    def insert(self, headers: bytes) -> None:
        """Put headers behind the status line of the head that was written last."""
        held = self._held
        status, _, rest = held[-1].partition(b"\r\n")
        held[-1] = b"%b\r\n%b\r\n%b" % (status, headers, rest)

    def writelines(self, pieces: Iterable[bytes]) -> None:
        """Hold several pieces."""
        self.write(b"".join(pieces))

    def close(self) -> None:
        """Send what is held, then close."""
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        held = self._held
        if held:
            self._held = []
            if self._transport.is_closing():
                return
            if len(held) > 1 and max(map(len, held)) < _LARGE:
                held = [b"".join(held)]
            for piece in held:
                self._transport.write(piece)


class _Answering:
    """An application whose answer to one request begins with headers written together."""

    __slots__ = ("_app", "_cycle", "_transport")

    def __init__(self, app: "ASGI3Application", cycle: "RequestResponseCycle", transport: _JoiningTransport) -> None:
        self._app = app
        self._cycle = cycle
        self._transport = transport

    def __call__(
        self, scope: "Scope", receive: "ASGIReceiveCallable", _send: "ASGISendCallable"
    ) -> Coroutine[Any, Any, None]:
        """Serve the request."""
        return cast("Coroutine[Any, Any, None]", self._app(scope, receive, self._send))

    def _send(self, message: "ASGISendEvent") -> Coroutine[Any, Any, None]:
        if message["type"] == "http.response.start":
            return self._begin(cast("dict[str, Any]", message))
        return self._cycle.send(message)

    async def _begin(self, message: dict[str, Any]) -> None:
        headers: list[tuple[bytes, bytes]] = message["headers"]
        framing: list[tuple[bytes, bytes]] = []
        if headers and headers[-1][0] == _LENGTH:
            headers, framing = headers[:-1], headers[-1:]
        written = written_headers(headers)
        if written is None:
            await self._cycle.send(cast("ASGISendEvent", message))
            return
        await self._cycle.send(cast("ASGISendEvent", {**message, "headers": framing}))
        if not self._cycle.disconnected:
            self._transport.insert(written)


def written_headers(headers: list[tuple[bytes, bytes]]) -> bytes | None:
    """Return headers as they stand in a head, without the last line end; None for what has to be looked at."""
    if not headers or not _FRAMING.isdisjoint(map(_name_of, headers)):
        return None
    written = b"\r\n".join(map(b": ".join, headers))
    # The line ends between them are the only controls there may be.
    controls = len(written) - len(written.translate(None, _CONTROLS))
    return written if controls == 2 * (len(headers) - 1) else None


class JoiningProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol on a transport that joins writes."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take a new connection."""
        # The wrapper answers every attribute of a transport; the protocol's annotation asks for the class.
        super().connection_made(cast("asyncio.Transport", _JoiningTransport(transport)))

    def _start_asgi_task(self, cycle: "RequestResponseCycle", app: "ASGI3Application") -> None:
        answering = _Answering(app, cycle, cast("_JoiningTransport", self.transport))
        super()._start_asgi_task(cycle, cast("ASGI3Application", answering))
