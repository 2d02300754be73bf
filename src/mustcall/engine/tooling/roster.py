"""The tools of a run by their names: functions as they are, and what sources list once they are open."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any, cast

from mustcall.core.errors import ConfigError, MustcallError
from mustcall.core.origin import JsonObject
from mustcall.core.tools import Tool
from mustcall.engine.tooling.definition import FunctionTool, SourcedTool, ToolSource
from mustcall.engine.tooling.functions import DecoratedTool, name_for, tool
from mustcall.policy.facts.checking import check_kind
from mustcall.policy.schema.validation import schema_fault
from mustcall.telemetry.logs import log_of

__all__ = ["Force", "NamedTool", "Roster", "ToolLike", "open_roster", "read_force", "read_name", "read_tools"]

_logger = log_of("mustcall.tools")

ToolLike = FunctionTool | ToolSource | Callable[..., Any]
"""What an agent takes as a tool: one, a source of many, or a function to make one from."""

NamedTool = str | FunctionTool | Callable[..., Any]
"""One tool: its name, itself, or the function that an agent made it from."""

Force = bool | NamedTool | None
"""What a call is demanded of: any tool (True), none (False), or one."""


class Roster:
    """Tools by name."""

    def __init__(self, tools: Iterable[FunctionTool]) -> None:
        self.tools: dict[str, FunctionTool] = {}
        for each in tools:
            if each.name in self.tools:
                raise ConfigError(f"two tools are called {each.name!r}; give each a name of its own")
            self.tools[each.name] = each

    @property
    def offers(self) -> tuple[Tool, ...]:
        """The tools as a request offers them, in order."""
        return tuple(each.offer for each in self.tools.values())


def read_tools(given: Iterable[ToolLike], deps_type: type[Any] | None = None) -> tuple[FunctionTool | ToolSource, ...]:
    """Return tools and sources, functions made into tools; raise `ConfigError` for anything else.

    `deps_type` is what the agent's tools may depend on.
    """
    check_kind("tools", given, Iterable, "a list: tools=[…]")
    read: list[FunctionTool | ToolSource] = []
    for each in given:
        if isinstance(each, DecoratedTool):
            read.append(cast("DecoratedTool[..., Any]", each).taking(deps_type))  # what it takes and gives is its own
        elif isinstance(each, FunctionTool | ToolSource):
            read.append(each)
        elif callable(each):
            read.append(tool(each).taking(deps_type))
        else:
            raise ConfigError(f"{each!r} is no tool: pass a function, a FunctionTool or a ToolSource")
    for each in read:
        if isinstance(each, FunctionTool):
            _check_schema(each)
    return tuple(read)


def read_name(tool: object) -> str | None:
    """Return the name of a tool that is named, or given as it was to the agent; None for anything else."""
    if isinstance(tool, str):
        return tool
    if isinstance(tool, FunctionTool):
        return tool.name
    return name_for(tool) if callable(tool) and not isinstance(tool, type) else None


def read_force(force: object) -> bool | str | None:
    """Return a force with its tool's name; raise `ConfigError` for what is none."""
    if force is None or isinstance(force, bool):
        return force
    name = read_name(force)
    if name is None:
        raise ConfigError(f"force must be True, False, a tool or its name, got {force!r}")
    return name


def _check_schema(each: FunctionTool) -> None:
    """Raise `ConfigError` for a schema with a fault: nothing could be checked by it, and the tool would run unchecked.

    What a source lists is not the caller's to mend, so it is reported in the turn instead.
    """
    fault = schema_fault(each.schema)
    if fault is not None:
        place = "/".join(map(str, fault))
        raise ConfigError(
            f"tool {each.name!r}: arguments cannot be checked by its schema, which has a fault"
            + (f" at {place}" if place else "")
        )


async def open_roster(given: Sequence[FunctionTool | ToolSource], stack: AsyncExitStack) -> Roster:
    """Open the sources and return every tool; `stack` closes what was opened."""
    tools: list[FunctionTool] = []
    for each in given:
        if isinstance(each, FunctionTool):
            tools.append(each)
            continue
        try:
            await each.open()
            stack.push_async_callback(_close, each)
            tools += [_from(each, listed) for listed in await each.list()]
        except MustcallError:
            raise
        except Exception as error:
            raise ConfigError(f"the tool source {each.name!r} cannot be opened: {type(error).__name__}") from error
    return Roster(tools)


async def _close(source: ToolSource) -> None:
    try:
        await source.close()
    except Exception as error:  # noqa: BLE001  a source's own code; the run is over and its result stands
        _logger.warning("tool source %s did not close cleanly: %s", source.name, type(error).__name__)


def _from(source: ToolSource, listed: SourcedTool) -> FunctionTool:
    async def run(arguments: JsonObject) -> Any:
        return await source.call(listed.name, arguments)

    return FunctionTool(listed.name, listed.description, listed.schema, run, settings=listed.settings)
