"""Hooks around each step: what they see, what they may change, and what their failures do."""

from typing import Any

import pytest

from mustcall import Agent, ConfigError, Options, StepChange, StepView, Stopped, tool
from mustcall.testing import Call, ScriptedModel
from support.agents import get_weather

#: Of no type that a field of a change has.
WRONG: Any = 5
TEXT: Any = "hot"


def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


def verify(text: str) -> bool:
    """No tool of any agent here."""
    return bool(text)


async def test_hooks_see_each_step() -> None:
    """A hook before sees the history and the tools of a step, one after it the record and the calls."""
    seen: list[tuple[str, int, int, int, str]] = []

    def before(step: StepView[str]) -> None:
        seen.append(("before", step.number, len(step.messages), len(step.calls), step.deps))
        assert step.record is None

    async def after(step: StepView[str]) -> None:
        assert step.record is not None
        seen.append(("after", step.number, len(step.messages), len(step.calls), str(step.record.outcome)))

    model = ScriptedModel([Call("get_weather", {"city": "Oslo"}), "Sunny."])
    agent = Agent(model, tools=[get_weather], deps="d", before_step=[before], after_step=[after])
    await agent.run("Weather?")
    assert seen == [
        ("before", 1, 1, 0, "d"),
        ("after", 1, 3, 1, "calls"),
        ("before", 2, 3, 1, "d"),
        ("after", 2, 4, 1, "answer"),
    ]


async def test_a_step_is_changed() -> None:
    """A hook may offer fewer tools, force one, and give other instructions and options, for this one step."""

    def first_shout(step: StepView[None]) -> StepChange | None:
        if step.number > 1:
            return None
        return StepChange(tools=["shout"], force="shout", instructions="Shout first.", options=Options(temperature=0.5))

    model = ScriptedModel([Call("shout", {"text": "a"}), "Done."])
    agent = Agent(model, tools=[get_weather, shout], instructions="Be brief.", before_step=[first_shout])
    result = await agent.run("Go")
    first, second = (one.body for one in model.requests)
    assert [each["function"]["name"] for each in first["tools"]] == ["shout"]
    assert first["tool_choice"]["function"]["name"] == "shout"
    assert (first["messages"][0]["content"], first["temperature"]) == ("Shout first.", 0.5)
    assert [each["function"]["name"] for each in second["tools"]] == ["get_weather", "shout"]
    assert (second["messages"][0]["content"], "temperature" in second) == ("Be brief.", False)
    assert result.stopped is Stopped.ANSWERED


async def test_later_hooks_stand_over_earlier_ones() -> None:
    """Several hooks change a step together; of two words for one thing the last counts."""
    model = ScriptedModel(["Hi."])

    def one(_: StepView[None]) -> StepChange:
        return StepChange(tools=["shout"], instructions="One.")

    def two(_: StepView[None]) -> StepChange:
        return StepChange(instructions="Two.")

    await Agent(model, tools=[get_weather, shout], before_step=[one, two]).run("Go")
    body = model.requests[0].body
    assert (len(body["tools"]), body["messages"][0]["content"]) == (1, "Two.")


async def test_a_hook_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """An error of the hook's own is logged and the run goes on; one of ours ends it, before anything is sent."""

    def broken(_: StepView[None]) -> None:
        raise ValueError("no")

    def stop(_: StepView[None]) -> None:
        raise ConfigError("enough")

    model = ScriptedModel(["Hi."])
    assert (await Agent(model, before_step=[broken], after_step=[broken]).run("Go")).text == "Hi."
    assert caplog.messages == ["a hook of step 1 failed: ValueError"] * 2
    with pytest.raises(ConfigError, match="enough"):
        await Agent(model, before_step=[stop]).run("Go")
    assert len(model.requests) == 1


async def test_tools_may_be_named_by_themselves() -> None:
    """A change may hold the tools themselves, as they were given to the agent, in place of their names."""

    @tool
    def whisper(text: str) -> str:
        """Say it quietly."""
        return text.lower()

    model = ScriptedModel([Call("shout", {"text": "a"}), Call("whisper", {"text": "A"}), "Done."])
    offered: list[StepChange | None] = [
        StepChange(tools=[shout, whisper], force=shout),
        StepChange(tools={"whisper"}, force=whisper),
        StepChange(tools=[]),
    ]
    agent = Agent(model, tools=[get_weather, shout, whisper], before_step=[lambda step: offered[step.number - 1]])
    result = await agent.run("Go")
    names = [[each["function"]["name"] for each in one.body.get("tools", [])] for one in model.requests]
    assert names == [["shout", "whisper"], ["whisper"], []]
    assert [call.name for call in result.calls] == ["shout", "whisper"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tools": ["shout"]}, "must return a StepChange or None, got {'tools': ['shout']}"),
        (False, "must return a StepChange or None, got False"),
        (StepChange, "must return a StepChange or None, got <class"),
        (StepChange(tools="shout"), "tools must be a list of tools or their names, got 'shout'; write tools=['shout']"),
        (StepChange(tools=WRONG), "tools must be a list of tools or their names, got 5"),
        (StepChange(tools=[WRONG]), "tools must be a list of tools or their names, got 5 in it"),
        (StepChange(tools=["shuot"]), "tools names 'shuot', which is not on offer; on offer: get_weather, shout"),
        (StepChange(tools=[verify]), "tools names 'verify', which is not on offer; on offer: get_weather, shout"),
        (StepChange(force=WRONG), "force must be True, False, a tool or its name, got 5"),
        (StepChange(force="shuot"), "force names 'shuot', which is not on offer; on offer: get_weather, shout"),
        (StepChange(instructions=WRONG), "instructions must be str, got 5"),
        (StepChange(options=WRONG), "options must be Options, got 5"),
        (StepChange(options=Options(temperature=TEXT)), "options: Expected `float | null`, got `str`"),
    ],
)
async def test_what_a_hook_may_not_return(change: Any, said: str) -> None:
    """A change that cannot be made ends the run before anything is sent, with the hook's name: a guard stays closed."""

    def guard(_: StepView[None]) -> Any:
        return change

    async def late(step: StepView[None]) -> Any:
        return guard(step)

    model = ScriptedModel(["Hi."])
    for hook in (guard, late):
        with pytest.raises(ConfigError) as raised:
            await Agent(model, tools=[get_weather, shout], before_step=[hook]).run("Go")
        assert raised.value.message.startswith(f"the before_step hook {hook.__name__!r}: ")
        assert said in raised.value.message
    assert model.requests == []
