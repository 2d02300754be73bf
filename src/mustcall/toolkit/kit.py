"""The tools of one session: the built-in ones, those of MCP servers, and the rules that ground questions in them.

What a session may use is said once, as data; opening it starts the servers, closing it ends them. Agents are given
plain tools and know nothing of where they come from, so that a model can be changed without starting anything anew.
"""

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.engine.tooling.definition import FunctionTool
from mustcall.engine.tooling.roster import open_roster
from mustcall.policy.words.grounding import GroundingRule
from mustcall.toolkit.builtin.offer import RULES, VARIABLES, builtin_tools
from mustcall.toolkit.builtin.roots import Roots, default_roots, roots_at
from mustcall.toolkit.builtin.search import Documents
from mustcall.toolkit.mcp import McpServer
from mustcall.toolkit.reports import ChangeReports

__all__ = ["Kit", "KitSettings"]

#: What people call the built-in tools.
BUILT_IN = "built in"


class KitSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a session may use. Empty `roots` are the default ones; `only` narrows the tools to these names."""

    roots: tuple[Path, ...] = ()
    docs: Path | None = None
    mcp: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    #: The environment variables that paths may be written with (rule 80).
    variables: tuple[str, ...] = VARIABLES
    #: Whether questions that a built-in tool answers must be answered with it.
    ground: bool = True


class Kit:
    """`async with Kit(settings) as kit:` and its `tools` can be used."""

    def __init__(self, settings: KitSettings, environment: Mapping[str, str] | None = None) -> None:
        env = os.environ if environment is None else environment
        self.reports = ChangeReports()
        self.roots: Roots = roots_at(settings.roots) if settings.roots else default_roots()
        documents = None
        if settings.docs is not None:
            if not settings.docs.is_dir():
                raise ConfigError(f"--docs {os.fspath(settings.docs)!r} is not a folder")
            documents = Documents(settings.docs)
        values = {name: env[name] for name in settings.variables if env.get(name)}
        #: What the person asked, where the arguments of built-in tools are to be held to it.
        self.question: str | None = None
        self._builtin = builtin_tools(
            self.roots, documents=documents, values=values, reports=self.reports, question=lambda: self.question
        )
        taken = {tool.name for tool in self._builtin}
        self._servers = tuple(McpServer(command, taken=taken) for command in settings.mcp)
        self._only = settings.only
        self._ground = settings.ground
        self._stack: AsyncExitStack | None = None
        #: Each tool and where it comes from, once the kit is open.
        self.sources: dict[str, str] = {}
        self.tools: tuple[FunctionTool, ...] = ()

    @property
    def rules(self) -> tuple[GroundingRule, ...]:
        """The rules that ground questions in the built-in tools that are here."""
        names = {tool.name for tool in self.tools if self.sources[tool.name] == BUILT_IN}
        return tuple(rule for rule in RULES if self._ground and rule.tool in names)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            tools = list(self._builtin)
            self.sources = {tool.name: BUILT_IN for tool in tools}
            for server in self._servers:
                roster = await open_roster([server], stack)
                tools += roster.tools.values()
                self.sources |= dict.fromkeys(roster.tools, server.name)
            self.tools = self._narrowed(tools)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()

    def _narrowed(self, tools: list[FunctionTool]) -> tuple[FunctionTool, ...]:
        """Return the tools that are wanted, in their own order."""
        names = [tool.name for tool in tools]
        for name in self._only:
            if name not in names:
                raise ConfigError(f"there is no tool {name!r}; there are: {', '.join(names)}")
        return tuple(tool for tool in tools if not self._only or tool.name in self._only)
