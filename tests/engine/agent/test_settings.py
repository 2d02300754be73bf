"""What an agent is given is checked when it is made: a wrong type or word is an error that names it."""

import datetime as dt
import re
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from mustcall import (
    Agent,
    Budget,
    BudgetSpent,
    CallStatus,
    Caps,
    ConfigError,
    Controls,
    ForceUnmet,
    FunctionTool,
    GroundingRule,
    InvalidRequest,
    Limits,
    Message,
    Options,
    Stopped,
    Text,
    TurnCap,
    tool,
)
from mustcall.engine.agent.reading import checks_answers, is_small_model
from mustcall.engine.tooling.reading import Unfit, decode_text
from mustcall.testing import Call, Say, ScriptedModel, Turn


@tool
def count(n: int) -> str:
    """Count."""
    return f"counted {n}"


RULE = GroundingRule(name="r", triggers="x", tool="count")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tools": 3}, "tools must be a list: tools=[…], got 3"),
        ({"tools": count}, "tools must be a list"),
        ({"max_steps": "3"}, "max_steps must be a whole number, 1 or more, got '3'"),
        ({"max_steps": True}, "max_steps must be 1 or more, got True"),
        ({"concurrency": 0}, "concurrency must be 1 or more, got 0"),
        ({"timeout": "x"}, "timeout must be above 0 seconds, got 'x'"),
        ({"timeout": float("nan")}, "timeout must be above 0 seconds, got nan"),
        ({"on_unmet": "bogus"}, "on_unmet must be one of answer, error, got 'bogus'"),
        ({"controls": {"hold": True}}, "controls must be Controls"),
        ({"controls": Controls(hops="2")}, "controls: Expected `int`, got `str` - at `$.hops`"),  # pyrefly: ignore[bad-argument-type]  wrong on purpose
        ({"options": {"temperature": 0}}, "options must be Options"),
        ({"options": Options(stop=3)}, "options: Expected `array`, got `int` - at `$.stop`"),  # pyrefly: ignore[bad-argument-type]  wrong on purpose
        ({"options": Options(extra={"x": object()})}, "options: "),
        ({"wording": 3}, "wording must be Wording, got 3"),
        ({"compaction": 3}, "compaction must be Compaction, got 3"),
        ({"instructions": 3}, "instructions must be str, got 3"),
        ({"model": 3}, "model must be str, got 3"),
        ({"budget": {"cost_usd": 1}}, "budget must be "),
        ({"budget": Caps(calls="1")}, "budget: Expected `int`, got `str` - at `$.calls`"),  # pyrefly: ignore[bad-argument-type]  wrong on purpose
        ({"hooks": [3]}, "hooks must be functions, got 3"),
        ({"before_step": [3]}, "before_step must be functions, got 3"),
        ({"approve": 3}, "approve must be functions, got 3"),
        ({"rules": [3]}, "rules must be functions, got 3"),
        ({"hooks": print}, "hooks must be a list: hooks=[…], got <built-in function print>"),
        ({"before_step": print}, "before_step must be a list: before_step=[…], got <built-in"),
        ({"after_step": print}, "after_step must be a list: after_step=[…], got <built-in"),
        ({"rules": RULE}, "rules must be a list: rules=[…], got GroundingRule(name='r'"),
        ({"required_steps": 3}, "required_steps must be a list: required_steps=[…], got 3"),
        ({"required_steps": "count"}, "required_steps must be a list: required_steps=['count'], got 'count'"),
        ({"planner": 3}, "planner must be an Upstream or its address, got 3"),
    ],
)
def test_a_wrong_type_is_an_error_at_once(settings: dict[str, Any], said: str) -> None:
    """The setting, what it may be and what it is."""
    with pytest.raises(ConfigError, match=re.escape(said)):
        Agent(ScriptedModel(), **settings)


@pytest.mark.parametrize("settings", [{"upstream": 5}, {"planner": ScriptedModel(), "caller": 5}])
def test_what_is_no_upstream(settings: dict[str, Any]) -> None:
    """An agent on what is neither an upstream nor an address is an error at once, with the value."""
    with pytest.raises(ConfigError, match="must be an Upstream or its address, got 5"):
        Agent(**settings)


