"""The gateway as a raw ASGI application: routes, keys, limits, disconnects, and errors in the caller's own shape.

There is no framework in between because the hot path is short: one lookup for the route, one read of the body, one
exchange. Every exception that is not ours is logged without contents and answered as `internal_error`.
"""

import asyncio
import hmac
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import aclosing
from time import monotonic, time
from typing import Any

from mustcall.core.adaptation import Adaptation, AdaptationLog
from mustcall.core.errors import (
    ForeignOrigin,
    GatewayBusy,
    MustcallError,
    Unauthorized,
    UnknownRoute,
    UpstreamRejected,
    WrongMethod,
)
from mustcall.core.events import Failed
from mustcall.core.origin import Wire
from mustcall.core.request import Request
from mustcall.engine.exchange import WholeReply
from mustcall.engine.records import TurnProgress
from mustcall.engine.spending.budget_account import Metering
from mustcall.gateway.config.settings import Settings
from mustcall.gateway.connections.admission import Admission, HeldBytes
from mustcall.gateway.connections.heartbeat import Heartbeat
from mustcall.gateway.connections.hosts import allowed_hosts, check_host
from mustcall.gateway.connections.receiving import Gone, headers_of, path_of, read_body
from mustcall.gateway.connections.repeated_failures import without_frames
from mustcall.gateway.measuring import Remeasuring
from mustcall.gateway.replies import Header, Receive, Scope, Send, error_body, reply_headers, retry_advice, status_of
from mustcall.gateway.service import Service
from mustcall.gateway.state.raw_replies import Tapping, tap
from mustcall.gateway.state.recent_turns import Ring
from mustcall.gateway.state.stored_responses import PREFIX as STORED
from mustcall.gateway.state.trace_keeper import TraceKeeper
from mustcall.gateway.state.turn_traces import TurnEnd
from mustcall.gateway.telemetry_setup import CONTENT_TYPE, GatewayState, Telling, serves_metrics
from mustcall.gateway.ui.page import Inside, Page
from mustcall.telemetry.logs import log_of
from mustcall.telemetry.requests import RequestLog
from mustcall.telemetry.stream import EventStream
from mustcall.upstream.endpoint import caller_key
from mustcall.upstream.retry import Clock, SystemClock
from mustcall.upstream.schemes import SchemeTransport
from mustcall.upstream.seam import Transport
from mustcall.wire.codec import Codec, ReplyStamp
from mustcall.wire.registry import codec_for

__all__ = ["Gateway"]

_log = log_of("mustcall.gateway")

_JSON = b"application/json"
_EVENTS = b"text/event-stream; charset=utf-8"

#: Seconds after which a request under way is watched for its client going away.
_WATCH_AFTER = 0.05

#: Paths below `/v1`; clients that leave the prefix out, or put `/api` before it, mean the same.
_TURNS = {"/chat/completions": Wire.CHAT, "/responses": Wire.RESPONSES, "/messages": Wire.MESSAGES}
_COUNT = "/messages/count_tokens"
_MODELS = "/models"
_PROBES = frozenset({"", "/health", "/healthz", "/readyz", "/api/hello"})
_METRICS = "/metrics"
#: The method each path takes.
_METHODS = {**dict.fromkeys((*_TURNS, _COUNT), "POST"), _MODELS: "GET", _METRICS: "GET"}
#: What a path is called in the metrics; whatever else callers think of is `other`.
_ROUTE_NAMES = {**{path: str(wire) for path, wire in _TURNS.items()}, _COUNT: "count_tokens", _MODELS: "models"}


#: Our headers that a web page may read.
_EXPOSED = b", ".join(
    b"x-mustcall-" + name
    for name in (
        *(b"request-id", b"outcome", b"attempts", b"verdicts", b"adaptations", b"force", b"protocol", b"trace"),
        *(b"usage-total", b"cost-usd", b"cost-estimated"),
    )
)


