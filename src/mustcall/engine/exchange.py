"""Carries one caller's request to an upstream and brings its reply back on the caller's wire.

Where both sides speak the same wire and nothing has to change, bytes are forwarded: the request as it came, the
reply as it comes. Otherwise the request is decoded, encoded for the upstream, and the reply translated back, events
as they arrive. A failure before the first byte is raised as a typed error; after it, it is the stream's last event.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationKind, AdaptationLog
from mustcall.core.assembler import Assembler
from mustcall.core.errors import ErrorInfo, MustcallError, UpstreamRejected, UpstreamUnavailable
from mustcall.core.events import Event, Failed
from mustcall.core.origin import Wire
from mustcall.core.reply import Reply
from mustcall.core.request import Request
from mustcall.core.unroll import unroll
from mustcall.upstream.endpoint import Endpoint, request_headers
from mustcall.upstream.retry import Answer, Clock, send_patiently
from mustcall.upstream.seam import Transport, UpstreamCall, UpstreamReply
from mustcall.wire.binding import Binding, StreamBinding
from mustcall.wire.codec import Provenance, Stamp, Target
from mustcall.wire.outline import check_reply, is_error_body, rename_model
from mustcall.wire.registry import codec_for
from mustcall.wire.sealing import SEAL_PREFIX
from mustcall.wire.sse import SseDecoder, SseFramer

__all__ = ["Inbound", "StreamedReply", "WholeReply", "exchange"]

_SEALED = f'"{SEAL_PREFIX}'.encode()


class Inbound(msgspec.Struct, frozen=True, kw_only=True):
    """A caller's request as it arrived. `token` is unique to it; header names are lower case."""

    wire: Wire
    body: bytes
    headers: Mapping[str, str]
    query: str
    stream: bool
    token: str
    request_id: str


class WholeReply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply in one piece, an upstream's error included."""

    status: int
    body: bytes
    upstream_headers: Mapping[str, str]
    adaptations: tuple[Adaptation, ...] = ()


class StreamedReply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply as it comes. `chunks` ends with the stream's own end or an error event; it must be closed."""

    status: int
    chunks: AsyncGenerator[bytes]
    upstream_headers: Mapping[str, str]
    adaptations: tuple[Adaptation, ...] = ()


