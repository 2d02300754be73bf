"""Whole turns without a network: what each attempt sends, what the caller gets, and that nothing else escapes."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.errors import (
    ForceUnmet,
    MustcallError,
    TextToolCallError,
    TruncatedReply,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mustcall.core.origin import Wire
from mustcall.core.reply import Reply, Usage
from mustcall.core.streams.events import Ended, Failed
from mustcall.core.verdict import OutcomeKind, Verdict
from mustcall.engine.exchange import Inbound, StreamedReply, WholeReply
from mustcall.engine.records import TurnProgress, TurnRecord
from mustcall.engine.turns import OperatorSettings, Turns
from mustcall.policy.facts.controls import Controls, Limits, OnUnmet
from mustcall.policy.facts.profile import Protocol
from mustcall.policy.facts.wording import Wording
from mustcall.profiles import read_overrides
from mustcall.testing import Call, Fail, Say, Think, Turn
from mustcall.testing.render import Stamp, build_error, build_reply, stream_reply
from mustcall.testing.transport import FakeClock, FakeReply, FakeTransport
from mustcall.upstream.seam import UpstreamCall
from support.compared import leave, read_raw
from support.exchanging import SSE, asked, assembled, decoded, endpoint, inbound, pairs, said, streaming, wires
from support.forcing import Assistant
from support.sending import as_schema_answer, carried, with_steps
from support.splits import splits

DEADLINE = 2_000_000.0
WORDS = Wording()
TEXT = Turn(Say("It is going to rain."))
CALL = Turn(Call("weather", {"city": "Bern"}))
MIXED = Turn(Think("Ünd?"), Say("Es regnet."), Call("weather", {"city": "Bern"}))
MARKUP = Turn(Say('<tool_call>{"name": "weather", "arguments": {"city": "Bern"}}</tool_call>'))
CUT = Turn(Say("Hm."), Call("weather", '{"city": "Be'), finish="tool_calls")
WRITTEN = Turn(Say('{"name": "weather", "arguments": {"city": "Bern"}}'))
NATIVE = Controls(protocol=Protocol.NATIVE)
#: The tool as the system prompt tells of it where calls are made in text.
TOLD = """You can call tools. To call one, write exactly this, with the tool's name and its arguments:

<tool_call>
{"name": "TOOL_NAME", "arguments": {"PARAMETER": "VALUE"}}
</tool_call>

Write nothing after a call; its result will be given to you. These are the tools:

## weather
Parameters:
- city (string, optional)"""


def body_of(wire: Wire, *, stream: bool = False, **fields: Any) -> dict[str, Any]:
    """A request with tools on offer and room for an answer."""
    room = {"max_tokens": 500} if wire is Wire.MESSAGES else {}
    return {**asked(wire, stream=stream, tools=True), **room, **fields}


def force(wire: Wire, name: str = "weather") -> Any:
    """The named choice of a wire."""
    return {
        Wire.CHAT: {"type": "function", "function": {"name": name}},
        Wire.RESPONSES: {"type": "function", "name": name},
        Wire.MESSAGES: {"type": "tool", "name": name},
    }[wire]


def answer(wire: Wire, turn: Turn, *, stream: bool, number: int = 0, **fields: Any) -> FakeReply:
    """A turn as an upstream of this wire sends it."""
    if stream:
        pieces = stream_reply(turn, wire, body_of(wire, stream=True, **fields), Stamp(number))
        return FakeReply(*pieces, headers=SSE)
    return FakeReply(json.dumps(build_reply(turn, wire, body_of(wire), Stamp(number))).encode())


def refusal(wire: Wire, fail: Fail) -> FakeReply:
    """An error status in a wire's shape."""
    return FakeReply(json.dumps(build_error(fail, wire, Stamp(0))).encode(), status=fail.status)


