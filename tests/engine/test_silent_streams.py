"""Streams that say nothing: comments, blank lines, events without content. They end long before their deadline."""

from collections.abc import AsyncGenerator

import pytest

from mustcall.core.errors import MustcallError, UpstreamGarbage
from mustcall.core.limits import GatewayLimits
from mustcall.core.origin import Wire
from mustcall.core.streams.events import Failed
from mustcall.engine.exchange import StreamedReply
from mustcall.engine.records import TurnProgress
from mustcall.engine.turns import Turns
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Protocol
from mustcall.testing.transport import FakeClock, FakeReply, FakeTransport
from mustcall.wire.sse import Silence
from support.exchanging import SSE, decoded, endpoint, events, inbound, wires

NOTHING = (b": still here\n\n", b"\n", b"\r\n", b"event: ping\ndata: {}\n\n", b": a\r\r")
LIMITS = GatewayLimits(silent_lines=50)


class Endless(FakeReply):
    """The beginning of a stream, then the same again and again; counts how often, and lets time pass."""

    def __init__(self, first: bytes, piece: bytes, clock: FakeClock, seconds: float = 0.0) -> None:
        super().__init__(headers=SSE)
        self._first, self._piece, self._clock, self._seconds = first, piece, clock, seconds
        self.sent = 0

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Go on as long as anybody reads."""
        yield self._first
        while self.sent < 10_000:
            self.sent += 1
            self._clock.advance(self._seconds)
            yield self._piece
        raise AssertionError("nobody ended it")


async def take(
    wire: Wire, reply: FakeReply, clock: FakeClock, *, limits: GatewayLimits = LIMITS, protocol: Protocol | None = None
) -> bytes:
    """Take a streamed turn with 100 s of time, and read its answer to the end."""
    got = await Turns(FakeTransport([reply]), clock, limits=limits).take(
        inbound(wire, stream=True),
        endpoint(wire),
        None,
        asked="m",
        controls=Controls(protocol=protocol),
        progress=TurnProgress(),
        deadline=clock.monotonic() + 100,
    )
    assert isinstance(got, StreamedReply)
    return b"".join([got.first, *[piece async for piece in got.chunks]])


@wires
@pytest.mark.parametrize("nothing", NOTHING)
@pytest.mark.parametrize("begun", [False, True], ids=["at once", "after some text"])
async def test_a_stream_that_says_nothing_is_ended(wire: Wire, nothing: bytes, begun: bool) -> None:
    """Rule 68: after so many lines it is the upstream's garbage, whether something was said before or not."""
    clock = FakeClock()
    parts = events(wire)
    first = b"".join(parts[: len(parts) // 2]) if begun else parts[0]
    reply = Endless(first, nothing, clock)
    try:
        last = decoded(wire, await take(wire, reply, clock))[-1]
    except MustcallError as error:
        told = error.info().message
    else:
        assert isinstance(last, Failed)
        told = last.error.message
    assert "silent_lines" in told
    assert reply.sent <= LIMITS.silent_lines + 2
    assert reply.closed


@wires
async def test_a_comment_now_and_then_is_no_silence(wire: Wire) -> None:
    """What is said in between begins the count anew: pings and comments for as long as an answer takes."""
    pieces = [piece for event in events(wire) for piece in (*[b": still here\n\n"] * 5, event)]
    clock = FakeClock()
    out = await take(wire, FakeReply(*pieces, headers=SSE), clock)
    assert not isinstance(decoded(wire, out)[-1], Failed)


@wires
async def test_a_stream_that_flows_must_go_on_flowing(wire: Wire) -> None:
    """Rule 97: what flows has no deadline, but comments alone do not keep it open beyond the time to begin."""
    clock = FakeClock()
    parts = events(wire)
    reply = Endless(b"".join(parts[: len(parts) // 2]), b": still here\n\n", clock, seconds=60.0)
    out = await take(wire, reply, clock, limits=GatewayLimits())
    last = decoded(wire, out)[-1]
    assert isinstance(last, Failed)
    assert "read_timeout" in last.error.message
    assert reply.sent == 12  # 600 s in steps of 60, from the first on, and the one that is over it


@wires
@pytest.mark.parametrize("nothing", [b": still here\n\n", b"\n"])
async def test_a_stream_that_is_only_passed_on_is_ended_as_well(wire: Wire, nothing: bytes) -> None:
    """Rule 68: under protocol `off` too."""
    clock = FakeClock()
    reply = Endless(events(wire)[0], nothing, clock)
    last = decoded(wire, await take(wire, reply, clock, protocol=Protocol.OFF))[-1]
    assert isinstance(last, Failed)
    assert reply.sent <= LIMITS.silent_lines + 2


@pytest.mark.parametrize("block", [b": a\n\n: b\n\n", b"\r\n" * 4, b"\r\r\r\r"])
def test_lines_are_counted_by_any_line_end(block: bytes) -> None:
    """A line ends at CR, LF or CRLF."""
    silence = Silence(GatewayLimits(silent_lines=4))
    silence.note(block)
    assert silence.lines == 4
    with pytest.raises(UpstreamGarbage, match="silent_lines"):
        silence.note(b"\n")
    silence.end()
    assert silence.lines == 0
