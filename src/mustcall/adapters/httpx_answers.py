"""An HTTP client for an SDK whose requests for replies are turns of the engine; every other request passes untouched.

The seam towards the SDK is httpx's own: a transport. What the SDK sees is an HTTP answer, so its parsing, its events,
its retries and its exceptions stay its own.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import cache
from typing import TYPE_CHECKING, Any, Self
from weakref import finalize

from mustcall.adapters.blocking import Driver, Turnstile
from mustcall.adapters.contract import Chunks, Contract, ContractAnswer, ContractRequest
from mustcall.adapters.httpx_seam import AsyncAttempts, Attempts, BlockingAttempts, plain_headers, read_timeout
from mustcall.core.errors import UpstreamError
from mustcall.core.origin import Wire
from mustcall.upstream.seam import Transport

if TYPE_CHECKING:
    import httpx2 as httpx

__all__ = ["AsyncContractTransport", "ContractTransport", "UpstreamTransport"]

#: How the paths of requests for replies end, and the wire of each.
Routes = Mapping[str, Wire]


def _wire_of(request: "httpx.Request", routes: Routes) -> Wire | None:
    """Return the wire of a request for a reply, None for any other request."""
    if request.method != "POST":
        return None
    path = request.url.path.rstrip("/")
    return next((wire for end, wire in routes.items() if path.endswith(end)), None)


def _asked(request: "httpx.Request", wire: Wire) -> ContractRequest:
    query = request.url.query.decode("latin-1")
    return ContractRequest(
        wire=wire,
        body=request.content,
        headers=plain_headers(request.headers),
        query=query,
        timeout=read_timeout(request),
    )


def _response(http: Any, answer: ContractAnswer, stream: Any = None) -> "httpx.Response":
    if stream is None:
        return http.Response(answer.status, headers=answer.headers, content=answer.body)
    return http.Response(answer.status, headers=answer.headers, stream=stream)


def _raise_fault(http: Any, answer: ContractAnswer, request: "httpx.Request", attempts: Attempts | None = None) -> None:
    """Raise a failure of the connection as an HTTP client does: SDKs have classes of their own for those."""
    if answer.late:
        raise http.ReadTimeout(str(answer.error), request=request)
    if attempts is not None and attempts.fault is not None and isinstance(answer.error, UpstreamError):
        raise attempts.fault


class ContractTransport:
    """For a client that blocks; `inner` is the client that sends."""

    def __init__(self, http: Any, inner: "httpx.Client", contract: Contract, routes: Routes, gate: Turnstile) -> None:
        self._http = http
        self._inner = inner
        self._contract = contract
        self._routes = routes
        self._turnstile = gate

    def handle_request(self, request: "httpx.Request") -> "httpx.Response":
        """Answer one request of the SDK."""
        wire = _wire_of(request, self._routes)
        if wire is None:
            return self._inner.send(request, stream=True)
        request.read()
        asked = _asked(request, wire)
        attempts = BlockingAttempts(self._inner, self._http, request, self._turnstile)
        driver = Driver(self._turnstile)
        keeps = False
        try:
            answer = driver.run(lambda: self._contract.answer(asked, attempts))
            _raise_fault(self._http, answer, request, attempts)
            if answer.chunks is None:
                return _response(self._http, answer)
            keeps = True
            return _response(self._http, answer, _blocking_body(self._http)(answer.body, answer.chunks, driver))
        finally:
            if not keeps:
                driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client that sends."""
        self._inner.close()


