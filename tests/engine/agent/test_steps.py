"""When a run ends: the step cap, loops, refusals, failures; and what it says of itself then."""

from typing import Any

import pytest

from mustcall import Controls, OnUnmet, Role, Stopped, Usage
from mustcall.core.errors import (
    ConfigError,
    ForcedToolMissing,
    ForceUnmet,
    InvalidRequest,
    LoopBlocked,
    MustcallError,
    TextToolCallError,
    UpstreamRejected,
)
from mustcall.policy.facts.controls import ToolControls
from mustcall.policy.facts.profile import Protocol
from mustcall.policy.facts.wording import Wording
from mustcall.policy.words.grounding import GroundingRule
from mustcall.testing import Call, Fail, Refuse, Say, ScriptedUpstream, Turn
from support.agent_ladder import ladder
from support.agents import WIRES, agent_on, ask_body, collect, offer, results, run_script, said, user, wrapped

wires = pytest.mark.parametrize("wire", WIRES)
streaming = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
WORDS = Wording()
CALL = Turn(Call("get_weather", {"city": "Oslo"}))
ANSWER = Turn(Say("It is sunny."))
OSLO = ("get_weather", {"city": "Oslo"})


def none(wire: str) -> Any:
    """The choice that forbids calls."""
    return {"type": "none"} if wire == "messages" else "none"


@wires
@streaming
async def test_step_cap(wire: str, stream: bool) -> None:
    """Rules 10, 109: the last step carries `none` and a notice; the notice is not in the history."""
    result, bodies = await run_script(wire, [CALL, ANSWER], "Weather?", stream=stream, max_steps=2)
    asked = [user(wire, "Weather?")]
    after = [*asked, *said(wire, 0, OSLO), *results(wire, 0, wrapped("Sunny in Oslo"))]
    last = [*after, user(wire, WORDS.step_cap)]
    assert bodies == [
        ask_body(wire, asked, stream=stream),
        ask_body(wire, last, stream=stream, tool_choice=none(wire)),
    ]
    assert (result.stopped, result.text) == (Stopped.STEP_CAP, "It is sunny.")
    assert WORDS.step_cap not in str(result.messages)


@streaming
async def test_calls_at_the_step_cap_are_not_run(stream: bool) -> None:
    """Rule 109: a call made anyway is not executed, not in the history, and not the answer."""
    stubborn = Turn(Say("Once more."), Call("get_weather", {"city": "Rome"}))
    result, bodies = await run_script("chat", [CALL, stubborn], "Weather?", stream=stream, max_steps=2)
    assert len(bodies) == 2
    assert [call.call.arguments_json for call in result.calls] == ['{"city":"Oslo"}']
    assert (result.text, result.stopped) == ("Once more.", Stopped.STEP_CAP)
    assert "Rome" not in str(result.messages)


@streaming
async def test_a_json_call_at_the_step_cap_is_not_the_answer(stream: bool) -> None:
    """Rules 63, 109, 125: a call written as JSON at the last step is no answer: it is asked for once more.

    The model is offered no tools then, and the result is told in words: it took the tools for an invitation.
    """
    written = Turn(Say('{"name": "get_weather", "arguments": {"city": "Rome"}}'))
    result, bodies = await run_script("chat", [CALL, written, ANSWER], "Weather?", stream=stream, max_steps=2)
    asked = [user("chat", "Weather?")]
    after = [*asked, *said("chat", 0, OSLO), *results("chat", 0, wrapped("Sunny in Oslo"))]
    last = [*after, user("chat", WORDS.step_cap)]
    result_in_words = WORDS.result_worked.format(tool="get_weather", result=wrapped("Sunny in Oslo"))
    told = {"role": "assistant", "content": result_in_words}
    assert bodies == [
        ask_body("chat", asked, stream=stream),
        ask_body("chat", last, stream=stream, tool_choice="none"),
        ask_body("chat", [*asked, told, user("chat", WORDS.step_cap)], stream=stream, tools=[]),
    ]
    assert [call.call.arguments_json for call in result.calls] == ['{"city":"Oslo"}']
    assert (result.text, result.stopped) == ("It is sunny.", Stopped.STEP_CAP)
    assert "Rome" not in str(result.messages)


