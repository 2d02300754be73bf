"""Both ways of asking, against a scripted upstream: exactly what is sent, what counts, what ends a run."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.engine.turns import OperatorSettings, Turns
from mustcall.evals.asking.arms import EvalSubject, ask_bare, ask_engine, make_askers, warm_up
from mustcall.evals.asking.client_requests import ask, greet
from mustcall.evals.asking.rows import Arm, Ending
from mustcall.evals.asking.runner import ask_all
from mustcall.evals.prompts import EvalPrompt, as_question
from mustcall.evals.report.pairs import compare, trial_of
from mustcall.evals.report.results import Pair, Trial
from mustcall.evals.scoring import Score
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Protocol
from mustcall.policy.failures.backoff import Backoff
from mustcall.profiles import read_overrides
from mustcall.testing import Answer, Call, Fail, Raw, Reset, Say, Script, ScriptedUpstream, Turn
from mustcall.testing.transport import FakeClock
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.http import HttpTransport
from support.compared import leave
from support.evaluating import OSLO, PROMPTS, SAMPLING, right_arguments

ALL = Score(valid=True, right_tool=True, right_arguments=True)
PROSE = Turn(Say("Rainy, I should think."))
LIST = PROMPTS["list-tmp"]
TOKYO = PROMPTS["time-tokyo"]
Way = Callable[[EvalSubject, EvalPrompt], Awaitable[Trial]]
OBEYS = OperatorSettings(overrides=read_overrides([{"models": ["*"], "forced": "always", "reasoning": "never"}]))
#: Why the bodies of a forced turn are not written out here: a run only counts them.
LADDER = "what a forced turn sends rung by rung is compared in tests/rules"


def right(prompt: EvalPrompt) -> Turn:
    """The turn of a model that calls as it should."""
    return Turn(Call(prompt.wants, right_arguments(prompt)))


def leaked(prompt: EvalPrompt) -> Turn:
    """The turn of a model that writes the right call into its text."""
    written = json.dumps({"name": prompt.wants, "arguments": right_arguments(prompt)})
    return Turn(Say(f"<tool_call>{written}</tool_call>"))


@asynccontextmanager
async def measuring(
    script: Script | list[Answer], wire: Wire = Wire.CHAT, operator: OperatorSettings | None = None, retries: int = 0
) -> AsyncGenerator[tuple[EvalSubject, ScriptedUpstream]]:
    """A subject on a scripted upstream."""
    transport, clock = HttpTransport(), FakeClock()
    with ScriptedUpstream(script, strict=True) as upstream:
        base = upstream.url + "/v1"
        endpoint = Endpoint(name="it", wire=wire, base_url=base, api_key="any", backoff=Backoff(retries=retries))
        turns = Turns(transport, clock, operator)
        try:
            yield (
                EvalSubject(
                    endpoint=endpoint, model="m", turns=turns, transport=transport, clock=clock, sampling=SAMPLING
                ),
                upstream,
            )
        finally:
            await transport.close()


async def try_bare(subject: EvalSubject, prompt: EvalPrompt) -> Trial:
    """Ask the upstream itself."""
    return trial_of(prompt, await ask_bare(subject, as_question(prompt)))


async def try_mustcall(subject: EvalSubject, prompt: EvalPrompt) -> Trial:
    """Take a turn."""
    return trial_of(prompt, await ask_engine(subject, as_question(prompt)))


async def pairs_of(subject: EvalSubject, *prompts: EvalPrompt) -> list[Pair]:
    """Run to the end."""
    return [pair async for pair in compare(prompts, make_askers(subject), name="it")]


@pytest.mark.parametrize("wire", Wire)
async def test_bare_is_one_call_as_the_client_wrote_it(wire: Wire) -> None:
    """The bare arm sends the client's own body once, whatever comes of it, and counts the server's calls."""
    async with measuring([right(OSLO), PROSE], wire) as (subject, upstream):
        good, bad = await try_bare(subject, OSLO), await try_bare(subject, OSLO)
    assert [request.body for request in upstream.requests] == [ask(as_question(OSLO), wire, "m", SAMPLING)] * 2
    assert (good.ending, good.score, good.sends) == (Ending.CALLED, ALL, 1)
    assert (bad.ending, bad.score, bad.sends) == (Ending.ANSWERED, Score(), 1)
    assert (good.input_tokens, good.output_tokens) == (25, 12)
    assert bad.text == "Rainy, I should think."


@pytest.mark.parametrize("wire", Wire)
async def test_a_healthy_model_gains_and_costs_nothing(wire: Wire) -> None:
    """Rule 149: bare and through mustcall, paired: of a healthy model both send the same bytes once and score alike."""
    async with measuring(lambda _: right(OSLO), wire, OBEYS) as (subject, upstream):
        (pair,) = await pairs_of(subject, OSLO)
    assert [request.raw for request in upstream.requests] == [upstream.requests[0].raw] * 2
    assert pair.bare.score == pair.mustcall.score == ALL
    assert pair.bare.sends == pair.mustcall.sends == 1
    assert pair.mustcall.verdicts == ("called",)


async def test_mustcall_keeps_its_contract_and_counts_its_calls() -> None:
    """Prose where a call was demanded is tried again; every upstream call and every token of it is counted."""
    broken = Turn(Say('<tool_call>{"name": "get_weather", "arguments": {"town": "Oslo"}}</tool_call>'))
    async with measuring([PROSE, PROSE, broken, right(OSLO)]) as (subject, upstream):
        leave(upstream, LADDER)
        bare, must = await try_bare(subject, OSLO), await try_mustcall(subject, OSLO)
    assert bare.score == Score()
    assert must.score == ALL
    assert must.sends == len(upstream.requests) - 1 == 3
    assert must.verdicts == ("force_missed", "text_call", "called")
    assert (must.input_tokens, must.output_tokens) == (75, 36)


async def test_a_call_in_the_text_is_no_call() -> None:
    """Bare, a call in the text is noted and does not count; through mustcall it is a call."""
    async with measuring(lambda _: leaked(TOKYO)) as (subject, upstream):
        bare, must = await try_bare(subject, TOKYO), await try_mustcall(subject, TOKYO)
    assert (bare.ending, bare.written, bare.score) == (Ending.ANSWERED, True, Score())
    assert (must.ending, must.written, must.score) == (Ending.CALLED, False, ALL)
    assert len(upstream.requests) == 2


async def test_a_contract_that_cannot_be_kept_is_an_error() -> None:
    """A model that never calls gives a typed error through mustcall: failed, not valid, and every attempt counted."""
    async with measuring(lambda _: PROSE) as (subject, upstream):
        leave(upstream, LADDER)
        must = await try_mustcall(subject, OSLO)
    assert (must.ending, must.score) == (Ending.FAILED, Score())
    assert must.fault is not None
    assert (must.fault.code, must.fault.upstream) == ("force_unmet", False)
    assert must.sends == len(upstream.requests) > 1


@pytest.mark.parametrize("arm", [try_bare, try_mustcall], ids=["bare", "mustcall"])
async def test_transport_failures_are_tried_again_alike(arm: Way) -> None:
    """A 429 is tried again on both arms, by the same rule, and counted."""
    async with measuring([Fail(429, "slow down"), right(TOKYO)], retries=2) as (subject, upstream):
        leave(upstream, "the same bytes again: compared in tests/rules/test_transport_rules.py")
        trial = await arm(subject, TOKYO)
    assert trial.score == ALL
    assert upstream.requests[0].raw == upstream.requests[1].raw
    assert trial.sends == len(upstream.requests) == 2


@pytest.mark.parametrize("arm", [try_bare, try_mustcall], ids=["bare", "mustcall"])
@pytest.mark.parametrize("answer", [Fail(400, "no such field"), Raw(200, b"<html>")], ids=["refused", "garbage"])
async def test_upstream_errors_end_a_trial(arm: Way, answer: Answer) -> None:
    """A refusal and an answer that is none end the trial, and are the upstream's fault."""
    async with measuring(lambda _: answer) as (subject, _):
        trial = await arm(subject, TOKYO)
    assert (trial.ending, trial.score) == (Ending.FAILED, Score())
    assert trial.fault is not None
    assert trial.fault.upstream


