"""What a turn teaches the next one (rule 139): where its ladder begins, what is enforced, which text format is shown.

Bodies are seen from both ends of real gateways; what needs a clock or the counts themselves, on a fake transport.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from mustcall.core.errors import ForceUnmet, MustcallError, UpstreamTimeout, UpstreamUnavailable
from mustcall.core.origin import Wire
from mustcall.engine.exchange import StreamedReply
from mustcall.engine.records import TurnProgress
from mustcall.engine.turns import OperatorSettings, Turns
from mustcall.policy.facts.controls import Controls, Limits, OnUnmet
from mustcall.profiles import read_overrides
from mustcall.profiles.tallies import EXPIRY, Count
from mustcall.testing import Answer, Call, Fail, Refuse, Say, Turn
from mustcall.testing.render import Stamp, build_reply, stream_reply
from mustcall.testing.transport import FakeClock, FakeReply, FakeTransport
from mustcall.upstream.seam import UpstreamCall
from rules.driving import (
    NATIVE,
    WAYS,
    WORDS,
    Stage,
    arriving,
    as_grammar,
    as_schema,
    kept,
    prompted,
    request,
    stranger,
)
from rules.forms import HERMES, INVOKE
from support.exchanging import SSE, endpoint, inbound

Json = dict[str, Any]

GOOD = Turn(Call("get_weather", {"city": "Paris"}))
WRITTEN = Turn(Say('{"name": "get_weather", "arguments": {"city": "Paris"}}'))
NO = Turn(Say("No."))
TEXT_CALL = Turn(Say(HERMES))
CALLED = (("get_weather", {"city": "Paris"}),)
FIRST, SECOND, *_ = (text.format(tool="get_weather") for text in WORDS.call_named)

OVERRIDES: list[dict[str, Any]] = [
    {"models": ["fixed*"], "forced": "unknown", "forced_by": [], "schema_output": True},
    {"models": ["obeys*"], "forced": "always"},
    {"models": ["shaped*"], "constrain_first": True},
]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One upstream behind three gateways."""
    with Stage(OperatorSettings(overrides=read_overrides(OVERRIDES)), compares=True) as opened:
        yield opened


def rungs(wire: str, model: str, *, stream: bool) -> dict[str, Json]:
    """Return the request of each rung as the first of a turn, in the order in which an unknown server is asked."""
    return {
        "native": arriving(wire, wire, stream=True, model=model, choice="get_weather"),
        "schema": as_schema(wire, wire, "get_weather", stream=stream, model=model),
        "grammar": as_grammar(wire, wire, "get_weather", stream=stream, model=model),
        "soft": arriving(wire, wire, FIRST, stream=True, model=model, choice="auto"),
        "text": prompted(wire, FIRST, stream=True, model=model),
    }


ANSWERS: dict[str, Answer] = {"schema": WRITTEN, "grammar": WRITTEN, "soft": GOOD, "text": TEXT_CALL}


