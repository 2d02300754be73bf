"""Rule 139: arguments of an upstream that has earned it flow as they come; of any other they wait."""

import json
from typing import Any

import pytest

from mustcall.core.origin import Wire
from mustcall.core.parts import Text, ToolCall
from mustcall.core.reply import Reply
from mustcall.core.streams.assembler import Assembler
from mustcall.engine.exchange import StreamedReply, WholeReply
from mustcall.engine.records import TurnProgress
from mustcall.engine.turns import OperatorSettings, Turns
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.wording import Wording
from mustcall.profiles import Learnt, read_overrides
from mustcall.testing import Call, Say, Turn
from mustcall.testing.render import Stamp, stream_reply
from mustcall.testing.transport import FakeClock, FakeReply, FakeTransport
from mustcall.wire.codec import Provenance
from mustcall.wire.registry import codec_for
from mustcall.wire.sse import SseDecoder
from support.compared import read_raw
from support.exchanging import SSE, asked, endpoint, inbound, wires
from support.sending import with_steps

GOOD = Turn(Call("weather", {"city": "Bern"}))
BAD = Turn(Call("weather", {"city": 7}))
MENDED = Turn(Call("weather", '"{\\"city\\": \\"Bern\\"}"'))
#: Right up to its last field.
LATE = Turn(Call("weather", {"note": "Bern " * 20, "city": 7}))
#: What says on each wire that a call is there to be run.
DONE = {Wire.CHAT: b'"tool_calls"}', Wire.RESPONSES: b"response.completed", Wire.MESSAGES: b'"stop_reason":"tool_use"'}
DAY = 86_400.0
FIELDS: dict[Wire, dict[str, Any]] = {
    Wire.CHAT: {},
    Wire.RESPONSES: {"store": False},
    Wire.MESSAGES: {"max_tokens": 500},
}


def heard(wire: Wire, written: bytes) -> Reply:
    """The reply that a client reads from a stream."""
    decoder, assembler = codec_for(wire).stream_decoder(Provenance(token="t")), Assembler()
    for event in SseDecoder().feed(written):
        for decoded in decoder.feed(event):
            assembler.feed(decoded)
    return assembler.reply()


class Model:
    """A model that answers turns on one wire, and what is learnt of it."""

    def __init__(self, wire: Wire, operator: OperatorSettings | None = None) -> None:
        self.wire = wire
        self.clock = FakeClock()
        self.learnt = Learnt()
        self.operator = operator or OperatorSettings()

    async def read(self, answer: Turn) -> bytes:
        """Take a streamed turn of one attempt; return what went out."""
        body = {**asked(self.wire, stream=True, tools=True), **FIELDS[self.wire]}
        transport = FakeTransport([FakeReply(*stream_reply(answer, self.wire, body, Stamp(0)), headers=SSE)])
        got = await self.take(transport, body)
        assert isinstance(got, StreamedReply)
        written = got.first + b"".join([piece async for piece in got.chunks])
        assert len(transport.calls) == 1
        return written

    async def take(
        self, transport: FakeTransport, body: dict[str, Any], upstream: Wire | None = None
    ) -> WholeReply | StreamedReply:
        """Take a streamed turn; `upstream` is its wire if it is another one."""
        return await Turns(transport, self.clock, self.operator, self.learnt).take(
            inbound(self.wire, json.dumps(body).encode(), stream=True),
            endpoint(upstream or self.wire),
            None,
            asked="m",
            controls=Controls(),
            progress=TurnProgress(),
            deadline=self.clock.monotonic() + 100,
        )

    async def ask(self, *answers: Turn) -> int:
        """Take a streamed turn; return in how many pieces its last answer's events went out."""
        body = {**asked(self.wire, stream=True, tools=True), **FIELDS[self.wire]}
        frames = [stream_reply(turn, self.wire, body, Stamp(0)) for turn in answers]
        transport = FakeTransport([FakeReply(*pieces, headers=SSE) for pieces in frames])
        got = await self.take(transport, body)
        assert isinstance(got, StreamedReply)
        told = Wording().bad_arguments.format(problem="weather: city: string")
        sends = [body, with_steps(self.wire, body, told)][: len(answers)]
        pieces = 1 + len([piece async for piece in got.chunks])
        assert [read_raw(call.body or b"") for call in transport.calls] == sends
        return pieces


@wires
async def test_fifty_valid_calls_earn_trust(wire: Wire) -> None:
    """Rule 139: 49 calls are held, each in one piece; after the 50th arguments come event by event."""
    model = Model(wire)
    assert [await model.ask(GOOD) for _ in range(50)] == [1] * 50
    assert await model.ask(GOOD) > 1


@wires
@pytest.mark.parametrize("fault", [BAD, MENDED], ids=["bad", "mended"])
async def test_one_fault_is_one_too_many(wire: Wire, fault: Turn) -> None:
    """Rule 139: a call that had to be repaired or asked for again, and there is no trust."""
    model = Model(wire)
    for _ in range(30):
        await model.ask(GOOD)
    await model.ask(*((BAD, GOOD) if fault is BAD else (fault,)))
    assert [await model.ask(GOOD) for _ in range(40)] == [1] * 40


