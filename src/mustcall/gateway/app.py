"""The gateway as a raw ASGI application: routes, keys, limits, disconnects, and errors in the caller's own shape.

There is no framework in between because the hot path is short: one lookup for the route, one read of the body, one
exchange. Every exception that is not ours is logged without contents and answered as `internal_error`.
"""

import asyncio
import hmac
from collections.abc import Mapping
from contextlib import aclosing
from time import monotonic, time

from mustcall.core.errors import (
    GatewayBusy,
    MustcallError,
    Unauthorized,
    WrongMethod,
)
from mustcall.core.memo import Caches, owned
from mustcall.engine.exchange import WholeReply
from mustcall.engine.spending.budget_account import Metering
from mustcall.gateway.config.settings import Settings
from mustcall.gateway.connections.admission import Admission, HeldBytes
from mustcall.gateway.connections.heartbeat import Heartbeat
from mustcall.gateway.connections.hosts import allowed_hosts, check_host
from mustcall.gateway.connections.http_call import DisconnectWatches, HttpCall
from mustcall.gateway.connections.receiving import Gone, read_body, refuse_empty
from mustcall.gateway.connections.repeated_failures import without_frames
from mustcall.gateway.connections.web_origins import check_origin
from mustcall.gateway.measuring import Remeasuring
from mustcall.gateway.replies import JSON, Receive, Scope, Send, error_body, reply_headers, retry_advice, status_of
from mustcall.gateway.routes import COUNT, METRICS, MODELS, PROBES, STORED, TURNS, check_route, route_name
from mustcall.gateway.service import Service
from mustcall.gateway.state.raw_replies import Tapping, tap
from mustcall.gateway.state.recent_turns import Ring
from mustcall.gateway.state.trace_keeper import TraceKeeper
from mustcall.gateway.state.turn_traces import TurnEnd
from mustcall.gateway.telemetry_setup import CONTENT_TYPE, GatewayState, Telling, serves_metrics
from mustcall.gateway.ui.page import Inside, Page
from mustcall.telemetry.logs import log_of
from mustcall.telemetry.requests import RequestLog
from mustcall.telemetry.stream import EventStream
from mustcall.upstream.endpoint import caller_key
from mustcall.upstream.masking import Masking, secrets_of
from mustcall.upstream.retry import Clock, SystemClock
from mustcall.upstream.schemes import SchemeTransport
from mustcall.upstream.seam import Transport
from mustcall.wire.registry import codec_for

__all__ = ["Gateway"]

