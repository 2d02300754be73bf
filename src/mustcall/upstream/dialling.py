"""Opens connections: finds the addresses of a host, tries them without waiting for a dead one, speaks TLS.

A host with several addresses is tried as RFC 8305 says: the families in turn, the next address after a quarter of a
second or as soon as one has failed, and the first connection wins. uvloop does not do that by itself. Addresses are
kept for a minute, and asked for once however many connections want them.

Certificates are verified against the system's authorities, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from itertools import chain, zip_longest
from typing import Any

from mustcall.upstream.connection import Connection

__all__ = ["Dialler", "Resolver"]

_STAGGER = 0.25
_KEEP_ADDRESSES = 60.0

#: family, type, protocol, canonical name, address: what `getaddrinfo` returns.
_Address = tuple[int, int, int, str, Any]


class Resolver:
    """The addresses of one host and port."""

    __slots__ = ("_asking", "_host", "_known", "_loop", "_port", "_until")

    def __init__(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> None:
        self._loop = loop
        self._host = host
        self._port = port
        self._known: Sequence[_Address] = ()
        self._until = 0.0
        self._asking: asyncio.Task[Sequence[_Address]] | None = None

    async def addresses(self) -> Sequence[_Address]:
        """Return the addresses, best first; raise `OSError` if there are none."""
        if self._known and self._loop.time() < self._until:
            return self._known
        if self._asking is None:
            self._asking = self._loop.create_task(self._ask())
            self._asking.add_done_callback(self._answered)
        return await asyncio.shield(self._asking)  # others may wait for the same answer

    def forget(self) -> None:
        """Ask again next time: no address worked."""
        self._until = 0.0

    async def _ask(self) -> Sequence[_Address]:
        try:
            found = socket.getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
            )
        except OSError:  # it is a name
            found = await self._loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        if not found:
            raise OSError(socket.EAI_NONAME, "the host has no address")
        return _interleaved(found)

    def _answered(self, task: asyncio.Task[Sequence[_Address]]) -> None:
        self._asking = None
        if not task.cancelled() and task.exception() is None:
            self._known = task.result()
            self._until = self._loop.time() + _KEEP_ADDRESSES


def _interleaved(found: Sequence[_Address]) -> Sequence[_Address]:
    """Order addresses so that the families take turns, beginning with the one the resolver prefers."""
    families: dict[int, list[_Address]] = {}
    for address in found:
        families.setdefault(address[0], []).append(address)
    return [address for address in chain(*zip_longest(*families.values())) if address is not None]


class Dialler:
    """Opens connections. The TLS context is made when the first https upstream is called."""

    __slots__ = ("_context", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._context: ssl.SSLContext | None = None

    async def dial(self, resolver: Resolver, host: str, make: Callable[[], Connection], *, tls: bool) -> Connection:
        """Return an open connection; raise `OSError`. Cancelling leaves nothing open."""
        addresses = await resolver.addresses()
        try:
            sock = await self._first_of(addresses)
        except OSError:
            resolver.forget()
            raise
        try:
            if tls:
                context = self._context = self._context or _tls_context()
                _, connection = await self._loop.create_connection(make, sock=sock, ssl=context, server_hostname=host)
            else:
                _, connection = await self._loop.create_connection(make, sock=sock)
        except BaseException:
            sock.close()
            raise
        return connection

    async def _first_of(self, addresses: Sequence[_Address]) -> socket.socket:
        """Return a socket to the first address that answers."""
        if len(addresses) == 1:
            return await self._connect(addresses[0])
        waiting = list(reversed(addresses))
        trying: set[asyncio.Task[socket.socket]] = set()
        failure: BaseException | None = None
        winner: socket.socket | None = None
        try:
            while winner is None and (waiting or trying):
                if waiting:
                    trying.add(self._loop.create_task(self._connect(waiting.pop())))
                done, trying = await asyncio.wait(
                    trying, timeout=_STAGGER if waiting else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    failure = task.exception() or failure
                    if task.exception() is None:
                        if winner is not None:
                            winner.close()
                        winner = task.result()
        finally:
            for task in trying:
                task.cancel()
                task.add_done_callback(_close_late_winner)
        if winner is not None:
            return winner
        assert failure is not None, "an address that was tried either answered or failed"
        raise failure

    async def _connect(self, address: _Address) -> socket.socket:
        family, kind, protocol, _, where = address
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            await self._loop.sock_connect(sock, where)
        except BaseException:
            sock.close()
            raise
        return sock


def _close_late_winner(task: asyncio.Task[socket.socket]) -> None:
    """Close what an attempt that was given up has reached all the same."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