async def test_arms_take_turns_in_going_first() -> None:
    """Every other prompt goes through mustcall first, and each arm is told of."""
    order: list[Arm] = []

    def note(arm: Arm, trial: Trial) -> None:
        assert trial.sends == 1
        order.append(arm)

    async with measuring(lambda _: PROSE) as (subject, upstream):
        pairs = [pair async for pair in compare([TOKYO] * 3, make_askers(subject), name="it", note=note)]
    assert order == [Arm.BARE, Arm.MUSTCALL, Arm.MUSTCALL, Arm.BARE, Arm.BARE, Arm.MUSTCALL]
    assert len(upstream.requests) == 6
    assert [pair.prompt for pair in pairs] == ["time-tokyo"] * 3
    assert pairs[0].characters > len(TOKYO.says) + len(json.dumps(TOKYO.tools[0].parameters)) // 2


async def test_arms_take_turns_in_each_set() -> None:
    """Rule 149: each question is asked in both arms; in each set they take turns, and the row says who went first."""
    auto, named = as_question(TOKYO), as_question(LIST)
    async with measuring(lambda _: PROSE, operator=OperatorSettings(controls=Controls(protocol=Protocol.OFF))) as (
        subject,
        _,
    ):
        rows = [row async for row in ask_all([auto, named] * 2, make_askers(subject), name="it")]
    assert [(row.set, row.arm, row.first) for row in rows] == [
        ("auto", Arm.BARE, True),
        ("auto", Arm.MUSTCALL, False),
        ("named", Arm.BARE, True),
        ("named", Arm.MUSTCALL, False),
        ("auto", Arm.MUSTCALL, True),
        ("auto", Arm.BARE, False),
        ("named", Arm.MUSTCALL, True),
        ("named", Arm.BARE, False),
    ]


