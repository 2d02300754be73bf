"""Writes of one loop step leave in one system call.

An ASGI server sends the head of a response and its body as two messages; on uvloop each is a `send` of its own, and
for short replies those calls are most of what a gateway costs. The protocol below hands uvicorn a transport that
gathers what is written within one step of the loop. Back-pressure is untouched: the real transport still says when to
pause, and nothing is held for longer than the step.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["JoiningProtocol"]


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
            if not self._transport.is_closing():
                self._transport.write(held[0] if len(held) == 1 else b"".join(held))


class JoiningProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol on a transport that joins writes."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Take a new connection."""
        # The wrapper answers every attribute of a transport; the protocol's annotation asks for the class.
        super().connection_made(cast("asyncio.Transport", _JoiningTransport(transport)))