@pytest.mark.parametrize("rung", ANSWERS)
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_the_next_turn_starts_with_what_worked(stage: Stage, wire: str, stream: bool, rung: str) -> None:
    """Rule 139: the rung that made the call comes first in the next turn, which is one upstream call then."""
    model = stranger()
    body = request(wire, stream=stream, model=model, choice="get_weather")
    ladder = rungs(wire, model, stream=stream)
    missed = list(ladder).index(rung)
    outcome = stage.prepare(*[NO] * missed, ANSWERS[rung]).ask(wire, body)
    assert (len(stage.bodies), stage.bodies[0], outcome.calls) == (missed + 1, ladder["native"], CALLED)
    for _ in range(2):
        outcome = stage.play(ANSWERS[rung]).ask(wire, body)
        assert stage.bodies == [ladder[rung]]
        assert (outcome.error, outcome.calls, outcome.verdicts) == ({}, CALLED, "called")


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_the_others_follow_in_their_order(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 139: where what worked fails, the rest of the ladder is still there, each rung once."""
    model = stranger()
    body = request(wire, stream=stream, model=model, choice="get_weather")
    ladder = rungs(wire, model, stream=stream)
    stage.prepare(NO, NO, WRITTEN).ask(wire, body)
    blank = Turn(Say("It is"), finish="length")  # nothing of it stays in context
    outcome = stage.play(blank, blank, blank, blank, TEXT_CALL).ask(wire, body)
    forced = arriving(wire, wire, SECOND, stream=True, model=model, choice="get_weather")
    assert stage.bodies == [ladder["grammar"], forced, ladder["schema"], ladder["soft"], ladder["text"]]
    assert outcome.calls == CALLED


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
def test_what_mostly_works_stays_first(stage: Stage, wire: str) -> None:
    """Rule 139: one miss does not outweigh the calls that came; the ladder turns when most did not come."""
    model = stranger()
    body = request(wire, model=model, choice="get_weather")
    ladder = rungs(wire, model, stream=False)
    for answers in ([GOOD], [GOOD], [NO, WRITTEN], [NO, WRITTEN], [NO, WRITTEN]):
        stage.play(*answers).ask(wire, body)
        assert stage.bodies == [ladder["native"], ladder["schema"]][: len(answers)]
    stage.play(WRITTEN).ask(wire, body)
    assert stage.bodies == [ladder["schema"]]


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
def test_a_force_that_is_obeyed_counts_as_enforced(stage: Stage, wire: str) -> None:
    """Rules 137, 139: after five calls of the provider's own a forced turn passes untouched, byte for byte."""
    model = stranger()
    body = request(wire, model=model, choice="get_weather")
    for _ in range(5):
        outcome = stage.play(GOOD).ask(wire, body)
        assert stage.bodies == [rungs(wire, model, stream=False)["native"]]
        assert "field_mapped:stream" in outcome.adaptations
    outcome = stage.play(GOOD).ask(wire, body)
    assert [one.raw for one in stage.sent] == [json.dumps(body).encode()]
    assert (outcome.calls, outcome.adaptations) == (CALLED, [])


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
def test_a_force_that_was_once_met_in_text_is_not(stage: Stage, wire: str) -> None:
    """Rule 139: a forced choice that the model met in text was not enforced, however often it is obeyed later."""
    model = stranger()
    body = request(wire, model=model, choice="get_weather")
    for answer in (TEXT_CALL, *[GOOD] * 6):
        outcome = stage.play(answer).ask(wire, body)
        assert stage.bodies == [rungs(wire, model, stream=False)["native"]]
        assert outcome.calls == CALLED


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
def test_what_the_operator_said_stands(stage: Stage, wire: str) -> None:
    """Rule 139: configured fields are not overridden: not the order, not what is enforced, not what was refused."""
    model = stranger("fixed")
    body = request(wire, model=model, choice="get_weather")
    ladder = rungs(wire, model, stream=False)
    refused = Fail(400, "response_format not supported")
    for answers, names in (
        ([NO, WRITTEN], ["native", "schema"]),
        ([NO, refused, WRITTEN], ["native", "schema", "grammar"]),
        ([NO, WRITTEN], ["native", "schema"]),
    ):
        stage.play(*answers).ask(wire, body)
        assert stage.bodies == [ladder[name] for name in names]
    other = stranger("fixed")
    for _ in range(6):
        stage.play(GOOD).ask(wire, {**body, "model": other})
        assert stage.bodies == [{**ladder["native"], "model": other}]


@pytest.mark.parametrize("model", ["obeys", NATIVE])
def test_known_enforcement_is_not_unlearnt(stage: Stage, model: str) -> None:
    """Rules 137, 139: after a turn that was not obeyed, a force that is known to work is asked for as it came."""
    if model == "obeys":
        model = stranger(model)
    body = request("chat", model=model, choice="get_weather")
    stage.prepare(NO, NO, WRITTEN).ask("chat", body)
    for _ in range(3):
        outcome = stage.play(GOOD).ask("chat", body)
        assert [one.raw for one in stage.sent] == [json.dumps(body).encode()]
        assert (outcome.calls, outcome.adaptations) == (CALLED, [])


def test_what_the_operator_put_first_stays_first(stage: Stage) -> None:
    """Rule 139: `constrain_first` is not overruled by a turn in which the directive worked."""
    model = stranger("shaped")
    body = request("chat", model=model, choice="get_weather")
    stage.prepare(NO, NO, GOOD).ask("chat", body)
    assert [one["model"] for one in stage.bodies] == [model] * 3
    stage.play(WRITTEN).ask("chat", body)
    assert stage.bodies == [rungs("chat", model, stream=False)["schema"]]


@pytest.mark.parametrize("rung", ["schema", "text"])
def test_a_turn_costs_hardly_more_than_a_call(stage: Stage, rung: str) -> None:
    """Rule 139: on a server that ignores the choice, turns after the first cost 1.5 calls at most, on the average."""
    model = stranger()
    body = request("chat", model=model, choice="get_weather")
    ladder = rungs("chat", model, stream=False)
    stage.prepare(*[NO] * list(ladder).index(rung), ANSWERS[rung]).ask("chat", body)
    calls = 0
    for turn in range(2, 43):
        stage.prepare(*([NO] if turn in (21, 41) else []), ANSWERS[rung]).ask("chat", body)
        calls += len(stage.bodies)
        assert (stage.bodies[0] == ladder["native"]) is (turn in (21, 41))
    assert calls == 41 + 2


def test_what_one_model_teaches_is_for_it_alone(stage: Stage) -> None:
    """Rule 139: another model of the same upstream, and the same model at another, begin where they would."""
    model, other = stranger(), stranger()
    stage.prepare(NO, WRITTEN).ask("chat", request("chat", model=model, choice="get_weather"))
    stage.play(GOOD).ask("chat", request("chat", model=other, choice="get_weather"))
    assert stage.bodies == [rungs("chat", other, stream=False)["native"]]
    stage.play(GOOD).ask("messages", request("messages", model=model, choice="get_weather"))
    assert stage.bodies == [rungs("messages", model, stream=False)["native"]]


def test_only_forced_turns_teach_and_are_taught(stage: Stage) -> None:
    """Rule 139: without a force nothing is counted, and what was counted changes nothing."""
    model = stranger()
    body = request("chat", model=model)
    for _ in range(6):
        stage.play(GOOD).ask("chat", body)
    stage.play(NO, WRITTEN).ask("chat", {**body, "tool_choice": "required"})
    native = arriving("chat", "chat", stream=True, model=model, choice="required")
    assert stage.bodies == [native, as_schema("chat", "chat", "required", model=model)]
    stage.play(NO).ask("chat", body)
    assert stage.bodies == [body]


# --- a stream that is refused ----------------------------------------------------------------------------------------

NO_STREAM = Fail(400, "Streaming is not supported by this server")


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
def test_a_refused_stream_is_learnt(stage: Stage, wire: str) -> None:
    """Rules 137, 139: the turn that is refused pays for it; those behind it send the caller's own bytes at once."""
    model = stranger()
    body = request(wire, model=model, choice="get_weather")
    outcome = stage.play(NO_STREAM, GOOD).ask(wire, body)
    assert stage.bodies == [rungs(wire, model, stream=False)["native"], body]
    assert "learnt:streams_forced" in outcome.adaptations
    for _ in range(2):
        outcome = stage.play(GOOD).ask(wire, body)
        assert [one.raw for one in stage.sent] == [json.dumps(body).encode()]
        assert (outcome.calls, outcome.adaptations) == (CALLED, [])


def test_a_stream_that_is_refused_later_in_the_turn(stage: Stage) -> None:
    """Rule 137: also where another refusal without a known reason came before it."""
    model = stranger()
    body = request("chat", model=model, choice="get_weather")
    stage.prepare(NO, WRITTEN).ask("chat", body)
    stage.play(Fail(400, "Bad Request"), NO_STREAM, GOOD).ask("chat", body)
    forced = arriving("chat", "chat", model=model, choice="get_weather")
    streamed = {**forced, "stream": True, "stream_options": {"include_usage": True}}
    assert stage.bodies == [rungs("chat", model, stream=False)["schema"], streamed, forced]


@pytest.mark.parametrize(
    ("refusal", "calls", "learnt"),
    [
        (Fail(400, "the upstream did not like this"), 1, False),
        (Fail(500, "stream closed"), 2, False),
        (Fail(422, "nope", param="stream"), 2, True),
        (Fail(400, "Unknown parameter: 'stream_options'"), 2, True),
    ],
    ids=["another word", "a fault", "by its field", "its options"],
)
def test_what_is_taken_for_a_refused_stream(stage: Stage, refusal: Fail, calls: int, learnt: bool) -> None:
    """Rule 139: words that only look like it and faults that may pass are not kept for a week."""
    model = stranger()
    outcome = stage.play(refusal, GOOD).ask("chat", request("chat", model=model, choice="get_weather"))
    stage.comparing.leave("it is about what is learnt; bodies: test_a_refused_stream_is_learnt")
    assert len(stage.bodies) == calls
    assert ("learnt:streams_forced" in outcome.adaptations) is learnt


# --- counts and time -------------------------------------------------------------------------------------------------


class _Endless(FakeReply):
    """A text of which each piece takes so many seconds, and whose end does not come."""

    def __init__(self, transport: "_Answering", *pieces: bytes) -> None:
        super().__init__(*pieces, headers=SSE)
        self._transport = transport

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield all but the last piece."""
        for piece in self._chunks[:-1]:
            assert isinstance(piece, bytes)
            yield piece
            self._transport.pass_time()
        self._transport.hangs.set()
        await asyncio.Event().wait()


class _Answering(FakeTransport):
    """Answers each request with the next turn, streamed where it asks for that; keeps the bodies.

    None is a reply that does not end, and goes on for `seconds` with each piece; an error is raised.
    """

    def __init__(self, clock: FakeClock, seconds: float, *turns: Turn | MustcallError | None) -> None:
        super().__init__(())
        self._clock = clock
        self._seconds = seconds
        self._turns = list(turns)
        self.bodies: list[Json] = []
        self.hangs = asyncio.Event()

    def pass_time(self) -> None:
        """Let the time of a piece pass."""
        self._clock.advance(self._seconds)

    async def send(self, call: UpstreamCall) -> FakeReply:
        body: Json = json.loads(call.body or b"")
        turn, stamp = self._turns.pop(0), Stamp(len(self.bodies))
        self.bodies.append(body)
        if isinstance(turn, MustcallError):
            raise turn
        if turn is None:
            self.pass_time()
            return _Endless(self, *stream_reply(NO, Wire.CHAT, body, stamp))
        if body.get("stream"):
            return FakeReply(*stream_reply(turn, Wire.CHAT, body, stamp), headers=SSE)
        return FakeReply(json.dumps(build_reply(turn, Wire.CHAT, body, stamp)).encode())


class Process:
    """One process of ours before an upstream of which nothing is known, far away: native, schema, soft, text."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.turns = Turns(FakeTransport(()), self.clock, OperatorSettings())
        self.transport = _Answering(self.clock, 0.0)

    @property
    def bodies(self) -> list[Json]:
        """What the last turn sent."""
        return self.transport.bodies

    async def ask(
        self,
        *answers: Turn | MustcallError | None,
        model: str = "m",
        stream: bool = False,
        controls: Controls | None = None,
        seconds: float = 1000.0,
    ) -> list[Json]:
        """Take a forced turn whose attempts are answered like this, within 100 seconds; return what was sent."""
        self.transport = _Answering(self.clock, seconds, *answers)
        self.turns._transport = self.transport
        body = json.dumps(request("chat", model=model, choice="get_weather", stream=stream)).encode()
        came = await self.turns.take(
            inbound(Wire.CHAT, body, stream=stream),
            endpoint(Wire.CHAT),
            None,
            asked=model,
            controls=controls or Controls(),
            progress=TurnProgress(),
            deadline=self.clock.monotonic() + 100,
        )
        if isinstance(came, StreamedReply):
            async for _ in came.chunks:
                pass
        return self.bodies

    @property
    def counted(self) -> dict[str, Count]:
        """What was counted of the model."""
        return {one.subject: one.count for one in self.turns.learnt.tallies.all() if one.model == "m"}

    @property
    def missed(self) -> dict[str, int]:
        """What did not make the call, and how often; nothing did."""
        assert not any(count.made for count in self.counted.values())
        return {subject: count.missed for subject, count in self.counted.items()}


def ladder_of(*, stream: bool = False) -> dict[str, Json]:
    """What `Process` sends on each rung where all before it were answered `No.`; that stays before the soft one."""
    ladder = rungs("chat", "m", stream=stream)
    soft = after_no(ladder["soft"])
    return {"native": ladder["native"], "schema": ladder["schema"], "soft": soft, "text": ladder["text"]}


def after_no(body: Json) -> Json:
    """The same request behind an answer of `No.` on another rung (rule 25)."""
    return {**body, "messages": [*body["messages"], kept("chat", "No."), {"role": "user", "content": SECOND}]}


async def test_what_is_counted() -> None:
    """Rule 139: a turn that ends with the call counts each rung and format once, with the dates of first and last."""
    process = Process()
    begun = process.clock.now()
    ladder = ladder_of()
    assert await process.ask(NO, WRITTEN) == [ladder["native"], ladder["schema"]]
    assert process.counted == {
        "rung:native": Count(0, 1, begun, begun),
        "enforced": Count(0, 1, begun, begun),
        "rung:schema": Count(1, 0, begun, begun),
    }
    process.clock.advance(60)
    assert await process.ask(WRITTEN) == [ladder["schema"]]
    assert process.counted["rung:schema"] == Count(2, 0, begun, begun + 60)
    # Only what made the call has moved to the front: the others follow in their order.
    assert await process.ask(NO, TEXT_CALL) == [ladder["schema"], after_no(ladder["native"])]
    assert process.counted["rung:schema"] == Count(2, 1, begun, begun + 60)
    assert process.counted["dialect:hermes"] == Count(1, 0, begun + 60, begun + 60)


NATIVELY = {"type": "function", "function": {"name": "get_weather"}}
ALL = {"rung:native": 1, "enforced": 1, "rung:schema": 1, "rung:soft": 1, "rung:text": 1}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_turn_that_fails_is_counted(stream: bool) -> None:
    """Rule 139: no rung made the call; where all have missed, none is better than another."""
    process = Process()
    with pytest.raises(ForceUnmet):
        await process.ask(NO, NO, NO, NO, stream=stream)
    assert process.bodies == [*ladder_of(stream=stream).values()]
    assert process.missed == ALL
    assert await process.ask(GOOD) == [ladder_of()["native"]]


async def test_a_turn_that_is_answered_instead_is_counted() -> None:
    """Rule 139: who takes an answer where no call came has not got the call."""
    process = Process()
    sent = await process.ask(NO, NO, NO, NO, controls=Controls(on_unmet=OnUnmet.ANSWER))
    assert sent == [*ladder_of().values()]
    assert process.missed == ALL


async def test_what_was_not_tried_yet_comes_before_what_missed() -> None:
    """Rule 139: a turn that could not try all rungs is followed by one that starts with the others."""
    process = Process()
    with pytest.raises(ForceUnmet):
        await process.ask(NO, NO, controls=Controls(limits=Limits(extra_calls=1)))
    assert process.bodies == [ladder_of()["native"], ladder_of()["schema"]]
    assert process.missed == {"rung:native": 1, "enforced": 1, "rung:schema": 1}
    (soft,) = await process.ask(GOOD)
    assert soft["tool_choice"] == "auto"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_without_an_end_is_counted(stream: bool) -> None:
    """Rule 139: a server that rambles into the deadline when it is forced is asked in another way the next time."""
    process = Process()
    with pytest.raises(MustcallError) as caught:
        await process.ask(None, stream=stream)
    assert caught.value.info().code == "upstream_timeout"
    assert [body["tool_choice"] for body in process.bodies] == [NATIVELY]
    assert process.missed == {"rung:native": 1, "enforced": 1, "late:native": 1}
    for _ in range(30):
        (schema,) = await process.ask(WRITTEN, stream=stream)
        assert "response_format" in schema


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "answer",
    [
        UpstreamUnavailable("reset"),
        UpstreamTimeout("silence"),
        Turn(Refuse("I cannot help with that.")),
        Turn(Say("I"), finish="content_filter"),
    ],
    ids=["reset", "silence", "refused", "filtered"],
)
async def test_what_is_not_the_rungs_fault_is_not_counted(answer: Turn | MustcallError, stream: bool) -> None:
    """Rule 139: faults on the way, refusals of content and filters say nothing about how the call was asked for."""
    process = Process()
    with contextlib.suppress(MustcallError):
        await process.ask(*[answer] * 5, stream=stream)
    assert process.bodies
    assert process.counted == {}


