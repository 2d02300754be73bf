"""What a server breaks on or refuses is asked for in another way, once: the calls, and the body of each."""

from collections.abc import Generator
from typing import Any

import pytest

from mustcall.testing import Call, Fail, Say, Turn
from rules.driving import UNKNOWN, WORDS, Stage, arriving, as_schema, request
from support.agents import WIRES
from support.forcing import Called, Result, User

_WEATHER = ("get_weather", {"city": "Paris"})
_ON: dict[str, dict[str, Any]] = {"chat": {"reasoning_effort": "low"}, "responses": {"reasoning": {"effort": "low"}}}


@pytest.fixture(scope="module")
def stage() -> Generator[Stage]:
    """The gateways of this module."""
    with Stage(compares=True) as made:
        yield made


@pytest.fixture(autouse=True)
def forgetful(stage: Stage) -> None:
    """Let no test teach the next."""
    stage.forget()


def whole(body: dict[str, Any]) -> dict[str, Any]:
    """Return a request that is not to be streamed."""
    return {name: value for name, value in body.items() if name not in ("stream", "stream_options")}


@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_that_breaks_is_asked_for_whole(stage: Stage, wire: str) -> None:
    """A server that answers streams with 500: after the retries the same is asked for whole, and streamed from here."""
    body = request(wire, stream=True)
    crash = Fail(500, "Internal Server Error")
    got = stage.play(crash, crash, crash, Turn(Say("Sunny."))).ask(wire, body)
    assert (got.status, got.text) == (200, "Sunny.")
    assert stage.bodies == [body, body, body, whole(body)]


@pytest.mark.parametrize("wire", WIRES)
def test_a_refused_stream_is_learnt(stage: Stage, wire: str) -> None:
    """One that says it does not stream is asked whole at once, and so is the next turn."""
    body = request(wire, stream=True)
    got = stage.play(Fail(400, "streaming is not supported"), Turn(Say("Sunny."))).ask(wire, body)
    assert got.text == "Sunny."
    assert stage.bodies == [body, whole(body)]
    again = stage.play(Turn(Say("Rain."))).ask(wire, body)
    assert (again.text, stage.bodies) == ("Rain.", [whole(body)])


def made(wire: str, *cities: str) -> list[dict[str, Any]]:
    """Return the calls of one turn and their results, in the words of a wire."""
    results = {"Paris": "Sunny", "Rome": "Rain"}
    if wire == "messages":
        uses = [{"type": "tool_use", "id": f"call_{c}", "name": "get_weather", "input": {"city": c}} for c in cities]
        told = [{"type": "tool_result", "tool_use_id": f"call_{c}", "content": results[c]} for c in cities]
        return [{"role": "assistant", "content": uses}, {"role": "user", "content": told}]
    calls = [
        {"id": f"call_{c}", "type": "function", "function": {"name": "get_weather", "arguments": f'{{"city":"{c}"}}'}}
        for c in cities
    ]
    told = [{"role": "tool", "tool_call_id": f"call_{c}", "content": results[c]} for c in cities]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *told]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", ["chat", "messages"])
def test_calls_made_together_are_told_one_by_one(stage: Stage, wire: str, *, stream: bool) -> None:
    """A server whose template takes one call a turn: each call with its result, in order, nothing lost."""
    body = request(wire, User("Weather in Paris and Rome?"), stream=stream)
    asked = body["messages"]
    refused = Fail(400, "This model only supports single tool-calls at once!")
    together = {**body, "messages": [*asked, *made(wire, "Paris", "Rome")]}
    got = stage.play(refused, Turn(Say("Sunny and rain."))).ask(wire, together)
    assert got.text == "Sunny and rain."
    assert stage.bodies == [together, {**body, "messages": [*asked, *made(wire, "Paris"), *made(wire, "Rome")]}]


@pytest.mark.parametrize("wire", list(_ON))
def test_reasoning_that_is_missed_is_not_asked_for(stage: Stage, wire: str) -> None:
    """A refusal that speaks of reasoning, of a history that has none: it is sent again without asking for reasoning."""
    steps = (User("Weather?"), Called("call_1", *_WEATHER), Result("call_1", "Sunny"))
    body = request(wire, *steps, model=UNKNOWN, **_ON[wire])
    got = stage.play(Fail(400, "Expected thinking before the call"), Turn(Say("Sunny."))).ask(wire, body)
    assert got.text == "Sunny."
    first, second = stage.bodies
    assert first == body
    assert second == {name: value for name, value in body.items() if name not in _ON[wire]}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", ["chat", "messages"])
def test_an_answer_that_is_said_to_be_calls_is_an_answer(stage: Stage, wire: str, *, stream: bool) -> None:
    """A server that ends every reply with `tool_calls`: after the retries the answer stands, its finish corrected."""
    body = request(wire, stream=stream)
    word = {"chat": "tool_calls", "messages": "tool_use"}[wire]
    said = Turn(Say("It is sunny."), finish=word)
    got = stage.play(said, said, said).ask(wire, body)
    assert (got.status, got.text) == (200, "It is sunny.")
    assert got.finish == "stop"
    assert stage.bodies == [body, body, arriving(wire, wire, WORDS.phantom_call, stream=stream)]


@pytest.mark.parametrize("wire", ["chat", "messages"])
def test_a_call_that_is_announced_and_lost_is_no_answer(stage: Stage, wire: str) -> None:
    """The text says that a call follows, and none does: a typed error, as before."""
    said = Turn(Say("Let me call get_weather."), finish={"chat": "tool_calls", "messages": "tool_use"}[wire])
    got = stage.play(said, said, said).ask(wire, request(wire))
    assert got.error
    assert stage.bodies == [request(wire), request(wire), arriving(wire, wire, WORDS.phantom_call)]


def test_a_server_that_breaks_on_a_forced_choice_is_asked_otherwise(stage: Stage) -> None:
    """500 under `required`: after the retries the next rung makes the call."""
    body = request("chat", model=UNKNOWN, tool_choice="required")
    crash = Fail(500, "Internal Server Error")
    got = stage.play(crash, crash, crash, crash, Turn(Call(*_WEATHER))).ask("chat", body)
    assert [name for name, _ in got.calls] == ["get_weather"]
    streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
    assert stage.bodies == [streamed, streamed, streamed, body, as_schema("chat", "chat", "required", model=UNKNOWN)]