class Taken(msgspec.Struct):
    """What came of a turn."""

    status: int
    pieces: list[bytes]
    streamed: bool
    sent: list[dict[str, Any]]
    raw: list[bytes]
    record: TurnRecord
    kinds: set[str]

    @property
    def body(self) -> bytes:
        """The answer's bytes."""
        return b"".join(self.pieces)

    def reply(self, wire: Wire) -> Reply:
        """The answer as a client of this wire reads it."""
        return assembled(wire, self.body)


def raw_bodies(calls: Sequence[UpstreamCall]) -> list[bytes]:
    """The bodies that were sent."""
    return [call.body for call in calls if call.body is not None]


async def take(
    request: Inbound,
    theirs: Wire,
    *answers: FakeReply | MustcallError,
    controls: Controls | None = None,
    retries: int = 0,
    turns: Turns | None = None,
    progress: TurnProgress | None = None,
    model: str = "m",
    sends: Sequence[dict[str, Any]] | None = None,
    left: str | None = None,
) -> Taken:
    """Take one turn and read its answer to the end; every reply that was used is closed, however it ends.

    `sends` are the bodies that the upstream must get, `left` says why a test does not look at them.
    """
    transport = FakeTransport(answers)
    if left is not None:
        leave(transport, left)
    turns = turns or Turns(transport, FakeClock(), OperatorSettings())
    turns._transport = transport  # pyright: ignore[reportPrivateUsage]
    progress = progress or TurnProgress()
    try:
        got = await turns.take(
            request,
            endpoint(theirs, retries=retries),
            None,
            asked=model,
            controls=controls or Controls(),
            progress=progress,
            deadline=DEADLINE,
        )
        match got:
            case WholeReply():
                pieces = [got.body]
            case StreamedReply():
                pieces = [got.first, *[piece async for piece in got.chunks]]
    finally:
        used = answers[: len(transport.calls)]
        assert all(reply.closed for reply in used if isinstance(reply, FakeReply))
        if sends is not None:
            assert [read_raw(body) for body in raw_bodies(transport.calls)] == sends
    assert progress.record is not None
    raw = raw_bodies(transport.calls)
    return Taken(
        status=got.status,
        pieces=pieces,
        streamed=isinstance(got, StreamedReply),
        sent=[read_raw(body) for body in raw],
        raw=raw,
        record=progress.record,
        kinds={str(entry.kind) for entry in got.adaptations},
    )


def request_of(wire: Wire, *, stream: bool = False, headers: Mapping[str, str] | None = None, **fields: Any) -> Inbound:
    """A caller's request, spelt in a way that only its own bytes have."""
    written = json.dumps(body_of(wire, stream=stream, **fields), indent=1).encode()
    return inbound(wire, written, stream=stream, headers=headers)


# --- healthy turns ---------------------------------------------------------------------------------------------------


@wires
@pytest.mark.parametrize("turn", [TEXT, CALL, MIXED], ids=["text", "call", "mixed"])
async def test_same_wire_whole_turns_are_bytes(wire: Wire, turn: Turn) -> None:
    """Rules 105, 112: the very bytes go to the upstream and come back."""
    request = request_of(wire)
    upstream = answer(wire, turn, stream=False)
    taken = await take(request, wire, upstream)
    assert taken.raw == [request.body]
    assert taken.body == await upstream.read()
    assert taken.record.outcome is (OutcomeKind.CALLS if turn.calls else OutcomeKind.ANSWER)
    assert taken.kinds == set()


@wires
async def test_same_wire_streams_are_bytes_at_every_split(wire: Wire) -> None:
    """Rules 112, 113: however the bytes arrive, the same bytes leave."""
    stream = b"".join(stream_reply(MIXED, wire, body_of(wire, stream=True), Stamp(0)))
    request = request_of(wire, stream=True)
    for pieces in splits(stream):
        taken = await take(request, wire, FakeReply(*pieces, headers=SSE))
        assert taken.body == stream
        assert taken.raw == [request.body]