async def test_a_run_id_that_is_no_text(tmp_path: Path) -> None:
    """The id of a run is a text in each method that takes one, and nothing is sent or written for another."""
    model = ScriptedModel(["x"])
    agent = Agent(model, ledger=tmp_path / "ledger.db")
    wrong: Any = 5

    async def stream() -> None:
        async with agent.stream("x", run_id=wrong) as events:
            async for event in events:
                raise AssertionError(event)

    starts = (lambda: agent.run("x", run_id=wrong), lambda: agent.resume(wrong), stream)
    for start in (*starts, lambda: agent.submit("x", run_id=wrong)):
        with pytest.raises(ConfigError, match="run_id must be str, got 5"):
            await start()
    assert model.requests == []
    assert not (tmp_path / "ledger.db").exists()


def test_rules_of_a_run_that_are_no_list() -> None:
    """A function that gives the rules of a run gives a list of them; anything else is an error that names it."""
    wrong: list[tuple[Any, str]] = [(RULE, "must return a list of GroundingRules, got"), ([3], "must be GroundingRule")]
    for given, said in wrong:
        with pytest.raises(ConfigError, match=said):
            Agent(ScriptedModel(["x"]), tools=[count], rules=[Mock(return_value=given)]).run_sync("x")


#: No number of calls.
PART: Any = 1.5


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(extra_calls=-1), "limits: extra_calls must be 0 or more, got -1"),
        (Limits(least_seconds=float("nan")), "limits: least_seconds must be 0 or more, got nan"),
        ({"extra_calls": 1}, "limits must be Limits, got {'extra_calls': 1}"),
        (Limits(extra_calls=PART), "controls: Expected `int`, got `float`"),
    ],
    ids=["negative", "NaN", "another type", "a part of a call"],
)
def test_limits_that_no_turn_can_keep(limits: Any, said: str) -> None:
    """Rule 96: a run with such a limit is refused before anything is sent."""
    model = ScriptedModel()
    with pytest.raises(ConfigError, match=re.escape(said)):
        Agent(model, controls=Controls(limits=limits)).run_sync("go")
    assert model.requests == []


def test_words_of_a_budget() -> None:
    """Rule 94: a cap holds also where its mode is written as a word; another word is an error."""
    model = ScriptedModel(lambda seen: Call("count", {"n": len(seen.body["messages"])}))
    agent = Agent(model, tools=[count], budget=Budget(caps=Caps(calls=2), mode="enforce"), max_steps=8)  # pyrefly: ignore[bad-argument-type]  wrong on purpose
    with pytest.raises(BudgetSpent):
        agent.run_sync("go")
    assert len(model.requests) == 2
    for kind in (Budget, TurnCap):
        with pytest.raises(ConfigError, match="mode is 'bogus'; it can be 'warn', 'enforce', 'off'"):
            kind(mode="bogus")  # pyrefly: ignore[bad-argument-type]  wrong on purpose
    with pytest.raises(ConfigError, match="protocol is 'bogus'"):
        Controls(protocol="bogus")  # pyrefly: ignore[bad-argument-type]  wrong on purpose


@pytest.mark.parametrize(
    "settings",
    [
        {"timeout": float("inf")},
        {"options": Options(max_tokens=100.0)},  # pyrefly: ignore[bad-argument-type]  wrong on purpose
        {"options": Options(extra=MappingProxyType({"seed": 1}))},
        {"budget": Caps(tokens=1e6)},  # pyrefly: ignore[bad-argument-type]  wrong on purpose
        {"budget": Budget(caps=Caps(cost_usd=1))},
        {"controls": Controls(session=type("Name", (str,), {})("s"))},
    ],
)
def test_what_means_the_same_is_taken(settings: dict[str, Any]) -> None:
    """No limit of time, a whole number written as another, a mapping that is no dict."""
    model = ScriptedModel(["hello"])
    assert Agent(model, **settings).run_sync("go").text == "hello"
    assert len(model.requests) == 1


def test_a_prompt_may_be_any_messages() -> None:
    """Messages that are made one by one are a prompt, as a list of them is."""
    model = ScriptedModel(["hello"])
    said = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    assert Agent(model).run_sync(each for each in [*said, {"role": "user", "content": "three"}]).text == "hello"  # pyrefly: ignore[bad-argument-type]
    assert [each["content"] for each in model.requests[0].body["messages"]] == ["one", "two", "three"]


