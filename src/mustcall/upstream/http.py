"""The seam over HTTP/1.1: kept-alive connections, three timeouts, proxies from the environment.

Answers are asked for uncompressed: they are forwarded byte by byte, and a compressor would hold events back. One that
comes compressed all the same is read. Cancelling a task that waits here closes the connection.

A request may cost money, so it is sent a second time only where the first can have had no effect: on a connection that
was kept alive, when not a byte of it could be written, or when it is one that may be repeated (`GET`, `HEAD`) and not a
byte of an answer came. docs/decisions/http-client.md says why.
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Mapping
from time import thread_time
from typing import NamedTuple, NoReturn
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from mustcall.core.elements import UNCOUNTED
from mustcall.core.errors import MustcallError, UpstreamUnavailable
from mustcall.core.limits import DEFAULTS, GatewayLimits
from mustcall.upstream import failures
from mustcall.upstream.bounds import check_body, cut, fits, in_turns, read_bounded, take_turns
from mustcall.upstream.http1.answer import AnswerPhase, Garbled, Hangup
from mustcall.upstream.http1.connection import Connection
from mustcall.upstream.http1.dialling import DialTarget
from mustcall.upstream.http1.idle import IdleTimer
from mustcall.upstream.http1.inflating import inflated
from mustcall.upstream.http1.pool import Pool, PooledOrigin
from mustcall.upstream.http1.request import RequestTarget, UnusableUrl, Unwritable, read_url, write_head
from mustcall.upstream.http1.tunnel import ProxyHop, ProxyRefused, ProxyUnreachable, read_proxy, through
from mustcall.upstream.seam import UpstreamCall, UpstreamReply

__all__ = ["HttpTransport", "proxy_for"]

#: Methods that may be sent again without changing anything.
_REPEATABLE = frozenset({"GET", "HEAD"})

#: How many URLs are remembered; a caller's query is part of one.
_ROUTES = 512

_DONE, _BROKEN = AnswerPhase.DONE, AnswerPhase.BROKEN


def proxy_for(url: str) -> str | None:
    """Return the proxy the environment names for a URL (`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`)."""
    parts = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or parts.hostname is None:
        return None
    if proxy_bypass(parts.netloc.rpartition("@")[2]) or proxy_bypass(parts.hostname):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _hop(call: UpstreamCall) -> ProxyHop | None:
    """Return the proxy for a call; raise `UpstreamUnavailable` for one that cannot be used."""
    proxy = proxy_for(call.url)
    if proxy is None:
        return None
    hop = read_proxy(proxy)
    if hop is None:
        kind = proxy.partition("://")[0].lower()
        raise failures.unreadable_proxy(call) if kind in ("http", "https") else failures.unusable_proxy(call, kind)
    return hop


def _typed(error: Exception | None, call: UpstreamCall) -> MustcallError:
    """Return what the failure of a connection in use means."""
    match error:
        case Garbled():
            return failures.not_http(call, str(error))
        case TimeoutError():
            return failures.no_answer(call)
        case OSError():
            return failures.broke(call, error)
        case Hangup() | _:
            return failures.closed_early(call)


class _Route(NamedTuple):
    """Where the calls to one URL go."""

    to: RequestTarget
    origin: PooledOrigin


class HttpReply:
    """One answer on its way. The connection goes back to its origin as soon as the answer was taken whole."""

    __slots__ = ("_call", "_connection", "_limits", "_origin", "headers", "status")

    def __init__(self, connection: Connection, origin: PooledOrigin, call: UpstreamCall, limits: GatewayLimits) -> None:
        self._connection: Connection | None = connection
        self._origin = origin
        self._call = call
        self._limits = limits
        self.status = connection.status
        self.headers: Mapping[str, str] = connection.headers

    @property
    def arrived(self) -> bool:
        """Whether the whole body is here and needs no unpacking: most answers come with their headers."""
        connection = self._connection
        return connection is not None and connection.phase is _DONE and "content-encoding" not in self.headers

    async def read(self) -> bytes:
        """Return the whole body; the idle timeout runs between pieces."""
        connection = self._connection
        if connection is not None and self.arrived:
            body = connection.take()
            self._release()
            if len(body) > UNCOUNTED or len(body) > self._limits.reply_bytes:
                await check_body(body, self._limits)
            return body
        coding = self.headers.get("content-encoding")
        pieces = self._pieces()
        try:
            return await read_bounded(
                pieces if coding is None else inflated(pieces, coding, self._limits.inflate_ratio), self._limits
            )
        finally:
            self._release()

    def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the body as it arrives, in pieces that are read in a few milliseconds."""
        coding = self.headers.get("content-encoding")
        if coding is None:
            return self._pieces(self._limits.reply_bytes)
        return in_turns(inflated(self._pieces(), coding, self._limits.inflate_ratio), self._limits)

    async def _pieces(self, most: int | None = None) -> AsyncGenerator[bytes]:
        """Yield the body as it is on the wire; the idle time runs while there is nothing to yield.

        With `most` do as `in_turns` does, without the cost of one generator within another: most streams come this way.
        """
        left = math.inf if most is None else most
        idle = self._call.timeouts.idle
        connection = self._connection
        if connection is None:
            return
        pieces = connection.pieces
        while True:
            while not pieces:
                phase = connection.phase
                if phase is _DONE:
                    self._release()
                    return
                if phase is _BROKEN:
                    self._fail(connection)
                try:
                    await connection.wait(idle)
                except BaseException:
                    self._release()
                    raise
                if self._connection is None:  # given back by `close` while this waited: what comes now is another's
                    raise failures.closed_early(self._call)
            piece = connection.take()
            last = connection.phase is _DONE
            if last:
                self._release()
            size = len(piece)
            left -= size
            if left < 0:
                self._release()
                raise failures.answer_too_large(most or 0)
            if most is None or fits(piece):  # others run while the next one is waited for
                yield piece
            else:
                began = thread_time()
                for part in cut(piece):
                    yield part
                    began = await take_turns(began)
            if last:
                return
            if self._connection is None:
                raise failures.closed_early(self._call)  # by our own `close`

    def _fail(self, connection: Connection) -> NoReturn:
        """Raise what the end of a broken connection means."""
        error = connection.error
        self._release()
        if isinstance(error, TimeoutError):
            raise failures.answer_stopped(self._call)
        raise _typed(error, self._call) from error

    async def close(self) -> None:
        """Return the connection to the pool if the answer has arrived to its end, cut it off otherwise."""
        self._release()

    def __del__(self) -> None:
        """Give the connection back where nobody did: it and its turn would be lost. Any thread may come here."""
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the connection with it
                connection.loop.call_soon_threadsafe(self._origin.give, connection)

    def _release(self) -> None:
        connection = self._connection
        if connection is not None:
            self._connection = None
            self._origin.give(connection)


