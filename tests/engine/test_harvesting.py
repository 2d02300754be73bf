"""What the model wrote, inside an upstream's error: in an event of a stream, and in a body that says 200 (rule 128)."""

import json
from typing import Any

import pytest

from mustcall.core.errors import UpstreamRejected
from mustcall.core.origin import Wire
from mustcall.core.streams.events import Failed, PartTextDelta
from mustcall.engine.exchange import StreamedReply, WholeReply
from mustcall.engine.records import TurnProgress
from mustcall.engine.turns import OperatorSettings, Turns
from mustcall.policy.facts.controls import Controls
from mustcall.testing import Call, Say, Think, Turn
from mustcall.testing.render import Stamp, stream_reply
from mustcall.testing.transport import FakeClock, FakeReply, FakeTransport
from mustcall.wire.codec import Provenance
from mustcall.wire.registry import codec_for
from support.exchanging import SSE, asked, assembled, decoded, endpoint, inbound, said, streaming, wires

WRITTEN = '<tool_call>{"name": "weather", "arguments": {"city": "Bern"}}</tool_call>'
BERN = [("weather", {"city": "Bern"})]
MESSAGE = "Failed to call a function."


def failure(wire: Wire, generation: str = WRITTEN) -> dict[str, Any]:
    """An error that carries a generation, as an event or a body of this wire."""
    error: dict[str, Any] = {"message": MESSAGE, "type": "invalid_request_error", "failed_generation": generation}
    match wire:
        case Wire.CHAT:
            return {"error": error | {"code": "tool_use_failed"}}
        case Wire.MESSAGES:
            return {"type": "error", "error": error}
        case Wire.RESPONSES:
            return {"type": "error", "sequence_number": 9, "code": "tool_use_failed", **error | {"type": "error"}}


def broken(wire: Wire, *before: Say | Think, generation: str = WRITTEN) -> list[bytes]:
    """The events of a stream that says something and then breaks with the error."""
    whole = stream_reply(Turn(*before), wire, asked(wire, stream=True, tools=True), Stamp(0)) if before else []
    marks = {
        Wire.CHAT: b'"finish_reason":"stop"',
        Wire.MESSAGES: b"content_block_stop",
        Wire.RESPONSES: b".done",
    }
    spoken: list[bytes] = []
    for event in whole:
        if marks[wire] in event.replace(b": ", b":"):
            break
        spoken.append(event)
    name = b"" if wire is Wire.CHAT else b"event: error\n"
    return [*spoken, name + b"data: " + json.dumps(failure(wire, generation)).encode() + b"\n\n"]


async def take(wire: Wire, *answers: FakeReply, streams: bool, retries: int = 0) -> tuple[bytes, FakeTransport, bool]:
    """Take a turn on one wire; return the answer's bytes, the transport, and whether it was streamed."""
    room = {"max_tokens": 500} if wire is Wire.MESSAGES else {}
    kept = {"store": False} if wire is Wire.RESPONSES else {}
    body = json.dumps({**asked(wire, stream=streams, tools=True), **room, **kept}).encode()
    transport = FakeTransport(answers)
    got = await Turns(transport, FakeClock(), OperatorSettings()).take(
        inbound(wire, body, stream=streams),
        endpoint(wire, retries=retries),
        None,
        asked="m",
        controls=Controls(),
        progress=TurnProgress(),
        deadline=2_000_000.0,
    )
    match got:
        case WholeReply():
            return got.body, transport, False
        case StreamedReply():
            return got.first + b"".join([piece async for piece in got.chunks]), transport, True


def calls_of(wire: Wire, body: bytes, *, streamed: bool) -> tuple[str, list[tuple[str, Any]]]:
    """The text and the calls of an answer."""
    reply = assembled(wire, body) if streamed else codec_for(wire).decode_reply(body, Provenance())
    return said(reply), [(call.name, json.loads(call.arguments_json)) for call in reply.calls]


@wires
@streaming
@pytest.mark.parametrize("before", [(), (Think("Hm."),)], ids=["nothing", "reasoning"])
async def test_an_error_event_is_harvested_at_every_split(wire: Wire, stream: bool, before: tuple[Think, ...]) -> None:
    """Rule 128: however the bytes are cut, the call inside an error event is delivered, after one upstream call."""
    events = broken(wire, *before)
    data = b"".join(events)
    for pieces in (events, [data], [data[at : at + 7] for at in range(0, len(data), 7)]):
        body, transport, streamed = await take(wire, FakeReply(*pieces, headers=SSE), streams=stream)
        assert len(transport.calls) == 1
        assert calls_of(wire, body, streamed=streamed) == ("", BERN)
        assert MESSAGE.encode() not in body


@wires
async def test_behind_shown_text_it_stays_an_error(wire: Wire) -> None:
    """Rules 128, 135: text that went out is not said again: the stream ends in the error, without the generation."""
    pieces = broken(wire, Say("I will look it up for you now. "))
    body, transport, _ = await take(wire, FakeReply(*pieces, headers=SSE), streams=True)
    assert len(transport.calls) == 1
    events = decoded(wire, body)
    assert isinstance(events[-1], Failed)
    assert b"tool_call>" not in body
    assert b"Bern" not in body
    shown = "".join(event.text for event in events if isinstance(event, PartTextDelta))
    assert shown == "I will look it up for you now. "


@streaming
@pytest.mark.parametrize("wire", [Wire.CHAT, Wire.MESSAGES])
async def test_an_error_that_says_200_is_harvested(wire: Wire, stream: bool) -> None:
    """Rule 128: an error in the place of a reply is read like one with a status of its own."""
    reply = FakeReply(json.dumps(failure(wire)).encode())
    body, transport, streamed = await take(wire, reply, streams=stream)
    assert len(transport.calls) == 1
    assert calls_of(wire, body, streamed=streamed) == ("", BERN)


@streaming
async def test_what_cannot_be_judged_stays_an_error(stream: bool) -> None:
    """Rule 128: of the mere end of a generation that is no call nothing is made, and nothing is told."""
    error = {"message": "Failed to parse input at pos 812: and so SECRET on", "type": "server_error", "code": 500}
    events = b"data: " + json.dumps({"error": error}).encode() + b"\n\n"
    with pytest.raises(UpstreamRejected) as caught:
        await take(Wire.CHAT, FakeReply(events, headers=SSE), streams=stream)
    assert "SECRET" not in str(caught.value.info())
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    "generation",
    ['<tool_call>{"name": "no_such", "arguments": {}}</tool_call>', "Well, no_such thing."],
    ids=["unknown tool", "prose"],
)
@streaming
async def test_nothing_of_it_is_left_for_the_next_attempt(stream: bool, generation: str) -> None:
    """Rules 45, 128: what is no valid call is judged and discarded: it is in no later request and in no reply."""
    offer = asked(Wire.CHAT, stream=True, tools=True)
    again = stream_reply(Turn(Call("weather", {"city": "Bern"})), Wire.CHAT, offer, Stamp(1))
    first = broken(Wire.CHAT, generation=generation)
    body, transport, streamed = await take(
        Wire.CHAT, FakeReply(*first, headers=SSE), FakeReply(*again, headers=SSE), streams=stream
    )
    own = json.dumps(asked(Wire.CHAT, stream=stream, tools=True)).encode()
    assert [call.body for call in transport.calls] == [own] * 2
    assert calls_of(Wire.CHAT, body, streamed=streamed) == ("", BERN)
    assert b"no_such" not in body
