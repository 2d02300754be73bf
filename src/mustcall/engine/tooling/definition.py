"""What a tool is to the library: a name, a schema, something to run, and the limits it runs within.

This says what may be called and how; it runs nothing (`tooling.running`) and knows no model and no wire.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, cast, runtime_checkable

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.origin import JsonObject
from mustcall.core.parts import Audio, File, Image, Text, ToolCall
from mustcall.core.tools import Tool
from mustcall.engine.parameters import Deps_co
from mustcall.engine.spending.metering import Egress
from mustcall.policy.facts.checking import check_kind, check_number

__all__ = ["Approve", "Check", "FunctionTool", "SourcedTool", "ToolContext", "ToolReturn", "ToolSettings", "ToolSource"]

#: What every provider takes as a name. A force, a rule and a record must all mean the same tool by it, so a tool is not
#: renamed on the way.
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

Approve = Callable[[ToolCall], bool | Awaitable[bool]] | Callable[[ToolCall, Any], bool | Awaitable[bool]]
"""Asked before a call runs, with arguments that fit the tool's schema; False means that it does not run.

A second parameter takes the call's `ToolContext`, if it is annotated with that, else the run's dependencies.
"""

_Told = bool | str | Awaitable[bool | str | None] | None

Check = Callable[[ToolCall], _Told] | Callable[[ToolCall, Any], _Told]
"""Asked about a call that a run was interrupted in: whether it took effect.

False: it did not, and is made again. True, or a text that is its result: it did. None: that cannot be told. A second
parameter is filled as an approval's.
"""


class ToolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a tool. By default a tool has side effects and is not idempotent, so it is not retried."""

    #: Seconds one try may take. A synchronous function cannot be stopped: it is left behind, its result unread.
    timeout: float = 60.0
    #: Further tries after a failure; only for a tool that may be run again (`idempotent`, or no `side_effect`).
    retries: int = 0
    #: Running it twice with the same arguments is the same as running it once.
    idempotent: bool = False
    #: Running it changes something.
    side_effect: bool = True
    #: Asked before each call.
    approve: Approve | None = None
    #: Asked, when a durable run goes on, about a call that had begun and has no result. Without it, such a call of a
    #: tool that is not `repeatable` is reported as unknown and not made again.
    check: Check | None = None
    #: The tools that must have succeeded in the run before this one is run; a call that comes too early is refused.
    prerequisites: tuple[str, ...] = ()
    #: Characters of a result the model gets to see (rule 92); None: as many as the run's `Controls` say.
    result_cap: int | None = None
    #: Calls of this tool at the same time in one run; 0: as many as the run allows.
    concurrency: int = 0

    @property
    def repeatable(self) -> bool:
        """Whether a failed try may be repeated."""
        return self.idempotent or not self.side_effect


class ToolContext(msgspec.Struct, Generic[Deps_co], frozen=True, kw_only=True):
    """Data about the running call. A parameter with this annotation is filled in and not shown to the model.

    `call.id` is the same in every try of a call; use it as an idempotency key. If the run has a budget, a tool that
    fetches data checks and reports it through `egress` (rule 99). `deps` is the dependency of the run;
    `ToolContext[Database]` declares its type.
    """

    call: ToolCall
    step: int = 1
    egress: Egress | None = None
    deps: Deps_co = cast("Deps_co", None)  # its type is None where nobody names another


class ToolReturn(msgspec.Struct, frozen=True):
    """A result with several parts, such as text and images. `is_error` marks a failure."""

    content: tuple[Text | Image | File | Audio, ...]
    is_error: bool = False


class FunctionTool:
    """A tool with a JSON schema and a function, `async` or not, that takes the arguments as one dict."""

    def __init__(
        self,
        name: str,
        description: str | None,
        schema: JsonObject,
        run: Callable[[JsonObject], Any],
        *,
        settings: ToolSettings | None = None,
    ) -> None:
        self.name = name
        self.description = description
        self.schema = schema
        self.settings = settings or ToolSettings()
        self._run = run
        _check(self, run)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def offer(self) -> Tool:
        """The tool as a request offers it."""
        return Tool(name=self.name, description=self.description, parameters=self.schema)

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function: it runs in the event loop, not in a thread."""
        return is_async(self._run)

    def prepare(self, arguments: str, context: ToolContext[Any]) -> Callable[[], Any]:
        """Return the call, ready to run. Raise `msgspec.ValidationError` if the arguments cannot be converted.

        `arguments` is JSON that is valid under the schema.
        """
        del context
        value: JsonObject = msgspec.json.decode(arguments)
        return lambda: self._run(value)


@runtime_checkable
class ToolSource(Protocol):
    """Tools from another place, such as an MCP server.

    Tool names follow the rules of `FunctionTool`. Opening and closing may happen in different tasks, and several calls
    may run at once. `call` receives valid arguments. It raises `ToolError` with a message for the model; any other
    exception is reported by its type only.
    """

    @property
    def name(self) -> str:
        """The name of the source, for people."""
        ...

    async def open(self) -> None:
        """Connect."""
        ...

    async def list(self) -> "Sequence[SourcedTool]":
        """Return the offered tools."""
        ...

    async def call(self, name: str, arguments: JsonObject) -> "ToolReturn | str":
        """Run one call."""
        ...

    async def close(self) -> None:
        """Release all resources."""
        ...


class SourcedTool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool of a `ToolSource`: its offer and its settings."""

    name: str
    description: str | None = None
    schema: JsonObject
    settings: ToolSettings = ToolSettings()


def is_async(function: Callable[..., Any]) -> bool:
    """Tell whether calling it gives something to await: a coroutine function, or an object whose call is one."""
    from inspect import iscoroutinefunction  # noqa: PLC0415  a heavy module for one question

    return iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _check(tool: FunctionTool, run: object) -> None:
    """Raise `ConfigError` for a tool that cannot be offered or run."""
    settings = tool.settings
    if not _NAME.fullmatch(tool.name):
        raise ConfigError(
            f"a tool cannot be called {tool.name!r}: names have 1 to 64 letters, digits, `_` and `-`; give it another "
            "with name=…"
        )
    check_kind(f"tool {tool.name!r}: schema", tool.schema, Mapping, "a JSON schema as a dict")
    if not callable(run):
        raise ConfigError(f"tool {tool.name!r}: run must be a function of the arguments, got {run!r}")
    for field, asked in (("approve", settings.approve), ("check", settings.check)):
        if asked is not None and not callable(asked):
            raise ConfigError(f"tool {tool.name!r}: {field} must be a function or None, got {asked!r}")
    check_number(f"tool {tool.name!r}: timeout", settings.timeout, above=0, unit=" seconds")
    for field in ("retries", "concurrency"):
        check_number(f"tool {tool.name!r}: {field}", getattr(settings, field), least=0, whole=True)
    if settings.result_cap is not None:
        check_number(f"tool {tool.name!r}: result_cap", settings.result_cap, least=1, whole=True)
    if settings.retries and not settings.repeatable:
        raise ConfigError(
            f"tool {tool.name!r}: retries={settings.retries} would run it again after a failure; say idempotent=True "
            "or side_effect=False if that does no harm"
        )
