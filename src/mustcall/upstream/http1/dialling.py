"""Opens connections: finds the addresses of a host, tries them without waiting for a dead one, speaks TLS.

A host with several addresses is tried as RFC 8305 says: the families in turn, the next address after a quarter of a
second or as soon as one has failed, and the first connection wins. uvloop does not do that by itself. Addresses are
kept for a minute, and asked for once however many connections want them.

Certificates are verified against the system's authorities, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Sequence
from itertools import chain, zip_longest
from typing import Any, NamedTuple, TypeVar

from mustcall.upstream.failures import reason_of
from mustcall.upstream.http1.answer import Hangup
from mustcall.upstream.http1.connection import Connection
from mustcall.upstream.http1.tunnel import ProxyHop, ProxyUnreachable, TunnelOpening

__all__ = ["DialTarget", "Dialler", "Resolver", "interleaved"]

_STAGGER = 0.25
_KEEP_ADDRESSES = 60.0

_Speaker = TypeVar("_Speaker", bound=asyncio.Protocol)

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
        asking = self._asking
        if asking is None:
            asking = self._asking = self._loop.create_task(self._ask())
            asking.add_done_callback(self._answered)
        await asyncio.wait({asking})  # cancelled here, it goes on: others may wait for the same answer
        return asking.result()

    def forget(self) -> None:
        """Ask again next time: no address worked."""
        self._until = 0.0

    async def _ask(self) -> Sequence[_Address]:
        numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        try:
            found: Sequence[_Address] = socket.getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM, flags=numeric
            )
        except OSError:  # it is a name
            found = await self._look_up(self._host, self._port)
        if not found:
            raise OSError(socket.EAI_NONAME, "the host has no address")
        return interleaved(found)

    async def _look_up(self, host: str, port: int) -> Sequence[_Address]:
        return await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)

    def _answered(self, task: asyncio.Task[Sequence[_Address]]) -> None:
        self._asking = None
        if not task.cancelled() and task.exception() is None:
            self._known = task.result()
            self._until = self._loop.time() + _KEEP_ADDRESSES


def interleaved(found: Sequence[_Address]) -> Sequence[_Address]:
    """Order addresses so that the families take turns, beginning with the one the resolver prefers."""
    families: dict[int, list[_Address]] = {}
    for address in found:
        families.setdefault(address[0], []).append(address)
    return [address for address in chain(*zip_longest(*families.values())) if address is not None]


class DialTarget(NamedTuple):
    """What a connection is opened to: a host, whether TLS is spoken with it, and the proxy on the way."""

    host: str
    port: int
    tls: bool
    hop: ProxyHop | None = None

    def resolver(self, loop: asyncio.AbstractEventLoop) -> Resolver:
        """Return what finds the addresses to connect to: the proxy's, where there is one."""
        host, port = (self.host, self.port) if self.hop is None else (self.hop.host, self.hop.port)
        return Resolver(loop, host, port)


class Dialler:
    """Opens connections. The TLS context is made when the first https upstream is called."""

    __slots__ = ("_context", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._context: ssl.SSLContext | None = None

    async def dial(self, to: DialTarget, resolver: Resolver, make: Callable[[], Connection]) -> Connection:
        """Return an open connection; raise `OSError`, or what `TunnelOpening` does. Cancelling leaves nothing open."""
        if to.hop is not None:
            return await self._dial_through(to, to.hop, resolver, make)
        sock = await self._reach(resolver)
        # From here on the socket is the loop's, which closes it if the handshake fails or is cancelled.
        return (await self._speak(make, sock, to.host if to.tls else None))[1]

    async def _dial_through(
        self, to: DialTarget, hop: ProxyHop, resolver: Resolver, make: Callable[[], Connection]
    ) -> Connection:
        """Return a connection to a proxy, or through its tunnel where the upstream speaks TLS."""
        named = hop.host if hop.tls else None
        try:
            sock = await self._reach(resolver)
            if not to.tls:
                return (await self._speak(make, sock, named))[1]
            transport, tunnel = await self._speak(lambda: TunnelOpening(self._loop, hop, to.host, to.port), sock, named)
        except OSError as error:
            raise ProxyUnreachable(reason_of(error)) from error
        except ValueError as error:  # a name that cannot be looked up
            raise ProxyUnreachable("its address is none") from error
        try:
            try:
                await tunnel.opened
            except (Hangup, OSError) as error:
                raise ProxyUnreachable("it closed the connection") from error
            connection = make()
            inner = await self._begin_tls(transport, connection, to.host)
        except BaseException:
            transport.abort()
            raise
        if inner is None:
            raise ConnectionAbortedError(errno.ECONNABORTED, "the tunnel ended")
        connection.connection_made(inner)
        return connection

    async def _begin_tls(
        self, transport: asyncio.Transport, connection: Connection, host: str
    ) -> asyncio.Transport | None:
        """Speak TLS with an upstream inside a tunnel; raise `OSError`."""
        try:
            return await self._loop.start_tls(transport, connection, self._tls(), server_hostname=host)
        except (TypeError, AttributeError) as error:
            # asyncio of some releases fails like this where a handshake inside TLS does.
            raise ConnectionAbortedError(errno.ECONNABORTED, "the TLS handshake failed") from error

    async def _reach(self, resolver: Resolver) -> socket.socket:
        addresses = await resolver.addresses()
        try:
            return await self._first_of(addresses)
        except OSError:
            resolver.forget()
            raise

    async def _speak(
        self, make: Callable[[], _Speaker], sock: socket.socket, tls_host: str | None
    ) -> tuple[asyncio.Transport, _Speaker]:
        """Put a protocol on a socket, behind TLS where a name is given to verify."""
        if tls_host is None:
            return await self._loop.create_connection(make, sock=sock)
        return await self._loop.create_connection(make, sock=sock, ssl=self._tls(), server_hostname=tls_host)

    def _tls(self) -> ssl.SSLContext:
        context = self._context = self._context or _tls_context()
        return context

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
