"""Streams of which something waits: how long, and what may follow what was seen."""

import json
from collections.abc import AsyncGenerator

import msgspec
import pytest

from mustcall.core.origin import Wire
from mustcall.core.reply import Usage
from mustcall.core.streams.events import Failed
from mustcall.core.verdict import Verdict
from mustcall.engine.exchange import StreamedReply
from mustcall.engine.records import TurnProgress
from mustcall.engine.turns import OperatorSettings, Turns
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Protocol
from mustcall.policy.facts.wording import Wording
from mustcall.profiles import read_overrides
from mustcall.testing import Call, Fail, Say, Turn
from mustcall.testing.render import Stamp, build_error, build_reply, stream_reply
from mustcall.testing.transport import FakeClock, FakeReply, FakeTransport
from support.compared import read_raw
from support.exchanging import SSE, asked, assembled, decoded, endpoint, inbound, pairs, streaming, wires
from support.sending import carried

SAID = "Let me look that up.\n\n"
CALL = Turn(Call("weather", {"city": "Bern"}))
TRUSTED = OperatorSettings(overrides=read_overrides([{"models": ["*"], "trusted_arguments": True}]))


def asking(wire: Wire, *, stream: bool = True, **fields: object) -> bytes:
    """A request with tools on offer and room for an answer."""
    room = {"max_tokens": 500} if wire is Wire.MESSAGES else {}
    return json.dumps(
        {
            **asked(wire, stream=stream, tools=True),
            **({"store": False} if wire is Wire.RESPONSES else {}),
            **room,
            **fields,
        }
    ).encode()


def answer(wire: Wire, turn: Turn, *, stream: bool = True) -> FakeReply:
    """A turn as an upstream of this wire sends it, event by event."""
    body = json.loads(asking(wire, stream=stream))
    if stream:
        body["stream_options"] = {"include_usage": True}
        return FakeReply(*stream_reply(turn, wire, body, Stamp(0)), headers=SSE)
    return FakeReply(json.dumps(build_reply(turn, wire, body, Stamp(0))).encode())


async def take(
    wire: Wire,
    transport: FakeTransport,
    clock: FakeClock,
    *,
    stream: bool = True,
    operator: OperatorSettings | None = None,
    seen: TurnProgress | None = None,
) -> tuple[bytes, TurnProgress]:
    """Take a turn on one wire with 100 s of time and read its answer to the end."""
    progress = seen or TurnProgress()
    got = await Turns(transport, clock, operator or OperatorSettings()).take(
        inbound(wire, asking(wire, stream=stream), stream=stream),
        endpoint(wire, retries=1),
        None,
        asked="m",
        controls=Controls(),
        progress=progress,
        deadline=clock.monotonic() + 100,
    )
    if isinstance(got, StreamedReply):
        return b"".join([got.first, *[piece async for piece in got.chunks]]), progress
    return got.body, progress


