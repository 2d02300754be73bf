"""Prerequisites and required steps: what a model may call, and when it may answer, is enforced and not asked for."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mustcall import Agent, CallStatus, ConfigError, ForceUnmet, Stopped, Text, TextDelta, tool
from mustcall.engine.agent.hooking import StepChange, StepView
from mustcall.testing import Call, Recorded, Say, ScriptedModel, Turn
from support.agents import collect

REFUSED = "The call of `transfer` was refused: `verify` must succeed first."


def tools(log: list[str], verify: Callable[[], str] | None = None) -> list[Any]:
    """Two tools, of which the second waits for the first; `log` has what ran."""

    @tool(name="verify")
    def check() -> str:
        """Verify the customer."""
        log.append("verify")
        return verify() if verify is not None else "verified"

    @tool(prerequisites=["verify"])
    def transfer(amount: int) -> str:
        """Transfer an amount."""
        log.append(f"transfer {amount}")
        return "transferred"

    return [check, transfer]


def results_of(recorded: Recorded) -> list[str]:
    """The results in a request."""
    return [each["content"] for each in recorded.body["messages"] if each["role"] == "tool"]


async def test_a_call_that_comes_too_early() -> None:
    """A call before its prerequisite has succeeded is refused and not run; afterwards it runs."""
    log: list[str] = []
    pay = Call("transfer", {"amount": 5})
    model = ScriptedModel([pay, Call("verify"), pay, "Done."])
    result = await Agent(model, tools=tools(log)).run("Pay 5.")
    assert log == ["verify", "transfer 5"]
    assert [call.status for call in result.calls] == [CallStatus.REFUSED, CallStatus.OK, CallStatus.OK]
    assert results_of(model.requests[1]) == [f"Error: {REFUSED}"]
    assert len(model.requests) == 4


async def test_calls_of_one_reply_do_not_count_for_each_other() -> None:
    """In one reply the model has not seen that the first succeeded: the second is refused, whatever comes first."""
    log: list[str] = []
    both = [Call("verify"), Call("transfer", {"amount": 5})]
    model = ScriptedModel([Turn(*both), "Done."])
    await Agent(model, tools=tools(log)).run("Pay 5.")
    assert log == ["verify"]


async def test_a_prerequisite_that_failed_is_none() -> None:
    """Only success counts: a prerequisite that raised leaves the other refused."""
    log: list[str] = []

    def fail() -> str:
        raise ValueError("no such customer")

    model = ScriptedModel([Call("verify"), Call("transfer", {"amount": 5}), "I could not."])
    result = await Agent(model, tools=tools(log, fail)).run("Pay 5.")
    assert log == ["verify"]
    assert [call.status for call in result.calls] == [CallStatus.FAILED, CallStatus.REFUSED]


async def test_an_earlier_run_does_not_count() -> None:
    """A history can be written by anybody: what counts is what this run did."""
    log: list[str] = []
    model = ScriptedModel([Call("verify"), "Verified.", Call("transfer", {"amount": 5}), "I could not."])
    agent = Agent(model, tools=tools(log))
    second = await agent.run("Pay 5.", after=await agent.run("Verify me."))
    assert second.calls[0].status is CallStatus.REFUSED


@pytest.mark.parametrize("crash", [1, 2, 3])
async def test_an_interrupted_run_keeps_the_order(tmp_path: Path, crash: int) -> None:
    """A run that goes on after an interruption, at any of its model's turns, knows what has succeeded."""
    log: list[str] = []
    script = [Call("transfer", {"amount": 1}), Call("verify"), Call("transfer", {"amount": 2}), "Done."]
    place = str(tmp_path / "runs.db")

    def interrupted(recorded: Recorded) -> Any:
        if recorded.number == crash:
            raise asyncio.CancelledError
        return script[recorded.number]

    with pytest.raises(asyncio.CancelledError):
        await Agent(ScriptedModel(interrupted), tools=tools(log), ledger=place).run("Pay.", run_id="r")
    rest = ScriptedModel(script[crash:])
    result = await Agent(rest, tools=tools(log), ledger=place).resume("r")
    assert log == ["verify", "transfer 2"]
    assert [call.status for call in result.calls] == [CallStatus.REFUSED, CallStatus.OK, CallStatus.OK]
    assert len(rest.requests) == 4 - crash


