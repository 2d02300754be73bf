"""Whole turns without a network: what each attempt sends, what the caller gets, and that nothing else escapes."""

import json
from typing import Any

import pytest

from mustcall.core.errors import (
    ForceUnmet,
    MustcallError,
    TextToolCallError,
)
from mustcall.core.origin import Wire
from mustcall.core.reply import Usage
from mustcall.core.streams.events import Failed
from mustcall.core.verdict import OutcomeKind, Verdict
from mustcall.engine.records import TurnProgress
from mustcall.engine.turns import OperatorSettings, Turns
from mustcall.policy.facts.controls import Controls, Limits, OnUnmet
from mustcall.policy.facts.profile import Protocol
from mustcall.profiles import read_overrides
from mustcall.testing import Call, Fail, Say, Turn
from mustcall.testing.render import Stamp, stream_reply
from mustcall.testing.transport import FakeClock, FakeReply, FakeTransport
from support.exchanging import SSE, decoded, pairs, said, streaming, wires
from support.forcing import Assistant
from support.sending import as_schema_answer, carried, with_steps
from support.splits import splits
from support.turning import (
    CALL,
    CUT,
    MARKUP,
    MIXED,
    NATIVE,
    TEXT,
    TOLD,
    WORDS,
    WRITTEN,
    answer,
    body_of,
    force,
    refusal,
    request_of,
    take,
)

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
