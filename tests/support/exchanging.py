"""One exchange on fakes: what was sent, what came back, and that everything was closed."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from mustcall.core.errors import (
    MustcallError,
)
from mustcall.core.origin import Wire
from mustcall.core.parts import Text
from mustcall.core.reply import Reply
from mustcall.core.streams.assembler import Assembler
from mustcall.core.streams.events import Event
from mustcall.engine.exchange import Inbound, StreamedReply, WholeReply
from mustcall.engine.records import TurnProgress
from mustcall.engine.turns import Turns
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Protocol
from mustcall.policy.failures.backoff import Backoff
from mustcall.testing import Call, Say, Think, Turn
from mustcall.testing.render import Stamp, build_reply, stream_reply
from mustcall.testing.transport import FakeClock, FakeReply, FakeTransport
from mustcall.upstream.endpoint import Endpoint
from mustcall.wire.codec import Provenance
from mustcall.wire.registry import codec_for
from mustcall.wire.sse import SseDecoder

SSE = {"content-type": "text/event-stream; charset=utf-8"}
PAIRS = [(mine, theirs) for mine in Wire for theirs in Wire]
CROSSINGS = [(mine, theirs) for mine, theirs in PAIRS if mine is not theirs]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
GOOD: dict[Wire, dict[str, Any]] = {
    Wire.CHAT: {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    Wire.RESPONSES: {"model": "m", "input": "hi", "store": False},
    Wire.MESSAGES: {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]},
}
TOOLS: dict[Wire, list[dict[str, Any]]] = {
    Wire.CHAT: [
        {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}},
        {"type": "custom", "custom": {"name": "patch"}},
    ],
    Wire.RESPONSES: [
        {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False},
        {"type": "custom", "name": "patch"},
    ],
    Wire.MESSAGES: [{"name": "weather", "input_schema": SCHEMA}, {"name": "patch", "input_schema": SCHEMA}],
}
PATHS = {Wire.CHAT: "/chat/completions", Wire.RESPONSES: "/responses", Wire.MESSAGES: "/messages"}
TURN = Turn(
    Think("Rain or sun?"),
    Say("It is going to rain."),
    Call("weather", {"city": "Bern"}),
    Call("patch", {"input": "*** Begin"}),
)
TEXT = Turn(Say("It is going to rain."))

pairs = pytest.mark.parametrize(("mine", "theirs"), PAIRS)
crossings = pytest.mark.parametrize(("mine", "theirs"), CROSSINGS)
wires = pytest.mark.parametrize("wire", Wire)
streaming = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def asked(wire: Wire, *, stream: bool = False, tools: bool = False) -> dict[str, Any]:
    """A small request of this wire."""
    extra = {"tools": TOOLS[wire]} if tools else {}
    return {**GOOD[wire], **extra, **({"stream": True} if stream else {})}


def whole(wire: Wire, turn: Turn = TEXT) -> bytes:
    """A reply as an upstream of this wire writes it."""
    return json.dumps(build_reply(turn, wire, asked(wire, tools=True), Stamp(0))).encode()


def events(wire: Wire, turn: Turn = TEXT) -> list[bytes]:
    """The same as the events of a stream."""
    return stream_reply(turn, wire, asked(wire, stream=True, tools=True), Stamp(0))


def inbound(
    wire: Wire,
    body: bytes | None = None,
    *,
    stream: bool = False,
    headers: Mapping[str, str] | None = None,
    query: str = "",
) -> Inbound:
    """A caller's request as the gateway hands it over."""
    return Inbound(
        wire=wire,
        body=json.dumps(asked(wire, stream=stream)).encode() if body is None else body,
        headers=headers or {},
        query=query,
        stream=stream,
        token="token",
        request_id="req_1",
    )


def endpoint(wire: Wire, *, retries: int = 0, api_key: str | None = None) -> Endpoint:
    """An upstream that speaks this wire."""
    return Endpoint(
        name="up", wire=wire, base_url="http://up.example/v1", api_key=api_key, backoff=Backoff(retries=retries)
    )


class Outcome(msgspec.Struct):
    """What came of an exchange: status and bytes of the answer, and what the upstream saw."""

    status: int
    body: bytes
    streamed: bool
    adaptations: tuple[str, ...]
    sent: bytes
    url: str
    headers: Mapping[str, str]


async def passed(
    request: Inbound,
    to: Endpoint,
    transport: FakeTransport,
    clock: FakeClock | None = None,
    *,
    model: str | None = None,
    deadline: float = 2_000_000.0,
    progress: TurnProgress | None = None,
) -> WholeReply | StreamedReply:
    """Pass a request on under protocol `off`."""
    return await Turns(transport, clock or FakeClock()).take(
        request,
        to,
        model,
        asked="m",
        controls=Controls(protocol=Protocol.OFF),
        progress=progress or TurnProgress(),
        deadline=deadline,
    )


async def carry(
    request: Inbound, theirs: Wire, *replies: FakeReply | MustcallError, model: str | None = None, retries: int = 0
) -> Outcome:
    """Make one exchange and read its answer to the end; every reply is closed, however it ends."""
    transport = FakeTransport(replies)
    try:
        answer = await passed(request, endpoint(theirs, retries=retries), transport, model=model)
        match answer:
            case WholeReply():
                body = answer.body
            case StreamedReply():
                body = answer.first + b"".join([piece async for piece in answer.chunks])
    finally:
        used = replies[: len(transport.calls)]
        assert all(reply.closed for reply in used if isinstance(reply, FakeReply))
    call = transport.calls[-1]
    assert call.body is not None
    return Outcome(
        status=answer.status,
        body=body,
        streamed=isinstance(answer, StreamedReply),
        adaptations=tuple(str(entry.kind) for entry in answer.adaptations),
        sent=call.body,
        url=call.url,
        headers=call.headers,
    )


def decoded(wire: Wire, stream: bytes) -> list[Event]:
    """Read a stream as a client of this wire does."""
    sse, decoder = SseDecoder(), codec_for(wire).stream_decoder(Provenance())
    messages = [*sse.feed(stream), *sse.close()]
    return [*(event for message in messages for event in decoder.feed(message)), *decoder.close()]


def assembled(wire: Wire, stream: bytes) -> Reply:
    """Fold a stream."""
    assembler = Assembler()
    for event in decoded(wire, stream):
        assembler.feed(event)
    return assembler.reply()


def said(reply: Reply) -> str:
    """The text of a reply."""
    return "".join(part.text for part in reply.parts if isinstance(part, Text))