async def test_a_required_step_is_demanded() -> None:
    """An answer without the required step is not accepted; the step is forced, and only then the run may answer."""
    log: list[str] = []
    model = ScriptedModel(["All is well.", Call("verify"), "Verified: all is well."])
    agent = Agent(model, tools=tools(log), required_steps=["verify"])
    events, result = await collect(agent.stream("Am I verified?"))
    assert (log, result.text) == (["verify"], "Verified: all is well.")
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Verified: all is well."
    texts = [part.text for each in result.messages for part in each.parts if isinstance(part, Text)]
    assert texts == ["Am I verified?", "Verified: all is well."]
    forced = model.requests[1].body["tool_choice"]
    assert forced == {"type": "function", "function": {"name": "verify"}}
    assert "tool_choice" not in model.requests[0].body
    assert "tool_choice" not in model.requests[2].body


async def test_a_required_step_with_prerequisites() -> None:
    """What has to succeed before the required step is demanded before it."""
    log: list[str] = []
    model = ScriptedModel(["Done.", Call("verify"), "Done.", Call("transfer", {"amount": 1}), "Done."])
    result = await Agent(model, tools=tools(log), required_steps=["transfer"]).run("Pay 1.")
    assert log == ["verify", "transfer 1"]
    assert [one.body.get("tool_choice", {}).get("function", {}).get("name") for one in model.requests] == [
        None, "verify", None, "transfer", None,
    ]  # fmt: skip
    assert result.stopped is Stopped.ANSWERED


def forced_by(model: ScriptedModel) -> list[str | None]:
    """The tool that each request forces."""
    choices = [one.body.get("tool_choice") for one in model.requests]
    return [each["function"]["name"] if isinstance(each, dict) else None for each in choices]


@pytest.mark.parametrize("hops", [2, 3, 4])
async def test_the_last_hops_are_kept_for_required_steps(hops: int) -> None:
    """Rule 82: a model that repeats a call spends hops; the last ones are kept for the steps that are required."""
    log: list[str] = []
    repeated = [Call("verify")] * (hops - 1)
    model = ScriptedModel([*repeated, Call("transfer", {"amount": 1}), '{"paid": true}'])
    schema = {"type": "object", "properties": {"paid": {"type": "boolean"}}, "required": ["paid"]}
    agent = Agent(model, tools=tools(log), required_steps=["transfer"])
    result = await agent.run("Pay 1.", output=schema, hops=hops)
    assert (log, result.output) == (["verify"] * (hops - 1) + ["transfer 1"], {"paid": True})
    first = "verify" if hops == 2 else None  # two hops left for two steps
    assert forced_by(model) == [first, *[None] * (hops - 2), "transfer", None]


async def test_a_demanded_step_is_not_charged_for_its_retries() -> None:
    """Rules 54, 85: a demanded step that comes on a later attempt runs; the attempt before it has not spent its hop."""
    log: list[str] = []
    other = Turn(Say('<tool_call>{"name": "transfer", "arguments": {"amount": 1}}</tool_call>'))
    model = ScriptedModel([other, Call("verify"), '{"paid": false}'])
    schema = {"type": "object", "properties": {"paid": {"type": "boolean"}}, "required": ["paid"]}
    agent = Agent(model, tools=tools(log), required_steps=["verify"])
    result = await agent.run("Am I verified?", output=schema, hops=1)
    assert (log, result.output) == (["verify"], {"paid": False})
    assert [call.status for call in result.calls] == [CallStatus.PARSE_ERROR, CallStatus.OK]
    nothing: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
    amount = {"properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
    offered: list[dict[str, Any]] = [
        {"name": "verify", "description": "Verify the customer.", "parameters": nothing},
        {"name": "transfer", "description": "Transfer an amount.", "parameters": nothing | amount},
    ]
    asked = {"role": "user", "content": "Am I verified?"}
    system = {
        "role": "system",
        "content": "Give the final answer as one JSON value that fits this JSON schema, "
        "with nothing before or after it:\n"
        '{"properties":{"paid":{"type":"boolean"}},"required":["paid"],"type":"object"}',
    }
    usual: dict[str, Any] = {
        "model": "scripted",
        "messages": [system, asked],
        "tools": [{"type": "function", "function": each} for each in offered],
    }
    called = {"id": "call_scripted_0001_0", "type": "function", "function": {"name": "verify", "arguments": "{}"}}
    mark = 'id="9d6db6da40889760"'
    told = f'<untrusted-data from="verify" {mark}>\nverified\n</untrusted-data {mark}>'
    directive = "Answer with one JSON object that calls one of these tools, with its name and arguments:\n"
    call: dict[str, Any] = {
        "type": "object",
        "properties": {"name": {"type": "string", "enum": ["verify"]}, "arguments": nothing},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
    assert [one.body for one in model.requests] == [
        usual
        | {
            "tool_choice": {"type": "function", "function": {"name": "verify"}},
            "stream": True,
            "stream_options": {"include_usage": True},
        },
        {
            "model": "scripted",
            "messages": [system, asked, {"role": "user", "content": f"{directive}- verify: Verify the customer."}],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "tool_call", "schema": call, "strict": True},
            },
        },
        usual
        | {
            "messages": [
                system,
                asked,
                {"role": "assistant", "content": None, "tool_calls": [called]},
                {"role": "tool", "tool_call_id": "call_scripted_0001_0", "content": told},
            ]
        },
    ]