@pytest.mark.parametrize(
    "prompt",
    [
        None,
        3,
        [3],
        {"role": "user", "content": "x"},
        b"x",
        Text(text="x"),
        Message(role="user", parts="hi"),  # pyrefly: ignore[bad-argument-type]
    ],
)
def test_a_prompt_that_is_none(prompt: Any) -> None:
    """It is refused before the model is asked."""
    model = ScriptedModel(["hello"])
    with pytest.raises(InvalidRequest, match="prompt"):
        Agent(model).run_sync(prompt)
    assert not model.requests


def test_a_force_without_a_step_that_may_call() -> None:
    """Rule 10: the step cap comes before a force, and the result says that the force was not met."""
    model = ScriptedModel(["just text"])
    result = Agent(model, tools=[count], max_steps=1).run_sync("go", force="count")
    assert (result.text, result.force_satisfied) == ("just text", False)
    assert Agent(ScriptedModel(["text"]), tools=[count], max_steps=1).run_sync("go").force_satisfied is None


def test_a_force_may_be_the_tool_itself() -> None:
    """Rule 9: a tool, or the function it was made from, stands for its name; what is neither is an error at once."""

    def plain(n: int) -> str:
        """Plain."""
        return str(n)

    for force, name in ((count, "count"), (plain, "plain")):
        model = ScriptedModel([Call(name, {"n": 1}), "done"])
        assert Agent(model, tools=[count, plain]).run_sync("go", force=force).force_satisfied
        assert model.requests[0].body["tool_choice"]["function"]["name"] == name
    forces: list[Any] = [5, ["count"], FunctionTool]
    for wrong in forces:
        with pytest.raises(ConfigError, match="force must be True, False, a tool or its name, got"):
            Agent(ScriptedModel(["x"]), tools=[count]).run_sync("go", force=wrong)


def test_calls_that_fit_no_tool_satisfy_nothing() -> None:
    """Rule 9: a demanded call whose arguments the tool cannot take is not the call that was demanded."""

    @tool
    def book(day: dt.date) -> str:
        """Book a day."""
        return f"{day:%A}"

    model = ScriptedModel([Call("book", {"day": "tomorrow"})], default="It is Monday.")
    result = Agent(model, tools=[book]).run_sync("Book tomorrow.", force="book")
    assert [call.status for call in result.calls] == [CallStatus.SCHEMA_ERROR]
    assert result.force_satisfied is False


def test_whole_numbers_are_integers() -> None:
    """Rule 90: JSON Schema calls 1.0 an integer, and so does a tool that takes one; 1.5 is none."""
    model = ScriptedModel([Call("count", {"n": 2.0})], default="done")
    result = Agent(model, tools=[count]).run_sync("go")
    assert [call.result for call in result.calls] == ["counted 2"]
    answer = Agent(ScriptedModel(['{"value": [1.0, 2]}']), output=list[int]).run_sync("go").answer
    assert answer is not None
    assert answer == [1, 2]
    assert all(type(one) is int for one in answer)


@pytest.mark.parametrize(
    ("written", "counted"),
    [
        ("2.0", 2),
        ("9007199254740993.0", 9007199254740993),
        ("1e23", 10**23),
        ("-1.50e1", -15),
        ("12345678901234567890123456789012345678.0", 12345678901234567890123456789012345678),
    ],
)
def test_a_whole_number_is_the_one_that_was_written(written: str, counted: int) -> None:
    """Rule 131: no digit changes on the way; by way of a float 9007199254740993.0 would be another number."""
    assert decode_text(msgspec.json.Decoder(dict[str, int]), f'{{"n": {written}}}') == {"n": counted}


@pytest.mark.parametrize("written", ["1.5", "9007199254740993.5", "1e400", "1e999999999", '"1.0"'])
def test_what_is_no_integer_stays_none(written: str) -> None:
    """Rule 107: nothing is rounded, and nothing of a million digits is made."""
    with pytest.raises(Unfit):
        decode_text(msgspec.json.Decoder(dict[str, int]), f'{{"n": {written}}}')


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"amount": {"type": "integr"}}},
        {"type": "object", "properties": {"amount": {"$ref": "#/$defs/none"}}},
        {"type": "object", "required": "amount"},
        {"type": "object", "properties": {"to": {"type": "string", "pattern": "("}}},
    ],
)
def test_a_schema_with_a_fault_is_an_error(schema: dict[str, Any]) -> None:
    """Rule 90: arguments could not be checked, and the tool would run with any."""
    pay = FunctionTool("pay", "Pay.", schema, lambda _: "paid")
    with pytest.raises(ConfigError, match="tool 'pay': arguments cannot be checked by its schema, which has a fault"):
        Agent(ScriptedModel(), tools=[pay])


