"""One request, served: read, recorded, judged, answered; and the delivery carried out on the raw connection."""

import asyncio
import socket
import struct
import sys
from collections.abc import Callable

import msgspec
from aiohttp import web

from mustcall.core.origin import JsonObject, Wire
from mustcall.testing.delivery import ConnectionFault, RenderedAnswer
from mustcall.testing.offers import as_object
from mustcall.testing.recording import End, Recorded

__all__ = ["PATHS", "Exchange", "build_models", "count_tokens", "read_request"]

PATHS = {
    "/v1/chat/completions": Wire.CHAT,
    "/v1/responses": Wire.RESPONSES,
    "/v1/messages": Wire.MESSAGES,
    "/v1/messages/count_tokens": Wire.MESSAGES,
}
_RESET_ON_CLOSE = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)


async def read_request(request: web.BaseRequest) -> Recorded:
    """Return the request as it is recorded; its number is given when it takes its place in the list."""
    raw = await request.content.read()
    try:
        body = msgspec.json.decode(raw) if raw else None
    except (msgspec.DecodeError, RecursionError):
        body = None
    return Recorded(
        method=request.method,
        path=request.path,
        query=dict(request.query),
        wire=PATHS.get(request.path),
        headers={name.lower(): value for name, value in request.headers.items()},
        body=body,
        raw=raw,
    )


class Exchange:
    """Carries out one delivery and says on the record how it ended; `on_end` is called once, when that is known."""

    def __init__(self, request: web.BaseRequest, recorded: Recorded, on_end: Callable[[], None]) -> None:
        self._request = request
        self._recorded = recorded
        self._on_end = on_end

    async def deliver(
        self, delivery: RenderedAnswer, gate: asyncio.Event, closing: asyncio.Event
    ) -> web.StreamResponse:
        """Write the delivery; `gate` lets a hanging answer go on, `closing` ends it."""
        self._recorded.status = delivery.status
        response = self._open(delivery)
        try:
            if delivery.delay:
                await _pause(delivery.delay, closing)
            if delivery.fault is None:
                await response.prepare(self._request)
                await self._write(response, delivery.writes)
            else:
                await self._write_faulty(response, delivery.writes, delivery.fault, gate, closing)
            self._end(End.COMPLETE)
            await response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            self._end(End.CLOSED if closing.is_set() else End.DISCONNECTED)
            raise asyncio.CancelledError from None  # aiohttp then drops the connection without a word
        return response

    def _open(self, delivery: RenderedAnswer) -> web.StreamResponse:
        response = web.StreamResponse(status=delivery.status, headers=delivery.headers)
        if delivery.streamed:
            response.enable_chunked_encoding()
        else:
            response.content_length = sum(map(len, delivery.writes))
        return response

    async def _write(self, response: web.StreamResponse, writes: tuple[bytes, ...]) -> None:
        for number, piece in enumerate(writes):
            if number:
                await asyncio.sleep(0)  # lets the pieces leave one by one, and a disconnect be seen
            await response.write(piece)

    async def _write_faulty(
        self,
        response: web.StreamResponse,
        writes: tuple[bytes, ...],
        fault: ConnectionFault,
        gate: asyncio.Event,
        closing: asyncio.Event,
    ) -> None:
        before, rest = _split(writes, fault.after)
        if before or fault.head:
            await response.prepare(self._request)
            await self._write(response, before)
        if fault.kind == "hang":
            await _first(gate, closing)
            _raise_if(closing)
            await response.prepare(self._request)
            await self._write(response, rest)
            return
        await self._break(fault, closing)

    async def _break(self, fault: ConnectionFault, closing: asyncio.Event) -> None:
        transport = self._request.transport
        if transport is None:
            raise ConnectionResetError("the client left before the fault")
        while transport.get_write_buffer_size() and not transport.is_closing():  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0.001)
        if fault.kind == "reset":
            self._end(End.RESET)
            raw: socket.socket = transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            transport.abort()
        else:
            self._end(End.CUT)
            transport.write_eof()
        await closing.wait()  # the client's leaving cancels this
        raise ConnectionResetError("the upstream closes")

    def _end(self, end: End) -> None:
        if self._recorded.ended is None:
            self._recorded.ended = end
            self._on_end()


def build_models(names: tuple[str, ...], anthropic: bool) -> JsonObject:
    """Return the list of models in the shape of whoever asks."""
    if anthropic:
        data = [
            {
                "type": "model",
                "id": name,
                "display_name": name,
                "created_at": "2026-01-01T00:00:00Z",
                "lifecycle": "active",
            }
            for name in names
        ]
        return {"data": data, "has_more": False, "first_id": names[0], "last_id": names[-1]}
    data = [{"id": name, "object": "model", "created": 1_790_000_000, "owned_by": "scripted"} for name in names]
    return {"object": "list", "data": data}


def count_tokens(recorded: Recorded) -> JsonObject:
    """Return a count that grows with the request: a quarter of its prompt's bytes."""
    prompt = {key: value for key, value in as_object(recorded.body).items() if key in ("system", "messages", "tools")}
    return {"input_tokens": 1 + len(msgspec.json.encode(prompt)) // 4}


def _split(writes: tuple[bytes, ...], after: int) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    before: list[bytes] = []
    for number, piece in enumerate(writes):
        if len(piece) > after:
            parts = [piece[:after]] if after else []
            return (*before, *parts), (piece[after:], *writes[number + 1 :])
        before.append(piece)
        after -= len(piece)
    return tuple(before), ()


async def _pause(seconds: float, closing: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await closing.wait()
    except TimeoutError:
        return
    _raise_if(closing)


async def _first(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _raise_if(closing: asyncio.Event) -> None:
    if closing.is_set():
        raise ConnectionResetError("the upstream closes")
