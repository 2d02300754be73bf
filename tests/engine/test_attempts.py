"""What an attempt leaves behind: nothing of a reply that was given up."""

import gc
import json
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from mustcall.core.errors import MustcallError, UpstreamGarbage
from mustcall.core.origin import Wire
from mustcall.engine.attempts.attempt import Attempt
from mustcall.engine.exchange import Inbound, WholeReply
from mustcall.engine.records import TurnProgress
from mustcall.engine.replies.stream_relay import StreamRelay
from mustcall.engine.turns import OperatorSettings, Turns
from mustcall.policy.facts.controls import Controls
from mustcall.testing import Say, Turn
from mustcall.testing.render import Stamp, stream_reply
from mustcall.testing.transport import FakeClock, FakeReply, FakeTransport
from support.exchanging import SSE, asked, endpoint, inbound


class Breaking(FakeReply):
    """An answer that ends in an error, a new one each time: nobody but its reader holds it."""

    async def read(self) -> bytes:
        """Break."""
        raise UpstreamGarbage("the upstream's answer is larger than 9 bytes")

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Say something, and break."""
        async for chunk in super().chunks():
            yield chunk
        raise UpstreamGarbage("the upstream's answer is larger than 9 bytes")


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def _taken(transport: FakeTransport, request: Inbound) -> str:
    """Take a turn and return its answer."""
    got = await Turns(transport, FakeClock(), OperatorSettings()).take(
        request,
        endpoint(Wire.CHAT),
        None,
        asked="m",
        controls=Controls(),
        progress=TurnProgress(),
        deadline=2_000_000.0,
    )
    if isinstance(got, WholeReply):
        return got.body.decode()
    return (got.first + b"".join([piece async for piece in got.chunks])).decode()


def _attempts() -> list[Attempt[Any] | StreamRelay[Any]]:
    """Return the attempts, and the readers of their streams, that are in memory."""
    return [kept for kept in gc.get_objects() if isinstance(kept, (Attempt, StreamRelay))]


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("sse", [False, True], ids=["body", "events"])
async def test_what_a_failed_attempt_read_is_free_at_once(streams: bool, sse: bool) -> None:
    """An upstream that breaks off after megabytes: they go with the turn, without waiting for the collector."""
    spoken = stream_reply(Turn(Say("Sunny. " * 100)), Wire.CHAT, asked(Wire.CHAT, stream=True), Stamp(0))[:3]
    reply = Breaking(*spoken, headers=SSE) if sse else Breaking()
    request = inbound(Wire.CHAT, json.dumps(asked(Wire.CHAT, stream=streams)).encode(), stream=streams)
    before = _attempts()  # what a test before this one left, and is no matter of this turn
    try:
        told = await _taken(FakeTransport([reply]), request)
    except MustcallError as error:
        told = error.message
    assert "larger than 9 bytes" in told
    assert [kept for kept in _attempts() if not any(kept is older for older in before)] == []


async def test_a_stream_that_outlasts_the_deadline_ends_as_it_does() -> None:
    """What flows has no deadline (rule 97), and its end is no reason for one: nothing waits but the verdict."""
    clock = FakeClock()
    spoken = stream_reply(Turn(Say("Sunny. ")), Wire.CHAT, asked(Wire.CHAT, stream=True), Stamp(0))

    class Slow(FakeReply):
        async def chunks(self) -> AsyncGenerator[bytes]:
            async for chunk in super().chunks():
                clock.advance(100.0)
                yield chunk

    got = await Turns(FakeTransport([Slow(*spoken, headers=SSE)]), clock, OperatorSettings()).take(
        inbound(Wire.CHAT, json.dumps(asked(Wire.CHAT, stream=True)).encode(), stream=True),
        endpoint(Wire.CHAT),
        None,
        asked="m",
        controls=Controls(),
        progress=TurnProgress(),
        deadline=clock.monotonic() + 150.0 + 100.0 * sum(b'"content"' in event for event in spoken),
    )
    assert not isinstance(got, WholeReply)
    assert got.first + b"".join([piece async for piece in got.chunks]) == b"".join(spoken)
