"""What type checkers make of agents: pyright and mypy read it in strict mode (`test_type_checkers.py`); it never runs.

Each `assert_type` is a promise of the library. The lines with an ignore must be errors: mypy complains about an ignore
that silences nothing.
"""

from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

import msgspec

from mustcall import (
    Agent,
    ExecutedCall,
    GroundingRule,
    RunEvent,
    RunFinished,
    RunResult,
    RunStream,
    ToolCall,
    ToolContext,
    tool,
)


@dataclass
class Report:
    """An answer."""

    city: str
    degrees: int


class Plan(msgspec.Struct):
    """Another answer."""

    steps: list[str]


class Row(TypedDict):
    """One more."""

    name: str


class Database:
    """What tools depend on."""

    def find(self, city: str) -> int:
        """Look something up."""
        return len(city)


@tool
def look_up(city: str, database: Database) -> int:
    """Look up a city: the database is filled in."""
    return database.find(city)


@tool(side_effect=False)
async def look_up_later(city: str, context: ToolContext[Database]) -> int:
    """Look up a city by the context."""
    assert_type(context.deps, Database)
    return context.deps.find(city)


def approve(call: ToolCall, context: ToolContext[Database]) -> bool:
    """Ask with the call and its context."""
    assert_type(call.arguments, dict[str, Any])
    assert_type(call.arguments_json, str)
    return context.deps.find(call.name) > 0


def rules_of(database: Database) -> list[GroundingRule]:
    """Give rules by what a run depends on."""
    return [GroundingRule(name="cities", triggers="city", tool="look_up")] if database.find("") else []


def decorated() -> None:
    """A tool keeps the types of its function."""
    assert_type(look_up("Oslo", Database()), int)


async def plain() -> None:
    """Without an output there is none."""
    agent = Agent("openai:gpt-5")
    assert_type(agent, Agent[None, None])
    result = await agent.run("Hello")
    assert_type(result, RunResult[None])
    assert_type(result.output, None)
    assert_type(result.text, str)
    assert_type(result.history, list[dict[str, Any]])
    again = await agent.run("Go on", after=result.history)
    assert_type(again, RunResult[None])
    assert_type(again.calls, tuple[ExecutedCall, ...])
    assert_type(again.calls[0].exception, BaseException | None)


async def typed() -> None:
    """The agent's own type is the output's, and so is the run's."""
    agent = Agent("openai:gpt-5", tools=[look_up, look_up_later], output=Report, deps=Database(), approve=approve)
    assert_type(agent, Agent[Database, Report])
    result = await agent.run("How warm?")
    assert_type(result, RunResult[Report])
    assert_type(result.output, Report)
    assert_type(result.output.degrees, int)
    assert_type(result.answer, Report | None)
    assert_type((await agent.run("Plan", output=Plan)).output, Plan)
    assert_type((await agent.run("Rows", output=list[Row])).output, list[Row])
    assert_type((await agent.run("Any", output={"type": "object"})).output, Any)
    assert_type(agent.run_sync("How warm?").output, Report)
    assert_type(agent.run_sync("Plan", output=Plan).output, Plan)
    assert_type((await agent.resume("r")).output, Report)
    assert_type(agent.resume_sync("r", output=Plan).output, Plan)
    result.output.humidity  # type: ignore[attr-defined]  # pyrefly: ignore[missing-attribute]  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnusedExpression]


async def depending() -> None:
    """Dependencies are of the agent's type."""
    agent = Agent("openai:gpt-5", tools=[look_up], deps_type=Database, rules=[rules_of])
    assert_type(agent, Agent[Database, None])
    await agent.run("Go", deps=Database())
    await agent.run("Go", deps="database")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]  # pyrefly: ignore[no-matching-overload]


async def streamed() -> None:
    """A stream has the type of its result."""
    agent = Agent("openai:gpt-5", output=Report)
    async with agent.stream("How warm?") as events:
        assert_type(events, RunStream[Report])
        async for event in events:
            assert_type(event, RunEvent)
            match event:
                case RunFinished(result):
                    assert_type(result, RunResult[Any])
                case _:
                    pass
        assert_type(events.result.output, Report)
    assert_type(agent.stream("Plan", output=Plan).result.output, Plan)


def passed_on(result: RunResult[object]) -> str:
    """A result is covariant: one of any type goes where its text is all that is wanted."""
    return result.text


def given(report: RunResult[Report]) -> str:
    """Pass a typed result on."""
    return passed_on(report)
