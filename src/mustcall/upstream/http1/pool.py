"""Keeps connections for the next exchange with the same origin, the most recently used first.

A connection rests for at most half a minute, and is dropped as soon as its peer closes it. It is asked whether it is
still open before anything is written to it: llama.cpp's server closes connections after each stream although it offers
to keep them, and a request that follows at once would run into that. Where an origin closes its connections that soon,
none is kept for a minute, since the end of the next may come just after it was asked.
"""

import asyncio
import errno
from collections.abc import Callable

from mustcall.upstream.http1.connection import Connection
from mustcall.upstream.http1.dialling import Dialler, DialTarget

__all__ = ["Pool", "PooledOrigin"]

_KEEP_ALIVE = 30.0
#: An origin that ends a connection within so many seconds of an answer does not keep connections,
_SOON = 1.0
#: and is not believed to for so many seconds.
_DISTRUST = 60.0


class PooledOrigin:
    """One host, port and scheme, the proxy on the way to it, and the connections that rest."""

    __slots__ = ("_distrusted", "_loop", "_resting", "_slots", "resolver", "to")

    def __init__(self, loop: asyncio.AbstractEventLoop, to: DialTarget, slots: asyncio.Semaphore | None) -> None:
        self._loop = loop
        self._slots = slots
        self._distrusted = 0.0
        self.to = to
        self.resolver = to.resolver(loop)
        self._resting: dict[Connection, None] = {}

    @property
    def resting(self) -> int:
        """How many connections rest."""
        return len(self._resting)

    def take(self) -> Connection | None:
        """Return a connection that rested and is still open."""
        resting = self._resting
        while resting:
            connection, _ = resting.popitem()
            if not connection.is_stale():
                return connection
            connection.abort()
        return None

    def give(self, connection: Connection) -> None:
        """End an exchange: keep its connection for the next if it has come to a clean end, close it otherwise."""
        if self._loop.time() < self._distrusted:
            connection.abort()
        elif connection.rest(_KEEP_ALIVE):
            self._resting[connection] = None
        self.leave()

    async def enter(self) -> None:
        """Wait until another exchange may begin; each that does ends in `give` or `leave`."""
        if self._slots is not None:
            await self._slots.acquire()

    def leave(self) -> None:
        """End an exchange that has no connection."""
        if self._slots is not None:
            self._slots.release()

    def forget(self, connection: Connection) -> None:
        """Drop a connection that has ended."""
        # One that ends under a request is no sign: the upstream may have failed at that request.
        if self._resting.pop(connection, self) is None and connection.rested < _SOON:
            self._distrusted = self._loop.time() + _DISTRUST


class Pool:
    """Every open connection of a transport, by origin; `limit` exchanges at a time if it is not 0."""

    __slots__ = ("_closed", "_dialler", "_loop", "_open", "_origins", "_slots", "limited")

    def __init__(self, limit: int = 0) -> None:
        self.limited = limit > 0
        self._closed = False
        self._slots = asyncio.Semaphore(limit) if self.limited else None
        self._loop = asyncio.get_running_loop()
        self._dialler = Dialler(self._loop)
        self._origins: dict[DialTarget, PooledOrigin] = {}
        self._open: set[Connection] = set()

    def origin(self, to: DialTarget) -> PooledOrigin:
        """Return the origin of that name."""
        if to not in self._origins:
            self._origins[to] = PooledOrigin(self._loop, to, self._slots)
        return self._origins[to]

    @property
    def open_connections(self) -> int:
        """How many connections are open, in use or resting."""
        return len(self._open)

    @property
    def resting_connections(self) -> int:
        """How many of them are not in use."""
        return sum(origin.resting for origin in self._origins.values())

    async def dial(self, origin: PooledOrigin) -> Connection:
        """Open a connection to an origin; raise what `Dialler.dial` does."""
        connection = await self._dialler.dial(origin.to, origin.resolver, self._maker(origin))
        self._open.add(connection)
        if self._closed:
            connection.abort()
            raise ConnectionAbortedError(errno.ECONNABORTED, "the transport is closed")
        return connection

    def _maker(self, origin: PooledOrigin) -> Callable[[], Connection]:
        def gone(connection: Connection) -> None:
            origin.forget(connection)
            self._open.discard(connection)

        return lambda: Connection(self._loop, gone)

    async def close(self) -> None:
        """Close every connection, also those in use."""
        self._closed = True
        for connection in list(self._open):
            connection.abort()
        await asyncio.sleep(0)  # the loop closes sockets in its next step
