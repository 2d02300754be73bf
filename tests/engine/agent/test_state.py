"""Stateful Responses upstreams: what is kept there is not sent again, and only accepted replies are gone on from."""

from typing import Any

import pytest

from mustcall import Agent, Controls, Stopped, Upstream
from mustcall.core.errors import ConfigError, LoopBlocked
from mustcall.policy.facts.controls import ToolControls
from mustcall.policy.facts.wording import Wording
from mustcall.testing import Call, Say, ScriptedUpstream, Turn
from support.agents import agent_on, ask_body, collect, get_weather, results, user, wrapped

streaming = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
CALL = Turn(Call("get_weather", {"city": "Oslo"}))
ANSWER = Turn(Say("It is sunny."))


def body(turns: list[dict[str, Any]], *, stream: bool = False, **fields: Any) -> dict[str, Any]:
    """A stateful request."""
    whole = ask_body("responses", turns, stream=stream) | {"store": True} | fields
    del whole["include"]
    return whole


@streaming
async def test_only_what_is_new_is_sent(stream: bool) -> None:
    """Rules 77, 78: results go out under the id of the reply that made the calls; the next run goes on from there."""
    with ScriptedUpstream([CALL, ANSWER, Turn(Say("Yes."))], strict=True) as upstream:
        agent = agent_on(upstream, "responses", stateful=True)
        if stream:
            _, first = await collect(agent.stream("Weather?"))
            _, second = await collect(agent.stream("Sure?", after=first))
        else:
            first = await agent.run("Weather?")
            second = await agent.run("Sure?", after=first)
        bodies = [one.body for one in upstream.requests]
        ids = [f"resp_scripted_{number:04d}" for number in range(3)]
    assert first.response_id == ids[1]
    assert bodies == [
        body([user("responses", "Weather?")], stream=stream),
        body(results("responses", 0, wrapped("Sunny in Oslo")), stream=stream, previous_response_id=ids[0]),
        body([user("responses", "Sure?")], stream=stream, previous_response_id=ids[1]),
    ]
    assert (second.text, second.response_id, len(second.messages)) == ("Yes.", ids[2], 6)


async def test_a_discarded_attempt_is_never_gone_on_from() -> None:
    """Rule 78: the id handed on is that of the accepted attempt."""
    bad = Turn(Call("get_weather", {"town": "Oslo"}))
    with ScriptedUpstream([bad, CALL, ANSWER], strict=True) as upstream:
        result = await agent_on(upstream, "responses", stateful=True).run("Weather?")
    misfit = Wording().bad_arguments.format(
        problem="get_weather: top level: no fields but city; city: string, required"
    )
    asked, told = (user("responses", words) for words in ("Weather?", misfit))
    first, again, then = (
        {key: value for key, value in ask_body("responses", turns, store=True).items() if key != "include"}
        for turns in ([asked], [asked, told], results("responses", 1, wrapped("Sunny in Oslo")))
    )
    bodies = [one.body for one in upstream.requests]
    assert bodies == [first, again, {**then, "previous_response_id": "resp_scripted_0001"}]
    assert result.response_id == "resp_scripted_0002"


async def test_the_step_cap_counts_what_the_upstream_keeps() -> None:
    """Rule 109: steps are counted over the run, although each request shows one round at most."""
    with ScriptedUpstream([CALL, Turn(Call("get_weather", {"city": "Rome"})), ANSWER]) as upstream:
        result = await agent_on(upstream, "responses", stateful=True, controls=Controls(step_cap=2)).run("Weather?")
        assert [one.body.get("tool_choice") for one in upstream.requests] == [None, None, "none"]
    assert (result.stopped, len(result.calls)) == (Stopped.STEP_CAP, 2)


async def test_loops_are_seen_over_what_the_upstream_keeps() -> None:
    """Rule 108: the loop guard looks at the whole conversation."""
    controls = Controls(tools={"get_weather": ToolControls(loop_block=2)})
    with ScriptedUpstream([CALL, CALL]) as upstream, pytest.raises(LoopBlocked):
        await agent_on(upstream, "responses", stateful=True, controls=controls).run("Weather?")
    assert len(upstream.requests) == 2


async def test_a_stateless_agent_sends_the_whole_history() -> None:
    """A stateful run's messages can be gone on from anywhere else."""
    with ScriptedUpstream([CALL, ANSWER, Turn(Say("Yes."))]) as upstream:
        first = await agent_on(upstream, "responses", stateful=True).run("Weather?")
        await agent_on(upstream, "chat").run("Sure?", after=first)
        assert [turn["role"] for turn in upstream.requests[2].body["messages"]] == [
            "user",
            "assistant",
            "tool",
            "assistant",
            "user",
        ]


@pytest.mark.parametrize("wire", ["chat", "messages"])
def test_only_responses_keep_state(wire: str) -> None:
    """Other wires have no state to go on from: said when the upstream is made."""
    with pytest.raises(ConfigError, match="responses wire"):
        Agent(Upstream(f"{wire}=http://127.0.0.1:9/v1", model="m", stateful=True), tools=[get_weather])