class AsyncContractTransport:
    """For an asynchronous client; `inner` is the client that sends."""

    def __init__(self, http: Any, inner: "httpx.AsyncClient", contract: Contract, routes: Routes) -> None:
        self._http = http
        self._inner = inner
        self._contract = contract
        self._routes = routes

    async def handle_async_request(self, request: "httpx.Request") -> "httpx.Response":
        """Answer one request of the SDK."""
        wire = _wire_of(request, self._routes)
        if wire is None:
            return await self._inner.send(request, stream=True)
        await request.aread()
        asked = _asked(request, wire)
        attempts = AsyncAttempts(self._inner, self._http, request)
        answer = await self._contract.answer(asked, attempts)
        _raise_fault(self._http, answer, request, attempts)
        if answer.chunks is None:
            return _response(self._http, answer)
        return _response(self._http, answer, _async_body(self._http)(answer.body, answer.chunks))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the client that sends."""
        await self._inner.aclose()


class UpstreamTransport:
    """For an asynchronous client of OpenAI's SDK whose requests go to an `Upstream`, on whichever wire that speaks."""

    def __init__(
        self,
        http: Any,
        contract: Contract,
        routes: Routes,
        connect: Callable[[], AbstractAsyncContextManager[Transport]],
    ) -> None:
        self._http = http
        self._contract = contract
        self._routes = routes
        self._connect = connect

    async def handle_async_request(self, request: "httpx.Request") -> "httpx.Response":
        """Answer one request of the SDK; one for anything but a reply is answered 404."""
        wire = _wire_of(request, self._routes)
        if wire is None:
            error = {"message": f"an upstream in this process has no {request.url.path}", "code": "unknown_route"}
            return self._http.Response(404, json={"error": error})
        await request.aread()
        async with AsyncExitStack() as stack:
            transport = await stack.enter_async_context(self._connect())
            asked = _asked(request, wire)
            answer = await self._contract.answer(asked, transport)
            _raise_fault(self._http, answer, request)
            if answer.chunks is None:
                return _response(self._http, answer)
            body = _async_body(self._http)(answer.body, answer.chunks, stack.pop_all(), asked.timeout)
        return _response(self._http, answer, body)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Nothing stays open between two requests."""


class _BlockingBody:
    """A streamed body for a client that blocks: each piece is a step of the driver, which is closed with it."""

    def __init__(self, first: bytes, chunks: Chunks, driver: Driver) -> None:
        self._first = first
        self._chunks = chunks
        self._driver = driver
        finalize(self, driver.drop)

    def __iter__(self) -> Iterator[bytes]:
        piece: bytes | None = self._first
        while piece is not None:
            yield piece
            piece = self._driver.run(self._chunks.next)
        self.close()

    def close(self) -> None:
        """Give up what is left, upstream included."""
        if not self._driver.closed:
            try:
                self._driver.run(self._chunks.close)
            finally:
                self._driver.close()


class _AsyncBody:
    """A streamed body for an asynchronous client; `held` is closed with it.

    `timeout` is how many seconds the SDK's caller waits for the next piece. With `held` nothing else observes it: the
    connection to the upstream is not the SDK's.
    """

    #: The HTTP package of the SDK.
    http: Any

    def __init__(
        self, first: bytes, chunks: Chunks, held: AsyncExitStack | None = None, timeout: float | None = None
    ) -> None:
        self._first = first
        self._chunks = chunks
        self._held = held
        self._timeout = timeout

    async def __aiter__(self) -> AsyncIterator[bytes]:
        piece: bytes | None = self._first
        while piece is not None:
            yield piece
            piece = await self._next()
        await self.aclose()

    async def _next(self) -> bytes | None:
        if self._timeout is None:
            return await self._chunks.next()
        try:
            async with asyncio.timeout(self._timeout):
                return await self._chunks.next()
        except TimeoutError:
            raise self.http.ReadTimeout(f"nothing came within the caller's timeout of {self._timeout:g} s") from None

    async def aclose(self) -> None:
        """Give up what is left, upstream included."""
        try:
            await self._chunks.close()
        finally:
            if self._held is not None:
                await self._held.aclose()


@cache
def _blocking_body(http: Any) -> type[_BlockingBody]:
    """Return the body as the kind that this package's clients take."""
    return type("BlockingBody", (_BlockingBody, http.SyncByteStream), {})


@cache
def _async_body(http: Any) -> type[_AsyncBody]:
    """Return the body as the kind that this package's clients take."""
    return type("AsyncBody", (_AsyncBody, http.AsyncByteStream), {"http": http})
