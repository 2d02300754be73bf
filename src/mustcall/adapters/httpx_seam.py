"""The upstream seam over an SDK's own HTTP client: an attempt is the SDK's own request, with the attempt's body.

So keys, headers, proxies, certificates, timeouts and event hooks are the client's. A body that did not change is sent
as the very request that the SDK made. Both `httpx` and `httpx2` are served: the client's own package is used.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from mustcall.adapters.blocking import Turnstile
from mustcall.core.errors import MustcallError
from mustcall.core.limits import DEFAULTS
from mustcall.gateway.connections.receiving import headers_of
from mustcall.gateway.request_controls import PREFIX
from mustcall.upstream import failures
from mustcall.upstream.bounds import in_turns, read_bounded
from mustcall.upstream.seam import UpstreamCall

if TYPE_CHECKING:
    import httpx2 as httpx

__all__ = ["AsyncAttempts", "Attempts", "BlockingAttempts", "package_of", "plain_headers", "read_timeout"]

#: An HTTP client takes no timeout of 0 or less.
_LEAST_SECONDS = 0.001


def package_of(client: object) -> Any:
    """Return the package that an HTTP client, or a class of them, is of: `httpx2`, or `httpx` for older SDKs."""
    kind = client if isinstance(client, type) else type(client)
    roots = (base.__module__.partition(".")[0] for base in kind.__mro__)
    return sys.modules[next((root for root in roots if root in ("httpx", "httpx2")), "httpx")]


def plain_headers(headers: "httpx.Headers") -> dict[str, str]:
    """Return headers with names in lower case; the mapping itself looks every value up in a list."""
    return headers_of({"headers": [(name.lower(), value) for name, value in headers.raw]})


def read_timeout(request: "httpx.Request") -> float | None:
    """Return how many seconds the SDK's caller waits for an answer, None without a limit."""
    return request.extensions.get("timeout", {}).get("read")


class PendingAnswer:
    """An answer on its way, whichever way its bytes are waited for."""

    arrived = False

    def __init__(
        self, response: "httpx.Response", pieces: AsyncGenerator[bytes], closing: Callable[[], Awaitable[None]]
    ) -> None:
        self.status = response.status_code
        self.headers = plain_headers(response.headers)
        self._pieces = pieces
        self._closing = closing

    async def read(self) -> bytes:
        """Return the whole body; raise `UpstreamGarbage` for one over the limits."""
        return await read_bounded(self._pieces, DEFAULTS)

    def chunks(self) -> AsyncGenerator[bytes]:
        """Return the body piece by piece, as it arrives."""
        return in_turns(self._pieces, DEFAULTS)

    async def close(self) -> None:
        """Free the connection; an unfinished answer is cut off."""
        await self._closing()


class Attempts:
    """The attempts of one turn. `fault` is what the HTTP client raised on the last one, if it did."""

    def __init__(self, package: Any, request: "httpx.Request") -> None:
        self._http = package
        self._asked = request
        self._plain = not any(name.startswith(PREFIX) for name in request.headers)
        self.fault: Exception | None = None
        limit = read_timeout(request)
        self._until = None if limit is None else monotonic() + limit
        self._first = True

    def request(self, call: UpstreamCall) -> "httpx.Request":
        """Return the request of one attempt. The caller's timeout is for all of them; later ones get what is left."""
        asked, extensions, first = self._asked, self._asked.extensions, self._first
        self._first = False
        if self._until is not None and not first:
            left = max(self._until - monotonic(), _LEAST_SECONDS)
            extensions = {**extensions, "timeout": {**extensions["timeout"], "read": left}}
        elif self._plain and call.body == asked.content:
            return asked
        ours = (b"content-length", b"transfer-encoding")
        headers = [
            (name, value)
            for name, value in asked.headers.raw
            if name.lower() not in ours and not name.lower().startswith(PREFIX.encode())
        ]
        made = self._http.Request(asked.method, asked.url, headers=headers, content=call.body, extensions=extensions)
        return cast("httpx.Request", made)  # of the client's own package

    @contextmanager
    def typed(self, call: UpstreamCall) -> Generator[None]:
        """Raise what the HTTP client raises as the seam's own error."""
        self.fault = None
        try:
            yield
        except (self._http.TransportError, self._http.DecodingError, self._http.StreamError) as error:
            self.fault = error
            raise self._meaning(call, error) from error

    def _meaning(self, call: UpstreamCall, error: Exception) -> MustcallError:
        http = self._http
        match error:
            case http.ConnectTimeout() | http.PoolTimeout():
                return failures.no_turn(call)
            case http.TimeoutException():
                return failures.no_answer(call)
            case http.DecodingError() | http.RemoteProtocolError():
                return failures.not_http(call, type(error).__name__)
            case _:
                return failures.broke(call, error)


class AsyncAttempts(Attempts):
    """The seam over an asynchronous client."""

    def __init__(self, client: "httpx.AsyncClient", package: Any, request: "httpx.Request") -> None:
        super().__init__(package, request)
        self._client = client

    async def send(self, call: UpstreamCall) -> PendingAnswer:
        """Send one attempt."""
        with self.typed(call):
            response = await self._client.send(self.request(call), stream=True)
        return PendingAnswer(response, self._pieces(call, response), response.aclose)

    async def _pieces(self, call: UpstreamCall, response: "httpx.Response") -> AsyncGenerator[bytes]:
        with self.typed(call):
            async for piece in response.aiter_bytes():
                yield piece

    async def close(self) -> None:
        """Nothing: the client is closed by whoever has it."""


class BlockingAttempts(Attempts):
    """The seam over a client that blocks. Its loop has one task, and others may run steps while it waits."""

    def __init__(self, client: "httpx.Client", package: Any, request: "httpx.Request", turnstile: Turnstile) -> None:
        super().__init__(package, request)
        self._client = client
        self._turnstile = turnstile

    async def send(self, call: UpstreamCall) -> PendingAnswer:
        """Send one attempt. A caller who has given up is noticed before: nothing else here lets the loop go round."""
        await asyncio.sleep(0)
        request = self.request(call)
        with self.typed(call), self._turnstile.outside():
            response = self._client.send(request, stream=True)

        async def close() -> None:
            with self._turnstile.outside():
                response.close()

        return PendingAnswer(response, self._pieces(call, response), close)

    async def _pieces(self, call: UpstreamCall, response: "httpx.Response") -> AsyncGenerator[bytes]:
        pieces = response.iter_bytes()
        while True:
            with self.typed(call), self._turnstile.outside():
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    async def close(self) -> None:
        """Nothing: the client is closed by whoever has it."""