async def test_a_caller_who_leaves_teaches_nothing() -> None:
    """Rule 139: what was under way when the caller left is not counted."""
    process = Process()
    turn = asyncio.create_task(process.ask(None, seconds=0.0))
    await asyncio.sleep(0)
    await process.transport.hangs.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert len(process.bodies) == 1
    assert process.counted == {}


async def test_refused_rungs_are_not_counted() -> None:
    """Rules 139, 140: a refusal is a fact with its reason and its date; a rung that was not run has not missed."""
    process = Process()
    process.turns.learnt.learn("up", "m", "forced", "never", "force_unsupported", at=process.clock.now())
    (soft,) = await process.ask(GOOD)
    assert soft["tool_choice"] == "auto"
    assert set(process.counted) == {"rung:soft", "arguments"}
    (fact,) = process.turns.learnt.facts()
    assert (fact.field, fact.fact.value, fact.fact.note) == ("forced", "never", "force_unsupported")
    assert fact.at == process.clock.now()


async def test_what_was_learnt_expires() -> None:
    """Rule 139: after seven days a rung that was seen to miss is tried again, and so is what was refused."""
    process = Process()
    ladder = ladder_of()
    assert await process.ask(NO, WRITTEN) == [ladder["native"], ladder["schema"]]
    process.turns.learnt.learn("up", "m", "named", False, "named_unsupported", at=process.clock.now())
    process.clock.advance(EXPIRY - 10)
    assert await process.ask(WRITTEN) == [ladder["schema"]]
    process.clock.advance(20)
    assert await process.ask(GOOD) == [ladder["native"]]


async def test_tools_are_told_in_the_format_the_model_writes() -> None:
    """Rule 139: after three calls in one text format the text rung shows that one, and no other."""
    process = Process()
    own = Turn(Say(INVOKE))
    assert await process.ask(NO, NO, NO, own) == [*ladder_of().values()]
    for turn in range(3):
        (body,) = await process.ask(own)
        system = body["messages"][0]["content"]
        assert ("<tool_call>" in system) is (turn < 2)
        assert ('<invoke name="TOOL_NAME">' in system) is (turn == 2)
    assert process.counted["dialect:anthropic"].made == 4
