"""Carries one caller's request to an upstream and brings its reply back on the caller's wire.

Where both sides speak the same wire and nothing has to change, bytes are forwarded: the request as it came, the
reply as it comes. Otherwise the request is decoded, encoded for the upstream, and the reply translated back, events
as they arrive. A failure before the first byte is raised as a typed error; after it, it is the stream's last event.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationKind, AdaptationLog
from mustcall.core.assembler import Assembler
from mustcall.core.errors import (
    InvalidRequest,
    MustcallError,
    UpstreamGarbage,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mustcall.core.events import Ended, Event, Failed
from mustcall.core.limits import DEFAULTS, Limits
from mustcall.core.origin import Wire
from mustcall.core.reply import Reply
from mustcall.core.request import Request
from mustcall.core.unroll import unroll
from mustcall.telemetry.context import TraceContext
from mustcall.upstream.endpoint import Endpoint, request_headers
from mustcall.upstream.idle import IdleTimer
from mustcall.upstream.retry import Answer, Clock, send_patiently
from mustcall.upstream.seam import Transport, UpstreamCall, UpstreamReply
from mustcall.wire.binding import Binding, StreamBinding
from mustcall.wire.codec import Provenance, Stamp, Target
from mustcall.wire.opening import Fields
from mustcall.wire.outline import is_error_body, is_reply, not_a_reply, rename_model
from mustcall.wire.registry import codec_for
from mustcall.wire.sealing import holds_seal
from mustcall.wire.sse import Silence, SseDecoder, SseFramer

__all__ = ["Inbound", "StreamedReply", "WholeReply", "drain", "exchange", "is_event_stream"]

#: How long a finished stream is waited for to be closed by its upstream; then it is cut off.
_DRAIN_SECONDS = 0.2


class Inbound(msgspec.Struct, frozen=True, kw_only=True):
    """A caller's request as it arrived. `token` is unique to it; header names are lower case."""

    wire: Wire
    body: bytes
    headers: Mapping[str, str]
    query: str
    stream: bool
    token: str
    request_id: str
    #: Whose it is: a digest of the caller's key. What one tenant's turns teach is not another's (rule 139).
    tenant: str = ""
    #: Whether the reply is kept for the caller, and after which one.
    stored: bool = False
    previous: str | None = None
    #: The top level of the body, where it is known.
    fields: Fields | None = None
    #: The trace it belongs to, where somebody traces.
    trace: TraceContext | None = None

    def stamp(self, created: int) -> Stamp:
        """Return the identity of the reply."""
        return Stamp(
            token=self.token,
            created=created,
            stored=self.stored,
            previous=self.previous,
            request_id=self.request_id,
        )


class WholeReply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply in one piece, an upstream's error included."""

    status: int
    body: bytes
    upstream_headers: Mapping[str, str]
    adaptations: tuple[Adaptation, ...] = ()


class StreamedReply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply as it comes: `first`, then `chunks` up to the stream's own end or an error event; it must be closed."""

    status: int
    first: bytes
    chunks: AsyncGenerator[bytes]
    upstream_headers: Mapping[str, str]
    adaptations: tuple[Adaptation, ...] = ()


async def exchange(
    inbound: Inbound,
    endpoint: Endpoint,
    model: str | None,
    transport: Transport,
    clock: Clock,
    *,
    deadline: float,
    limits: Limits = DEFAULTS,
) -> WholeReply | StreamedReply:
    """Make one exchange; `model` is the name to send if it is not the caller's. Raise only `MustcallError`."""
    log = AdaptationLog()
    mine, theirs = codec_for(inbound.wire), codec_for(endpoint.wire)
    request: Request | None = None
    if mine is theirs and not holds_seal(inbound.body):
        body = inbound.body if model is None else rename_model(inbound.body, model)
    else:
        request = mine.decode_request(inbound.body)
        outgoing = request if model is None else request.evolve(model=model)
        most = endpoint.max_output_tokens
        if most is not None and request.max_tokens is not None and request.max_tokens > most:
            log.add(AdaptationKind.VALUE_CLAMPED, "max_tokens", f"{request.max_tokens} to {most}")
            outgoing = outgoing.evolve(max_tokens=most)
        target = Target(issuer=endpoint.issuer(outgoing.model), default_max_tokens=endpoint.default_max_tokens)
        try:
            body = msgspec.json.encode(theirs.encode_request(outgoing, target, log))
        except RecursionError:  # what can just be read cannot always be written
            raise InvalidRequest("the body is nested too deeply") from None
    same_wire = mine is theirs
    headers = request_headers(endpoint, inbound.headers, same_wire=same_wire, stream=inbound.stream)
    if inbound.trace is not None:
        headers |= inbound.trace.outgoing(1)
    call = UpstreamCall(
        url=endpoint.base_url + theirs.path + (f"?{inbound.query}" if same_wire and inbound.query else ""),
        headers=headers,
        body=body,
        timeouts=endpoint.timeouts,
    )
    answer = await send_patiently(
        transport, call, endpoint.backoff, theirs.decode_error, clock=clock, deadline=deadline, log=log
    )
    sent = model or (request.model if request is not None else "")
    issuer = endpoint.issuer(sent)
    crossing = _Crossing(inbound, request, endpoint, log, int(clock.now()), issuer=issuer, limits=limits)
    try:
        if answer.error_body is not None:
            return crossing.error(answer, answer.error_body)
        async with asyncio.timeout(max(0.0, deadline - clock.monotonic())):
            if inbound.stream:
                return await crossing.stream(answer.reply)
            return await crossing.whole(answer.reply)
    except TimeoutError:
        await answer.reply.close()
        raise UpstreamTimeout("the upstream's answer did not begin within the time for this request") from None
    except BaseException:
        await answer.reply.close()
        raise