async def test_calls_at_the_step_cap_are_not_run_unjudged() -> None:
    """Rule 109: the loop itself does not run them, also where the protocol is off and nothing is judged."""
    controls = Controls(protocol=Protocol.OFF)
    result, bodies = await run_script("chat", [CALL, CALL], "Weather?", max_steps=2, controls=controls)
    assert len(bodies) == 2
    assert len(result.calls) == 1
    assert result.messages[-1].role is Role.TOOL
    assert result.usage == Usage(input_tokens=50, output_tokens=24)


async def test_one_step_is_no_step_for_tools() -> None:
    """Rule 10: with one step the only request forbids calls, whatever else was asked for."""
    result, bodies = await run_script("chat", [ANSWER], "Weather?", max_steps=1, force=True)
    assert bodies == [ask_body("chat", [user("chat", "Weather?")], tool_choice="none")]
    assert result.stopped is Stopped.STEP_CAP


async def test_the_caps_of_the_controls_count_too() -> None:
    """A `step_cap` in the controls counts tool rounds as it does for the gateway."""
    result, bodies = await run_script("chat", [CALL, ANSWER], "Weather?", controls=Controls(step_cap=1))
    assert bodies[1]["tool_choice"] == "none"
    assert result.stopped is Stopped.STEP_CAP


async def test_no_tools_no_cap() -> None:
    """Rule 4: without tools there is nothing to forbid, and the answer is an ordinary one."""
    result, bodies = await run_script("chat", [ANSWER], "Hi", tools=[], max_steps=1)
    assert bodies == [ask_body("chat", [user("chat", "Hi")], tools=[])]
    assert result.stopped is Stopped.ANSWERED


@wires
async def test_loop_advice(wire: str) -> None:
    """Rule 108: the third same call in a row gets one line of advice with its result, outside the wrapper."""
    again = [Turn(Call("get_weather", {"city": "Oslo"})) for _ in range(4)]
    result, bodies = await run_script(wire, [*again, ANSWER], "Weather?")
    advised = [str(body).count(WORDS.looping) for body in bodies]
    assert advised == [0, 0, 0, 1, 1]
    assert len(result.calls) == 4
    third = result.messages[6].results[0]
    assert [getattr(part, "text", "") for part in third.content] == [wrapped("Sunny in Oslo"), WORDS.looping]


@streaming
async def test_loop_block(stream: bool) -> None:
    """Rule 108: where a tool's setting blocks it, the repeated call ends the run; it is not executed again."""
    controls = Controls(tools={"get_weather": ToolControls(loop_block=3)})
    with ScriptedUpstream([CALL, CALL, CALL]) as upstream:
        agent = agent_on(upstream, "chat", controls=controls)
        if stream:
            events = agent.stream("Weather?")
            with pytest.raises(LoopBlocked):
                [event async for event in events]
            result = events.result
        else:
            result = await agent.run("Weather?", check=False)
        assert len(upstream.requests) == 3
    assert (result.stopped, len(result.calls)) == (Stopped.FAILED, 2)
    assert result.error is not None
    assert result.error.code == "looping"
    assert [message.role for message in result.messages] == [Role.USER, *[Role.ASSISTANT, Role.TOOL] * 2]


async def test_the_same_output_twice_ends_the_run() -> None:
    """Rule 108: where a tool's setting says so, the third call is not run if the two before it brought the same."""
    controls = Controls(tools={"get_weather": ToolControls(loop_block_same=True)})
    with ScriptedUpstream([CALL, CALL, CALL]) as upstream:
        result = await agent_on(upstream, "chat", controls=controls).run("Weather?", check=False)
        assert len(upstream.requests) == 3
    assert (result.stopped, len(result.calls)) == (Stopped.FAILED, 2)
    assert result.error is not None
    assert result.error.code == "looping"