class HttpTransport:
    """Exchanges over a shared pool of connections, `connections` at a time if not 0. Made inside its event loop."""

    def __init__(self, *, connections: int = 0, limits: GatewayLimits = DEFAULTS) -> None:
        self._limits = limits
        self._pool = Pool(connections)
        self._routes: dict[str, _Route] = {}
        self._hops: dict[tuple[str, int, bool], ProxyHop | None] = {}

    @property
    def open_connections(self) -> int:
        """How many connections are open, in use or kept."""
        return self._pool.open_connections

    @property
    def resting_connections(self) -> int:
        """How many of them are kept for the next exchange."""
        return self._pool.resting_connections

    async def send(self, call: UpstreamCall) -> UpstreamReply:
        """Send a request and return when its headers have arrived."""
        route = self._routes.get(call.url) or self._route(call)
        try:
            head = write_head(call, route.to)
        except Unwritable as error:
            host = failures.host_of(call)
            raise UpstreamUnavailable(f"the request to the upstream {host} cannot be written: {error}") from None
        body = call.body or b""
        left = call.timeouts.read
        origin = route.origin
        if self._pool.limited:
            left = await self._enter(origin, call)
        connection = origin.take()
        while True:
            kept = connection is not None
            if connection is None:
                connection, left = await self._dial(origin, call, left)
            if connection.begin(head, body, bodiless=call.method == "HEAD"):
                try:
                    await connection.wait(left)
                except BaseException:
                    origin.give(connection)
                    raise
                if connection.begun:
                    return HttpReply(connection, origin, call, self._limits)
                again = kept and call.method in _REPEATABLE and not connection.answered
                if not again or isinstance(connection.error, TimeoutError):
                    origin.give(connection)
                    raise _typed(connection.error, call) from connection.error
            elif not kept:
                origin.give(connection)
                raise _typed(connection.error, call)
            connection.abort()
            connection = None

    async def _enter(self, origin: PooledOrigin, call: UpstreamCall) -> float:
        """Wait for a turn where their number is limited; return the seconds that are left for the answer to begin."""
        loop = asyncio.get_running_loop()
        until = loop.time() + call.timeouts.read
        limit = IdleTimer(call.timeouts.read)
        try:
            with limit:
                await origin.enter()
        except TimeoutError:
            raise failures.no_turn(call) from None
        return call.timeouts.read if limit.stalled else max(0.0, until - loop.time())

    async def _dial(self, origin: PooledOrigin, call: UpstreamCall, left: float) -> tuple[Connection, float]:
        """Open a connection; return it with the seconds that are left for the answer to begin."""
        loop = asyncio.get_running_loop()
        until = loop.time() + left
        connect = call.timeouts.connect
        limit = IdleTimer(min(connect, left))
        try:
            with limit:
                connection = await self._pool.dial(origin)
        except BaseException as error:
            origin.leave()
            match error:
                case TimeoutError() if limit.expired:
                    raise (failures.no_connection(call) if connect <= left else failures.no_turn(call)) from None
                case OSError():
                    raise failures.cannot_connect(call, error) from error
                case ProxyUnreachable():
                    raise failures.no_proxy(call, str(error)) from error
                case ProxyRefused():
                    raise failures.proxy_refused(call, error.status) from None
                case Garbled() | Hangup():
                    raise _typed(error, call) from error
                case ValueError():
                    raise failures.unusable_url() from error
                case _:
                    raise
        return connection, left if limit.stalled else max(0.0, until - loop.time())

    def _route(self, call: UpstreamCall) -> _Route:
        """Work out where the calls to a URL go; what the environment says of a host's proxy is asked once."""
        try:
            to = read_url(call.url)
        except UnusableUrl:
            raise failures.unusable_url() from None
        key = (to.host, to.port, to.tls)
        if key not in self._hops:
            self._hops[key] = _hop(call)
        hop = self._hops[key]
        if len(self._routes) >= _ROUTES:
            self._routes.clear()
        origin = self._pool.origin(DialTarget(to.host, to.port, to.tls, hop))
        route = self._routes[call.url] = _Route(to if hop is None else through(hop, to), origin)
        return route

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close()
