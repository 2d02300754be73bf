"""Roles that fail, rounds, and what is around a coordinated answer: events, sessions, cancelling."""

import asyncio
from typing import Any

import pytest

from mustcall import Upstream, coordinate_sync
from mustcall.core.errors import ConfigError, InvalidRequest, MustcallError, QuorumMissed, RoleFailed
from mustcall.engine.coordinating import (
    CoordinateEvent,
    InnerStatus,
    Participant,
    RoleFinished,
    RoleKind,
    RoleProgress,
    RoleStarted,
)
from mustcall.engine.coordinating.prompts import INSTRUCTIONS
from mustcall.policy.facts.wording import fill
from mustcall.testing import Fail, Hang, Refuse, Say, Turn
from support.agents import get_weather, user, wrapped
from support.coordinating import (
    AGREES,
    ASKED,
    FINAL,
    PROPOSAL,
    QUESTION,
    QUOTED,
    REVISE,
    WORDS,
    always,
    body,
    models,
    weather,
)

# --- failures -----------------------------------------------------------------------------------------------------


async def test_a_failing_critic_does_not_sink_the_run() -> None:
    """A quorum of critics is enough; the failed one is on record, and the synthesizer hears the others."""
    with models(critic_1=[Fail(400, "no")]) as panel:
        result = await panel.ask()
        asked = panel.bodies("synthesizer")[0]["messages"][1]["content"]
    failed = next(role for role in result.roles if role.name == "critic_1")
    assert failed.error is not None
    assert (failed.output, failed.error.message, len(result.critiques)) == (None, "no", 1)
    assert "critic_2" in asked
    assert "critic_1" not in asked
    assert result.answer == "It is 330 metres high."


async def test_quorum() -> None:
    """Fewer critics than the quorum are a typed error that says what each failed with; 0 can do without any."""
    with models(critic_1=[Fail(400, "no")]) as panel:
        with pytest.raises(QuorumMissed, match="1 of 2 critics") as raised:
            await panel.ask(quorum=2, session="s1")
        assert panel.bodies("synthesizer") == []
    assert raised.value.details is not None
    assert raised.value.details["session"] == "s1"
    assert raised.value.details["errors"].keys() == {"critic_1"}
    with models(critic_1=[Fail(400, "no")], critic_2=[Turn(Refuse("I will not."))]) as panel:
        result = await panel.ask(quorum=0)
    assert (result.answer, result.critiques) == ("It is 330 metres high.", ())
    refused = next(role for role in result.roles if role.name == "critic_2")
    assert refused.error is not None
    assert refused.error.code == "refused"


@pytest.mark.parametrize("name", ["proposer", "synthesizer"])
async def test_roles_that_are_needed(name: str) -> None:
    """Rule 91: a proposer or synthesizer that gives no usable answer is a typed error with the real cause."""
    bad = Turn(Say("I think it is high."))
    with models(**{name: [bad, bad]}) as panel:
        with pytest.raises(RoleFailed, match=f"the {name} .*2 attempts made") as raised:
            await panel.ask()
        turns = [user("chat", ASKED[name]), user("chat", fill(WORDS.bad_answer, problem="top level: valid JSON"))]
        sends = [body("chat", name), body("chat", name, turns)]
        assert panel.bodies(name) == sends
    assert raised.value.details is not None
    assert raised.value.details["error"]["code"] == "bad_answer"
    with models(**{name: [bad, bad]}) as panel:
        result = await panel.ask(check=False)
        assert panel.bodies(name) == sends
    assert result.error is not None
    assert (result.answer, result.error.code) == (None, "role_failed")
    assert result.roles[-1].attempts == 2


# --- rounds -------------------------------------------------------------------------------------------------------


async def test_rounds() -> None:
    """In a later round the proposer reads its last proposal and what critics said; the last round is concluded from."""
    better = Turn(Say('{"answer":"330 m, says its owner"}'))
    with models(proposer=[PROPOSAL, better], critic_1=[REVISE, AGREES], critic_2=[AGREES, AGREES]) as panel:
        result = await panel.ask(rounds=5)
        asked = panel.bodies("proposer")[1]["messages"]
        concluded = panel.bodies("synthesizer")[0]["messages"][1]["content"]
    said_1 = wrapped("Stance: revise\nProblems:\n- no source\nSuggestion: name one", "critic_1")
    said_2 = wrapped("Stance: agree", "critic_2")
    assert [turn["role"] for turn in asked] == ["system", "user"]
    assert asked[1]["content"] == (
        f"{QUESTION}\n\nThe last proposal:\n{QUOTED}\n\nWhat a critic says:\n{said_1}\n\nWhat a critic says:\n{said_2}"
        "\n\nPropose a better answer."
    )
    assert (result.rounds, [role.round for role in result.roles]) == (2, [1, 1, 1, 2, 2, 2, 2])
    assert "330 m, says its owner" in concluded
    assert "no source" not in concluded


async def test_rounds_are_bounded() -> None:
    """Critics that never agree are heard so many times and no more; agreement in the first round ends the debate."""
    with models(proposer=always(PROPOSAL), critic_1=always(REVISE), critic_2=always(REVISE)) as panel:
        result = await panel.ask(rounds=3)
        assert [len(panel.bodies(name)) for name in ("proposer", "critic_1", "synthesizer")] == [3, 3, 1]
    assert result.rounds == 3
    with models() as panel:
        assert (await panel.ask(rounds=3)).rounds == 1