class Dripping(FakeReply):
    """An answer whose every piece takes a minute, once something was seen."""

    def __init__(self, clock: FakeClock, reply: FakeReply, free: int) -> None:
        super().__init__(headers=SSE)
        self.clock = clock
        self.reply = reply
        self.free = free
        self.sent = 0

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the pieces, slowly."""
        async for piece in self.reply.chunks():
            self.sent += 1
            if self.sent > self.free:
                await self.clock.sleep(60)
            yield piece


@wires
async def test_what_waits_has_a_deadline(wire: Wire) -> None:
    """Rule 97: a call that drips in behind text that was seen does not drip past the deadline."""
    clock = FakeClock()
    whole = answer(wire, Turn(Say(SAID), Call("weather", {"city": "Bern " * 40})))
    count = len([piece async for piece in whole.chunks()])
    slow = Dripping(clock, whole, free=count // 2)
    body, progress = await take(wire, FakeTransport([slow]), clock)
    *_, last = decoded(wire, body)
    assert isinstance(last, Failed)
    assert "within the time" in last.error.message
    assert slow.closed
    assert slow.sent < count
    assert progress.record is not None
    assert [attempt.verdict for attempt in progress.record.attempts] == [Verdict.UNAVAILABLE]


@wires
@pytest.mark.parametrize(
    "bad",
    [
        Turn(Say(SAID), Call("weather", {"city": 7})),
        Turn(Say(SAID), Call("weather", '{"city": "Be'), finish="length"),
    ],
    ids=["bad", "cut"],
)
async def test_no_call_follows_a_call_that_was_seen(wire: Wire, bad: Turn) -> None:
    """Rule 29: where arguments are trusted to stream, a bad call ends the stream with an error; none is added."""
    transport = FakeTransport([answer(wire, bad), answer(wire, CALL)])
    body, _ = await take(wire, transport, FakeClock(), operator=TRUSTED)
    events = decoded(wire, body)
    assert isinstance(events[-1], Failed)
    assert len(transport.calls) == 1


@wires
@pytest.mark.parametrize("broken", [b'{"oops', b"[]"])
async def test_an_answer_in_one_piece_is_tried_again(wire: Wire, broken: bytes) -> None:
    """Rule 111: what cannot be read is tried again, also when a stream was asked for and none came."""
    first = FakeReply(broken)
    transport = FakeTransport([first, answer(wire, CALL)])
    body, _ = await take(wire, transport, FakeClock())
    assert [call.name for call in assembled(wire, body).calls] == ["weather"]
    assert [call.body for call in transport.calls] == [asking(wire)] * 2
    assert first.closed


@pairs
@streaming
async def test_the_limit_that_was_sent_decides(mine: Wire, theirs: Wire, stream: bool) -> None:
    """Rule 123: a call that used every token allowed is cut, whether the cap was the caller's or the endpoint's."""
    clock = FakeClock()
    full = Turn(Call("weather", {"city": "Bern"}), usage=Usage(input_tokens=5, output_tokens=64))
    word = {Wire.CHAT: "max_completion_tokens", Wire.RESPONSES: "max_output_tokens", Wire.MESSAGES: "max_tokens"}[mine]
    transport = FakeTransport([answer(theirs, full, stream=stream), answer(theirs, CALL, stream=stream)])
    progress = TurnProgress()
    capped = msgspec.structs.replace(endpoint(theirs), max_output_tokens=64)
    got = await Turns(transport, clock, OperatorSettings()).take(
        inbound(mine, asking(mine, stream=stream, **{word: 64 if mine is theirs else 9000}), stream=stream),
        capped,
        None,
        asked="m",
        controls=Controls(),
        progress=progress,
        deadline=clock.monotonic() + 100,
    )
    if isinstance(got, StreamedReply):
        async for _ in got.chunks:
            pass
    assert progress.record is not None
    assert [attempt.verdict for attempt in progress.record.attempts] == [Verdict.TRUNCATED, Verdict.CALLED]
    assert [read_raw(call.body or b"") for call in transport.calls] == [
        carried(mine, theirs, *steps, asks_stream=stream, limit=64) for steps in ((), (Wording().truncated,))
    ]


@wires
@streaming
@pytest.mark.parametrize("broken", [False, True], ids=["refused", "broken"])
async def test_a_stream_that_is_tried_again_needs_signs_of_life(wire: Wire, stream: bool, broken: bool) -> None:
    """Rule 113: a caller of a stream gets signs of life while a refused or broken attempt is waited out."""
    progress = TurnProgress()
    seen: list[bool] = []

    class Watched(FakeClock):
        async def sleep(self, seconds: float) -> None:
            seen.append(progress.holding)
            await super().sleep(seconds)

    busy = FakeReply(json.dumps(build_error(Fail(529, "Overloaded"), wire, Stamp(0))).encode(), status=529)
    first = FakeReply(b"", headers=SSE) if broken else busy
    transport = FakeTransport([first, answer(wire, CALL, stream=stream)])
    await take(wire, transport, Watched(), stream=stream, seen=progress)
    assert [call.body for call in transport.calls] == [asking(wire, stream=stream)] * 2
    assert seen == [stream]


@streaming
async def test_a_force_that_is_passed_through_is_reported(stream: bool) -> None:
    """Rule 8: under `off` nothing is forced, and whoever asked for a force reads that."""
    clock = FakeClock()
    got = await Turns(FakeTransport([answer(Wire.CHAT, CALL, stream=stream)]), clock, OperatorSettings()).take(
        inbound(Wire.CHAT, asking(Wire.CHAT, stream=stream), stream=stream),
        endpoint(Wire.CHAT),
        None,
        asked="m",
        controls=Controls(protocol=Protocol.OFF, force_tools="weather"),
        progress=TurnProgress(),
        deadline=clock.monotonic() + 100,
    )
    if isinstance(got, StreamedReply):
        await got.chunks.aclose()
    assert [(str(entry.kind), entry.subject) for entry in got.adaptations] == [("force_dropped", "weather")]
