"""No step that makes the offer smaller leaves out what is demanded (rule 19): a grounding rule's target above all."""

import itertools

import msgspec
import pytest

from mustcall.core.message import Message, Role
from mustcall.core.parts import Text
from mustcall.core.request import Request
from mustcall.core.tools import Tool, ToolChoice
from mustcall.engine.turns import make_turn_state
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Forcing, Profile, Protocol
from mustcall.policy.facts.wording import Wording
from mustcall.policy.request.plan import RungKind
from mustcall.policy.words.grounding import GroundingRule
from mustcall.policy.words.relevance import relevant_tools

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
WEATHER = Tool(name="get_weather", description="Get the weather of a city.", parameters=CITY)
TIME = Tool(name="get_time", description="Get the time of a city.", parameters=CITY)
TARGET = Tool(name="search_docs", description="Search.", parameters=QUERY)
RULE = GroundingRule(name="paris", triggers="weather in paris", tool="search_docs")
#: About the weather in its words, and about the rule in its trigger.
ASKED = "What is the weather in Paris? Use get_weather."

PROFILES = [
    Profile(
        protocol=protocol,
        forced=forced,
        named=named,
        schema_output=True,
        local=True,
        words_choose=True,
        worked_examples=worked,
        constrain_first=first,
        prompt_limit=limit,
    )
    for protocol, forced, named, worked, first, limit in itertools.product(
        (Protocol.HYBRID, Protocol.PROMPT, Protocol.NATIVE),
        Forcing,
        (False, True),
        (False, True),
        (False, True),
        (0, 1),
    )
]


def request(choice: ToolChoice | None = None) -> Request:
    """The question with three tools, the rule's target last."""
    asked = Message(role=Role.USER, parts=(Text(text=ASKED),))
    return Request(model="m", messages=(asked,), tools=(WEATHER, TIME, TARGET), tool_choice=choice)


def test_the_words_alone_would_leave_it_out() -> None:
    """Rule 19: the case is one: by the message's words the target would be dropped."""
    assert list(relevant_tools(ASKED, [WEATHER, TIME, TARGET])) == [WEATHER]


@pytest.mark.parametrize("rules", [(RULE,), ()], ids=["grounded", "free"])
def test_a_rules_target_is_in_every_rung(rules: tuple[GroundingRule, ...]) -> None:
    """Rule 19: under a rule's force every rung of every profile can be met by its target, whatever the words narrow."""
    narrowed = 0
    for profile in PROFILES:
        turn_state = make_turn_state(request(), profile, "up", controls=Controls(), wording=Wording(), rules=rules)
        for place, rung in enumerate(turn_state.plan.rungs):
            turn_state._place, turn_state._shaped = place, None
            shaped = turn_state.shaped()
            output = shaped.request.output
            form = msgspec.json.encode([shaped.extra, output.schema if output is not None else None]).decode()
            if not rules:
                narrowed += rung.constrains and '"search_docs"' not in form
                continue
            assert rung.kind is not RungKind.ANSWER
            if rung.constrains:
                assert '"search_docs"' in form
                assert '"get_weather"' not in form
            elif shaped.request.tools:
                assert any(isinstance(tool, Tool) and tool.name == "search_docs" for tool in shaped.request.tools)
            else:
                assert shaped.request.system is not None
                assert "## search_docs\n" in "".join(
                    part.text for part in shaped.request.system.parts if isinstance(part, Text)
                )
    assert bool(narrowed) == (not rules)