@wires
async def test_force(wire: str) -> None:
    """Rules 9, 11: a force counts for the first step and is gone once a result is there."""
    result, bodies = await run_script(wire, [CALL, ANSWER], "Hello", force="get_weather", model="gpt-4o")
    named = {
        "chat": {"type": "function", "function": {"name": "get_weather"}},
        "responses": {"type": "function", "name": "get_weather"},
        "messages": {"type": "any"},  # the only tool on offer: rule 6
    }[wire]
    assert [body.get("tool_choice") for body in bodies] == [named, None]
    assert result.force_satisfied is True


@streaming
async def test_unmet_force_is_an_answer(stream: bool) -> None:
    """Rule 27: the library's default gives the reply as it is and says so."""
    chatty = [Turn(Say("No.")) for _ in range(5)]
    result, bodies = await run_script("chat", chatty, "Weather?", stream=stream, force=True)
    assert bodies == ladder("chat", "Weather?", "No.", stream=stream)
    assert (result.text, result.force_satisfied, result.stopped) == ("No.", False, Stopped.ANSWERED)
    assert result.calls == ()


@streaming
async def test_unmet_force_as_an_error(stream: bool) -> None:
    """Rule 27: with `on_unmet=error` it is the typed error, with every attempt, streamed or not."""
    with ScriptedUpstream(default=Turn(Say("No."))) as upstream:
        agent = agent_on(upstream, "messages", on_unmet=OnUnmet.ERROR)
        with pytest.raises(ForceUnmet) as raised:
            await (collect(agent.stream("Weather?", force=True)) if stream else agent.run("Weather?", force=True))
    details = raised.value.details or {}
    assert [one.body for one in upstream.requests] == ladder("messages", "Weather?", "No.", stream=stream)
    assert len(details["attempts"]) == 5


async def test_force_of_a_missing_tool() -> None:
    """Rule 8: a forced tool that is not on offer is an error before anything is sent."""
    with ScriptedUpstream() as upstream:
        with pytest.raises(ForcedToolMissing):
            await agent_on(upstream, "chat").run("Weather?", force="get_time")
        assert upstream.requests == []


async def test_dropped_force_is_not_satisfied() -> None:
    """Rule 8: lenient, the force is dropped, and the result does not claim that it was met."""
    controls = Controls(strict_force=False)
    result, bodies = await run_script("chat", [ANSWER], "Weather?", force="get_time", controls=controls)
    assert result.force_satisfied is False
    assert "tool_choice" not in bodies[0]


@wires
async def test_grounding(wire: str) -> None:
    """Rules 12 to 14: a matching question calls the tool first; another question's body is the plain one (rule 18)."""
    rules = [GroundingRule(name="weather", triggers=("weather",), tool="get_weather")]
    result, bodies = await run_script(wire, [CALL, ANSWER], "The weather?", rules=rules, model="gpt-4o")
    assert [("tool_choice" in body) for body in bodies] == [True, False]
    assert result.force_satisfied is True
    _, plain = await run_script(wire, [ANSWER], "Hello", rules=rules)
    assert plain == [ask_body(wire, [user(wire, "Hello")], tools=[offer(wire)])]


@wires
async def test_refusal(wire: str) -> None:
    """Rule 37: the model's own no ends the run at once; its words are the text."""
    result, bodies = await run_script(wire, [Turn(Refuse("I cannot."))], "Hm")
    assert len(bodies) == 1
    assert (result.stopped, result.text) == (Stopped.REFUSED, "I cannot.")


async def test_length() -> None:
    """An answer cut by the token limit is delivered, and the result says why it ended."""
    result, _ = await run_script("chat", [Turn(Say("It is"), finish="length")], "Hm")
    assert (result.stopped, result.text) == (Stopped.LENGTH, "It is")


