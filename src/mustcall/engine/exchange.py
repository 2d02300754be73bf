"""Passes one caller's request on to an upstream of the same wire, and its reply back, byte for byte (protocol `off`).

No reply is decoded here. One in another form than was asked for, a stream for a whole one or the other way round, is
handed back for a turn to read, which sends nothing. A failure before the first byte is raised as a typed error; after
it, it is the stream's last event. Across wires `off` is a turn like others (`engine.turn`).
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationLog
from mustcall.core.errors import (
    ErrorInfo,
    MustcallError,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mustcall.core.limits import DEFAULTS, GatewayLimits
from mustcall.core.origin import Wire
from mustcall.core.streams.events import Failed
from mustcall.engine.records import AttemptRecord, TurnRecord
from mustcall.telemetry.context import TraceContext
from mustcall.upstream.endpoint import Endpoint, request_headers
from mustcall.upstream.http1.idle import IdleTimer
from mustcall.upstream.retry import Answer, Clock, Retry, Tries, send_patiently
from mustcall.upstream.seam import Transport, UpstreamCall, UpstreamReply
from mustcall.wire.codec import ReplyStamp
from mustcall.wire.opening import Fields
from mustcall.wire.outline import is_error_body, is_reply, not_a_reply, rename_model
from mustcall.wire.registry import codec_for
from mustcall.wire.sse import Silence, SseDecoder, SseFramer

__all__ = ["Inbound", "OtherForm", "StreamedReply", "WholeReply", "drain", "exchange", "is_event_stream", "no_more"]

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
    #: What was changed before the turn began.
    noted: tuple[Adaptation, ...] = ()

    def stamp(self, created: int) -> ReplyStamp:
        """Return the identity of the reply."""
        return ReplyStamp(
            token=self.token,
            created=created,
            stored=self.stored,
            previous=self.previous,
            request_id=self.request_id,
        )


class WholeReply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply in one piece; `error` is what the body says where it is an upstream's error."""

    status: int
    body: bytes
    upstream_headers: Mapping[str, str]
    adaptations: tuple[Adaptation, ...] = ()
    error: ErrorInfo | None = None


class StreamedReply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply as it comes: `first`, then `chunks` up to the stream's own end or an error event; it must be closed."""

    status: int
    first: bytes
    chunks: AsyncGenerator[bytes]
    upstream_headers: Mapping[str, str]
    adaptations: tuple[Adaptation, ...] = ()


class OtherForm:
    """An answer in another form than was asked for, as a transport of one call."""

    def __init__(
        self, reply: UpstreamReply, adaptations: tuple[Adaptation, ...], retries: tuple[Retry, ...] = ()
    ) -> None:
        self._reply: UpstreamReply | None = reply
        #: Called when the answer is given: the attempt that it is read in has begun.
        self.taken: Callable[[], None] | None = None
        #: What was changed before it came.
        self.adaptations = adaptations
        self._retries = retries

    async def send(self, call: UpstreamCall) -> UpstreamReply:  # noqa: ARG002  the answer is here
        """Return the answer that is here; raise `UpstreamUnavailable` for any further call."""
        reply, self._reply = self._reply, None
        if reply is None:
            raise UpstreamUnavailable("under protocol `off` no further call is made for a reply")
        if self.taken is not None:
            self.taken()
        return reply

    def count(self, attempts: list[AttemptRecord]) -> None:
        """Add the transport retries before the answer to the attempt that it was read in."""
        for attempt in attempts[:1]:
            attempt.retries = (*self._retries, *attempt.retries)
            attempt.sends += len(self._retries)

    async def close(self) -> None:
        """Free the answer if nobody has taken it."""
        reply, self._reply = self._reply, None
        if reply is not None:
            await reply.close()


async def exchange(
    inbound: Inbound,
    endpoint: Endpoint,
    model: str | None,
    transport: Transport,
    clock: Clock,
    *,
    deadline: float,
    limits: GatewayLimits = DEFAULTS,
    record: TurnRecord | None = None,
) -> WholeReply | StreamedReply | OtherForm:
    """Make one exchange; `model` is the name to send if it is not the caller's. Raise only `MustcallError`.

    `record` takes the code of an error that the answer ends in.
    """
    log, tries = AdaptationLog(), Tries()
    codec = codec_for(endpoint.wire)
    call = UpstreamCall(
        url=endpoint.base_url + codec.path + (f"?{inbound.query}" if inbound.query else ""),
        headers=request_headers(endpoint, inbound.headers, same_wire=True, stream=inbound.stream),
        body=inbound.body if model is None else rename_model(inbound.body, model),
        timeouts=endpoint.timeouts,
    )
    answer = await send_patiently(
        transport, call, endpoint.backoff, codec.decode_error, clock=clock, deadline=deadline, log=log, tries=tries
    )
    passing = _Passing(inbound, log, int(clock.now()), limits, record)
    if answer.error is not None:
        return passing.error(answer, answer.error)
    if is_event_stream(answer.reply.headers) is not inbound.stream:
        return OtherForm(answer.reply, log.entries, tries.take())
    try:
        with IdleTimer(max(0.0, deadline - clock.monotonic())):
            if inbound.stream:
                return await passing.stream(answer.reply)
            return await passing.whole(answer.reply)
    except TimeoutError:
        await answer.reply.close()
        raise UpstreamTimeout("the upstream's answer did not begin within the time for this request") from None
    except BaseException:
        await answer.reply.close()
        raise


