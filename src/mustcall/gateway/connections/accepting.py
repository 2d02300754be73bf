"""Accepts waiting connections in batches: libuv takes one in each pass of the event loop.

A pass of a busy loop takes tens of milliseconds, so that the last of 256 connections that came at once would wait for
seconds. What still waits a millisecond after a connection was accepted is taken here, many at a time. An idle loop has
made dozens of passes by then: it never gets here, and neither does a busy worker while an idle one could have accepted.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable

__all__ = ["WAITED", "Acceptor", "Factory", "open_accepted"]

#: Seconds after which a connection that waits is one that nobody idle wanted.
WAITED = 0.001
#: Connections accepted in one step: more would keep running streams waiting.
_BATCH = 64

Factory = Callable[[], asyncio.BaseProtocol]


class Acceptor:
    """Takes what waits on one listening socket, while connections come."""

    def __init__(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._timer: asyncio.TimerHandle | None = None
        #: A loop keeps no strong reference to its tasks.
        self._opening: set[asyncio.Task[object]] = set()

    @property
    def stopped(self) -> bool:
        """Whether the server has closed its socket: it has told its connections to end, and tells no later one."""
        return self._listener.fileno() < 0

    def look(self, loop: asyncio.AbstractEventLoop, make: Factory) -> None:
        """Look for more connections soon, because one came."""
        if self._timer is None:
            self._timer = loop.call_later(WAITED, self._take, loop, make)

    def _take(self, loop: asyncio.AbstractEventLoop, make: Factory) -> None:
        self._timer = None
        for _ in range(_BATCH):
            try:
                accepted, _address = self._listener.accept()
            except OSError:
                # Nobody waits, or the server has stopped. Where no file is left, the event loop's own accept says so.
                return
            accepted.setblocking(False)
            task = loop.create_task(open_accepted(loop, make, accepted))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        self.look(loop, make)


async def open_accepted(loop: asyncio.AbstractEventLoop, make: Factory, accepted: socket.socket) -> None:
    """Serve a connection; one that is lost already is nobody's error."""
    with contextlib.suppress(OSError):
        await loop.connect_accepted_socket(make, accepted)
