"""One HTTP request on its way through the gateway: what was asked, and what is written to its connection.

It knows ASGI and the wires' error forms, and nothing of turns: who answers hands it bytes and headers. A client that
goes away ends the work for it.
"""

import asyncio
import os
from collections.abc import Awaitable, Iterable, Mapping, MutableMapping, Sequence
from contextvars import Context
from typing import Any

from mustcall.core.adaptation import Adaptation, AdaptationLog
from mustcall.core.errors import MustcallError, UpstreamRejected
from mustcall.core.request import Request
from mustcall.core.streams.events import Failed
from mustcall.engine.exchange import WholeReply
from mustcall.engine.records import TurnProgress
from mustcall.gateway.connections.receiving import Gone, headers_of, path_of
from mustcall.gateway.connections.web_origins import cors_headers
from mustcall.gateway.replies import JSON, Header, Receive, Scope, Send, reply_headers
from mustcall.gateway.routes import wire_of
from mustcall.wire.codec import ReplyStamp
from mustcall.wire.registry import codec_for

__all__ = ["DisconnectWatches", "HttpCall"]

_EVENTS = b"text/event-stream; charset=utf-8"

#: Seconds after which a request under way is watched for its client going away.
_WATCH_AFTER = 0.05
#: What is due within so many seconds is due: a timer cannot wait for less.
_NEAR = 0.001


class HttpCall:
    """One HTTP request on its way through: what was asked, and the two ends of its connection."""

    __slots__ = (
        "_extra",
        "_send",
        "asked",
        "error",
        "headers",
        "kept",
        "last",
        "method",
        "path",
        "progress",
        "query",
        "receive",
        "request_id",
        "started",
        "status",
        "streaming",
        "token",
        "wire",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send, cors_origins: Sequence[str]) -> None:
        self.receive = receive
        self._send = send
        self.token = os.urandom(12).hex()
        self.request_id = f"req_{self.token}"
        self.headers: Mapping[str, str] = headers_of(scope)
        self.method: str = scope["method"]
        self.asked: str = scope["path"]
        self.path = path_of(self.asked)
        self.query: str = scope["query_string"].decode("latin-1")
        self.wire = wire_of(self.path, self.headers)
        self.started = False
        self.error = ""
        self.status = 0
        self.kept: list[bytes] | None = None
        self.streaming = False
        self.last = b""
        self.progress = TurnProgress()
        self._extra = cors_headers(self.headers, cors_origins) if "origin" in self.headers else []

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send one ASGI message, remembering that the answer has begun."""
        if not self.started:
            self.started = True
            self.status = message["status"]
            if self._extra:
                message["headers"] = [*message["headers"], *self._extra]
        await self._send(message)

    async def begin_stream(self, upstream: Mapping[str, str], adaptations: Iterable[Adaptation]) -> None:
        """Begin a streamed answer, unless a sign of life has begun it already."""
        if self.started:
            return
        self.streaming = True
        record = self.progress.record
        headers = reply_headers(self.request_id, upstream, adaptations, content_type=_EVENTS, record=record)
        if "cache-control" not in upstream:
            headers.append((b"cache-control", b"no-cache"))
        await self.send({"type": "http.response.start", "status": 200, "headers": headers})

    def stream_error(self, error: MustcallError) -> bytes:
        """Return an error as the end of this stream; one of which nothing but signs of life went out begins first."""
        if self.progress.delivery is not None:
            return self.progress.delivery.fail(error)
        codec = codec_for(self.wire)
        if self.last:
            return codec.encode_stream_error(error.info(), self.request_id, self.last)
        nobody = Request(model="", messages=())
        stamp = ReplyStamp(token=self.token, created=0, request_id=self.request_id)
        encoder = codec.stream_encoder(nobody, stamp, AdaptationLog())
        return encoder.feed(Failed(error.info()))

    async def send_piece(self, data: bytes) -> None:
        """Send a piece of a streamed answer."""
        self.last = data
        if self.kept is not None:
            self.kept.append(data)
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def send_reply(self, reply: WholeReply) -> None:
        """Send a reply in one piece; as the last event of a stream if a sign of life has begun one."""
        if self.started:
            assert reply.error is not None, "a stream is answered in one piece only by an error"
            error = self.stream_error(UpstreamRejected(reply.error))
            await self.send({"type": "http.response.body", "body": error})
            return
        record = self.progress.record
        headers = reply_headers(
            self.request_id, reply.upstream_headers, reply.adaptations, content_type=JSON, record=record
        )
        await self.send_whole(reply.status, reply.body, headers)

    async def send_whole(self, status: int, body: bytes, headers: list[Header]) -> None:
        """Send an answer in one piece; without its body for HEAD."""
        headers.append((b"content-length", b"%d" % len(body)))
        if self.kept is not None:
            self.kept.append(body)
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": b"" if self.method == "HEAD" else body})

    async def while_connected(self, work: Awaitable[None], watches: "DisconnectWatches") -> None:
        """Do the work unless the client goes away first; then the work is cancelled, upstream included."""
        watch = _Watch(self.receive)
        watches.begin(watch)
        try:
            await work
        except asyncio.CancelledError:
            if not watch.gone:
                raise
            watch.task.uncancel()
            self.progress.gone = True
            raise Gone from None
        finally:
            watches.end(watch)


class _Watch:
    """Waits for one client to go away, once it is begun; then its task is cancelled."""

    __slots__ = ("_receive", "_watcher", "due", "gone", "loop", "task")

    def __init__(self, receive: Receive) -> None:
        task = asyncio.current_task()
        assert task is not None, "requests run in tasks"
        self.task = task
        self.loop = task.get_loop()
        self.due = self.loop.time() + _WATCH_AFTER
        self.gone = False
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin to wait."""
        self._watcher = self.loop.create_task(self._wait())

    def end(self) -> None:
        """Wait no longer."""
        if self._watcher is not None:
            self._watcher.cancel()

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self.task.cancel()


class DisconnectWatches:
    """The requests of one gateway that are not watched yet, in the order they began, with one timer for all of them.

    Most disconnects come long after the request, and a reply that is there at once needs no watcher. A timer for each
    request would cost more than all else that is done here.
    """

    __slots__ = ("_context", "_loop", "_waiting")

    def __init__(self) -> None:
        #: The timer runs in none of the requests' contexts: it would keep what is in there.
        self._context = Context()
        #: Whose timer runs; None while there is none.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[_Watch, None] = {}

    def begin(self, watch: _Watch) -> None:
        """Have a request watched when it is due."""
        loop = watch.loop
        if self._loop is not loop:
            self._loop = loop
            self._waiting = {}  # what another loop left behind ended with it
            loop.call_at(watch.due, self._look, loop, context=self._context)
        self._waiting[watch] = None

    def end(self, watch: _Watch) -> None:
        """Have it watched no longer."""
        self._waiting.pop(watch, None)
        watch.end()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watch what is due, and look again when the next one is; not at all while there is none."""
        if loop is not self._loop:
            return
        waiting, now = self._waiting, loop.time() + _NEAR
        for watch in tuple(waiting):
            if watch.due > now:
                loop.call_at(watch.due, self._look, loop, context=self._context)
                return
            del waiting[watch]
            watch.begin()
        self._loop = None
