"""The seam over HTTP/1.1, on aiohttp: kept-alive connections, three timeouts, proxies from the environment.

Answers are asked for uncompressed: they are forwarded byte by byte, and a compressor would hold events back.
Cancelling a task that waits here closes the connection.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from io import BytesIO
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from mustcall.core.errors import MustcallError, UpstreamGarbage, UpstreamTimeout, UpstreamUnavailable
from mustcall.upstream.idle import IdleTimer
from mustcall.upstream.seam import REPLY_LIMIT, UpstreamCall, UpstreamReply

__all__ = ["HttpTransport", "proxy_for"]

_READ_BUFFER = 256 * 1024
_LARGE_BODY = 512 * 1024


def proxy_for(url: str) -> str | None:
    """Return the proxy the environment names for a URL (`HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY`)."""
    parts = urlsplit(url)
    if parts.hostname is None or proxy_bypass(parts.netloc.rpartition("@")[2]) or proxy_bypass(parts.hostname):
        return None
    proxy = getproxies().get(parts.scheme)
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


def _typed(error: Exception, call: UpstreamCall) -> MustcallError:
    """Return what an aiohttp failure means, naming the host and never the path, query or headers."""
    try:
        parts = urlsplit(call.url)
        host = f"{parts.hostname}:{parts.port}" if parts.port else f"{parts.hostname}"
    except ValueError:
        return UpstreamUnavailable("the upstream's base_url is not a usable http(s) URL")
    match error:
        case aiohttp.ConnectionTimeoutError():
            return UpstreamTimeout(f"no connection to the upstream {host} within {call.timeouts.connect:g} s")
        case aiohttp.ServerTimeoutError() | TimeoutError():
            return UpstreamTimeout(f"the upstream {host} did not answer in time")
        case aiohttp.ClientProxyConnectionError():
            return UpstreamUnavailable(f"cannot connect to the proxy for the upstream {host}: {_reason(error)}")
        case aiohttp.ClientHttpProxyError():
            return UpstreamUnavailable(f"the proxy for the upstream {host} refused: HTTP {error.status}")
        case aiohttp.ClientConnectorError():
            return UpstreamUnavailable(f"cannot connect to the upstream {host}: {_reason(error)}")
        case aiohttp.InvalidURL():
            return UpstreamUnavailable("the upstream's base_url is not a usable http(s) URL")
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError():
            return UpstreamUnavailable(f"the upstream {host} closed the connection before its answer was complete")
        case aiohttp.ClientResponseError():
            return UpstreamGarbage(f"the upstream {host} did not answer in HTTP: {error.message}")
        case aiohttp.ClientError() | OSError():
            return UpstreamUnavailable(f"the connection to the upstream {host} broke: {type(error).__name__}")
        case _:
            return UpstreamUnavailable(f"the exchange with the upstream {host} failed: {type(error).__name__}")


def _reason(error: aiohttp.ClientConnectorError) -> str:
    return error.os_error.strerror or type(error.os_error).__name__


_FAILURES = (aiohttp.ClientError, TimeoutError, OSError, ValueError)


def _payload(body: bytes | None) -> bytes | BytesIO | None:
    """Return a body as aiohttp wants it: a large one as a file, so that writing it lets other tasks run."""
    return BytesIO(body) if body is not None and len(body) > _LARGE_BODY else body


class HttpReply:
    """One answer on its way."""

    __slots__ = ("_call", "_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse, call: UpstreamCall) -> None:
        self._response = response
        self._call = call
        self.status = response.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}

    async def read(self) -> bytes:
        """Return the whole body; the idle timeout runs between pieces."""
        content = self._response.content
        if content.is_eof() and content.exception() is None:
            return content.read_nowait()  # most answers have arrived with their headers
        pieces: list[bytes] = []
        size = 0
        async with aclosing(self.chunks()) as chunks:
            async for piece in chunks:
                size += len(piece)
                if size > REPLY_LIMIT:
                    raise UpstreamGarbage(f"the upstream's answer is larger than {REPLY_LIMIT} bytes")
                pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the body as it arrives."""
        readany = self._response.content.readany
        idle = self._call.timeouts.idle
        try:
            with IdleTimer(idle) as timer:
                while piece := await readany():
                    # The timer stands still while the consumer has the piece: a slow client is not a slow upstream.
                    timer.pause()
                    yield piece
                    timer.resume()
        except TimeoutError:
            self._response.close()
            raise UpstreamTimeout(f"the upstream sent nothing for {idle:g} s in the middle of its answer") from None
        except _FAILURES as error:
            self._response.close()
            raise _typed(error, self._call) from error
        except asyncio.CancelledError:
            self._response.close()
            raise

    async def close(self) -> None:
        """Return the connection to the pool if the answer was read to its end, cut it off otherwise."""
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


class HttpTransport:
    """Exchanges over a shared pool of connections. Made inside the event loop that uses it."""

    def __init__(self, *, connections: int = 0) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, keepalive_timeout=30, ttl_dns_cache=300),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            read_bufsize=_READ_BUFFER,
        )
        self._proxies: dict[str, str | None] = {}
        self._timeouts: dict[float, aiohttp.ClientTimeout] = {}

    async def send(self, call: UpstreamCall) -> UpstreamReply:
        """Send a request and return when its headers have arrived."""
        connect = call.timeouts.connect
        timeout = self._timeouts.get(connect)
        if timeout is None:
            timeout = self._timeouts[connect] = aiohttp.ClientTimeout(total=None, sock_connect=connect)
        try:
            proxy = self._proxy(call.url)
            async with asyncio.timeout(call.timeouts.read):
                response = await self._session.request(
                    call.method,
                    call.url,
                    data=_payload(call.body),
                    headers=call.headers,
                    timeout=timeout,
                    proxy=proxy,
                    allow_redirects=False,
                )
        except _FAILURES as error:
            raise _typed(error, call) from error
        return HttpReply(response, call)

    def _proxy(self, url: str) -> str | None:
        parts = urlsplit(url)
        key = f"{parts.scheme}://{parts.netloc}"
        if key not in self._proxies:
            self._proxies[key] = proxy_for(url)
        return self._proxies[key]

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()
