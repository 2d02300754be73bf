"""The typed library at run time: outputs, dependencies by type, parsed arguments, reprs, traces, plain histories."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from mustcall import (
    Agent,
    BadArguments,
    CallStatus,
    ConfigError,
    ExecutedCall,
    GroundingRule,
    InvalidRequest,
    RunResult,
    Stopped,
    StructuredOutputError,
    ToolCall,
    ToolContext,
    Upstream,
    tool,
)
from mustcall.core.parts import CallKind
from mustcall.testing import Call, Fail, Refuse, ScriptedModel, Turn
from support.agents import collect


@dataclass
class Report:
    """An answer."""

    city: str
    degrees: int


class Database:
    """What tools depend on: no JSON schema can say it."""

    def __init__(self, degrees: int = 21) -> None:
        self.degrees = degrees


@dataclass
class Account:
    """A dependency that a schema could say."""

    owner: str


@dataclass
class Both:
    """Two dependencies."""

    database: Database
    account: Account


@tool
def measure(city: str, database: Database) -> str:
    """Measure the temperature of a city."""
    return f"{city}: {database.degrees}"


@tool
def by_context(city: str, context: ToolContext[Database]) -> str:
    """Measure by the context."""
    return f"{city}: {context.deps.degrees}"


FITS = '{"city": "Oslo", "degrees": 21}'


async def test_the_agents_own_output() -> None:
    """A type on the agent is that of every run that asks for none of its own, stored runs included."""
    agent = Agent(ScriptedModel([FITS, '{"value": [1, 2]}', FITS]), output=Report)
    assert (await agent.run("How warm?")).output == Report("Oslo", 21)
    assert (await agent.run("Numbers?", output=list[int], hops=0)).output == [1, 2]
    _, streamed = await collect(agent.stream("How warm?"))
    assert streamed.output == Report("Oslo", 21)


async def test_the_output_of_a_stored_run(tmp_path: Any) -> None:
    """What a ledger gives back is of the agent's type again, also where the run goes on from the ledger alone."""
    agent = Agent(ScriptedModel([FITS]), output=Report, ledger=str(tmp_path / "runs.db"))
    assert (await agent.run("How warm?", run_id="r")).output == Report("Oslo", 21)
    assert (await agent.resume("r")).output == Report("Oslo", 21)
    with pytest.raises(InvalidRequest):
        await agent.run("How warm?", run_id="r", output=list[int])


async def test_an_answer_that_is_null(tmp_path: Any) -> None:
    """None can be the answer: that it was given is known by how the run ended, in a ledger, too."""
    schema = {"type": ["integer", "null"]}
    agent = Agent(ScriptedModel(['{"value": null}']), ledger=str(tmp_path / "runs.db"))
    assert (await agent.run("How many?", output=schema, run_id="r")).output is None
    again = await agent.resume("r", output=schema)
    assert (again.output, again.structured, again.answered) == (None, True, True)


async def test_no_output_is_an_error_where_one_was_asked_for() -> None:
    """`output` is never a None that the type does not say: a run that was refused raises, `answer` is None."""
    agent = Agent(ScriptedModel([Turn(Refuse("No."))] * 2), output=Report)
    result = await agent.run("How warm?")
    assert (result.stopped, result.answer) == (Stopped.REFUSED, None)
    with pytest.raises(StructuredOutputError, match="it ended as refused"):
        _ = result.output
    plain: RunResult[None] = RunResult(text="Hi", messages=(), stopped=Stopped.FAILED)
    assert plain.output is None


@pytest.mark.parametrize("tools", [[measure], [by_context]], ids=["by type", "by context"])
async def test_dependencies_are_filled_in(tools: list[Any]) -> None:
    """A parameter of the dependencies' type is filled in by the run and never offered."""
    name = tools[0].name
    model = ScriptedModel([Call(name, {"city": "Oslo"}), "21.", Call(name, {"city": "Rome"}), "30."])
    agent = Agent(model, tools=tools, deps=Database())
    assert (await agent.run("How warm?")).calls[0].result == "Oslo: 21"
    assert (await agent.run("How warm?", deps=Database(30))).calls[0].result == "Rome: 30"
    offered = model.requests[0].body["tools"][0]["function"]["parameters"]
    assert list(offered["properties"]) == ["city"]


async def test_dependencies_that_a_schema_could_say() -> None:
    """The very type of the dependencies is theirs; without such an agent the model fills the parameter in."""

    def owner_of(account: Account) -> str:
        """Tell the owner."""
        return account.owner

    model = ScriptedModel([Call("owner_of", {}), "Ada."])
    result = await Agent(model, tools=[tool(owner_of)], deps=Account("Ada")).run("Who?")
    assert result.calls[0].result == "Ada"
    model = ScriptedModel([Call("owner_of", {"account": {"owner": "Eve"}}), "Eve."])
    assert (await Agent(model, tools=[owner_of]).run("Who?")).calls[0].result == "Eve"


async def test_plain_dependencies_take_no_parameter() -> None:
    """A text as a dependency is no other text: what the model has to say stays its own."""

    def greet(name: str, context: ToolContext[str]) -> str:
        """Greet somebody."""
        return f"{context.deps}, {name}"

    model = ScriptedModel([Call("greet", {"name": "Ada"}), "Greeted."])
    assert (await Agent(model, tools=[greet], deps="Hello").run("Greet Ada.")).calls[0].result == "Hello, Ada"