@wires
async def test_text_is_not_held_back(wire: Wire) -> None:
    """Rule 113: from the first word on each event leaves as it comes, before the next one is read."""
    events = stream_reply(TEXT, wire, body_of(wire, stream=True), Stamp(0))
    taken = await take(request_of(wire, stream=True), wire, FakeReply(*events, headers=SSE))
    first = next(number for number, event in enumerate(events) if b'"It"' in event)
    last = next(number for number, event in enumerate(events) if b'" rain."' in event)
    assert last - first == 4
    assert taken.pieces[0] == b"".join(events[: first + 1])
    assert taken.pieces[1:5] == events[first + 1 : last + 1]


@pairs
@streaming
@pytest.mark.parametrize("turn", [TEXT, CALL, MIXED], ids=["text", "call", "mixed"])
async def test_turns_mean_the_same_across_wires(mine: Wire, theirs: Wire, stream: bool, turn: Turn) -> None:
    """Rule 115: one attempt, the same text and calls on every pair of wires, streamed or not."""
    taken = await take(request_of(mine, stream=stream), theirs, answer(theirs, turn, stream=stream))
    assert len(taken.sent) == 1
    assert [attempt.verdict for attempt in taken.record.attempts] == [
        Verdict.CALLED if turn.calls else Verdict.ANSWERED
    ]
    assert taken.streamed is stream
    if stream:
        reply = taken.reply(mine)
        assert said(reply) == "".join(part.text for part in turn.parts if isinstance(part, Say))
        assert [(call.name, json.loads(call.arguments_json)) for call in reply.calls] == [
            (call.name, call.arguments) for call in turn.calls
        ]


@pairs
async def test_answers_in_the_other_form(mine: Wire, theirs: Wire) -> None:
    """Rule 115: a server that streams unasked, or does not stream when asked, is understood."""
    streamed = await take(request_of(mine), theirs, answer(theirs, MIXED, stream=True))
    assert not streamed.streamed
    assert b"Es regnet." in streamed.body
    whole = await take(request_of(mine, stream=True), theirs, answer(theirs, MIXED, stream=False))
    assert whole.streamed
    assert said(whole.reply(mine)) == "Es regnet."


@wires
async def test_off_is_the_plain_exchange(wire: Wire) -> None:
    """Rule 70: under `off` nothing is judged; what would be a text call passes as it is."""
    upstream = answer(wire, MARKUP, stream=False)
    taken = await take(
        request_of(wire, tool_choice=force(wire)), wire, upstream, controls=Controls(protocol=Protocol.OFF)
    )
    assert taken.body == await upstream.read()
    assert (taken.record.protocol, taken.record.attempts) == ("off", [])


def room(wire: Wire) -> int | None:
    """The limit that `body_of` sets, where its wire needs one."""
    return 500 if wire is Wire.MESSAGES else None


def shortened(mine: Wire, theirs: Wire) -> list[dict[str, Any]]:
    """What is sent for a stream whose first call was cut: the request, and once more with the wish for less."""
    return [carried(mine, theirs, *steps, asks_stream=True, limit=room(mine)) for steps in ((), (WORDS.truncated,))]


# --- retries ---------------------------------------------------------------------------------------------------------


@wires
@streaming
async def test_text_calls_are_discarded_and_tried_again(wire: Wire, stream: bool) -> None:
    """Rules 45, 46, 47, 53: same bytes, then a reminder; not one byte of the markup reaches the caller."""
    answers = [answer(wire, turn, stream=stream, number=number) for number, turn in enumerate([MARKUP, MARKUP, CALL])]
    request = request_of(wire, stream=stream)
    taken = await take(request, wire, *answers, controls=NATIVE)
    assert taken.raw[:2] == [request.body] * 2
    assert taken.sent[2:] == [with_steps(wire, body_of(wire, stream=stream), WORDS.text_call)]
    assert b"tool_call>" not in taken.body
    assert [attempt.verdict for attempt in taken.record.attempts] == [
        Verdict.TEXT_CALL,
        Verdict.TEXT_CALL,
        Verdict.CALLED,
    ]
    if stream:
        assert [call.name for call in taken.reply(wire).calls] == ["weather"]