_log = log_of("mustcall.gateway")


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
        #: What is kept of the requests that were served: it is this gateway's, and goes with it.
        self._caches = Caches()
        self._service: Service | None = None
        self._keeper: TraceKeeper | None = None
        self._keys = tuple(key.encode() for key in settings.client_keys)
        self._admission = Admission(
            settings.limits, most=settings.server.max_concurrency, keys=len(settings.client_keys)
        )
        self._hosts = allowed_hosts(settings)
        self._watches = DisconnectWatches()
        self._telling = Telling(settings, requests, self._state)
        #: The last turns, where no ledger keeps them.
        self._ring = Ring()
        self._page = Page(self._inside)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "http":
            with owned(self._caches):
                await (self._page if self._page.takes(scope) else self._http)(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": "the gateway serves plain HTTP only"})

    @property
    def keeps(self) -> bool:
        """Whether there is a ledger and it is open."""
        return self._keeper is not None and self._keeper.is_open

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
        budget, self._accounts = settings.operator.budget, self._metering or self._accounts
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
            keeper, budget = self._keeper, self._settings.operator.budget
            if self._metering is None and budget is not None:
                meter = Metering if keeper is None else keeper.metering
                self._metering = meter(budget, self._clock, events=self.events)
            secrets = secrets_of(self._settings.endpoints)
            transport = Masking(self._transport, secrets) if secrets else self._transport
            self._service = Service(
                self._settings,
                Tapping(transport) if keeper is not None and keeper.keeps_contents else transport,
                self._clock,
                self._metering,
                keeper.memory if keeper is not None else None,
                holders=keeper.holders if keeper is not None else None,
                learnt=None if before is None else before.learnt,
                measured=None if before is None else before.measured,
                failures=None if before is None else before.failures,
                caches=self._caches,
                events=self.events,
            )
        return self._service

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = HttpCall(scope, receive, send, self._settings.server.cors_origins)
        if call.path in PROBES or call.path == METRICS:
            await self._respond(call)
            return
        began = monotonic()
        try:
            await self._respond(call)
        finally:
            self._telling.ended(
                call.progress,
                call.request_id,
                call.wire,
                route=route_name(call.path),
                status=call.status,
                seconds=monotonic() - began,
                error=call.error,
            )

    async def _respond(self, call: HttpCall) -> None:
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
        headers = reply_headers(call.request_id, {}, noted, content_type=JSON, record=record)
        if isinstance(problem, WrongMethod):
            headers.append((b"allow", problem.allowed.encode()))
        headers += retry_advice(problem)
        codec = codec_for(call.wire)
        await call.send_whole(status_of(problem, codec), error_body(problem, codec, call.request_id), headers)

    async def _dispatch(self, call: HttpCall) -> None:
        if self._hosts is not None:
            check_host(call.headers.get("host"), self._hosts)
        if call.path in PROBES:
            await self._probe(call)
            return
        check_origin(call.headers, self._settings.server.cors_origins)
        if call.method == "OPTIONS" and self._settings.server.cors_origins:
            await call.send_whole(204, b"", [])
            return
        if call.path not in TURNS or call.method != "POST":
            check_route(call.path, call.method, call.asked, metrics=serves_metrics(self._settings))
        if call.path != METRICS or self._settings.server.metrics == "key":
            self._authorise(call.headers)
        if call.path == METRICS:
            await call.send_whole(200, self._telling.page(), [(b"content-type", CONTENT_TYPE)])
            return
        key = caller_key(call.headers) if self._keys else None
        if call.path == MODELS or (call.path not in TURNS and call.path.startswith(STORED)):
            with self._admission.slot(key):
                await self._look_up(call)
            return
        held = HeldBytes(self._admission, key)
        try:
            body = await read_body(call.receive, call.headers.get("content-length", ""), self._settings, held)
            refuse_empty(body)
            self._admission.begin(key)
            try:
                if call.path == COUNT:
                    await call.while_connected(self._answer(call, body), self._watches)
                else:
                    await self._traced(call, body)
            finally:
                self._admission.end(key)
        finally:
            held.give_back()

    async def _look_up(self, call: HttpCall) -> None:
        """Answer what needs no turn: the list of models, and stored responses."""
        view = self._upstream_view(call.headers)
        if call.path == MODELS:
            body = await self._serve().models(view)
            await call.send_whole(200, body, reply_headers(call.request_id, {}, (), content_type=JSON))
        else:
            reply = await self._serve().stored(call.method, call.path, call.query, view, call.headers)
            await call.send_reply(reply)

    async def _traced(self, call: HttpCall, body: bytes) -> None:
        """Answer a turn, and hand over what it was to who keeps turns."""
        began = monotonic()
        keeper = self._keeper if self._keeper is not None and self._keeper.is_open else self._ring
        contents = keeper.keeps_contents
        call.kept = [] if contents else None
        taps = tap() if contents else ()
        status, failure = 0, None
        try:
            await call.while_connected(self._answer(call, body), self._watches)
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

    async def _answer(self, call: HttpCall, body: bytes) -> None:
        service = self._serve()
        headers = self._upstream_view(call.headers)
        if call.path == COUNT:
            counted = await service.count_tokens(body, headers, call.query, call.token)
            answer = reply_headers(call.request_id, counted.upstream_headers, counted.adaptations, content_type=JSON)
            await call.send_whole(counted.status, counted.body, answer)
            return
        progress = call.progress
        self._telling.begin(progress, call.headers, body)
        codec = codec_for(call.wire)

        async def keep_alive() -> None:
            # Written before anything is waited for: what the turn writes from here on has the next numbers.
            if progress.holding:
                sign = codec.keepalive if progress.delivery is None else progress.delivery.sign()
            elif progress.waiting and progress.delivery is not None:
                sign = progress.delivery.first_sign()
            else:  # what it waited for came before this ran
                return
            if not sign:
                return
            await call.begin_stream({}, ())
            await call.send({"type": "http.response.body", "body": sign, "more_body": True})

        server = self._settings.server
        with Heartbeat(server.keepalive, progress, keep_alive, patience=server.first_sign) as heartbeat:
            try:
                reply = await service.turn(
                    call.wire, body, headers, call.query, call.token, progress=progress, caller=call.headers
                )
            finally:
                if heartbeat.task is not None:
                    await heartbeat.settle()
            if isinstance(reply, WholeReply):
                await call.send_reply(reply)
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

    async def _probe(self, call: HttpCall) -> None:
        """Answer health checks and the small requests clients make before they talk."""
        if call.method not in ("GET", "HEAD"):
            raise WrongMethod(f"{call.asked} takes GET, not {call.method}", allowed="GET")
        await call.send_whole(200, b'{"status":"ok","service":"mustcall"}', [(b"content-type", JSON)])

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