async def test_the_last_step_is_kept_for_a_required_step() -> None:
    """Rule 109: at the step cap nothing may be called, so the step before it calls what is still required."""
    log: list[str] = []
    model = ScriptedModel([Call("verify"), Call("verify"), Call("transfer", {"amount": 1}), "Paid."])
    agent = Agent(model, tools=tools(log), required_steps=["transfer"], max_steps=4)
    result = await agent.run("Pay 1.")
    assert (log, result.text) == (["verify", "verify", "transfer 1"], "Paid.")
    assert forced_by(model) == [None, None, "transfer", None]


async def test_a_run_that_cannot_do_the_step_fails() -> None:
    """Without the step there is no answer: the error names it, and no turn is spent on an answer nobody may give."""

    def fail() -> str:
        raise ValueError

    log: list[str] = []
    model = ScriptedModel([Call("verify"), Call("verify"), "Well."], default="Never.")
    agent = Agent(model, tools=tools(log, fail), required_steps=["verify"], max_steps=3)
    with pytest.raises(ForceUnmet, match="may not answer before `verify` has succeeded"):
        await agent.run("Am I verified?")
    assert (log, len(model.requests)) == (["verify", "verify"], 2)


async def test_a_demand_survives_an_interruption(tmp_path: Path) -> None:
    """A run that was interrupted after an answer was not accepted demands the step when it goes on."""
    log: list[str] = []
    place = str(tmp_path / "runs.db")

    def interrupted(recorded: Recorded) -> Any:
        if recorded.number == 1:
            raise asyncio.CancelledError
        return "All is well."

    def agent(model: ScriptedModel) -> Agent:
        return Agent(model, tools=tools(log), required_steps=["verify"], ledger=place)

    with pytest.raises(asyncio.CancelledError):
        await agent(ScriptedModel(interrupted)).run("Am I verified?", run_id="r")
    rest = ScriptedModel([Call("verify"), "Verified."])
    assert (await agent(rest).resume("r")).text == "Verified."
    assert rest.requests[0].body["tool_choice"]["function"]["name"] == "verify"


async def test_two_models_keep_the_order() -> None:
    """The planner may not answer before the step either."""
    log: list[str] = []
    planner = ScriptedModel(["Answer: all is well.", "Verify first.", "Answer: verified."])
    caller = ScriptedModel([Call("verify")])
    agent = Agent(planner=planner, caller=caller, tools=tools(log), required_steps=["verify"])
    result = await agent.run("Am I verified?")
    assert (log, result.text) == (["verify"], "verified.")


def test_orders_that_cannot_be() -> None:
    """Names that are no tools, and tools that wait for each other, are refused when the agent is made."""

    def a() -> None:
        """A."""

    def b() -> None:
        """B."""

    model = ScriptedModel()
    with pytest.raises(ConfigError, match="required_steps names 'c', which is no tool of the agent: a, b"):
        Agent(model, tools=[a, b], required_steps=["c"])
    with pytest.raises(ConfigError, match="tool 'a': its prerequisite 'c' is no tool"):
        Agent(model, tools=[tool(prerequisites=["c"])(a), b])
    with pytest.raises(ConfigError, match="a → b → a"):
        Agent(model, tools=[tool(prerequisites=["b"])(a), tool(prerequisites=["a"])(b)])


@pytest.mark.parametrize("order", ["ab", "ba"])
async def test_a_reserved_step_is_one_that_is_offered(order: str) -> None:
    """Where a hook offers one tool a step, only that one is demanded, whatever the order of the required steps."""

    def one(view: StepView[Any]) -> StepChange | None:
        return StepChange(tools=[order[view.number - 1]]) if view.number <= len(order) else None

    @tool
    def a() -> str:
        """Do A."""
        return "done"

    @tool
    def b() -> str:
        """Do B."""
        return "done"

    first, second = order
    model = ScriptedModel([Call(first), Call(second), "Both are done."])
    agent = Agent(model, tools=[a, b], required_steps=["a", "b"], max_steps=3, before_step=[one])
    result = await agent.run("Do both.")
    assert (result.text, [call.name for call in result.calls]) == ("Both are done.", [first, second])
    offers = [[each["function"]["name"] for each in request.body.get("tools", [])] for request in model.requests]
    assert offers[:2] == [[first], [second]]
    for request in model.requests:
        assert request.body["messages"][0]["content"] == "Do both."