class _Crossing:
    """The way back of one exchange: from the upstream's wire to the caller's."""

    def __init__(
        self,
        inbound: Inbound,
        request: Request | None,
        endpoint: Endpoint,
        log: AdaptationLog,
        created: int,
        *,
        issuer: str,
        limits: Limits,
    ) -> None:
        self._limits = limits
        self._inbound = inbound
        self._decoded = request
        self._mine = codec_for(inbound.wire)
        self._theirs = codec_for(endpoint.wire)
        self._same_wire = inbound.wire is endpoint.wire
        self._log = log
        self._provenance = Provenance(issuer=issuer, token=inbound.token, crosses=not self._same_wire)
        self._stamp = inbound.stamp(created)

    @property
    def _request(self) -> Request:
        """The caller's request, decoded once and only if the way back needs it."""
        if self._decoded is None:
            self._decoded = self._mine.decode_request(self._inbound.body)
        return self._decoded

    def error(self, answer: Answer, body: bytes) -> WholeReply | StreamedReply:
        """Return an upstream's error status: as it is on the same wire, in the caller's shape otherwise."""
        status, headers = answer.reply.status, answer.reply.headers
        if self._same_wire and is_error_body(body):
            return self._whole(status, body, headers)
        info = self._theirs.decode_error(status, body)
        if self._inbound.stream and info.code in self._mine.streamed_errors:
            encoder = self._mine.stream_encoder(self._request, self._stamp, self._log)
            return self._stream(_nothing(), encoder.feed(Failed(info)), headers)
        return self._whole(
            status, msgspec.json.encode(self._mine.encode_error(info, self._inbound.request_id)), headers
        )

    async def whole(self, reply: UpstreamReply) -> WholeReply:
        """Return a reply in one piece, assembled if the upstream streamed although it was not asked to."""
        if is_event_stream(reply.headers):
            decoded = await self._assemble(reply)
            body = self._encode(decoded)
            return self._whole(200, body, reply.headers)
        body = await reply.read()
        await reply.close()
        if self._same_wire:
            if not is_reply(self._mine.wire, body):
                self._check_not_error(body)
                raise not_a_reply(self._mine.wire, body)
        else:
            decoded = self._bound(self._theirs.decode_reply(body, self._provenance))
            body = self._encode(decoded)
        return self._whole(reply.status, body, reply.headers)

    async def stream(self, reply: UpstreamReply) -> StreamedReply:
        """Return a stream; one that fails before its first event is raised instead."""
        if not is_event_stream(reply.headers):
            body = await reply.read()
            await reply.close()
            self._check_not_error(body)
            self._log.add(AdaptationKind.FIELD_MAPPED, "stream", "the upstream answered in one piece")
            decoded = self._bound(self._theirs.decode_reply(body, self._provenance))
            chunks = self._encode_all(decoded)
        elif self._same_wire:
            chunks = self._forward(reply)
        else:
            chunks = self._translate(reply)
        # Until the first bytes are there nothing was sent, so a failure can still be a plain error with a status.
        first = await anext(chunks, None)
        if first is None:
            raise UpstreamUnavailable("the upstream's stream ended before it began")
        return self._stream(chunks, first, reply.headers)

    def _stream(self, chunks: AsyncGenerator[bytes], first: bytes, headers: Mapping[str, str]) -> StreamedReply:
        return StreamedReply(
            status=200, first=first, chunks=chunks, upstream_headers=headers, adaptations=self._log.entries
        )

    def _whole(self, status: int, body: bytes, headers: Mapping[str, str]) -> WholeReply:
        return WholeReply(status=status, body=body, upstream_headers=headers, adaptations=self._log.entries)

    def _encode(self, reply: Reply) -> bytes:
        """Write a reply for the caller."""
        try:
            return msgspec.json.encode(self._mine.encode_reply(reply, self._request, self._stamp, self._log))
        except RecursionError:
            raise UpstreamGarbage("the upstream's reply is nested too deeply") from None

    def _bound(self, reply: Reply) -> Reply:
        return Binding(self._request, self._theirs.wire).restore_reply(reply)

    def _check_not_error(self, body: bytes) -> None:
        """Raise for an error that was sent as a success."""
        if is_error_body(body):
            raise UpstreamRejected(self._theirs.decode_error(502, body))

    async def _assemble(self, reply: UpstreamReply) -> Reply:
        assembler = Assembler()
        async with aclosing(self._batches(reply)) as batches:
            async for events in batches:
                for event in events:
                    assembler.feed(event)
        return assembler.reply()

    async def _encode_all(self, reply: Reply) -> AsyncGenerator[bytes]:
        encoder = self._mine.stream_encoder(self._request, self._stamp, self._log)
        try:
            whole = b"".join(encoder.feed(event) for event in unroll(reply))
        except RecursionError:
            raise UpstreamGarbage("the upstream's reply is nested too deeply") from None
        yield whole

    async def _forward(self, reply: UpstreamReply) -> AsyncGenerator[bytes]:
        """Pass events on as they are, up to the one that ends the stream; say so at the end if it never came."""
        framer, silence = SseFramer(self._limits), Silence(self._limits)
        failure: MustcallError | None = None
        closed = False
        last = b""
        marks = self._mine.closing_marks
        try:
            async with aclosing(reply.chunks()) as pieces:
                async for piece in pieces:
                    block = framer.feed(piece)
                    if block:
                        last = block
                        yield block
                        if b"data" not in block:
                            silence.note(block)
                        if any(mark in block for mark in marks) and self._has_closed(framer):
                            closed = True
                            await drain(pieces)
                            break
        except MustcallError as error:
            failure = error
        finally:
            await reply.close()
        if not closed:
            # A server may hang up right after its last line, without the blank one that ends the event.
            rest = framer.close() if failure is None else b""
            if rest and any(self._mine.closes(event) for event in SseDecoder().feed(rest + b"\n\n")):
                yield rest + b"\n\n"
            closed = self._has_closed(framer)
        if not closed:
            failure = failure or UpstreamUnavailable("the upstream's stream ended before the reply was complete")
            if not last:
                raise failure
            yield self._mine.encode_stream_error(failure.info(), self._inbound.request_id, last)

    def _has_closed(self, framer: SseFramer) -> bool:
        return any(self._mine.closes(event) for event in framer.last_events())

    async def _batches(self, reply: UpstreamReply) -> AsyncGenerator[list[Event]]:
        """Yield the events of each piece that arrives, bound to the caller's tools; a failure is the last of them."""
        sse, silence = SseDecoder(self._limits), Silence(self._limits)
        decoder = self._theirs.stream_decoder(self._provenance)
        binding = Binding(self._request, self._theirs.wire)
        bind = StreamBinding(binding).feed

        def bound(events: list[Event]) -> list[Event]:
            return events if binding.trivial else [restored for event in events for restored in bind(event)]

        try:
            try:
                async with aclosing(reply.chunks()) as pieces:
                    async for piece in pieces:
                        events = decoder.feed_all(sse.feed(piece))
                        if events:
                            silence.end()
                        else:
                            silence.note(piece)
                        yield bound(events)
                        if events and isinstance(events[-1], Ended | Failed):
                            await drain(pieces)
                            return
                yield bound(decoder.feed_all(sse.close()) + decoder.close())
            finally:
                await reply.close()
        except MustcallError as error:
            yield [Failed(error.info())]
        except RecursionError:
            yield [Failed(UpstreamGarbage("the upstream's stream is nested too deeply").info())]

    async def _translate(self, reply: UpstreamReply) -> AsyncGenerator[bytes]:
        """Write the reply's events on the caller's wire, those of one piece together."""
        encoder = self._mine.stream_encoder(self._request, self._stamp, self._log)
        begun = False
        async with aclosing(self._batches(reply)) as batches:
            async for events in batches:
                if not begun:
                    for event in events:
                        if isinstance(event, Failed) and event.error.code not in self._mine.streamed_errors:
                            raise UpstreamRejected(event.error)
                data = b"".join(map(encoder.feed, events))
                if data:
                    begun = True
                    yield data
                if events and isinstance(events[-1], Failed):
                    return


async def drain(pieces: AsyncGenerator[bytes]) -> None:
    """Read what follows a stream's last event, so that the connection can be used again; not for long."""
    with suppress(MustcallError, TimeoutError), IdleTimer(_DRAIN_SECONDS):
        async for _ in pieces:
            pass


def is_event_stream(headers: Mapping[str, str]) -> bool:
    """Tell whether an answer is a stream of events."""
    kind = headers.get("content-type")
    if kind is None or kind == "application/json":
        return False
    return kind.partition(";")[0].strip().lower() == "text/event-stream"


async def _nothing() -> AsyncGenerator[bytes]:
    """Yield nothing: the whole stream is its first bytes."""
    return
    yield b""