class _Passing:
    """The way back of one exchange."""

    def __init__(
        self,
        inbound: Inbound,
        log: AdaptationLog,
        created: int,
        limits: GatewayLimits,
        record: TurnRecord | None,
    ) -> None:
        self._limits = limits
        self._record = record
        self._inbound = inbound
        self._codec = codec_for(inbound.wire)
        self._log = log
        self._stamp = inbound.stamp(created)

    def error(self, answer: Answer, info: ErrorInfo) -> WholeReply | StreamedReply:
        """Return an upstream's error status: as it is, or in the wire's shape if it is not."""
        status, headers, body = answer.reply.status, answer.reply.headers, answer.error_body or b""
        self._note(UpstreamRejected)
        if is_error_body(body):
            return self._whole(status, body, headers, info)
        if self._inbound.stream and info.code in self._codec.streamed_errors:
            request = self._codec.decode_request(self._inbound.body)
            encoder = self._codec.stream_encoder(request, self._stamp, self._log)
            return self._stream(no_more(), encoder.feed(Failed(info)), headers)
        told = msgspec.json.encode(self._codec.encode_error(info, self._inbound.request_id))
        return self._whole(status, told, headers, info)

    async def whole(self, reply: UpstreamReply) -> WholeReply:
        """Return a reply in one piece."""
        body = await reply.read()
        await reply.close()
        if not is_reply(self._codec.wire, body):
            if is_error_body(body):  # sent as a success
                raise UpstreamRejected(self._codec.decode_error(502, body))
            raise not_a_reply(self._codec.wire, body)
        return self._whole(reply.status, body, reply.headers)

    async def stream(self, reply: UpstreamReply) -> StreamedReply:
        """Return a stream; one that fails before its first event is raised instead."""
        chunks = self._forward(reply)
        # Until the first bytes are there nothing was sent, so a failure can still be a plain error with a status.
        first = await anext(chunks, None)
        if first is None:
            raise UpstreamUnavailable("the upstream's stream ended before it began")
        return self._stream(chunks, first, reply.headers)

    def _stream(self, chunks: AsyncGenerator[bytes], first: bytes, headers: Mapping[str, str]) -> StreamedReply:
        return StreamedReply(
            status=200, first=first, chunks=chunks, upstream_headers=headers, adaptations=self._log.entries
        )

    def _whole(
        self, status: int, body: bytes, headers: Mapping[str, str], error: ErrorInfo | None = None
    ) -> WholeReply:
        noted = self._log.entries
        return WholeReply(status=status, body=body, upstream_headers=headers, adaptations=noted, error=error)

    async def _forward(self, reply: UpstreamReply) -> AsyncGenerator[bytes]:
        """Pass events on as they are, up to the one that ends the stream; say so at the end if it never came."""
        framer, silence = SseFramer(self._limits), Silence(self._limits)
        failure: MustcallError | None = None
        closed = False
        last = b""
        marks = self._codec.closing_marks
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
            if rest and any(self._codec.closes(event) for event in SseDecoder().feed(rest + b"\n\n")):
                yield rest + b"\n\n"
            closed = self._has_closed(framer)
        if not closed:
            failure = failure or UpstreamUnavailable("the upstream's stream ended before the reply was complete")
            if not last:
                raise failure
            self._note(type(failure))
            yield self._codec.encode_stream_error(failure.info(), self._inbound.request_id, last)

    def _note(self, kind: type[MustcallError]) -> None:
        """Take note of the error that the answer ends in."""
        if self._record is not None:
            self._record.error = kind.code

    def _has_closed(self, framer: SseFramer) -> bool:
        return any(self._codec.closes(event) for event in framer.last_events())


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


async def no_more() -> AsyncGenerator[bytes]:
    """Yield nothing: the whole stream is its first bytes."""
    return
    yield b""
