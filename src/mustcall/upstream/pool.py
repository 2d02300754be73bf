"""Keeps connections for the next exchange with the same origin, the most recently used first.

A connection rests for at most half a minute, and is dropped as soon as its peer closes it. One that has rested for a
second or more is asked whether it is still open before anything is written to it, so that a request does not run into
a connection that an upstream has just given up.
"""

import asyncio
import errno
from collections.abc import Callable

from mustcall.upstream.connection import Connection
from mustcall.upstream.dialling import Dialler, Resolver

__all__ = ["Pool", "PooledOrigin"]

_KEEP_ALIVE = 30.0


class PooledOrigin:
    """One host, port and scheme, and the connections to it that rest."""

    __slots__ = ("_resting", "_slots", "host", "resolver", "tls")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, host: str, port: int, slots: asyncio.Semaphore | None, *, tls: bool
    ) -> None:
        self._slots = slots
        self.host = host
        self.tls = tls
        self.resolver = Resolver(loop, host, port)
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
        if connection.rest(_KEEP_ALIVE):
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
        self._resting.pop(connection, None)


class Pool:
    """Every open connection of a transport, by origin; `limit` exchanges at a time if it is not 0."""

    __slots__ = ("_closed", "_dialler", "_loop", "_open", "_origins", "_slots", "limited")

    def __init__(self, limit: int = 0) -> None:
        self.limited = limit > 0
        self._closed = False
        self._slots = asyncio.Semaphore(limit) if self.limited else None
        self._loop = asyncio.get_running_loop()
        self._dialler = Dialler(self._loop)
        self._origins: dict[tuple[str, int, bool], PooledOrigin] = {}
        self._open: set[Connection] = set()

    def origin(self, host: str, port: int, *, tls: bool) -> PooledOrigin:
        """Return the origin of that name."""
        key = (host, port, tls)
        if key not in self._origins:
            self._origins[key] = PooledOrigin(self._loop, host, port, self._slots, tls=tls)
        return self._origins[key]

    @property
    def open_connections(self) -> int:
        """How many connections are open, in use or resting."""
        return len(self._open)

    @property
    def resting_connections(self) -> int:
        """How many of them are not in use."""
        return sum(origin.resting for origin in self._origins.values())

    async def dial(self, origin: PooledOrigin) -> Connection:
        """Open a connection to an origin; raise `OSError`."""
        connection = await self._dialler.dial(origin.resolver, origin.host, self._maker(origin), tls=origin.tls)
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