async def test_a_later_round_that_fails_ends_the_debate() -> None:
    """The answer is then made from the last complete round."""
    with models(proposer=[PROPOSAL, Fail(400, "no")], critic_1=[REVISE]) as panel:
        result = await panel.ask(rounds=3)
    assert (result.rounds, result.answer) == (1, "It is 330 metres high.")
    assert [role.error is not None for role in result.roles] == [False, False, False, True, False]


# --- around it ----------------------------------------------------------------------------------------------------


async def test_critics_work_side_by_side() -> None:
    """No critic waits for another: the second is asked while the first has not answered."""
    with models(critic_1=[Hang(AGREES)], critic_2=[Hang(AGREES)]) as panel:
        asking = asyncio.create_task(panel.ask())
        critics = [panel.upstreams[name] for name in ("critic_1", "critic_2")]
        for critic in critics:
            await critic.await_requests(1)
        assert panel.bodies("synthesizer") == []
        for critic in critics:
            critic.release()
        assert len((await asking).critiques) == 2


async def test_cancelling_ends_everything() -> None:
    """Who stops waiting stops the roles: their upstreams are cut off, and nobody is asked any more."""
    with models(critic_1=[Hang(AGREES)], critic_2=[Hang(AGREES)]) as panel:
        asking = asyncio.create_task(panel.ask())
        critics = [panel.upstreams[name] for name in ("critic_1", "critic_2")]
        for critic in critics:
            await critic.await_requests(1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        for critic in critics:
            await critic.await_connections(0)
        assert panel.bodies("synthesizer") == []


async def test_events() -> None:
    """What happens is told as it happens: each role begins, makes calls and ends; a broken callback ends nothing."""
    seen: list[CoordinateEvent] = []

    async def see(event: CoordinateEvent) -> None:
        seen.append(event)
        raise ValueError("mine")

    with models(proposer=[weather(), PROPOSAL]) as panel:
        result = await panel.ask(worker_tools=[get_weather], on_event=see)
    started = [event.name for event in seen if isinstance(event, RoleStarted)]
    finished = [event.run for event in seen if isinstance(event, RoleFinished)]
    assert started == ["proposer", "critic_1", "critic_2", "synthesizer"]
    assert tuple(finished) == result.roles
    kinds = [
        type(event.event).__name__ for event in seen if isinstance(event, RoleProgress) and event.name == "proposer"
    ]
    assert kinds == ["StepFinished", "CallStarted", "CallFinished", "TextDelta", "StepFinished", "RunFinished"]


async def test_participants() -> None:
    """A participant may have instructions and a model of its own."""
    with models() as panel:
        critic = Participant(panel.at("critic_1"), model="other", instructions="Look at the numbers.")
        result = await panel.ask(critics=[critic])
        sent = panel.bodies("critic_1")[0]
    assert sent["model"] == "other"
    assert sent["messages"][0]["content"].startswith(f"{INSTRUCTIONS[RoleKind.CRITIC]}\n\nLook at the numbers.\n\n")
    assert [role.model for role in result.roles] == ["m", "other", "m"]


async def test_one_session_id() -> None:
    """One id stands for the whole: the given one, or a new one."""
    scripts = {"proposer": PROPOSAL, "critic_1": AGREES, "critic_2": AGREES, "synthesizer": FINAL}
    with models(**{name: always(answer) for name, answer in scripts.items()}) as panel:
        ids = [(await panel.ask(session=given)).session for given in ("s1", None, None)]
    assert ids[0] == "s1"
    assert ids[1] != ids[2]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"critics": []}, "no critic"),
        ({"quorum": 3}, "quorum"),
        ({"quorum": -1}, "quorum"),
        ({"rounds": 0}, "rounds"),
        ({"hop_budget": -1}, "hop_budget"),
        ({"worker_tools": [3]}, "no tool"),
        ({"worker_tools": "fetch"}, "list of tools"),
        ({"critics": ["chat=http://127.0.0.1:9/v1"]}, "no model is named"),
        ({"critics": ["nonsense"]}, "wire=URL"),
        ({"critics": "chat=http://127.0.0.1:9/v1#m"}, "critics must be a list"),
        ({"critics": Upstream("chat=http://127.0.0.1:9/v1#m")}, "critics must be a list"),
        ({"critics": Participant(Upstream("chat=http://127.0.0.1:9/v1#m"))}, "critics must be a list"),
        ({"applies_to": "critic"}, "list of roles"),
    ],
)
async def test_settings_that_cannot_be_used(settings: dict[str, Any], words: str) -> None:
    """What cannot be run is said before anything is sent."""
    with models() as panel:
        with pytest.raises(MustcallError, match=words):
            await panel.ask(**settings)
        assert panel.bodies("proposer") == []


def test_sync() -> None:
    """`coordinate_sync` is for scripts; an empty question is none."""
    with models() as panel:
        settings: dict[str, Any] = {
            "proposer": panel.at("proposer"),
            "critics": [panel.at("critic_1"), panel.at("critic_2")],
            "synthesizer": panel.at("synthesizer"),
        }
        assert coordinate_sync(QUESTION, **settings).answer == "It is 330 metres high."
        with pytest.raises(InvalidRequest):
            coordinate_sync("  ", **settings)

        async def inside() -> None:
            coordinate_sync(QUESTION, **settings)

        with pytest.raises(ConfigError, match="event loop"):
            asyncio.run(inside())


def test_statuses_are_those_of_the_rule() -> None:
    """Rule 89: the words are closed, and the seven of the rule are among them."""
    seven = {"ok", "refused", "parse_error", "schema_error", "hop_budget_exhausted", "cost_cap_exceeded"}
    ours = {"ignored_extra", "failed", "timed_out", "cancelled", "unknown"}
    assert {str(status) for status in InnerStatus} == seven | ours
