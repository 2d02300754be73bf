"""The same agent on every wire: exact requests, whole and streamed, from question to answer."""

from typing import Any

import pytest

from mustcall import CallStatus, Controls, Options, RunResult, Stopped, Usage
from mustcall.core.message import Role
from mustcall.policy.facts.profile import Protocol
from mustcall.policy.facts.wording import Wording
from mustcall.testing import Call, Say, Think, Turn
from support.agents import WIRES, ask_body, results, run_script, said, user, wrapped

wires = pytest.mark.parametrize("wire", WIRES)
streaming = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])

CALL = Turn(Say("Let me see."), Call("get_weather", {"city": "Oslo"}))
ANSWER = Turn(Say("It is sunny."))
OSLO = ("get_weather", {"city": "Oslo"})


@wires
@streaming
async def test_question_call_answer(wire: str, stream: bool) -> None:
    """Rules 5, 77, 79: one agent, any wire: the call is run, its result goes back, the answer comes."""
    result, bodies = await run_script(wire, [CALL, ANSWER], "Weather in Oslo?", stream=stream)
    asked = [user(wire, "Weather in Oslo?")]
    after = [*asked, *said(wire, 0, "Let me see.", OSLO), *results(wire, 0, wrapped("Sunny in Oslo"), first=1)]
    assert bodies == [ask_body(wire, asked, stream=stream), ask_body(wire, after, stream=stream)]
    assert (result.text, result.stopped, result.force_satisfied) == ("It is sunny.", Stopped.ANSWERED, None)
    assert result.usage == Usage(input_tokens=50, output_tokens=24)
    (call,) = result.calls
    assert (call.call.name, call.result, call.status, call.step) == ("get_weather", "Sunny in Oslo", CallStatus.OK, 1)
    assert [message.role for message in result.messages] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert [step.calls for step in result.steps] == [1, 1]


@wires
async def test_going_on(wire: str) -> None:
    """A result's messages, or the result itself, are where the next run begins."""
    first, _ = await run_script(wire, [CALL, ANSWER], "Weather in Oslo?")
    again, bodies = await run_script(
        wire, [Turn(Say("You are welcome."))], [*first.messages, {"role": "user", "content": "Thanks"}]
    )
    turns = [
        user(wire, "Weather in Oslo?"),
        *said(wire, 0, "Let me see.", OSLO),
        *results(wire, 0, wrapped("Sunny in Oslo"), first=1),
        *said(wire, 1, "It is sunny."),
        user(wire, "Thanks"),
    ]
    assert bodies == [ask_body(wire, turns)]
    assert again.messages[:4] == first.messages
    assert again.calls == ()


@wires
async def test_parallel_calls_come_back_in_their_order(wire: str) -> None:
    """Several calls of one reply run side by side; their results go back in the order of the calls."""
    both = Turn(Call("get_weather", {"city": "Oslo"}), Call("get_weather", {"city": "Rome"}))
    result, bodies = await run_script(wire, [both, ANSWER], "Weather?")
    turns = [
        user(wire, "Weather?"),
        *said(wire, 0, OSLO, ("get_weather", {"city": "Rome"})),
        *results(wire, 0, wrapped("Sunny in Oslo"), wrapped("Sunny in Rome")),
    ]
    assert bodies[1] == ask_body(wire, turns)
    assert sorted(call.result for call in result.calls) == ["Sunny in Oslo", "Sunny in Rome"]


@wires
@streaming
async def test_reasoning_is_handed_back(wire: str, stream: bool) -> None:
    """Rule 124: signed and encrypted reasoning goes back with its call, byte for byte; a strict upstream takes it."""
    thinking = Turn(Think("Which city?"), Call("get_weather", {"city": "Oslo"}))
    result, bodies = await run_script(wire, [thinking, ANSWER], "Weather in Oslo?", stream=stream)
    assert result.text == "It is sunny."
    turns = bodies[1]["input" if wire == "responses" else "messages"]
    match wire:
        case "chat":
            assert turns[1]["reasoning_content"] == "Which city?"
        case "responses":
            assert turns[1]["type"] == "reasoning"
            assert turns[1]["encrypted_content"]
        case _:
            assert turns[1]["content"][0]["type"] == "thinking"
            assert turns[1]["content"][0]["signature"]


