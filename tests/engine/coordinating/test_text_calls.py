"""A call that comes as text is dropped and asked for again in every role, and before a structured answer (rule 50)."""

import json
from typing import Any

import pytest

from mustcall import Agent, Controls, TextDelta, Upstream
from mustcall.core.errors import StructuredOutputError
from mustcall.policy.facts.profile import Protocol
from mustcall.policy.facts.wording import fill
from mustcall.testing import Answer, Call, Say, Script, ScriptedUpstream, Turn
from support.agents import ask_body, collect, get_weather, offer, results, said, user, wrapped
from support.coordinating import AGREES, ASKED, FINAL, PROPOSAL, WORDS, always, body, models, statuses, wires

#: What the finish calls a call, and is none.
LEAK = Turn(Say('<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'), finish="tool_calls")
GOOD: dict[str, Answer] = {"proposer": PROPOSAL, "critic_1": AGREES, "critic_2": AGREES, "synthesizer": FINAL}
NATIVE = Controls(protocol=Protocol.NATIVE)


def plain(wire: str, name: str) -> dict[str, Any]:
    """A role's first request; the synthesizer is offered no tools."""
    role = name.partition("_")[0]
    return body(wire, role, tools=[] if role == "synthesizer" else [offer(wire)])


@wires
@pytest.mark.parametrize("name", ["proposer", "critic_1", "critic_2"])
async def test_every_role_is_asked_again(wire: str, name: str) -> None:
    """Rule 50: whichever role leaks, its turn is dropped whole and the same bytes are sent; others are asked once."""
    with models(wire, **{name: [LEAK, GOOD[name]]}) as panel:
        result = await panel.ask(controls=NATIVE, worker_tools=[get_weather])
        for each in GOOD:
            assert panel.bodies(each) == [plain(wire, each)] * (2 if each == name else 1)
    assert result.answer == "It is 330 metres high."
    assert (result.attempts, [role.attempts for role in result.roles if role.name == name]) == (5, [2])
    assert statuses(result, name) == [(1, "get_weather", "parse_error")]


@wires
async def test_the_synthesizer_is_asked_again(wire: str) -> None:
    """Rules 45, 50: the role without tools leaks: nothing of it is in the second request, which has a reminder."""
    with models(wire, synthesizer=[LEAK, FINAL]) as panel:
        result = await panel.ask(controls=NATIVE, worker_tools=[get_weather])
        reminder = fill(WORDS.bad_answer, problem="top level: valid JSON")
        again = [user(wire, ASKED["synthesizer"]), user(wire, reminder)]
        assert panel.bodies("synthesizer") == [plain(wire, "synthesizer"), body(wire, "synthesizer", again)]
    assert result.answer == "It is 330 metres high."


async def test_a_role_that_goes_on_leaking() -> None:
    """Rules 47, 50, 83, 85: two retries, the second with a reminder, pay both hops; one final round is left."""
    with models(proposer=always(LEAK)) as panel:
        result = await panel.ask(controls=NATIVE, worker_tools=[get_weather], check=False)
        first = plain("chat", "proposer")
        reminded = {**first, "messages": [*first["messages"], {"role": "user", "content": WORDS.text_call}]}
        held = {"response_format": body("chat", "proposer")["response_format"]}
        assert panel.bodies("proposer") == [first, first, reminded, {**first, **held, "tool_choice": "none"}]
        assert panel.bodies("synthesizer") == []
    (role,) = result.roles
    assert role.error is not None
    assert role.error.code == StructuredOutputError.code


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("step", [0, 1], ids=["first call", "behind a result"])
@wires
async def test_before_a_structured_answer(wire: str, step: int, stream: bool) -> None:
    """Rule 50: a run with `output=` retries its first call and the step behind a result alike; no text is seen."""
    call, answer = Turn(Call("get_weather", {"city": "Oslo"})), Turn(Say('{"sky":"blue"}'))
    script: Script = [LEAK, call, answer] if step == 0 else [call, LEAK, answer]
    schema = {"type": "object", "properties": {"sky": {"type": "string"}}, "required": ["sky"]}
    seen: list[Any] = []
    with ScriptedUpstream(script, strict=True) as upstream:
        where = Upstream(f"{wire}={upstream.base_url}", model="m", api_key="k")
        agent = Agent(where, tools=[get_weather], controls=NATIVE)
        if stream:
            seen, result = await collect(agent.stream("Weather?", output=schema))
        else:
            result = await agent.run("Weather?", output=schema)
        bodies = [one.body for one in upstream.requests]
    told = fill(WORDS.answer_as_json, schema=json.dumps(schema, sort_keys=True, separators=(",", ":")))
    asked = [user(wire, "Weather?")]
    number = 1 - step  # of the reply that calls
    called = said(wire, number, ("get_weather", {"city": "Oslo"}))
    after = [*asked, *called, *results(wire, number, wrapped("Sunny in Oslo"))]
    system = [{"role": "system", "content": told}] if wire == "chat" else []
    fields: dict[str, Any] = {} if wire == "chat" else {"system" if wire == "messages" else "instructions": told}
    sends = [ask_body(wire, [*system, *turns], stream=stream, **fields) for turns in (asked, after)]
    assert bodies == [sends[0], sends[step], sends[1]]
    assert (result.output, [each.result for each in result.calls if each.ok]) == ({"sky": "blue"}, ["Sunny in Oslo"])
    assert "tool_call>" not in "".join(event.text for event in seen if isinstance(event, TextDelta))