class Gateway:
    """One gateway process: settings, a pool of upstream connections, and the count of requests under way."""

    def __init__(
        self,
        settings: Settings,
        transport: Transport | None = None,
        clock: Clock | None = None,
        metering: Metering | None = None,
        requests: RequestLog | None = None,
    ) -> None:
        self._settings = settings
        self._metering = metering
        #: Where accounts were kept before a reload left the budget out: another one may bring it back.
        self._accounts: Metering | None = None
        self._transport = transport
        self._clock = clock or SystemClock()
        self._service: Service | None = None
        self._keeper: TraceKeeper | None = None
        self._keys = tuple(key.encode() for key in settings.client_keys)
        self._admission = Admission(
            settings.limits, most=settings.server.max_concurrency, keys=len(settings.client_keys)
        )
        self._hosts = allowed_hosts(settings)
        self._telling = Telling(settings, requests, self._state)
        #: The last turns, where no ledger keeps them.
        self._ring = Ring()
        self._page = Page(self._inside)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "http":
            await (self._page if self._page.takes(scope) else self._http)(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": "the gateway serves plain HTTP only"})

    @property
    def under_way(self) -> int:
        """Requests being worked on."""
        return self._admission.under_way

    def _state(self) -> GatewayState:
        """Return what the gateway is like right now, for its metrics."""
        caches = self._service.sizes() if self._service is not None else {}
        dropped = {"ledger": self._keeper.traces.dropped} if self._keeper is not None else {}
        return GatewayState(settings=self._settings, in_flight=self.under_way, caches=caches, dropped=dropped)

    @property
    def events(self) -> EventStream:
        """What happens here, for whoever wants to know."""
        return self._telling.events

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._settings

    def reload(self, settings: Settings | None) -> None:
        """Serve new requests by these settings, running ones by the old; None counts a reload that was refused.

        What was learnt stays, and so do connections, accounts and breakers. The address and the ledger cannot change.
        """
        self._telling.reload(settings)
        if settings is None:
            return
        self._settings = settings
        self._keys = tuple(key.encode() for key in settings.client_keys)
        self._admission.change(settings.limits, most=settings.server.max_concurrency, keys=len(settings.client_keys))
        self._hosts = allowed_hosts(settings)
        service, self._service = self._service, None
        budget, self._accounts = settings.house.budget, self._metering or self._accounts
        self._metering = None
        if budget is not None and self._accounts is not None:
            meter, breakers = self._accounts.meter, self._accounts.breakers
            self._metering = Metering(budget, self._clock, meter=meter, breakers=breakers)
        if service is not None:
            self._serve(service)

    def _inside(self) -> Inside:
        return Inside(self._settings, self._serve(), self._keeper, self._ring, self._metering, self.under_way)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self._open_ledger()
                self._serve()
                self._telling.open()
                await send({"type": "lifespan.startup.complete"})
            else:
                if self._keeper is not None:
                    await self._keeper.close()
                if self._transport is not None:
                    await self._transport.close()
                await self._telling.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _open_ledger(self) -> None:
        """Open the ledger if one is wanted, and keep the budget's accounts in it."""
        if self._settings.ledger is not None:
            keeper = self._keeper = TraceKeeper(self._settings.ledger)
            await keeper.open()
            await keeper.listen(self._serve().learnt, self._serve().measured)
            keeper.beside(Remeasuring(self, keeper.ledger, self._serve(), self._clock).run())

    def _serve(self, before: Service | None = None) -> Service:
        """Return the service, made on first use because its connections belong to the running loop.

        What it learnt and remembers stays what the one `before` it did.
        """
        if self._service is None:
            if self._transport is None:
                self._transport = SchemeTransport(limits=self._settings.limits)
            keeper, budget = self._keeper, self._settings.house.budget
            if self._metering is None and budget is not None:
                meter = Metering if keeper is None else keeper.metering
                self._metering = meter(budget, self._clock, events=self.events)
            self._service = Service(
                self._settings,
                Tapping(self._transport) if keeper is not None and keeper.keeps_contents else self._transport,
                self._clock,
                self._metering,
                keeper.memory if keeper is not None else None,
                holders=keeper.holders if keeper is not None else None,
                learnt=None if before is None else before.learnt,
                measured=None if before is None else before.measured,
                failures=None if before is None else before.failures,
                caches=None if before is None else before.caches,
                events=self.events,
            )
        return self._service

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = _Call(scope, receive, send, self._cors_headers)
        if call.path in _PROBES or call.path == _METRICS:
            await self._respond(call)
            return
        began = monotonic()
        try:
            await self._respond(call)
        finally:
            name = _ROUTE_NAMES.get(call.path) or ("stored" if call.path.startswith(STORED) else "other")
            self._telling.ended(
                call.progress,
                call.request_id,
                call.wire,
                route=name,
                status=call.status,
                seconds=monotonic() - began,
                error=call.error,
            )

    async def _respond(self, call: "_Call") -> None:
        """Answer one request, with a typed error if nothing else."""
        try:
            await self._dispatch(call)
        except Gone:
            return
        except asyncio.CancelledError:
            # The server ends what is left after its grace period. The caller gets a typed error all the same.
            problem: MustcallError = GatewayBusy("the gateway is stopping; try again in a moment")
        except MustcallError as error:
            problem = without_frames(error)
        except Exception:  # noqa: BLE001  the last line of defence: whatever it is, the caller gets a typed error
            _log.exception("request %s failed", call.request_id)
            problem = MustcallError("the gateway failed; the operator's log has the request id")
        else:
            return
        call.error = type(problem).code
        if call.started:
            if call.streaming:
                await call.send({"type": "http.response.body", "body": call.stream_error(problem)})
            return
        record = call.progress.record
        noted = record.adaptations if record is not None else ()
        headers = reply_headers(call.request_id, {}, noted, content_type=_JSON, record=record)
        if isinstance(problem, WrongMethod):
            headers.append((b"allow", problem.allowed.encode()))
        headers += retry_advice(problem)
        codec = codec_for(call.wire)
        await call.send_whole(status_of(problem, codec), error_body(problem, codec, call.request_id), headers)

    async def _dispatch(self, call: "_Call") -> None:
        if self._hosts is not None:
            check_host(call.headers.get("host"), self._hosts)
        if call.path in _PROBES:
            await self._probe(call)
            return
        self._check_origin(call.headers)
        if call.method == "OPTIONS" and self._settings.server.cors_origins:
            await call.send_whole(204, b"", [])
            return
        if call.path not in _TURNS or call.method != "POST":
            self._check_route(call)
        if call.path != _METRICS or self._settings.server.metrics == "key":
            self._authorise(call.headers)
        if call.path == _METRICS:
            await call.send_whole(200, self._telling.page(), [(b"content-type", CONTENT_TYPE)])
            return
        key = caller_key(call.headers) if self._keys else None
        if call.path == _MODELS or (call.path not in _TURNS and call.path.startswith(STORED)):
            with self._admission.slot(key):
                await self._look_up(call)
            return
        held = HeldBytes(self._admission, key)
        try:
            body = await read_body(call.receive, call.headers.get("content-length", ""), self._settings, held)
            self._admission.begin(key)
            try:
                if call.path == _COUNT:
                    await call.while_connected(self._answer(call, body))
                else:
                    await self._traced(call, body)
            finally:
                self._admission.end(key)
        finally:
            held.give_back()

    def _check_route(self, call: "_Call") -> None:
        """Raise for a path that is not served, or not by this method."""
        expected = _METHODS.get(call.path)
        if call.path == _METRICS and not serves_metrics(self._settings):
            expected = None
        if call.path.startswith(STORED):
            expected = call.method  # which methods a stored response takes is known there
        if expected is None:
            raise UnknownRoute(
                f"nothing is served at {call.asked!r}; the gateway serves POST /v1/chat/completions, /v1/responses, "
                "/v1/messages, /v1/messages/count_tokens, GET /v1/models, /metrics, and GET and DELETE /v1/responses/ID"
            )
        if call.method != expected and not (call.method == "HEAD" and expected == "GET"):
            raise WrongMethod(f"{call.asked} takes {expected}, not {call.method}", allowed=expected)

    async def _look_up(self, call: "_Call") -> None:
        """Answer what needs no turn: the list of models, and stored responses."""
        view = self._upstream_view(call.headers)
        if call.path == _MODELS:
            body = await self._serve().models(view)
            await call.send_whole(200, body, reply_headers(call.request_id, {}, (), content_type=_JSON))
        else:
            reply = await self._serve().stored(call.method, call.path, call.query, view, call.headers)
            await call.send_reply(reply, codec_for(Wire.RESPONSES))

    async def _traced(self, call: "_Call", body: bytes) -> None:
        """Answer a turn, and hand over what it was to who keeps turns."""
        began = monotonic()
        keeper = self._keeper if self._keeper is not None and self._keeper.is_open else self._ring
        contents = keeper.keeps_contents
        call.kept = [] if contents else None
        taps = tap() if contents else ()
        status, failure = 0, None
        try:
            await call.while_connected(self._answer(call, body))
            status = call.status
        except MustcallError as error:
            status, failure = status_of(error, codec_for(call.wire)), error
            raise
        finally:
            if call.progress.upstream:
                end = TurnEnd(
                    call.request_id,
                    time(),
                    monotonic() - began,
                    call.wire,
                    status,
                    call.progress,
                    None,  # the turn knows whose it is
                    contents,
                    body if contents else b"",
                    tuple(call.kept or ()),
                    tuple(taps),
                    call.headers.get("user-agent", ""),
                    failure,
                )
                keeper.put(end)

    async def _answer(self, call: "_Call", body: bytes) -> None:
        service = self._serve()
        headers = self._upstream_view(call.headers)
        if call.path == _COUNT:
            counted = await service.count_tokens(body, headers, call.query, call.token)
            answer = reply_headers(call.request_id, counted.upstream_headers, counted.adaptations, content_type=_JSON)
            await call.send_whole(counted.status, counted.body, answer)
            return
        progress = call.progress
        self._telling.begin(progress, call.headers, body)
        codec = codec_for(call.wire)

        async def keep_alive() -> None:
            if not progress.holding:  # what it waited for came before this ran
                return
            # Written before anything is waited for: what the turn writes from here on has the next numbers.
            sign = codec.keepalive if progress.delivery is None else progress.delivery.sign()
            await call.begin_stream({}, ())
            await call.send({"type": "http.response.body", "body": sign, "more_body": True})

        with Heartbeat(self._settings.server.keepalive, progress, keep_alive) as heartbeat:
            try:
                reply = await service.turn(
                    call.wire, body, headers, call.query, call.token, progress=progress, caller=call.headers
                )
            finally:
                if heartbeat.task is not None:
                    await heartbeat.settle()
            if isinstance(reply, WholeReply):
                await call.send_reply(reply, codec)
                return
            async with aclosing(reply.chunks) as chunks:
                await call.begin_stream(reply.upstream_headers, reply.adaptations)
                heartbeat.note()
                progress.spoke = self._clock.monotonic()
                await call.send_piece(reply.first)
                async for chunk in chunks:
                    if heartbeat.task is not None:
                        await heartbeat.settle()
                    heartbeat.note()
                    await call.send_piece(chunk)
            await heartbeat.settle()
        await call.send({"type": "http.response.body", "body": b""})

    async def _probe(self, call: "_Call") -> None:
        """Answer health checks and the small requests clients make before they talk."""
        if call.method not in ("GET", "HEAD"):
            raise WrongMethod(f"{call.asked} takes GET, not {call.method}", allowed="GET")
        await call.send_whole(200, b'{"status":"ok","service":"mustcall"}', [(b"content-type", _JSON)])

    def _authorise(self, headers: Mapping[str, str]) -> None:
        """Compare the caller's key with every accepted one in constant time."""
        if not self._keys:
            return
        key = caller_key(headers)
        if key is None:
            raise Unauthorized("this gateway wants a key: send `Authorization: Bearer …` or `x-api-key: …`")
        given = key.encode("utf-8", "surrogateescape")
        matches = [hmac.compare_digest(given, accepted) for accepted in self._keys]
        if not any(matches):
            raise Unauthorized("the key is not one this gateway accepts")

    def _upstream_view(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the caller's headers as upstreams may see them: a key that opens the gateway stays here."""
        if not self._keys:
            return headers
        return {name: value for name, value in headers.items() if name not in ("authorization", "x-api-key")}

    def _allows(self, origin: str) -> bool:
        origins = self._settings.server.cors_origins
        return origin in origins or "*" in origins

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        """Refuse pages nobody listed. Only browsers send an origin; CORS alone would not keep a page from posting."""
        origin = headers.get("origin")
        if origin is not None and not self._allows(origin):
            raise ForeignOrigin(f"the web page {origin[:200]!r} may not call this gateway; list it in cors_origins")

    def _cors_headers(self, headers: Mapping[str, str]) -> list[Header]:
        origin = headers.get("origin")
        if origin is None or not self._allows(origin):
            return []
        asked = headers.get("access-control-request-headers", "")
        return [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS"),
            (b"access-control-allow-headers", asked.encode("latin-1") or b"authorization, content-type, x-api-key"),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"origin"),
        ]


class _Call:
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

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, cors: Callable[[Mapping[str, str]], list[Header]]
    ) -> None:
        self.receive = receive
        self._send = send
        self.token = os.urandom(12).hex()
        self.request_id = f"req_{self.token}"
        self.headers: Mapping[str, str] = headers_of(scope)
        self.method: str = scope["method"]
        self.asked: str = scope["path"]
        self.path = path_of(self.asked)
        self.query: str = scope["query_string"].decode("latin-1")
        self.wire = _TURNS.get(self.path) or (
            Wire.MESSAGES if self.path == _COUNT or "anthropic-version" in self.headers else Wire.CHAT
        )
        self.started = False
        self.error = ""
        self.status = 0
        self.kept: list[bytes] | None = None
        self.streaming = False
        self.last = b""
        self.progress = TurnProgress()
        self._extra = cors(self.headers) if "origin" in self.headers else []

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

    async def send_reply(self, reply: WholeReply, codec: Codec) -> None:
        """Send a reply in one piece; as the last event of a stream if a sign of life has begun one."""
        if self.started:
            error = UpstreamRejected(codec.decode_error(reply.status, reply.body))
            await self.send({"type": "http.response.body", "body": self.stream_error(error)})
            return
        record = self.progress.record
        headers = reply_headers(
            self.request_id, reply.upstream_headers, reply.adaptations, content_type=_JSON, record=record
        )
        await self.send_whole(reply.status, reply.body, headers)

    async def send_whole(self, status: int, body: bytes, headers: list[Header]) -> None:
        """Send an answer in one piece; without its body for HEAD."""
        headers.append((b"content-length", b"%d" % len(body)))
        if self.kept is not None:
            self.kept.append(body)
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": b"" if self.method == "HEAD" else body})

    async def while_connected(self, work: Awaitable[None]) -> None:
        """Do the work unless the client goes away first; then the work is cancelled, upstream included."""
        task = asyncio.current_task()
        assert task is not None, "requests run in tasks"
        gone = False

        async def watch() -> None:
            nonlocal gone
            while (await self.receive())["type"] != "http.disconnect":
                pass
            gone = True
            task.cancel()

        watcher: asyncio.Task[None] | None = None

        def begin() -> None:
            nonlocal watcher
            watcher = asyncio.ensure_future(watch())

        # Most disconnects come long after the request; a reply that is there at once needs no watcher.
        timer = asyncio.get_running_loop().call_later(_WATCH_AFTER, begin)
        try:
            await work
        except asyncio.CancelledError:
            if not gone:
                raise
            task.uncancel()
            self.progress.gone = True
            raise Gone from None
        finally:
            timer.cancel()
            if watcher is not None:
                watcher.cancel()