@pytest.mark.parametrize("said", ["no", "yes", 1, [], None])
def test_only_true_approves(said: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Rule 90: what an approval returns by mistake does not run a tool."""
    asked: list[str] = []

    def approve(_: object) -> Any:
        asked.append("asked")
        return said

    model = ScriptedModel([Call("count", {"n": 1})], default="done")
    result = Agent(model, tools=[count], approve=approve).run_sync("go")
    assert asked == ["asked"]
    assert [call.status for call in result.calls] == [CallStatus.REFUSED]
    assert "not True or False" in caplog.text


def test_calls_in_the_last_step_are_named() -> None:
    """Rule 109: a model that does nothing but call ends in an error that says in which step."""
    model = ScriptedModel([Call("count", {"n": 1}), Turn(Say("")), Turn(Say("")), Turn(Say(""))])
    controls = Controls(limits=Limits(empty=0))
    result = Agent(model, tools=[count], max_steps=2, controls=controls).run_sync("go", check=False)
    assert len(model.requests) == 2
    assert result.stopped is Stopped.FAILED
    assert result.error is not None
    assert "in step 2, the last one, no tools may be called (max_steps, step_cap)" in result.error.message


def test_errors_of_a_gateway_are_the_models() -> None:
    """Behind a gateway of ours an agent raises what it would raise without it."""
    from mustcall.testing import Fail  # noqa: PLC0415

    told = {"message": "ForceUnmet: no rung worked; 3 attempts made", "code": "force_unmet", "type": "x"}
    with pytest.raises(ForceUnmet, match="no rung worked"):
        Agent(ScriptedModel([Fail(422, told["message"], code="force_unmet")])).run_sync("go")


@pytest.mark.parametrize(
    ("address", "model", "small"),
    [
        ("embedded:qwen2.5-coder-0.5b", None, True),
        ("embedded:some-14b", None, False),
        ("embedded:/models/3b/unknown.gguf", None, False),
        ("embedded:/srv/70b/qwen-0.5b.gguf", None, True),
        ("chat=http://127.0.0.1:9/v1", "qwen3-1.7b", True),
        ("chat=http://127.0.0.1:9/v1", "local", False),
    ],
)
def test_what_is_known_of_a_models_size(address: str, model: str | None, small: bool) -> None:
    """The name says it, or the weights of a model in this process."""
    from mustcall import Upstream  # noqa: PLC0415

    upstream = Upstream(address, model=model or "local")
    assert is_small_model(upstream, upstream.model) is small
    inside = address.startswith("embedded:")
    assert checks_answers(None, upstream, small=small) is (small and inside)
    assert checks_answers("small", upstream, small=small) is small
    assert checks_answers("always", upstream, small=small)
    assert not checks_answers("off", upstream, small=small)


def test_what_a_small_model_is_not_sent_is_reported() -> None:
    """In its last step it gets the latest question alone, and the record of the step says so."""
    model = ScriptedModel([Call("count", {"n": 1}), "counted 1"], model="tiny-0.5b")
    said = [{"role": "user", "content": "I am Ada."}, {"role": "assistant", "content": "Hello."}]
    agent = Agent(model, tools=[count], max_steps=2, check_answers="small")
    result = agent.run_sync([*said, {"role": "user", "content": "Count."}])
    first, last = (each.body for each in model.requests)
    assert [each["content"] for each in first["messages"]] == ["I am Ada.", "Hello.", "Count."]
    assert last["messages"][0]["content"] == "Count."
    assert "tools" not in last
    noted = [each for each in result.steps[1].adaptations if each.kind == "part_dropped"]
    assert [each.subject for each in noted] == ["messages"]
    assert "2 earlier messages" in noted[0].detail
    assert not [each for each in result.steps[0].adaptations if each.kind == "part_dropped"]
