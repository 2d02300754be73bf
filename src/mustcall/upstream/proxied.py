"""The seam through a proxy of the environment, on aiohttp.

Imported when the first such upstream is called. Everything else goes over the client in `http`; aiohttp stays for what
a proxy needs: absolute targets, tunnels by CONNECT, the proxy's own credentials and failures.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from io import BytesIO

import aiohttp

from mustcall.core.errors import MustcallError, UpstreamUnavailable
from mustcall.core.limits import DEFAULTS, GatewayLimits
from mustcall.upstream import failures
from mustcall.upstream.bounds import in_turns, read_bounded
from mustcall.upstream.idle import IdleTimer
from mustcall.upstream.inflating import inflated
from mustcall.upstream.seam import UpstreamCall, UpstreamReply

__all__ = ["ProxiedTransport"]

_READ_BUFFER = 256 * 1024
_LARGE_BODY = 512 * 1024

_FAILURES = (aiohttp.ClientError, TimeoutError, OSError, ValueError)


def _typed(error: Exception, call: UpstreamCall) -> MustcallError:
    """Return what an aiohttp failure means."""
    host = failures.host_of(call)
    match error:
        case aiohttp.ConnectionTimeoutError():
            return failures.no_connection(call)
        case aiohttp.ServerTimeoutError() | TimeoutError():
            return failures.no_answer(call)
        case aiohttp.ClientProxyConnectionError():
            reason = error.os_error.strerror or type(error.os_error).__name__
            return UpstreamUnavailable(f"cannot connect to the proxy for the upstream {host}: {reason}")
        case aiohttp.ClientHttpProxyError():
            return UpstreamUnavailable(f"the proxy for the upstream {host} refused: HTTP {error.status}")
        case aiohttp.ClientConnectorError():
            return failures.cannot_connect(call, error.os_error)
        case aiohttp.InvalidURL():
            return failures.unusable_url()
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError():
            return failures.closed_early(call)
        case aiohttp.ClientResponseError():
            return failures.not_http(call, error.message)
        case aiohttp.ClientError() | OSError():
            return failures.broke(call, error)
        case _:
            return UpstreamUnavailable(f"the exchange with the upstream {host} failed: {type(error).__name__}")


def _payload(body: bytes | None) -> bytes | BytesIO | None:
    """Return a body as aiohttp wants it: a large one as a file, so that writing it lets other tasks run."""
    return BytesIO(body) if body is not None and len(body) > _LARGE_BODY else body


class ProxiedReply:
    """One answer on its way."""

    __slots__ = ("_call", "_limits", "_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse, call: UpstreamCall, limits: GatewayLimits) -> None:
        self._response = response
        self._limits = limits
        self._call = call
        self.status = response.status
        self.headers: Mapping[str, str] = {
            name.lower(): ", ".join(response.headers.getall(name)) for name in response.headers
        }

    @property
    def arrived(self) -> bool:
        """Whether the whole body is here."""
        content = self._response.content
        return content.is_eof() and content.exception() is None and "content-encoding" not in self.headers

    async def read(self) -> bytes:
        """Return the whole body; the idle timeout runs between pieces."""
        if self.arrived:
            return self._response.content.read_nowait()
        return await read_bounded(self._plain(), self._limits)

    def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the body as it arrives, in pieces that are read in a few milliseconds."""
        return in_turns(self._plain(), self._limits)

    def _plain(self) -> AsyncGenerator[bytes]:
        coding = self.headers.get("content-encoding")
        return self._pieces() if coding is None else inflated(self._pieces(), coding, self._limits.inflate_ratio)

    async def _pieces(self) -> AsyncGenerator[bytes]:
        readany = self._response.content.readany
        try:
            with IdleTimer(self._call.timeouts.idle) as timer:
                while piece := await readany():
                    # The timer stands still while the consumer has the piece: a slow client is not a slow upstream.
                    timer.pause()
                    yield piece
                    timer.resume()
        except TimeoutError:
            self._response.close()
            raise failures.answer_stopped(self._call) from None
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


class ProxiedTransport:
    """Exchanges through proxies, over aiohttp's own pool of connections."""

    def __init__(self, *, connections: int = 0, limits: GatewayLimits = DEFAULTS) -> None:
        self._limits = limits
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, keepalive_timeout=30, ttl_dns_cache=300),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            read_bufsize=_READ_BUFFER,
            auto_decompress=False,
        )

    async def send(self, call: UpstreamCall, proxy: str | None) -> UpstreamReply:
        """Send a request through a proxy, if one is given, and return when its headers have arrived."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=call.timeouts.connect)
        try:
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
        return ProxiedReply(response, call, self._limits)

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()
