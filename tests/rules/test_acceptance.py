"""Rule 119: the same question with and without a grounding rule, asked by an agent, from the question to the answer.

The model answers from memory unless it must call the tool, and its memory is wrong. The agent is the wire's own SDK and
a loop that runs the tool; the only difference between the two runs is the `[[grounding]]` table of mustcall.toml.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from mustcall import Agent, GroundingRule, Upstream, tool
from mustcall.engine.turns import OperatorSettings
from mustcall.gateway.config.settings import load_settings
from mustcall.policy.facts.wording import Wording
from mustcall.testing import Answer, Call, Recorded, RunningGateway, Say, ScriptedUpstream, Turn
from support.forcing import WAYS, WEATHER, Called, Result, Rig, Step, Tool, User, write_body
from support.talking import users_words, was_told

MODEL = "gpt-4o"
QUESTION = "Which port does Hero OS listen on?"
SMALL_TALK = "Who is your hero?"
MEMORY = "Port 8080, as far as I remember."
DOCS = "Hero OS listens on port 4711."
SEARCH = Tool("search_hero_docs", "query", "Search the docs of Hero OS.")
QUERY = {"query": "Hero OS port"}
RULE = GroundingRule(name="hero", triggers="hero os|hero_*", tool="search_hero_docs")
TABLE = '[[grounding]]\nname = "hero"\ntriggers = "hero os|hero_*"\ntool = "search_hero_docs"\n'


def _guesser(recorded: Recorded) -> Answer:
    """Look nothing up unless it must; repeat what the tool said."""
    told = was_told(recorded)
    if told is not None:
        return Turn(Say("The docs say port 4711." if "4711" in told else "The docs say nothing."))
    if "search_hero_docs" in str(recorded.body.get("tool_choice", "")):
        return Turn(Call("search_hero_docs", QUERY))
    return Turn(Say(MEMORY))


def _stubborn(recorded: Recorded) -> Answer:
    """Ignore a forced choice too, and call the tool only when it is told to in words."""
    told = Wording().call_named[1].format(tool="search_hero_docs")
    if was_told(recorded) is None and told not in users_words(recorded):
        return Turn(Say(MEMORY))
    return _guesser(recorded)


class Run(NamedTuple):
    """What came of a question: the answer, the looks into the docs, and the upstream calls it took."""

    answer: str
    lookups: int
    sent: list[bytes]


def _houses(folder: Path) -> tuple[OperatorSettings, OperatorSettings]:
    """Return what two files say that differ in the grounding rule alone."""
    upstream = '[[upstream]]\nname = "main"\nwire = "chat"\nbase_url = "http://127.0.0.1:9/v1"\n'
    without, with_rule = folder / "before.toml", folder / "after.toml"
    without.write_text(upstream, encoding="utf-8")
    with_rule.write_text(upstream + TABLE, encoding="utf-8")
    return load_settings(without, environment={}).operator, load_settings(with_rule, environment={}).operator


def _ask(
    question: str, wire: str, model: Callable[[Recorded], Answer], operator: OperatorSettings, *, stream: bool
) -> Run:
    """Ask as an agent does: run the tool for each call, until there is an answer."""
    steps: list[Step] = [User(question)]
    lookups = 0
    with Rig(model=model, upstream=wire, operator=operator) as rig:
        rig.comparing.leave("it is about the answer; what a rule sends is compared in test_grounding")
        for number in range(4):
            got = rig.ask(wire, write_body(wire, *steps, model=MODEL, tools=(SEARCH, WEATHER), stream=stream))
            if not got.calls:
                assert got.status == 200
                return Run(got.text, lookups, [one.raw for one in rig.requests])
            ((name, arguments),) = got.calls
            assert (name, arguments) == ("search_hero_docs", QUERY)
            lookups += 1
            steps += [Called(f"call_{number}", name, arguments), Result(f"call_{number}", DOCS)]
    raise AssertionError("there was no answer")


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_before_and_after(wire: str, stream: bool, tmp_path: Path) -> None:
    """Rule 119: without the rule the answer is made up, with it the tool is asked first and is what is told."""
    without, with_rule = _houses(tmp_path)
    before = _ask(QUESTION, wire, _guesser, without, stream=stream)
    after = _ask(QUESTION, wire, _guesser, with_rule, stream=stream)
    assert (before.answer, before.lookups, len(before.sent)) == (MEMORY, 0, 1)
    assert (after.answer, after.lookups, len(after.sent)) == ("The docs say port 4711.", 1, 2)


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_model_that_ignores_the_force(wire: str, stream: bool, tmp_path: Path) -> None:
    """Rule 119: also where the server ignores a forced choice; the made-up answer never reaches the agent."""
    without, with_rule = _houses(tmp_path)
    before = _ask(QUESTION, wire, _stubborn, without, stream=stream)
    after = _ask(QUESTION, wire, _stubborn, with_rule, stream=stream)
    assert (before.answer, before.lookups, len(before.sent)) == (MEMORY, 0, 1)
    assert (after.answer, after.lookups, len(after.sent)) == ("The docs say port 4711.", 1, 3)


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_other_questions_are_as_before(wire: str, stream: bool, tmp_path: Path) -> None:
    """Rule 119: the control: a question that triggers nothing runs the same with the rule, byte for byte."""
    without, with_rule = _houses(tmp_path)
    before = _ask(SMALL_TALK, wire, _guesser, without, stream=stream)
    after = _ask(SMALL_TALK, wire, _guesser, with_rule, stream=stream)
    assert before == after == Run(MEMORY, 0, before.sent)


@pytest.mark.parametrize("through_gateway", [False, True], ids=["library", "library through the gateway"])
async def test_before_and_after_in_the_library(through_gateway: bool) -> None:
    """Rule 119: an agent of the library shows the same, with its own rule or with the gateway's."""
    asked: list[str] = []

    @tool
    def search_hero_docs(query: str) -> str:
        """Search the docs of Hero OS."""
        asked.append(query)
        return DOCS

    answers: list[str] = []
    for rules in ((), (RULE,)):
        with (
            ScriptedUpstream(_guesser) as upstream,
            RunningGateway(f"chat={upstream.base_url}", operator=OperatorSettings(rules=rules)) as gateway,
        ):
            at, own = (gateway.base_url, ()) if through_gateway else (upstream.base_url, rules)
            agent = Agent(Upstream(f"chat={at}", model=MODEL), tools=[search_hero_docs], rules=own)
            answers.append((await agent.run(QUESTION)).text)
    assert answers == [MEMORY, "The docs say port 4711."]
    assert asked == [QUERY["query"]]