@streaming
async def test_upstream_error(stream: bool) -> None:
    """The upstream's refusal is raised with its status and words; `check=False` returns it instead."""
    with ScriptedUpstream([CALL], default=Fail(400, "no such model")) as upstream:
        agent = agent_on(upstream, "chat")
        with pytest.raises(UpstreamRejected, match="no such model") as raised:
            await (collect(agent.stream("Weather?")) if stream else agent.run("Weather?"))
        assert raised.value.info().status == 400
        failed = await agent.run("Weather?", check=False)
    assert failed.stopped is Stopped.FAILED
    assert failed.error is not None
    assert (failed.error.message, failed.messages[-1].role) == ("no such model", Role.USER)


async def test_failure_in_the_middle_keeps_what_was_done() -> None:
    """A run that fails in a later step still has its calls and a history that ends on their results."""
    with ScriptedUpstream([CALL], default=Fail(400, "too bad")) as upstream:
        failed = await agent_on(upstream, "chat").run("Weather?", check=False)
    assert (failed.stopped, [call.result for call in failed.calls]) == (Stopped.FAILED, ["Sunny in Oslo"])
    assert [message.role for message in failed.messages] == [Role.USER, Role.ASSISTANT, Role.TOOL]
    assert [step.calls for step in failed.steps] == [1, 1]
    assert failed.usage == Usage(input_tokens=25, output_tokens=12)


@streaming
async def test_model_error_is_typed(stream: bool) -> None:
    """Rules 48, 50: text calls, attempt after attempt, raise the same typed error on a loop step, streamed or not."""
    leaky = Turn(Say('<tool_call>{"name": "get_weather", "arguments": {"town": "Oslo"}}</tool_call>'))
    controls = Controls(protocol=Protocol.NATIVE)
    with ScriptedUpstream([CALL], default=leaky) as upstream:
        agent = agent_on(upstream, "messages", controls=controls)
        with pytest.raises(TextToolCallError) as raised:
            await (collect(agent.stream("Weather?")) if stream else agent.run("Weather?"))
    assert len((raised.value.details or {})["attempts"]) == 3
    asked = user("messages", "Weather?")
    called = [asked, *said("messages", 0, ("get_weather", {"city": "Oslo"}))]
    told = [*called, *results("messages", 0, wrapped("Sunny in Oslo"))]
    reminded = [*told, user("messages", Wording().text_call)]
    assert [one.body for one in upstream.requests] == [
        ask_body("messages", turns, stream=stream) for turns in ([asked], told, told, reminded)
    ]


@pytest.mark.parametrize(
    "prompt", ["", "  ", [], [{"role": "wizard", "content": "x"}], [{"role": "user", "content": {1}}]]
)
async def test_bad_prompts(prompt: Any) -> None:
    """What is no prompt is an error that says so, before anything is sent."""
    with ScriptedUpstream() as upstream:
        with pytest.raises(InvalidRequest):
            await agent_on(upstream, "chat").run(prompt)
        assert upstream.requests == []


def test_run_sync() -> None:
    """The same without an event loop, twice with one agent: nothing of a loop is left in it."""
    with ScriptedUpstream([CALL, ANSWER, Turn(Say("Again."))]) as upstream:
        agent = agent_on(upstream, "chat")
        first = agent.run_sync("Weather?")
        assert agent.run_sync("And?", after=first).text == "Again."
        assert upstream.requests[2].body["messages"][-2:] == [
            {"role": "assistant", "content": "It is sunny."},
            {"role": "user", "content": "And?"},
        ]


async def test_run_sync_inside_a_loop() -> None:
    """It says what to write instead."""
    with ScriptedUpstream() as upstream, pytest.raises(ConfigError, match="await agent"):
        agent_on(upstream, "chat").run_sync("Hi")


async def test_errors_are_one_tree() -> None:
    """Every failure of a run can be caught as one."""
    with ScriptedUpstream(default=Fail(401, "who are you?")) as upstream, pytest.raises(MustcallError):
        await agent_on(upstream, "chat").run("Hi")