@wires
@streaming
async def test_spent_text_calls_are_a_typed_error(wire: Wire, stream: bool) -> None:
    """Rules 47, 48: two retries, then the error with the record of every attempt."""
    answers = [answer(wire, MARKUP, stream=stream) for _ in range(3)]
    body = body_of(wire, stream=stream)
    sends = [body, body, with_steps(wire, body, WORDS.text_call)]
    with pytest.raises(TextToolCallError) as caught:
        await take(request_of(wire, stream=stream), wire, *answers, controls=NATIVE, sends=sends)
    assert caught.value.details is not None
    assert [entry["remedy"] for entry in caught.value.details["attempts"]] == ["resample", "remind", "fail"]
    assert "tool_call>" not in json.dumps(caught.value.details)


@pairs
async def test_a_text_call_behind_released_text_is_salvaged(mine: Wire, theirs: Wire) -> None:
    """Rules 51, 53: text was streamed, the call behind it is complete and valid: it becomes a real one."""
    turn = Turn(Say("Let me see.\n" + str(MARKUP.parts[0].text if isinstance(MARKUP.parts[0], Say) else "")))
    pieces = stream_reply(turn, theirs, body_of(theirs, stream=True), Stamp(0))
    taken = await take(request_of(mine, stream=True), theirs, FakeReply(*pieces, headers=SSE), controls=NATIVE)
    assert len(taken.sent) == 1
    assert b"tool_call>" not in taken.body
    reply = taken.reply(mine)
    assert said(reply).strip() == "Let me see."
    assert [(call.name, json.loads(call.arguments_json)) for call in reply.calls] == [("weather", {"city": "Bern"})]


@pairs
async def test_only_calls_are_added_to_released_text(mine: Wire, theirs: Wire) -> None:
    """Rules 29, 135: after text went out, the next attempt's call is added and its text is dropped."""
    again = Turn(Say("Dropped."), Call("weather", {"city": "Bern"}))
    answers = [answer(theirs, CUT, stream=True), answer(theirs, again, stream=True, number=1)]
    taken = await take(request_of(mine, stream=True), theirs, *answers, sends=shortened(mine, theirs))
    reply = taken.reply(mine)
    assert said(reply) == "Hm."
    assert [json.loads(call.arguments_json) for call in reply.calls] == [{"city": "Bern"}]
    assert b"Dropped" not in taken.body


@pairs
async def test_after_released_text_failure_is_an_event(mine: Wire, theirs: Wire) -> None:
    """Rule 135: text went out, the call stays cut: the stream ends with the wire's own error."""
    answers = [answer(theirs, CUT, stream=True, number=number) for number in range(2)]
    taken = await take(request_of(mine, stream=True), theirs, *answers, sends=shortened(mine, theirs))
    last = decoded(mine, taken.body)[-1]
    assert isinstance(last, Failed)
    assert last.error.message.startswith("TruncatedReply: ")
    assert taken.record.outcome is OutcomeKind.FAILURE


@pairs
async def test_a_refusal_after_released_text_is_an_event(mine: Wire, theirs: Wire) -> None:
    """Rule 135, contract 8: also where the next attempt is refused with an error the wire streams by itself."""
    words = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
    answers = [answer(theirs, CUT, stream=True), refusal(theirs, Fail(400, words))]
    taken = await take(request_of(mine, stream=True), theirs, *answers, sends=shortened(mine, theirs))
    last = decoded(mine, taken.body)[-1]
    assert isinstance(last, Failed)
    assert words in last.error.message


