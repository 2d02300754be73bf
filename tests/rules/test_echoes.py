"""Rule 146: what the layer itself puts around data never appears in an answer, on any wire, streamed or not."""

from collections.abc import Generator
from typing import Any

import pytest

from mustcall.engine.tooling.wrapping import wrapped
from mustcall.policy.history.containment import TAG
from mustcall.telemetry.events import Event, Repaired, TurnEnded
from mustcall.testing import Call, RunningGateway, Say, ScriptedUpstream, Turn
from rules.driving import GRID, PATHS, UNKNOWN, WAYS, WORDS, Stage, arriving, request
from support.agents import WIRES, agent_on, collect
from support.forcing import Called, Result, User
from support.http import post

ECHO = f'It is: <{TAG} from="get_weather">\nSunny, 20 degrees.\n</{TAG}>\nEnjoy!'
CLEAR = "It is: Sunny, 20 degrees.\nEnjoy!"


@pytest.fixture(scope="module")
def stage() -> Generator[Stage]:
    """The gateways of this module."""
    with Stage(compares=True) as made:
        yield made


def after_a_result(wire: str, result: str, question: str = "Weather in Paris?", **fields: Any) -> dict[str, Any]:
    """A request whose tool result is there."""
    called = Called("call_1", "get_weather", {"city": "Paris"})
    return request(wire, User(question), called, Result("call_1", result), **fields)


@pytest.mark.parametrize(("caller", "upstream", "stream"), GRID)
def test_no_wrapper_in_an_answer(stage: Stage, caller: str, upstream: str, *, stream: bool) -> None:
    """Rule 146: tags around a result that come back are taken out and reported, across wires, whatever the chunks."""
    body = after_a_result(caller, wrapped("get_weather", "Sunny, 20 degrees."), stream=stream)
    for chunking in (None, 3, 17):
        got = stage.play(Turn(Say(ECHO)), chunking=chunking).ask(caller, body, upstream)
        assert got.text == CLEAR
        assert TAG.encode() not in got.raw
        if not stream:
            assert "markup_stripped" in str(got.adaptations)


@pytest.mark.parametrize("chunking", [None, 3])
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_what_is_taken_out_is_told(wire: str, *, stream: bool, chunking: int | None) -> None:
    """Rule 146: a wrapper and a reminder that come back are one `Repaired` event each, of a stream as well."""
    echoed = after_a_result(wire, wrapped("get_weather", "Sunny, 20 degrees."), model=UNKNOWN, stream=stream)
    empty = request(wire, User("Hi"), model=UNKNOWN, temperature=0, stream=stream)
    reminder = arriving(wire, wire, WORDS.empty)["input" if wire == "responses" else "messages"][-1]
    key = "input" if wire == "responses" else "messages"
    script = [Turn(Say(ECHO)), Turn(Say("")), Turn(Say(f"{WORDS.empty} Hello."))]
    told: list[list[str]] = []
    with (
        ScriptedUpstream(script, chunking=chunking) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}") as gateway,
        gateway.app.events.subscribe() as events,
    ):
        for body in (echoed, empty):
            assert post(gateway.url + PATHS[wire], body).status == 200
            heard: list[Event] = []
            while not any(isinstance(one, TurnEnded) for one in heard):
                heard += events.take(20.0)
            told.append([one.class_ for one in heard if isinstance(one, Repaired)])
        reminded = {**empty, key: [*empty[key], reminder]}
        assert [one.body for one in upstream.requests] == [echoed, empty, reminded]
    assert [kinds.count("markup_stripped") for kinds in told] == [1, 1]


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_a_healthy_answer_is_untouched(stage: Stage, wire: str, *, stream: bool) -> None:
    """Rule 146: an answer without an echo is what came, also where one was possible; comparisons flow."""
    text = "Is 3 < 4? Yes, and <b>20</b> is enough. No more"
    body = after_a_result(wire, wrapped("get_weather", "Sunny, 20 degrees."), stream=stream)
    got = stage.play(Turn(Say(text))).ask(wire, body)
    assert got.text == text
    assert got.adaptations == []


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_who_speaks_of_the_tags_keeps_them(stage: Stage, wire: str, *, stream: bool) -> None:
    """Rule 122: without a result of ours, and where the user speaks of the tags, they are the answer's own."""
    text = f"The tag <{TAG}> marks data."
    asked = f"What does <{TAG}> mean?"
    got = stage.play(Turn(Say(text))).ask(wire, request(wire, User(asked), stream=stream))
    assert got.text == text
    body = after_a_result(wire, wrapped("get_weather", "Sunny"), asked, stream=stream)
    assert stage.play(Turn(Say(text))).ask(wire, body).text == text
    assert stage.play(Turn(Say(text))).ask(wire, after_a_result(wire, "Sunny", stream=stream)).text == text


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_nothing_but_an_echo_is_no_answer(stage: Stage, wire: str, *, stream: bool) -> None:
    """Rule 146: a reply of nothing but our own words is an empty one, and is asked for again."""
    body = after_a_result(wire, wrapped("get_weather", "Sunny"), stream=stream)
    got = stage.play(Turn(Say(f'<{TAG} from="get_weather">')), Turn(Say("It is sunny."))).ask(wire, body)
    key = "input" if wire == "responses" else "messages"
    reminder = arriving(wire, wire, WORDS.empty)[key][-1]
    assert stage.bodies == [body, {**body, key: [*body[key], reminder]}]
    assert got.text == "It is sunny."


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_no_reminder_in_an_answer(stage: Stage, wire: str, *, stream: bool) -> None:
    """Rule 146: a reminder that was sent and comes back is taken out of the answer that follows it."""
    again = Turn(Say(f"{WORDS.empty} It is sunny."))
    body = request(wire, model=UNKNOWN, temperature=0, stream=stream)
    got = stage.play(Turn(Say("")), Turn(Say("")), again).ask(wire, body)
    reminded = arriving(wire, wire, WORDS.empty, model=UNKNOWN, temperature=0, stream=stream)
    assert stage.bodies == [body, reminded, reminded]
    assert got.text.strip() == "It is sunny."


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", WIRES)
async def test_an_agents_answer_and_history(wire: str, *, stream: bool) -> None:
    """Rule 146: neither the answer of a run nor its history holds a wrapper, and the step reports it."""
    script = [Turn(Call("get_weather", {"city": "Paris"})), Turn(Say(ECHO))]
    with ScriptedUpstream(script) as upstream:
        agent = agent_on(upstream, wire)
        result = (await collect(agent.stream("Weather?")))[1] if stream else await agent.run("Weather?")
    assert result.text == CLEAR
    assert TAG not in str(result.messages[-1])
    assert [str(change.kind) for change in result.steps[-1].adaptations] == ["markup_stripped"]
