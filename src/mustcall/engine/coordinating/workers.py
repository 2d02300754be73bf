"""Which tools the roles get: what was asked for, held against a hard list of what is allowed (rule 87).

A tool that is handed over is its own permission, unless there is a list: then the list alone decides, and what runs
is the list's tool of that name. A name alone permits nothing.
"""

from collections.abc import Iterable
from contextlib import AsyncExitStack

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.engine.tooling.definition import FunctionTool, ToolSource
from mustcall.engine.tooling.roster import Roster, ToolLike, open_roster, read_tools

__all__ = ["Accepted", "accept_tools"]


class Accepted(msgspec.Struct, frozen=True):
    """The tools that may run in this call, and the names of those that may not."""

    tools: tuple[FunctionTool, ...] = ()
    rejected: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools that may run."""
        return tuple(tool.name for tool in self.tools)


async def accept_tools(
    wanted: Iterable[str | ToolLike], allowed: Iterable[ToolLike] | None, stack: AsyncExitStack
) -> Accepted:
    """Return what of the wanted tools may run, opened; the stack closes what was. Raise `ConfigError`."""
    if isinstance(wanted, str):
        raise ConfigError(f"worker_tools must be a list of tools, not the text {wanted!r}; write [{wanted!r}]")
    asked = [each if isinstance(each, str) else read_tools([each])[0] for each in wanted]
    given = _once([each for each in asked if not isinstance(each, str)])
    permitted = await open_roster(given if allowed is None else read_tools(allowed), stack)
    names: list[str] = []
    for each in asked:
        names += await _names(each, permitted, given_openly=allowed is None)
    unique = list(dict.fromkeys(names))
    return Accepted(
        tuple(permitted.tools[name] for name in unique if name in permitted.tools),
        tuple(name for name in unique if name not in permitted.tools),
    )


def _once(tools: list[FunctionTool | ToolSource]) -> list[FunctionTool | ToolSource]:
    """Return each tool once: asking for one twice is asking for it."""
    kept: list[FunctionTool | ToolSource] = []
    for tool in tools:
        if not any(tool is other for other in kept):
            kept.append(tool)
    return kept


async def _names(each: "str | FunctionTool | ToolSource", permitted: Roster, *, given_openly: bool) -> list[str]:
    """Return the names that one entry stands for."""
    match each:
        case str():
            return [each]
        case FunctionTool():
            return [each.name]
        case _:
            if not given_openly:
                raise ConfigError(
                    f"ask for the tools of {each.name!r} by their names: the list of allowed tools has them"
                )
            return [listed.name for listed in await each.list() if listed.name in permitted.tools]
