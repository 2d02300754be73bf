"""The tools of a run: functions, schemas and sources together; what opens is closed."""

from collections.abc import Sequence
from typing import Any

import pytest

from mustcall import FunctionTool, ToolError, ToolReturn, ToolSettings, ToolSource
from mustcall.core.errors import ConfigError, ToolRefused
from mustcall.engine.tooling import SourcedTool
from mustcall.policy.facts.wording import Wording, fill
from mustcall.testing import Call, Say, ScriptedUpstream, Turn
from support.agents import WIRES, agent_on, get_weather, offer, results, run_script, wrapped

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
ANSWER = Turn(Say("Done."))


class Files:
    """A source of one tool that keeps a diary."""

    name = "files"

    def __init__(self, fails: Exception | None = None, tool: str = "read") -> None:
        self.diary: list[Any] = []
        self._fails = fails
        self._tool = tool

    async def open(self) -> None:
        """Begin."""
        self.diary.append("open")
        if self._fails is not None and not isinstance(self._fails, ToolError):
            raise self._fails

    async def list(self) -> Sequence[SourcedTool]:
        """Offer the tool."""
        return [SourcedTool(name=self._tool, description="Read.", schema=SCHEMA, settings=ToolSettings(result_cap=9))]

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolReturn | str:
        """Run it."""
        self.diary.append((name, arguments))
        if self._fails is not None:
            raise self._fails
        return f"text of {arguments['path']}"

    async def close(self) -> None:
        """End."""
        self.diary.append("close")


@pytest.mark.parametrize("wire", WIRES)
async def test_source(wire: str) -> None:
    """A source's tools are offered beside functions, called with checked arguments, capped, and it is closed."""
    files = Files()
    assert isinstance(files, ToolSource)
    script = [Turn(Call("read", {"path": "a"})), ANSWER]
    _, bodies = await run_script(wire, script, "Read a", tools=[get_weather, files])
    assert bodies[0]["tools"] == [offer(wire), offer(wire, "read", "Read.", SCHEMA)]
    shown = wrapped("text of a", "read")
    assert bodies[1]["input" if wire == "responses" else "messages"][-1:] == results(wire, 0, shown)
    assert files.diary == ["open", ("read", {"path": "a"}), "close"]


async def test_an_open_agent_opens_a_source_once() -> None:
    """`async with agent` keeps sources open between runs, and runs side by side share them."""
    files = Files()
    with ScriptedUpstream(default=ANSWER) as upstream:
        async with agent_on(upstream, "chat", tools=[files]) as agent:
            await agent.run("Hi")
            await agent.run("Hi")
        assert files.diary == ["open", "close"]
        await agent.run("Hi")
    assert files.diary == ["open", "close"] * 2


async def test_a_source_that_does_not_open() -> None:
    """It is an error before anything is sent; what was opened before is closed."""
    good, bad = Files(), Files(OSError("no such program"), tool="other")
    with ScriptedUpstream() as upstream:
        with pytest.raises(ConfigError, match="'files' cannot be opened: OSError"):
            await agent_on(upstream, "chat", tools=[good, bad]).run("Hi")
        assert upstream.requests == []
    assert good.diary == ["open", "close"]


async def test_a_source_that_fails_a_call() -> None:
    """Rule 89: its own words are one line, a denial is `refused`."""
    script = [Turn(Call("read", {"path": "a"})), ANSWER]
    for error, status in ((ToolError("not found"), "failed"), (ToolRefused("outside"), "refused")):
        result, _ = await run_script("messages", script, "Read a", tools=[Files(error)])
        assert [call.status for call in result.calls] == [status]
        said = Wording().tool_failed if status == "failed" else Wording().tool_refused
        assert result.calls[0].result == fill(said, tool="read", problem=error.message)


async def test_two_tools_of_one_name() -> None:
    """Names are told apart when the agent is made, or when a source is listed."""
    with ScriptedUpstream() as upstream:
        with pytest.raises(ConfigError, match="'get_weather'"):
            agent_on(upstream, "chat", tools=[get_weather, get_weather])
        with pytest.raises(ConfigError, match="'read'"):
            await agent_on(upstream, "chat", tools=[Files(), Files()]).run("Hi")


def test_what_is_no_tool() -> None:
    """Said when the agent is made."""
    with ScriptedUpstream() as upstream, pytest.raises(ConfigError, match="is no tool"):
        agent_on(upstream, "chat", tools=[3])


async def test_schema_tool() -> None:
    """A tool may be nothing but a schema and a function that takes a dict."""
    read = FunctionTool("read", "Read.", SCHEMA, lambda arguments: arguments["path"].upper())
    result, bodies = await run_script("chat", [Turn(Call("read", {"path": "a"})), ANSWER], "Read a", tools=[read])
    assert bodies[0]["tools"] == [offer("chat", "read", "Read.", SCHEMA)]
    assert [call.result for call in result.calls] == ["A"]