@wires
@streaming
async def test_markup_beside_a_call_does_not_enter_the_history(wire: str, stream: bool) -> None:
    """Rule 52: of a reply with a call and markup the call is run once, and the next request has none of the markup."""
    markup = '<tool_call>{"name": "get_weather", "arguments": {"city": "Rome"}}</tool_call>'
    both = Turn(Say(f"Let me see.{markup}"), Call("get_weather", {"city": "Oslo"}))
    result, bodies = await run_script(wire, [both, ANSWER], "Weather in Oslo?", stream=stream)
    asked = [user(wire, "Weather in Oslo?")]
    kept = said(wire, 0, "Let me see.", OSLO)
    if wire == "responses" and stream:  # a text that was changed on its way is written anew
        kept[0] = {**kept[0], "content": [{"type": "output_text", "text": "Let me see."}]}
    after = [*asked, *kept, *results(wire, 0, wrapped("Sunny in Oslo"), first=1)]
    assert bodies == [ask_body(wire, asked, stream=stream), ask_body(wire, after, stream=stream)]
    assert [call.result for call in result.calls] == ["Sunny in Oslo"]
    assert "tool_call>" not in str(result.messages)


@wires
async def test_instructions_and_options(wire: str) -> None:
    """Instructions stand where the wire wants them, options in its words, extra fields as they are."""
    options = Options(temperature=0.5, max_tokens=99, extra={"metadata": {"user_id": "u"}})
    _, bodies = await run_script(wire, [ANSWER], "Hi", tools=[], instructions="Be brief.", options=options)
    asked = [user(wire, "Hi")]
    limits = {"chat": "max_completion_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}
    fields: dict[str, Any] = {"temperature": 0.5, limits[wire]: 99, "metadata": {"user_id": "u"}}
    if wire == "chat":
        asked.insert(0, {"role": "system", "content": "Be brief."})
    else:
        fields["system" if wire == "messages" else "instructions"] = "Be brief."
    assert bodies == [ask_body(wire, asked, tools=[], **fields)]


@wires
@streaming
@pytest.mark.parametrize("protocol", [Protocol.HYBRID, Protocol.PROMPT])
async def test_text_protocol(wire: str, stream: bool, protocol: Protocol) -> None:
    """Rules 71, 79: the same agent over a model that writes its calls as text, through execution to the answer."""
    written = Turn(Say('<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'))
    controls = Controls(protocol=protocol)
    result, bodies = await run_script(wire, [written, ANSWER], "Weather in Oslo?", stream=stream, controls=controls)
    assert [(call.call.name, call.result) for call in result.calls] == [("get_weather", "Sunny in Oslo")]
    assert (result.text, len(bodies)) == ("It is sunny.", 2)
    assert "<tool_call>" not in str(result.messages)
    native = protocol is Protocol.HYBRID
    assert [("tools" in body, "<tool_call>" in str(body)) for body in bodies] == [(native, not native)] * 2
    assert "untrusted-data" in str(bodies[1])
    if not native:  # the result is told in a turn of the user's, as the model's template knows it
        last = bodies[1]["input" if wire == "responses" else "messages"][-1]
        assert (last["role"], "Sunny in Oslo" in str(last)) == ("user", True)


async def test_a_run_holds_nothing_of_a_discarded_attempt() -> None:
    """A bad attempt is retried by the turn and is in no message, text or call of the run."""
    bad = Turn(Call("get_weather", {"town": "Oslo"}))
    result, bodies = await run_script("chat", [bad, CALL, ANSWER], "Weather in Oslo?")
    misfit = Wording().bad_arguments.format(
        problem="get_weather: top level: no fields but city; city: string, required"
    )
    asked = user("chat", "Weather in Oslo?")
    called = said("chat", 1, "Let me see.", ("get_weather", {"city": "Oslo"}))
    assert bodies == [
        ask_body("chat", [asked]),
        ask_body("chat", [asked, user("chat", misfit)]),
        ask_body("chat", [asked, *called, *results("chat", 1, wrapped("Sunny in Oslo"))]),
    ]
    assert [len(step.attempts) for step in result.steps] == [2, 1]
    assert len(result.calls) == 1
    assert "town" not in str(result.messages)
    assert result.usage == Usage(input_tokens=75, output_tokens=36)


def test_results_are_values() -> None:
    """A result without a run is the empty one: nothing is hidden in it."""
    empty = RunResult(text="", messages=(), stopped=Stopped.CANCELLED)
    assert (empty.calls, empty.steps, empty.usage, empty.error) == ((), (), Usage(), None)
