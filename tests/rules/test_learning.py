"""What a turn teaches the next one (rule 139): where its ladder begins, what is enforced, which text format is shown.

Bodies are seen from both ends of real gateways; what needs a clock or the counts themselves, on a fake transport.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mustcall.core.errors import ForceUnmet
from mustcall.core.origin import Wire
from mustcall.engine.records import Progress
from mustcall.engine.turns import House, Turns
from mustcall.policy.controls import Controls
from mustcall.profiles import read_overrides
from mustcall.profiles.tallies import EXPIRY, Count
from mustcall.testing import Answer, Call, Fail, Say, Turn
from mustcall.testing.render import Stamp, build_reply, stream_reply
from mustcall.testing.transport import FakeClock, FakeReply, FakeTransport
from mustcall.upstream.seam import UpstreamCall
from rules.driving import (
    WAYS,
    WORDS,
    Stage,
    arriving,
    as_grammar,
    as_schema,
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
]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One upstream behind three gateways."""
    with Stage(House(overrides=read_overrides(OVERRIDES))) as opened:
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
    outcome = stage.play(*[NO] * missed, ANSWERS[rung]).ask(wire, body)
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
    stage.play(NO, NO, WRITTEN).ask(wire, body)
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


def test_what_one_model_teaches_is_for_it_alone(stage: Stage) -> None:
    """Rule 139: another model of the same upstream, and the same model at another, begin where they would."""
    model, other = stranger(), stranger()
    stage.play(NO, WRITTEN).ask("chat", request("chat", model=model, choice="get_weather"))
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


# --- counts and time -------------------------------------------------------------------------------------------------


class _Answering(FakeTransport):
    """Answers each request with the next turn, streamed where it asks for that; keeps the bodies."""

    def __init__(self, *turns: Turn) -> None:
        super().__init__(())
        self._turns = list(turns)
        self.bodies: list[Json] = []

    async def send(self, call: UpstreamCall) -> FakeReply:
        body: Json = json.loads(call.body or b"")
        turn, stamp = self._turns.pop(0), Stamp(len(self.bodies))
        self.bodies.append(body)
        if body.get("stream"):
            return FakeReply(*stream_reply(turn, Wire.CHAT, body, stamp), headers=SSE)
        return FakeReply(json.dumps(build_reply(turn, Wire.CHAT, body, stamp)).encode())


class Process:
    """One process of ours before an upstream of which nothing is known, far away: native, schema, soft, text."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.turns = Turns(FakeTransport(()), self.clock, House())

    async def ask(self, *answers: Turn, model: str = "m") -> list[Json]:
        """Take a forced turn whose attempts are answered like this; return what was sent."""
        transport = _Answering(*answers)
        self.turns._transport = transport  # pyright: ignore[reportPrivateUsage]
        body = json.dumps(request("chat", model=model, choice="get_weather")).encode()
        await self.turns.take(
            inbound(Wire.CHAT, body),
            endpoint(Wire.CHAT),
            None,
            asked=model,
            controls=Controls(),
            progress=Progress(),
            deadline=self.clock.monotonic() + 100,
        )
        return transport.bodies

    @property
    def counted(self) -> dict[str, Count]:
        """What was counted of the model."""
        return {one.subject: one.count for one in self.turns.learnt.tallies.all() if one.model == "m"}


async def test_what_is_counted() -> None:
    """Rule 139: a turn that ends with the call counts each rung and format once, with the dates of first and last."""
    process = Process()
    begun = process.clock.now()
    await process.ask(NO, WRITTEN)
    assert process.counted == {
        "rung:native": Count(0, 1, begun, begun),
        "enforced": Count(0, 1, begun, begun),
        "rung:schema": Count(1, 0, begun, begun),
    }
    process.clock.advance(60)
    await process.ask(WRITTEN)
    assert process.counted["rung:schema"] == Count(2, 0, begun, begun + 60)
    await process.ask(NO, TEXT_CALL)
    assert process.counted["rung:schema"] == Count(2, 1, begun, begun + 60)
    assert process.counted["dialect:hermes"] == Count(1, 0, begun + 60, begun + 60)


async def test_a_turn_that_fails_teaches_nothing() -> None:
    """Rule 139: where no rung made the call, none is known to be better than another."""
    process = Process()
    with pytest.raises(ForceUnmet):
        await process.ask(NO, NO, NO, NO)
    assert process.counted == {}
    assert [body.get("tool_choice") for body in await process.ask(GOOD)] == [
        {"type": "function", "function": {"name": "get_weather"}}
    ]


async def test_refused_rungs_are_not_counted() -> None:
    """Rules 139, 140: a refusal is a fact with its reason and its date; a rung that was not run has not missed."""
    process = Process()
    process.turns.learnt.learn("up", "m", "forced", "never", "force_unsupported", at=process.clock.now())
    (soft,) = await process.ask(GOOD)
    assert soft["tool_choice"] == "auto"
    assert set(process.counted) == {"rung:soft"}
    (fact,) = process.turns.learnt.facts()
    assert (fact.field, fact.fact.value, fact.fact.note) == ("forced", "never", "force_unsupported")
    assert fact.at == process.clock.now()


async def test_what_was_learnt_expires() -> None:
    """Rule 139: after seven days a rung that was seen to miss is tried again, and so is what was refused."""
    process = Process()
    await process.ask(NO, WRITTEN)
    process.turns.learnt.learn("up", "m", "named", False, "named_unsupported", at=process.clock.now())
    process.clock.advance(EXPIRY - 10)
    (schema,) = await process.ask(WRITTEN)
    assert "response_format" in schema
    process.clock.advance(20)
    (native,) = await process.ask(GOOD)
    assert native["tool_choice"] == {"type": "function", "function": {"name": "get_weather"}}


async def test_tools_are_told_in_the_format_the_model_writes() -> None:
    """Rule 139: after three calls in one text format the text rung shows that one, and no other."""
    process = Process()
    own = Turn(Say(INVOKE))
    assert len(await process.ask(NO, NO, NO, own)) == 4
    for turn in range(3):
        (body,) = await process.ask(own)
        system = body["messages"][0]["content"]
        assert ("<tool_call>" in system) is (turn < 2)
        assert ('<invoke name="TOOL_NAME">' in system) is (turn == 2)
    assert process.counted["dialect:anthropic"].made == 4