async def test_an_attribute_of_the_dependencies() -> None:
    """A parameter of a type without a schema takes the one attribute that is declared as it."""
    model = ScriptedModel([Call("measure", {"city": "Oslo"}), "7."])
    agent = Agent(model, tools=[measure], deps=Both(Database(7), Account("Ada")))
    assert (await agent.run("How warm?")).calls[0].result == "Oslo: 7"


async def test_dependencies_that_are_missing_or_wrong() -> None:
    """What a tool needs and nobody gives is said before anything is sent, with the fix."""
    model = ScriptedModel()
    with pytest.raises(ConfigError, match="'measure': the parameter 'database' is of the type Database"):
        Agent(model, tools=[measure])
    agent = Agent(model, tools=[measure], deps_type=Database)
    with pytest.raises(ConfigError, match="pass deps=… to the run"):
        await agent.run("How warm?")
    wrong: Any = "database"
    with pytest.raises(ConfigError, match=r"deps must be Database.*got str"):
        await agent.run("How warm?", deps=wrong)
    assert model.requests == []


async def test_approvals_and_rules_get_dependencies() -> None:
    """An approval's second parameter takes the context or the dependencies; a rule that is a function takes them."""

    def small(call: ToolCall, account: Account) -> bool:
        return call.arguments["amount"] < 10 and account.owner == "Ada"

    @tool(approve=small)
    def pay(amount: int) -> str:
        """Pay an amount."""
        return f"paid {amount}"

    def rules_of(account: Account) -> list[GroundingRule]:
        return [GroundingRule(name="paying", triggers="pay", tool="pay")] if account.owner == "Ada" else []

    for owner, status, force in (("Ada", CallStatus.OK, True), ("Eve", CallStatus.REFUSED, None)):
        model = ScriptedModel([Call("pay", {"amount": 3}), "Done."])
        agent = Agent(model, tools=[pay], deps=Account(owner), rules=[rules_of])
        result = await agent.run("Please pay three.")
        assert (result.calls[0].status, result.force_satisfied) == (status, force)


def test_arguments_are_parsed() -> None:
    """`arguments` are values, `arguments_json` the text; what is no object raises, and never is an empty one."""
    call = ToolCall(id="c", name="f", arguments_json='{"n": 1}')
    assert call.arguments == {"n": 1}
    assert ToolCall(id="c", name="f", arguments_json=" ").arguments == {}
    assert ToolCall(id="c", name="f", arguments_json="raw", kind=CallKind.CUSTOM).arguments == {"input": "raw"}
    for text in ("[1]", '{"n":', "n=1"):
        with pytest.raises(BadArguments, match="'f' are not a JSON object"):
            _ = ToolCall(id="c", name="f", arguments_json=text).arguments


async def test_reprs_are_short() -> None:
    """What a prompt shows of a result fits a line or two, whatever was said."""
    model = ScriptedModel([Call("measure", {"city": "x" * 500}), "y" * 5000])
    result = await Agent(model, tools=[measure], deps=Database()).run("z" * 5000)
    assert len(repr(result)) < 150
    assert repr(result).startswith("RunResult(answered, text='yyy")
    assert len(repr(result.steps[0])) < 200
    short = ToolCall(id="c1", name="f", arguments_json="{}")
    assert repr(short) == "ToolCall(id='c1', name='f', arguments_json='{}')"
    call = ExecutedCall(call=short, result="r" * 999, status=CallStatus.OK)
    assert len(repr(call)) < 160


async def test_a_trace_for_people() -> None:
    """Steps, calls, what a tool raised and what it came to, as text and as a table; HTML is escaped."""

    @tool
    def fail(text: str) -> str:
        """Fail."""
        raise KeyError(text)

    model = ScriptedModel([Call("fail", {"text": "<b>"}), "It <failed>."])
    result = await Agent(model, tools=[fail]).run("Go")
    trace = result.trace()
    lines = str(trace).splitlines()
    assert [line.split()[0] for line in lines] == ["1", "1", "2", "run", "tokens"]
    assert "fail(text='<b>')" in lines[1]
    assert "failed: KeyError: '<b>'" in lines[1]
    assert "It <failed>." in lines[3]
    shown = result._repr_html_()
    assert shown == trace._repr_html_()
    assert shown.count("<tr>") == 1 + len(trace.rows)
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown


async def test_the_trace_of_a_failed_run() -> None:
    """Attempts that were not accepted are told one by one, and so is the error."""
    result = await Agent(ScriptedModel([Fail(400, "no")])).run("Go", check=False)
    told = str(result.trace())
    assert "attempt 1" in told
    assert result.error is not None
    assert f"error {result.error.code}" in told


async def test_a_history_is_plain_data() -> None:
    """A history survives JSON and goes on: what is sent is what would have been sent."""
    first = ScriptedModel([Call("measure", {"city": "Oslo"}), "21.", "As I said."])
    agent = Agent(first, tools=[measure], deps=Database())
    result = await agent.run("How warm?")
    stored = json.loads(json.dumps(result.history))
    after = await agent.run("Again?", after=stored)
    second = ScriptedModel(["As I said."])
    expected = await Agent(second, tools=[measure], deps=Database()).run("Again?", after=result)
    assert after.messages == expected.messages
    assert first.requests[-1].body["messages"] == second.requests[-1].body["messages"]
    with pytest.raises(InvalidRequest, match="message 0 of the prompt cannot be read"):
        await agent.run("Again?", after=[{"role": "nobody", "parts": []}])


def test_an_upstream_by_its_shorthand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider and a model are an upstream; its key is in the provider's usual variable."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    upstream = Upstream("openai:gpt-5")
    assert (upstream.model, upstream.endpoint.name) == ("gpt-5", "openai")
    assert Agent("openai:gpt-5").model == "gpt-5"
