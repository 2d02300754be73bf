"""A tool that is locked off is forced by no rung (rule 8): neither by its name, nor as all that a reply may be."""

import itertools

import msgspec
import pytest

from mustcall.core.errors import ForcedToolMissing
from mustcall.core.message import Message, Role
from mustcall.core.parts import Text
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode, Tool, ToolChoice
from mustcall.engine.turns import make_turn_state
from mustcall.policy.facts.controls import Controls, ToolControls
from mustcall.policy.facts.profile import Forcing, Profile, Protocol
from mustcall.policy.facts.wording import Wording
from mustcall.policy.request.plan import RungKind, candidates

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Tool(name="get_weather", description="Get the weather of a city.", parameters=SCHEMA)
TIME = Tool(name="get_time", description="Get the time of a city.", parameters=SCHEMA)
ODD = Tool(name="get weather!", description="Get the weather of a city.", parameters=SCHEMA)
SPACED = Tool(name="get_weather", namespace="ns", description="Get the weather of a city.", parameters=SCHEMA)

PROFILES = [
    Profile(
        protocol=protocol,
        forced=forced,
        schema_output=True,
        local=True,
        words_choose=words,
        worked_examples=words,
        constrain_first=words,
        named=named,
    )
    for protocol, forced, words, named in itertools.product(
        (Protocol.HYBRID, Protocol.PROMPT, Protocol.NATIVE), Forcing, (False, True), (False, True)
    )
]


def request(choice: ToolChoice | None, *tools: Tool) -> Request:
    """A message about the weather, which is what narrowing by words goes by."""
    asked = Message(role=Role.USER, parts=(Text(text="What is the weather in Paris? Use get_weather."),))
    return Request(model="m", messages=(asked,), tools=tools, tool_choice=choice)


@pytest.mark.parametrize("choice", [None, ToolChoice(mode=ChoiceMode.AUTO), ToolChoice(mode=ChoiceMode.REQUIRED)])
@pytest.mark.parametrize(
    ("locked", "names"),
    [(WEATHER, ["get_weather"]), (ODD, ["get weather!"]), (SPACED, ["ns__get_weather"]), (SPACED, ["get_weather"])],
    ids=["plain", "renamed", "by its flat name", "by its bare name"],
)
def test_no_rung_comes_down_to_a_locked_tool(choice: ToolChoice | None, locked: Tool, names: list[str]) -> None:
    """Rule 8: however the message narrows the tools, a reply is never held to one that is locked off."""
    controls = Controls(tools={name: ToolControls(locked_off=True) for name in names})
    asked = request(choice, locked, TIME)
    for profile in PROFILES:
        turn_state = make_turn_state(asked, profile, "up", controls=controls, wording=Wording())
        sent = turn_state.names.outgoing(asked)
        (name,) = (
            there.name
            for here, there in zip(asked.tools, sent.tools, strict=True)
            if here is locked and isinstance(there, Tool)
        )
        for place, rung in enumerate(turn_state.plan.rungs):
            turn_state._place, turn_state._shaped = place, None
            shaped = turn_state.shaped()
            chosen = shaped.request.tool_choice
            assert chosen is None or chosen.mode is not ChoiceMode.NAMED
            if rung.constrains:
                output = shaped.request.output
                form = msgspec.json.encode([shaped.extra, output.schema if output is not None else None]).decode()
                assert f'"{name}"' not in form
                assert '"get_time"' in form
            assert rung.kind is not RungKind.NATIVE or shaped.request.tools


def test_words_do_not_choose_a_locked_tool() -> None:
    """Rule 8: a message about nothing but a locked tool is answered, where its words would have made the call."""
    small = Profile(protocol=Protocol.PROMPT, schema_output=True, words_choose=True, constrain_first=True)
    asked = request(None, WEATHER)

    def rungs(controls: Controls) -> list[RungKind]:
        turn_state = make_turn_state(asked, small, "up", controls=controls, wording=Wording())
        return [rung.kind for rung in turn_state.plan.rungs]

    assert rungs(Controls()) == [RungKind.SCHEMA, RungKind.ANSWER]
    assert rungs(Controls(tools={"get_weather": ToolControls(locked_off=True)})) == [RungKind.ANSWER]


def test_all_locked() -> None:
    """Rule 8: `required` with nothing that may be forced is an error, or is dropped and reported."""
    controls = Controls(tools={"get_weather": ToolControls(locked_off=True)})
    asked = request(ToolChoice(mode=ChoiceMode.REQUIRED), WEATHER)
    with pytest.raises(ForcedToolMissing):
        make_turn_state(asked, Profile(), "up", controls=controls, wording=Wording())
    lenient = msgspec.structs.replace(controls, strict_force=False)
    turn_state = make_turn_state(asked, Profile(), "up", controls=lenient, wording=Wording())
    assert not turn_state.plan.demand.forced
    assert candidates(asked, turn_state.plan.demand) == []