@wires
@streaming
async def test_the_ceiling_bounds_everything(wire: Wire, stream: bool) -> None:
    """Rule 96: whatever the limits of the classes, one call and as many extra ones as the ceiling says."""
    controls = Controls(limits=Limits(extra_calls=3, text_call=9, truncated=9, empty=9, bad_arguments=9))
    cycle = [Turn(Say(" ")), Turn(Call("weather", '{"city')), Turn(Call("weather", {"city": [1]})), Turn(Say(" "))]
    answers = [answer(wire, turn, stream=stream) for turn in cycle]
    progress, body = TurnProgress(), body_of(wire, stream=stream)
    misfit = WORDS.bad_arguments.format(problem="weather: city: string")
    sends = [body, *[with_steps(wire, body, words) for words in (WORDS.empty, WORDS.truncated, misfit)]]
    with pytest.raises(MustcallError) as caught:
        await take(request_of(wire, stream=stream), wire, *answers, controls=controls, progress=progress, sends=sends)
    assert caught.value.code == "empty"
    assert progress.record is not None
    assert progress.record.calls == 4


@wires
@streaming
async def test_usage_is_the_delivered_attempts(wire: Wire, stream: bool) -> None:
    """Rule 114: clients steer their context by it; what discarded attempts took is in the record."""
    usages = [Usage(input_tokens=10, output_tokens=1), Usage(input_tokens=20, output_tokens=2)]
    turns = [Turn(Say(" "), usage=usages[0]), Turn(Say("Yes."), usage=usages[1])]
    fields: dict[str, Any] = {"stream_options": {"include_usage": True}} if wire is Wire.CHAT and stream else {}
    answers = [answer(wire, turn, stream=stream, number=number, **fields) for number, turn in enumerate(turns)]
    body = body_of(wire, stream=stream, **fields)
    sends = [body, with_steps(wire, body, WORDS.empty)]
    taken = await take(request_of(wire, stream=stream, **fields), wire, *answers, sends=sends)
    if stream:
        usage = taken.reply(wire).usage
        assert usage is not None
        assert (usage.input_tokens, usage.output_tokens) == (20, 2)
    else:
        told = json.loads(taken.body)["usage"]
        assert {told.get("prompt_tokens", told.get("input_tokens"))} == {20}
    total = taken.record.usage
    assert total is not None
    assert (total.input_tokens, total.output_tokens) == (30, 3)


# --- forces ----------------------------------------------------------------------------------------------------------


@pairs
@streaming
async def test_a_missed_force_is_held_and_climbs(mine: Wire, theirs: Wire, stream: bool) -> None:
    """Rules 22, 53, 140: an unknown model: the choice as it came, then the call as a schema answer; prose stays here.

    The force is streamed, whoever asks (rule 137); what is constrained ends by itself.
    """
    answers = [answer(theirs, TEXT, stream=True), answer(theirs, WRITTEN, stream=stream, number=1)]
    sends = [
        carried(mine, theirs, asks_stream=stream, stream=True, choice="weather", limit=room(mine)),
        as_schema_answer(mine, theirs, asks_stream=stream, limit=room(mine)),
    ]
    taken = await take(request_of(mine, stream=stream, tool_choice=force(mine)), theirs, *answers, sends=sends)
    assert b"rain" not in taken.body
    assert b"weather" in taken.body
    assert [attempt.verdict for attempt in taken.record.attempts] == [Verdict.FORCE_MISSED, Verdict.CALLED]
    assert taken.record.force == "met"


