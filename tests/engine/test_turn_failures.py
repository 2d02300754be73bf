"""Turns that fail or run out of time: what the caller gets, and that nothing else escapes."""

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.errors import (
    MustcallError,
    TruncatedReply,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mustcall.core.origin import Wire
from mustcall.core.streams.events import Ended, Failed
from mustcall.core.verdict import OutcomeKind
from mustcall.engine.exchange import StreamedReply
from mustcall.engine.records import TurnProgress
from mustcall.engine.turns import OperatorSettings, Turns
from mustcall.policy.facts.controls import Controls, Limits
from mustcall.testing import Fail, Say, Turn
from mustcall.testing.render import Stamp, stream_reply
from mustcall.testing.transport import FakeClock, FakeReply, FakeTransport
from mustcall.upstream.seam import UpstreamCall
from support.exchanging import SSE, decoded, endpoint, said, streaming, wires
from support.sending import with_steps
from support.turning import (
    CALL,
    CUT,
    DEADLINE,
    MARKUP,
    MIXED,
    TEXT,
    WORDS,
    answer,
    body_of,
    force,
    raw_bodies,
    refusal,
    request_of,
    take,
)

# --- failures --------------------------------------------------------------------------------------------------------


@wires
async def test_streams_cut_after_every_event(wire: Wire) -> None:
    """Rules 41, 111, 135: cut before the first word it is asked again, cut behind it the stream ends with an error."""
    events = stream_reply(TEXT, wire, body_of(wire, stream=True), Stamp(0))
    request = request_of(wire, stream=True)
    retried = broken = 0
    for count in range(1, len(events) - 1):
        cut = FakeReply(*events[:count], UpstreamUnavailable("cut"), headers=SSE)
        taken = await take(request, wire, cut, FakeReply(*events, headers=SSE), retries=2)
        assert taken.raw == [request.body] * len(taken.raw)
        if len(taken.sent) == 2:
            retried += 1
            assert said(taken.reply(wire)) == "It is going to rain."
        else:
            broken += 1
            assert isinstance(decoded(wire, taken.body)[-1], Failed)
            assert b"It" in taken.body
    assert retried
    assert broken


@wires
@streaming
async def test_a_deadline_for_all_attempts(wire: Wire, stream: bool) -> None:
    """Rule 97: no attempt starts with less than the least time left."""
    clock = FakeClock()
    progress = TurnProgress()

    class Slow(FakeTransport):
        async def send(self, call: UpstreamCall) -> FakeReply:
            await clock.sleep(600)
            return await super().send(call)

    transport = Slow([answer(wire, Turn(Say(" ")), stream=stream) for _ in range(3)])
    turns = Turns(transport, clock, OperatorSettings())
    with pytest.raises(UpstreamTimeout):
        await turns.take(
            request_of(wire, stream=stream),
            endpoint(wire),
            None,
            asked="m",
            controls=Controls(limits=Limits(least_seconds=500)),
            progress=progress,
            deadline=clock.monotonic() + 1050,
        )
    assert len(transport.calls) == 1
    assert progress.record is not None
    assert progress.record.outcome is OutcomeKind.FAILURE


@pytest.mark.parametrize(("left", "sent"), [(1.0, 1), (0.99, 0), (0.0, 0)])
@pytest.mark.parametrize("stream", [False, True])
@wires
async def test_no_first_attempt_without_the_least_time(wire: Wire, stream: bool, left: float, sent: int) -> None:
    """Rule 97: the first attempt, too, starts only with the least time left; with less nothing is sent."""
    clock, progress = FakeClock(), TurnProgress()
    transport = FakeTransport([answer(wire, Turn(Say("hi")), stream=stream)])
    taking = Turns(transport, clock, OperatorSettings()).take(
        request_of(wire, stream=stream),
        endpoint(wire),
        None,
        asked="m",
        controls=Controls(),
        progress=progress,
        deadline=clock.monotonic() + left,
    )
    if sent:
        await taking
    else:
        with pytest.raises(UpstreamTimeout):
            await taking
    assert len(transport.calls) == sent


@pytest.mark.parametrize(("left", "sent"), [(3.0, 2), (1.2, 1)])
@wires
async def test_no_retry_without_the_least_time(wire: Wire, left: float, sent: int) -> None:
    """Rules 97, 111: what the transport would send again after its wait is not sent with less than the least time."""
    clock, progress = FakeClock(), TurnProgress()
    busy = refusal(wire, Fail(503, "Overloaded"))
    transport = FakeTransport([busy, answer(wire, Turn(Say("hi")), stream=False)])
    request = request_of(wire)
    taken = await Turns(transport, clock, OperatorSettings()).take(
        request,
        endpoint(wire, retries=2),
        None,
        asked="m",
        controls=Controls(),
        progress=progress,
        deadline=clock.monotonic() + left,
    )
    assert raw_bodies(transport.calls) == [request.body] * sent
    assert taken.status == (200 if sent == 2 else 503)


@wires
async def test_transport_retries_count_under_the_ceiling(wire: Wire) -> None:
    """Rules 96, 111: retries of the transport have their own counter, and the one ceiling over both."""
    busy = [refusal(wire, Fail(529, "Overloaded")) for _ in range(2)]
    empty = [answer(wire, Turn(Say(" ")), stream=False) for _ in range(1)]
    controls = Controls(limits=Limits(extra_calls=2, empty=9))
    sends = [body_of(wire)] * 3
    with pytest.raises(MustcallError) as caught:
        await take(request_of(wire), wire, *busy, *empty, retries=2, controls=controls, sends=sends)
    assert caught.value.code == "empty"


@wires
async def test_leaving_closes_the_upstream(wire: Wire) -> None:
    """Rule 116: a caller that goes away in mid-stream ends the upstream's reply, and no attempt follows."""
    upstream = answer(wire, TEXT, stream=True)
    transport = FakeTransport([upstream])
    turns = Turns(transport, FakeClock(), OperatorSettings())
    got = await turns.take(
        request_of(wire, stream=True),
        endpoint(wire),
        None,
        asked="m",
        controls=Controls(),
        progress=TurnProgress(),
        deadline=DEADLINE,
    )
    assert isinstance(got, StreamedReply)
    assert not upstream.closed
    await got.chunks.aclose()
    assert upstream.closed
    assert len(transport.calls) == 1


@wires
async def test_the_record_can_be_in_the_body(wire: Wire) -> None:
    """Rule 114: with `metadata` the body carries attempts, verdicts and the state of the force."""
    answers = [answer(wire, Turn(Say(" ")), stream=False), answer(wire, TEXT, stream=False, number=1)]
    sends = [body_of(wire), with_steps(wire, body_of(wire), WORDS.empty)]
    taken = await take(request_of(wire), wire, *answers, controls=Controls(metadata=True), sends=sends)
    told = json.loads(taken.body)["mustcall"]
    assert [entry["verdict"] for entry in told["attempts"]] == ["empty", "answered"]
    assert (told["outcome"], told["force"], told["protocol"]) == ("answer", "none", "hybrid")
    assert (
        json.loads((await take(request_of(wire), wire, answer(wire, TEXT, stream=False))).body).get("mustcall") is None
    )


async def test_truncated_calls_are_not_delivered_in_one_piece() -> None:
    """Rules 40, 123: one retry, then the typed error."""
    answers = [answer(Wire.CHAT, CUT, stream=False) for _ in range(2)]
    sends = [body_of(Wire.CHAT), with_steps(Wire.CHAT, body_of(Wire.CHAT), WORDS.truncated)]
    with pytest.raises(TruncatedReply):
        await take(request_of(Wire.CHAT), Wire.CHAT, *answers, sends=sends)


# --- any upstream ----------------------------------------------------------------------------------------------------

edits = st.lists(
    st.tuples(
        st.integers(0, 4000),
        st.integers(0, 60),
        st.sampled_from([b"", b"\n\n", b'"', b"}", b"\xff", b"null", b"data: {}\n\n", b"data: [DONE]\n\n", b"<think>"]),
    ),
    max_size=3,
)


def damage(stream: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    """Replace some slices of a stream."""
    for place, length, text in changes:
        at = place % (len(stream) + 1)
        stream = stream[:at] + text + stream[at + length :]
    return stream


@given(
    st.sampled_from([(mine, theirs) for mine in Wire for theirs in Wire]),
    st.sampled_from([TEXT, CALL, MIXED, MARKUP, CUT]),
    edits,
    st.integers(1, 400),
    st.booleans(),
)
@settings(max_examples=250, deadline=None)
def test_any_bytes_give_one_outcome(
    wires_used: tuple[Wire, Wire], turn: Turn, changes: list[tuple[int, int, bytes]], size: int, demanded: bool
) -> None:
    """Contract 8: whatever a stream holds, the caller gets one reply or one typed error, and its stream has an end."""
    mine, theirs = wires_used
    stream = damage(b"".join(stream_reply(turn, theirs, body_of(theirs, stream=True), Stamp(0))), changes)
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    fields = {"tool_choice": force(mine)} if demanded else {}
    replies = [FakeReply(*pieces, headers=SSE) for _ in range(5)]
    try:
        request = request_of(mine, stream=True, **fields)
        taken = asyncio.run(take(request, theirs, *replies, left="the damage decides what is asked again"))
    except MustcallError:
        return  # typed, and raised before anything was shown
    assert len(taken.sent) <= 5
    assert taken.streamed
    seen = decoded(mine, taken.body)
    assert isinstance(seen[-1], Ended | Failed)
    assert sum(isinstance(event, Ended | Failed) for event in seen) == 1