async def exchange(
    inbound: Inbound, endpoint: Endpoint, model: str | None, transport: Transport, clock: Clock, *, deadline: float
) -> WholeReply | StreamedReply:
    """Make one exchange; `model` is the name to send if it is not the caller's. Raise only `MustcallError`."""
    log = AdaptationLog()
    mine, theirs = codec_for(inbound.wire), codec_for(endpoint.wire)
    request: Request | None = None
    if mine is theirs and _SEALED not in inbound.body:
        body = inbound.body if model is None else rename_model(inbound.body, model)
    else:
        request = mine.decode_request(inbound.body)
        outgoing = request if model is None else request.evolve(model=model)
        target = Target(issuer=endpoint.name, default_max_tokens=endpoint.default_max_tokens)
        body = msgspec.json.encode(theirs.encode_request(outgoing, target, log))
    same_wire = mine is theirs
    call = UpstreamCall(
        url=endpoint.base_url + theirs.path + (f"?{inbound.query}" if same_wire and inbound.query else ""),
        headers=request_headers(endpoint, inbound.headers, same_wire=same_wire, stream=inbound.stream),
        body=body,
        timeouts=endpoint.timeouts,
    )
    answer = await send_patiently(
        transport, call, endpoint.backoff, theirs.decode_error, clock=clock, deadline=deadline, log=log
    )
    crossing = _Crossing(inbound, request, endpoint, log, int(clock.now()))
    try:
        if answer.error_body is not None:
            return crossing.error(answer, answer.error_body)
        if inbound.stream:
            return await crossing.stream(answer.reply)
        return await crossing.whole(answer.reply)
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
    ) -> None:
        self._inbound = inbound
        self._decoded = request
        self._mine = codec_for(inbound.wire)
        self._theirs = codec_for(endpoint.wire)
        self._same_wire = inbound.wire is endpoint.wire
        self._log = log
        self._provenance = Provenance(issuer=endpoint.name, token=inbound.token)
        self._stamp = Stamp(token=inbound.token, created=created)

    @property
    def _request(self) -> Request:
        """The caller's request, decoded once and only if the way back needs it."""
        if self._decoded is None:
            self._decoded = self._mine.decode_request(self._inbound.body)
        return self._decoded

    def error(self, answer: Answer, body: bytes) -> WholeReply:
        """Return an upstream's error status: as it is on the same wire, in the caller's shape otherwise."""
        status = answer.reply.status
        if not (self._same_wire and is_error_body(body)):
            info = self._theirs.decode_error(status, body)
            body = msgspec.json.encode(self._mine.encode_error(info, self._inbound.request_id))
        return self._whole(status, body, answer.reply.headers)

    async def whole(self, reply: UpstreamReply) -> WholeReply:
        """Return a reply in one piece, assembled if the upstream streamed although it was not asked to."""
        if _is_event_stream(reply.headers):
            decoded = await self._assemble(reply)
            body = msgspec.json.encode(self._mine.encode_reply(decoded, self._request, self._stamp, self._log))
            return self._whole(200, body, reply.headers)
        body = await reply.read()
        await reply.close()
        if self._same_wire:
            self._check_not_error(body)
            check_reply(self._mine.wire, body)
        else:
            decoded = self._bound(self._theirs.decode_reply(body, self._provenance))
            body = msgspec.json.encode(self._mine.encode_reply(decoded, self._request, self._stamp, self._log))
        return self._whole(reply.status, body, reply.headers)

    async def stream(self, reply: UpstreamReply) -> StreamedReply:
        """Return a stream; one that fails before its first event is raised instead."""
        if not _is_event_stream(reply.headers):
            body = await reply.read()
            await reply.close()
            self._check_not_error(body)
            self._log.add(AdaptationKind.FIELD_MAPPED, "stream", "the upstream answered in one piece")
            decoded = self._bound(self._theirs.decode_reply(body, self._provenance))
            chunks = self._encode_all(decoded)
        elif self._same_wire:
            chunks = self._forward(reply)
        else:
            chunks = await self._translate(reply)
        return StreamedReply(status=200, chunks=chunks, upstream_headers=reply.headers, adaptations=self._log.entries)

    def _whole(self, status: int, body: bytes, headers: Mapping[str, str]) -> WholeReply:
        return WholeReply(status=status, body=body, upstream_headers=headers, adaptations=self._log.entries)

    def _bound(self, reply: Reply) -> Reply:
        return Binding(self._request, self._theirs.wire).restore_reply(reply)

    def _check_not_error(self, body: bytes) -> None:
        """Raise for an error that was sent as a success."""
        if is_error_body(body):
            raise UpstreamRejected(self._theirs.decode_error(502, body))

    async def _assemble(self, reply: UpstreamReply) -> Reply:
        assembler = Assembler()
        async with aclosing(self._events(reply)) as events:
            async for event in events:
                assembler.feed(event)
        return assembler.reply()

    async def _encode_all(self, reply: Reply) -> AsyncGenerator[bytes]:
        encoder = self._mine.stream_encoder(self._request, self._stamp, self._log)
        yield b"".join(encoder.feed(event) for event in unroll(reply))

    async def _forward(self, reply: UpstreamReply) -> AsyncGenerator[bytes]:
        """Pass events on as they are; say so at the end if the stream was cut."""
        framer = SseFramer()
        failure: MustcallError | None = None
        try:
            async with aclosing(reply.chunks()) as pieces:
                async for piece in pieces:
                    block = framer.feed(piece)
                    if block:
                        yield block
        except MustcallError as error:
            failure = error
        finally:
            await reply.close()
        closed = any(self._mine.closes(event) for event in framer.last_events())
        if not closed and failure is None:
            rest = framer.close()
            closed = any(self._mine.closes(event) for event in framer.last_events())
            if closed:
                yield rest + b"\n\n"
        if not closed:
            yield self._mine.encode_stream_error(_cut(failure), self._inbound.request_id)

    async def _events(self, reply: UpstreamReply) -> AsyncGenerator[Event]:
        """Yield the reply's events, bound to the caller's tools; a failure is the last of them."""
        sse = SseDecoder()
        decoder = self._theirs.stream_decoder(self._provenance)
        binding = StreamBinding(Binding(self._request, self._theirs.wire))
        try:
            try:
                async with aclosing(reply.chunks()) as pieces:
                    async for piece in pieces:
                        for message in sse.feed(piece):
                            for event in decoder.feed(message):
                                for bound in binding.feed(event):
                                    yield bound
                for message in sse.close():
                    for event in decoder.feed(message):
                        for bound in binding.feed(event):
                            yield bound
                for event in decoder.close():
                    for bound in binding.feed(event):
                        yield bound
            finally:
                await reply.close()
        except MustcallError as error:
            yield Failed(_cut(error))

    async def _translate(self, reply: UpstreamReply) -> AsyncGenerator[bytes]:
        encoder = self._mine.stream_encoder(self._request, self._stamp, self._log)
        events = self._events(reply)
        # Up to the first event nothing has been sent, so a failure can still be a plain error with a status.
        try:
            first = await anext(events)
        except StopAsyncIteration:
            raise UpstreamUnavailable("the upstream's stream ended before it began") from None
        if isinstance(first, Failed):
            await events.aclose()
            raise UpstreamRejected(first.error)

        async def encoded() -> AsyncGenerator[bytes]:
            async with aclosing(events):
                data = encoder.feed(first)
                if data:
                    yield data
                async for event in events:
                    data = encoder.feed(event)
                    if data:
                        yield data
                    if isinstance(event, Failed):
                        return

        return encoded()


def _cut(failure: MustcallError | None) -> ErrorInfo:
    if failure is not None:
        return failure.info()
    return UpstreamUnavailable("the upstream's stream ended before the reply was complete").info()


def _is_event_stream(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", "").partition(";")[0].strip().lower() == "text/event-stream"
