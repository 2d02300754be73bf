"""A provider that does what the test says, on real loopback HTTP.

`ScriptedUpstream` listens on 127.0.0.1 in a thread with its own event loop, so that synchronous and asynchronous
tests use it alike. It speaks Chat Completions, Responses and Messages, records every request and, if `strict`,
refuses what the providers refuse.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from msgspec import UNSET

from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.testing.delivery import Chunking, plan_delivery
from mustcall.testing.issued import IssuedMemory, remember
from mustcall.testing.lines import Script, ScriptLines, read_line
from mustcall.testing.offers import as_object
from mustcall.testing.recording import Recorded
from mustcall.testing.render import Stamp
from mustcall.testing.render.stamp import to_json
from mustcall.testing.rules import SeenRequest, find_violation
from mustcall.testing.script import Answer, Fail, Line, Raw
from mustcall.testing.serving import PATHS, Exchange, build_models, count_tokens, read_request

__all__ = ["Script", "ScriptedUpstream"]

_PATIENCE = 60.0
#: Steps of the loop from accepting a connection to having it.
_ACCEPTING = 5


class _Listener(web.Server):
    """An aiohttp server that reports when connections open and close."""

    def __init__(
        self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], on_change: Callable[[int], None]
    ) -> None:
        super().__init__(handler, handler_cancellation=True, access_log=None)
        self._on_change = on_change
        self._open: dict[RequestHandler, asyncio.Transport] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._open[handler] = transport
        self._on_change(1)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._open.pop(handler, None)
        self._on_change(-1)

    async def close(self) -> None:
        """End every exchange and close every connection, also one whose client does not read what is still unsent."""
        self.pre_shutdown()  # idle connections first: they have nothing to finish
        try:
            await self.shutdown(timeout=0.5)
        finally:
            for transport in self._open.values():
                transport.abort()
            await asyncio.sleep(0)  # the loop closes sockets in its next step


class ScriptedUpstream:
    """An upstream that answers from a script; use it with `with`, `async with`, or `start` and `close`.

    An entry of the script is a text, a `Call`, a `Turn`, or anything else that an upstream can answer; any other value
    is an HTTP 400 that names it. `default` answers when the script has run out (else: HTTP 500 that says so). `strict`
    enforces the providers' rules, except those named in `waive`; a refused request takes no answer from the script.
    `issuer` goes into ids and signatures, so that strict upstreams of different issuers refuse each other's reasoning.
    `chunking` says how streamed bytes are written: one event per write (None), so many bytes per write, or by a
    function.

    Raise `ConfigError` for what can be no script.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        strict: bool = False,
        waive: Collection[str] = (),
        default: Line | None = None,
        issuer: str = "scripted",
        chunking: Chunking = None,
        models: Iterable[str] = ("scripted",),
        port: int = 0,
    ) -> None:
        self.requests: list[Recorded] = []
        self.strict = strict
        self.chunking = chunking
        self._lines = ScriptLines(script, default)
        self._waive = frozenset(waive)
        self._issuer = issuer
        self._models = tuple(models)
        self._port = port
        self._issued = IssuedMemory()
        self._changed = threading.Condition()
        self._connections = 0
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gate = asyncio.Event()
        self._closing = asyncio.Event()

    @property
    def url(self) -> str:
        """The address without a path, as the Anthropic SDK wants it."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def base_url(self) -> str:
        """The address that ends in `/v1`, as the OpenAI SDK wants it."""
        return f"{self.url}/v1"

    @property
    def port(self) -> int:
        """The port it listens on, once started."""
        return self._port

    @property
    def open_connections(self) -> int:
        """How many client connections are open right now."""
        return self._connections

    def start(self) -> Self:
        """Listen; return when connections are accepted."""
        if self._thread is not None:
            raise RuntimeError("this upstream has been started already")
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name=f"upstream-{self._issuer}", daemon=True)
        self._thread.start()
        ready.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def close(self) -> None:
        """End every exchange, close every connection and stop listening. Closing twice is fine."""
        if self._thread is None:
            return
        self._tell(self._closing)
        self._thread.join()

    def release(self) -> None:
        """Let every hanging answer go on, now and from now on."""
        self._tell(self._gate)

    def wait_for_requests(self, count: int, timeout: float = _PATIENCE) -> list[Recorded]:
        """Block until so many requests have arrived; return them all."""
        self._wait(lambda: len(self.requests) >= count, timeout, f"{count} requests")
        return list(self.requests)

    def wait_until_done(self, timeout: float = _PATIENCE) -> list[Recorded]:
        """Block until every request so far has ended, one way or another; return them all."""
        self._wait(lambda: all(one.ended is not None for one in self.requests), timeout, "the end of every request")
        return list(self.requests)

    def wait_for_connections(self, count: int = 0, timeout: float = _PATIENCE) -> None:
        """Block until no more than so many client connections are open."""
        self._wait(lambda: self._connections <= count, timeout, f"at most {count} open connections")

    async def await_requests(self, count: int, timeout: float = _PATIENCE) -> list[Recorded]:  # noqa: ASYNC109
        """Do as `wait_for_requests` without blocking the event loop."""
        return await asyncio.to_thread(self.wait_for_requests, count, timeout)

    async def await_done(self, timeout: float = _PATIENCE) -> list[Recorded]:  # noqa: ASYNC109
        """Do as `wait_until_done` without blocking the event loop."""
        return await asyncio.to_thread(self.wait_until_done, timeout)

    async def await_connections(self, count: int = 0, timeout: float = _PATIENCE) -> None:  # noqa: ASYNC109
        """Do as `wait_for_connections` without blocking the event loop."""
        await asyncio.to_thread(self.wait_for_connections, count, timeout)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def _run(self, ready: threading.Event) -> None:
        try:
            # The plain loop, whatever the process runs on: its sockets take the options that faults need.
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._listen(ready))
        except OSError as error:
            if ready.is_set():
                raise
            self._failure = error  # the port is taken
        finally:
            ready.set()

    async def _listen(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        listener = _Listener(self._serve, self._count_connection)
        server = await self._loop.create_server(listener, "127.0.0.1", self._port)
        self._port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._closing.wait()
        for accepting in server.sockets:
            self._loop.remove_reader(accepting)
        # A connection that was accepted just before is made within the next steps. Of one that is made when the server
        # is closed already, asyncio of some releases forgets the socket.
        for _ in range(_ACCEPTING):
            await asyncio.sleep(0)
        server.close()
        await listener.close()
        await server.wait_closed()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        recorded = await read_request(request)
        with self._changed:
            recorded.number = len(self.requests)
            self.requests.append(recorded)
            self._changed.notify_all()
        body, stamp = as_object(recorded.body), Stamp(recorded.number, self._issuer)
        delivery = plan_delivery(self._answer(recorded), recorded.wire, body, stamp, self.chunking)
        if delivery.reply is not None:
            self._remember(recorded, delivery.reply)
        return await Exchange(request, recorded, self._notify).deliver(delivery, self._gate, self._closing)

    def _remember(self, recorded: Recorded, reply: Mapping[str, Any]) -> None:
        if recorded.wire is not None:
            remember(self._issued, recorded.wire, as_object(recorded.body), dict(reply))

    def _answer(self, recorded: Recorded) -> Answer:
        if recorded.path == "/v1/models" and recorded.method == "GET":
            models = build_models(self._models, "anthropic-version" in recorded.headers)
            return Raw(200, to_json(models))
        wire = PATHS.get(recorded.path)
        if wire is None:
            return Fail(404, f"Invalid URL ({recorded.method} {recorded.path})")
        if recorded.method != "POST":
            return Fail(405, f"Not allowed to {recorded.method} on {recorded.path}.")
        if not isinstance(recorded.body, dict):
            return Fail(400, "The JSON body of the request could not be parsed: an object is expected.")
        if recorded.path.endswith("/count_tokens"):
            return Raw(200, to_json(count_tokens(recorded)))
        return self._judge(recorded, wire) or self._take(recorded)

    def _judge(self, recorded: Recorded, wire: Wire) -> Fail | None:
        if not self.strict:
            return None
        found = find_violation(wire, SeenRequest(as_object(recorded.body), recorded.headers, self._issued), self._waive)
        if found is None:
            return None
        recorded.refused_by, fail = found
        return fail

    def _take(self, recorded: Recorded) -> Answer:
        try:
            line = self._lines.take(recorded)
        except Exception as error:  # noqa: BLE001  the test's own code; the client must hear of it
            return Fail(500, f"the script failed: {error!r}")
        if line is UNSET:
            return Fail(500, f"the script is exhausted: no answer for request {recorded.number + 1}")
        try:
            recorded.answer = read_line(line, f"the script's answer to request {recorded.number + 1}")
        except ConfigError as error:  # a 500 would be retried: the next entry would hide the error
            return Fail(400, error.message)
        return recorded.answer

    def _wait(self, reached: Callable[[], bool], timeout: float, what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(reached, timeout):
                ends = [f"{one.method} {one.path}: {one.ended or 'under way'}" for one in self.requests]
                raise TimeoutError(f"no {what} within {timeout} s; {self._connections} connections, requests: {ends}")

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _count_connection(self, change: int) -> None:
        with self._changed:
            self._connections += change
            self._changed.notify_all()

    def _tell(self, event: asyncio.Event) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            event.set()
            return
        try:
            loop.call_soon_threadsafe(event.set)
        except RuntimeError:  # the loop closed in between
            event.set()
