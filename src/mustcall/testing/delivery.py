"""How an answer goes out: status, headers, writes, and the fault that ends it.

`plan_delivery` is pure: it turns an answer into a `RenderedAnswer` that says which bytes are written in which pieces
and where, if anywhere, the connection hangs, is cut or reset. `mustcall.testing.serving` carries it out.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from mustcall.core.origin import JsonObject, Wire
from mustcall.testing.lines import read_line
from mustcall.testing.render import Stamp, build_error, build_reply, stream_error, stream_reply
from mustcall.testing.render.stamp import to_json
from mustcall.testing.script import Answer, Cut, Delayed, Fail, Hang, Raw, RawStream, Reset, StreamError, Turn

__all__ = ["Chunking", "ConnectionFault", "RenderedAnswer", "plan_delivery", "random_chunks"]

Chunking = int | Callable[[bytes], Iterable[bytes]] | None
"""How a streamed body is cut into writes: an event each (None), so many bytes each, or as a function says."""

_JSON = {"content-type": "application/json"}
_SSE = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


class ConnectionFault(msgspec.Struct, frozen=True):
    """Where and how a connection goes wrong: after so many body bytes; `head` sends the headers even at 0."""

    kind: Literal["hang", "cut", "reset"]
    after: int
    head: bool


class RenderedAnswer(msgspec.Struct, frozen=True):
    """An answer ready to be written. `reply` is the whole reply it tells of, None for anything but a turn."""

    status: int
    headers: Mapping[str, str]
    writes: tuple[bytes, ...]
    streamed: bool = False
    delay: float = 0.0
    fault: ConnectionFault | None = None
    reply: JsonObject | None = None


def plan_delivery(
    answer: Answer, wire: Wire | None, request: JsonObject, stamp: Stamp, chunking: Chunking = None
) -> RenderedAnswer:
    """Return what is written for an answer to this request."""
    match answer:
        case Delayed():
            inner = plan_delivery(read_line(answer.answer), wire, request, stamp, chunking)
            return msgspec.structs.replace(inner, delay=inner.delay + answer.seconds)
        case Hang() | Cut() | Reset():
            inner = plan_delivery(read_line(answer.answer), wire, request, stamp, chunking)
            kind = "hang" if isinstance(answer, Hang) else "cut" if isinstance(answer, Cut) else "reset"
            return msgspec.structs.replace(inner, fault=ConnectionFault(kind, answer.after, answer.head))
        case Raw():
            return RenderedAnswer(answer.status, answer.headers, (answer.body,))
        case RawStream():
            return RenderedAnswer(answer.status, answer.headers, tuple(answer.chunks), streamed=True)
        case Fail():
            body = to_json(build_error(answer, wire, stamp))
            return RenderedAnswer(answer.status, _JSON | _request_id(wire, stamp) | dict(answer.headers), (body,))
        case Turn():
            return _plan_turn(answer, wire, request, stamp, chunking)
        case StreamError():
            return _plan_broken(answer, wire, request, stamp, chunking)


def random_chunks(seed: int, largest: int = 64) -> Callable[[bytes], Iterable[bytes]]:
    """Return a chunking that cuts anywhere, also inside a character, the same way for the same seed."""
    source = random.Random(seed)  # noqa: S311  repeatable cuts, not secrets

    def cut(data: bytes) -> Iterable[bytes]:
        at = 0
        while at < len(data):
            size = source.randint(1, largest)
            yield data[at : at + size]
            at += size

    return cut


def _plan_turn(turn: Turn, wire: Wire | None, request: JsonObject, stamp: Stamp, chunking: Chunking) -> RenderedAnswer:
    if wire is None:
        return plan_delivery(Fail(500, "a turn needs one of the three wires"), None, request, stamp)
    reply = build_reply(turn, wire, request, stamp)
    headers = _request_id(wire, stamp) | dict(turn.headers)
    if request.get("stream") is not True:
        return RenderedAnswer(200, _JSON | headers, (to_json(reply),), reply=reply)
    writes = _cut(stream_reply(turn, wire, request, stamp), chunking)
    return RenderedAnswer(200, _SSE | headers, writes, streamed=True, reply=reply)


def _plan_broken(
    error: StreamError, wire: Wire | None, request: JsonObject, stamp: Stamp, chunking: Chunking
) -> RenderedAnswer:
    if wire is None or request.get("stream") is not True:
        return plan_delivery(Fail(500, error.message, error.type, error.code), wire, request, stamp)
    events = stream_reply(error.turn, wire, request, stamp)[: error.after]
    reply = build_reply(error.turn, wire, request, stamp)
    writes = _cut([*events, stream_error(error, wire, reply, stamp)], chunking)
    return RenderedAnswer(200, _SSE | _request_id(wire, stamp), writes, streamed=True)


def _cut(events: list[bytes], chunking: Chunking) -> tuple[bytes, ...]:
    if chunking is None:
        return tuple(events)
    whole = b"".join(events)
    if isinstance(chunking, int):
        return tuple(whole[at : at + chunking] for at in range(0, len(whole), chunking))
    return tuple(chunking(whole))


def _request_id(wire: Wire | None, stamp: Stamp) -> dict[str, str]:
    return {"request-id" if wire is Wire.MESSAGES else "x-request-id": stamp.make_id("req_")}