@pairs
@streaming
async def test_an_answer_stays_in_context_of_a_directive(mine: Wire, theirs: Wire, stream: bool) -> None:
    """Rules 25, 53: without schema output a directive follows the ignored choice, the answer before it; prose stays."""
    answers = [answer(theirs, turn, stream=True, number=number) for number, turn in enumerate([TEXT, CALL])]
    operator = OperatorSettings(overrides=read_overrides([{"models": ["m"], "schema_output": False}]))
    turns = Turns(FakeTransport(()), FakeClock(), operator)
    first, second = (words.format(tool="weather") for words in WORDS.call_named[:2])
    sends = [
        carried(mine, theirs, *steps, asks_stream=stream, stream=True, choice=choice, limit=room(mine))
        for steps, choice in (((), "weather"), ((first, Assistant("It is going to rain."), second), "auto"))
    ]
    request = request_of(mine, stream=stream, tool_choice=force(mine))
    taken = await take(request, theirs, *answers, turns=turns, sends=sends)
    assert b"rain" not in taken.body
    assert b"weather" in taken.body
    assert taken.record.force == "met"


async def test_an_unmet_force_by_setting() -> None:
    """Rule 27: a typed error with the text in it, or the reply as it is, when every rung was asked once."""
    request = request_of(Wire.CHAT, tool_choice="required")
    streamed = (True, False, True, True)  # native, schema, soft, text

    def turns() -> list[FakeReply]:
        return [answer(Wire.CHAT, TEXT, stream=stream) for stream in streamed]

    chat = (Wire.CHAT, Wire.CHAT)
    firm = (WORDS.call_any[0], Assistant("It is going to rain."), WORDS.call_any[1])
    in_text = carried(*chat, WORDS.call_any[0], stream=True)
    del in_text["tools"]
    in_text["messages"].insert(0, {"role": "system", "content": TOLD})
    sends = [
        carried(*chat, stream=True, choice="required"),
        as_schema_answer(*chat),
        carried(*chat, *firm, stream=True, choice="auto"),
        in_text,
    ]
    with pytest.raises(ForceUnmet) as caught:
        await take(request, Wire.CHAT, *turns(), sends=sends)
    assert caught.value.details is not None
    assert caught.value.details["text"] == "It is going to rain."
    rungs = [attempt["rung"] for attempt in caught.value.details["attempts"]]
    assert rungs == ["native", "schema", "soft", "text"]
    taken = await take(request, Wire.CHAT, *turns(), controls=Controls(on_unmet=OnUnmet.ANSWER), sends=sends)
    assert (taken.record.force, taken.record.outcome) == ("unmet", OutcomeKind.ANSWER)
    assert b"rain" in taken.body


@pytest.mark.parametrize("configured", [False, True], ids=["believed", "configured"])
async def test_a_refused_force_is_learnt_for_the_process(configured: bool) -> None:
    """Rules 33, 139: the 400 switches to the soft plan, and the next turn of that model begins with it.

    Unless the operator said that the force works: that is tried every time.
    """
    model = "claude-haiku-5-5"  # its profile says that it can be forced while it thinks
    facts = read_overrides([{"models": [model], "forced": "always"}]) if configured else ()
    turns = Turns(FakeTransport(()), FakeClock(), OperatorSettings(overrides=facts))
    fields: dict[str, Any] = {
        "model": model,
        "tool_choice": force(Wire.MESSAGES),
        "thinking": {"type": "enabled", "budget_tokens": 100},
    }
    request = request_of(Wire.MESSAGES, **fields)
    words = "Thinking may not be enabled when tool_choice forces tool use."
    forced = body_of(Wire.MESSAGES, **fields)
    soft = {**forced, "tool_choice": {"type": "auto"}}
    soft = with_steps(Wire.MESSAGES, soft, WORDS.call_named[0].format(tool="weather"))
    for number, sends in enumerate([[forced, soft], [forced, soft] if configured else [soft]]):
        replies = [refusal(Wire.MESSAGES, Fail(400, words))] if len(sends) > 1 else []
        replies.append(answer(Wire.MESSAGES, CALL, stream=False, number=number))
        taken = await take(request, Wire.MESSAGES, *replies, turns=turns, model=model, sends=sends)
        assert ("learnt" in taken.kinds) is (len(sends) > 1)


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
