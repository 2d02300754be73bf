"""Sends one request of a script and reads all of what comes back. Decides nothing about it.

The reply is read by the wire's own codec; the documents are kept as they came, for what codecs mend.
"""

import contextlib
from collections.abc import AsyncGenerator
from typing import Any, cast

import msgspec

from mustcall.core.errors import MustcallError, UpstreamRejected
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.reply import Reply
from mustcall.core.streams.assembler import Assembler
from mustcall.core.streams.events import Ended, Failed
from mustcall.engine.exchange import is_event_stream
from mustcall.probe.planning import ISSUER
from mustcall.probe.values import Seen, Send
from mustcall.upstream.endpoint import Endpoint, request_headers
from mustcall.upstream.retry import Clock
from mustcall.upstream.seam import Transport, UpstreamCall, UpstreamReply
from mustcall.wire.codec import Provenance
from mustcall.wire.registry import codec_for
from mustcall.wire.sse import SseDecoder, SseEvent

__all__ = ["exchange"]


async def exchange(
    endpoint: Endpoint, transport: Transport, clock: Clock, send: Send, *, body: JsonObject | None, token: str
) -> Seen:
    """Send a request and return what came; never raises what an upstream does."""
    began, codec = clock.monotonic(), codec_for(endpoint.wire)
    stream = bool(body and body.get("stream"))
    call = UpstreamCall(
        url=endpoint.base_url + (send.path or codec.path),
        method=send.method,
        headers=request_headers(endpoint, {}, same_wire=True, stream=stream),
        body=None if body is None else msgspec.json.encode(body),
        timeouts=endpoint.timeouts,
    )
    status, headers, documents = 0, {}, list[JsonObject]()
    try:
        answer = await transport.send(call)
        status, headers = answer.status, dict(answer.headers)
        try:
            if status >= 400 or not is_event_stream(headers):
                whole = await answer.read()
                documents += _document(whole)
                if status >= 400:
                    return _seen(began, clock, status, headers, documents, error=codec.decode_error(status, whole))
                reply = None if send.path else codec.decode_reply(whole, Provenance(issuer=ISSUER, token=token))
                return _seen(began, clock, status, headers, documents, reply=reply)
            reply = await _streamed(answer, endpoint.wire, token, documents, send.cancel_after)
            return _seen(began, clock, status, headers, documents, reply=reply, streamed=True, cancelled=reply is None)
        finally:
            await answer.close()
    except UpstreamRejected as error:  # an error in a 200
        return _seen(began, clock, error.info().status, headers, documents, error=error.info(), streamed=stream)
    except MustcallError as error:
        return _seen(began, clock, status, headers, documents, error=error.info(), broken=error.code, streamed=stream)


def _seen(
    began: float, clock: Clock, status: int, headers: dict[str, str], documents: list[JsonObject], **more: Any
) -> Seen:
    return Seen(status=status, headers=headers, documents=tuple(documents), seconds=clock.monotonic() - began, **more)


async def _streamed(
    answer: UpstreamReply, wire: Wire, token: str, documents: list[JsonObject], cancel_after: int | None
) -> Reply | None:
    """Return the reply of a stream, None where it was left; raise `MustcallError` for one that failed or was cut."""
    sse, assembler = SseDecoder(), Assembler()
    decoder = codec_for(wire).stream_decoder(Provenance(issuer=ISSUER, token=token))
    chunks: AsyncGenerator[bytes] = answer.chunks()
    async with contextlib.aclosing(chunks):
        async for chunk in chunks:
            events = sse.feed(chunk)
            documents += _data(events)
            if cancel_after is not None and len(documents) >= cancel_after:
                return None
            for event in decoder.feed_all(events):
                assembler.feed(event)
                if isinstance(event, Ended | Failed):
                    return assembler.reply()
    events = sse.close()
    documents += _data(events)
    for event in decoder.feed_all(events) + decoder.close():
        assembler.feed(event)
    return assembler.reply()


def _data(events: list[SseEvent]) -> list[JsonObject]:
    return [document for event in events for document in _document(event.data)]


def _document(text: bytes) -> list[JsonObject]:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return []
    return [cast("JsonObject", value)] if isinstance(value, dict) else []