async def test_a_dead_upstream_ends_the_run() -> None:
    """An upstream that answers neither arm of the first prompt is an error that says why, after two calls."""
    async with measuring(lambda _: Fail(401, "wrong key")) as (subject, upstream):
        with pytest.raises(ConfigError, match=r"wrong key.*the key"):
            await pairs_of(subject, TOKYO, OSLO)
    assert len(upstream.requests) == 2


async def test_a_later_outage_is_a_result() -> None:
    """Once something was measured, an outage is counted and the run goes on."""
    script: list[Answer] = [
        right(TOKYO),
        right(TOKYO),
        Fail(500, "down"),
        Fail(500, "down"),
        right(TOKYO),
        right(TOKYO),
    ]
    async with measuring(script) as (subject, _):
        pairs = await pairs_of(subject, TOKYO, TOKYO, TOKYO)
    assert [pair.bare.ending for pair in pairs] == [Ending.CALLED, Ending.FAILED, Ending.CALLED]


async def test_a_model_that_fails_both_ways_is_no_dead_upstream() -> None:
    """A named tool the server refuses to force, and a model that never calls it: measured, not given up."""

    def script(request: object) -> Answer:
        forced = '"tool_choice":{' in getattr(request, "raw", b"").decode()
        return Fail(400, "tool_choice is not supported") if forced else PROSE

    async with measuring(script) as (subject, upstream):
        leave(upstream, LADDER)
        (pair,) = await pairs_of(subject, LIST)
    assert pair.bare.fault is not None
    assert pair.bare.fault.upstream
    assert pair.mustcall.fault is not None
    assert not pair.mustcall.fault.upstream


@pytest.mark.parametrize("answer", [PROSE, Fail(500, "loading"), Reset(PROSE)], ids=["answered", "refused", "reset"])
async def test_warming_up_is_one_call_and_tells_nothing(answer: Answer) -> None:
    """Whatever comes of the greeting, it is one call without tools, and no error."""
    async with measuring([answer]) as (subject, upstream):
        await warm_up(subject)
    assert [request.body for request in upstream.requests] == [greet(Wire.CHAT, "m")]