@wires
async def test_a_late_fault_ends_the_stream_and_the_trust(wire: Wire) -> None:
    """Rule 139: of a trusted call that turns out bad nothing behind the fault goes out, and the next call is held."""
    model = Model(wire)
    for _ in range(50):
        await model.ask(GOOD)
    written = await model.read(LATE)
    assert b"Bern" in written or b"note" in written
    assert DONE[wire] not in written
    assert b"error" in written
    assert await model.ask(GOOD) == 1


async def test_a_call_that_begins_and_fails_in_one_piece_is_never_seen() -> None:
    """Rules 26, 118, 139: text before it goes out; the call does not, for another attempt makes it."""
    wire = Wire.CHAT  # where a call and its arguments begin in one event
    trusting = OperatorSettings(overrides=read_overrides([{"models": ["*"], "trusted_arguments": True}]))
    model = Model(wire, trusting)
    body = {**asked(wire, stream=True, tools=True), **FIELDS[wire]}
    bad = stream_reply(Turn(Say("One moment."), Call("weather", "no JSON")), wire, body, Stamp(0))
    begins = next(place for place, frame in enumerate(bad) if b"weather" in frame)
    good = stream_reply(GOOD, wire, body, Stamp(1))
    transport = FakeTransport(
        [FakeReply(*bad[:begins], b"".join(bad[begins:]), headers=SSE), FakeReply(*good, headers=SSE)]
    )
    got = await model.take(transport, body)
    assert isinstance(got, StreamedReply)
    reply = heard(wire, got.first + b"".join([piece async for piece in got.chunks]))
    said = [part.text if isinstance(part, Text) else part for part in reply.parts]
    assert said[0] == "One moment."
    (call,) = said[1:]
    assert isinstance(call, ToolCall)
    assert (call.name, json.loads(call.arguments_json)) == ("weather", {"city": "Bern"})
    told = Wording().bad_arguments.format(problem="weather: top level: valid JSON")
    assert [read_raw(sent.body or b"") for sent in transport.calls] == [body, with_steps(wire, body, told)]


@wires
async def test_trusted_calls_have_ids_of_their_own(wire: Wire) -> None:
    """Rules 67, 139, 143: of two trusted calls with one id the second waits and gets another; both are delivered."""
    model = Model(wire, OperatorSettings(overrides=read_overrides([{"models": ["*"], "trusted_arguments": True}])))
    written = await model.read(
        Turn(Call("weather", {"city": "Bern"}, id="call_x"), Call("weather", {"city": "Rome"}, id="call_x"))
    )
    calls = [part for part in heard(wire, written).parts if isinstance(part, ToolCall)]
    assert [json.loads(call.arguments_json) for call in calls] == [{"city": "Bern"}, {"city": "Rome"}]
    assert calls[0].id == "call_x" != calls[1].id


@pytest.mark.parametrize("finish", ["length", "content_filter"])
@pytest.mark.parametrize(("wire", "done"), [(Wire.RESPONSES, b"output_item.done"), (Wire.MESSAGES, b"block_stop")])
async def test_a_cut_reply_ends_no_trusted_call(wire: Wire, done: bytes, finish: str) -> None:
    """Rules 26, 139: a client is never told that a call is whole and then that its reply was cut off."""
    model = Model(wire, OperatorSettings(overrides=read_overrides([{"models": ["*"], "trusted_arguments": True}])))
    for stop in (None, finish):
        chat = asked(Wire.CHAT, stream=True, tools=True)
        frames = stream_reply(Turn(Call("weather", {"city": "Bern"}), finish=stop), Wire.CHAT, chat, Stamp(0))
        body = asked(wire, stream=True, tools=True) | FIELDS[wire]
        body["tools"] = [tool for tool in body["tools"] if tool.get("name") == "weather"]
        got = await model.take(FakeTransport([FakeReply(*frames, headers=SSE)]), body, Wire.CHAT)
        assert isinstance(got, StreamedReply)
        written = got.first + b"".join([piece async for piece in got.chunks])
        assert b"Bern" in written
        assert (done in written) == (stop is None)
        assert (b"error" in written.replace(b'"error":null', b"")) == (stop is not None)


async def test_the_operator_decides() -> None:
    """Rule 139: what is configured is not overridden by what was learnt."""
    operator = OperatorSettings(overrides=read_overrides([{"models": ["*"], "trusted_arguments": False}]))
    model = Model(Wire.CHAT, operator)
    assert {await model.ask(GOOD) for _ in range(60)} == {1}


async def test_trust_is_confirmed_while_it_is_used() -> None:
    """Rule 139: counted once a day at most, trust that is used does not expire; unused, it does after a week."""
    model = Model(Wire.CHAT)
    for _ in range(50):
        await model.ask(GOOD)
    (before,) = [one.count for one in model.learnt.tallies.all() if one.subject == "arguments"]
    await model.ask(GOOD)
    (after,) = [one.count for one in model.learnt.tallies.all() if one.subject == "arguments"]
    assert (before.made, after) == (50, before)
    for _ in range(10):
        model.clock.advance(2 * DAY)
        assert await model.ask(GOOD) > 1
    model.clock.advance(8 * DAY)
    assert await model.ask(GOOD) == 1
