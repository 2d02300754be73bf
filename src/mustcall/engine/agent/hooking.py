"""Code of the user's around each step of a run: before the model is asked, and after its calls have their results.

A hook sees the run as it stands and may change what this one step asks. A `MustcallError` it raises ends the run, and
so does a change that cannot be made; any other exception is logged, and the step goes on without the hook. What a hook
changes is never part of the history.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable
from inspect import isawaitable
from typing import Any, Generic, cast

import msgspec

from mustcall.core.errors import ConfigError, MustcallError
from mustcall.core.message import Message
from mustcall.core.reply import Usage
from mustcall.core.text.nearest import did_you_mean
from mustcall.engine.agent.options import Options
from mustcall.engine.agent.reading import check_types
from mustcall.engine.parameters import Deps_co
from mustcall.engine.records import TurnRecord
from mustcall.engine.tooling.outcomes import ExecutedCall
from mustcall.engine.tooling.roster import Force, NamedTool, read_force, read_name
from mustcall.telemetry.logs import log_of

__all__ = ["AfterStep", "BeforeStep", "Changed", "StepChange", "StepView", "after_step", "before_step"]

_logger = log_of("mustcall.engine")


class StepView(msgspec.Struct, Generic[Deps_co], frozen=True, kw_only=True):
    """A step as hooks see it. `calls` are all calls of the run so far; `record` is set in `after_step` only."""

    number: int
    messages: tuple[Message, ...]
    tools: tuple[str, ...]
    calls: tuple[ExecutedCall, ...]
    usage: Usage
    deps: Deps_co
    record: TurnRecord | None = None


class StepChange(msgspec.Struct, frozen=True, kw_only=True):
    """Changes for one step: fewer tools, a forced tool, other instructions or options. None changes nothing.

    `tools` and `force` take names, or the tools themselves.
    """

    tools: Collection[NamedTool] | None = None
    force: Force = None
    instructions: str | None = None
    options: Options | None = None


BeforeStep = Callable[[StepView[Any]], StepChange | Awaitable[StepChange | None] | None]
"""Called before the model is asked."""

AfterStep = Callable[[StepView[Any]], Awaitable[None] | None]
"""Called once the calls of a step have their results, or it has answered."""


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """What hooks changed together, read: tools by their names."""

    tools: frozenset[str] | None = None
    force: bool | str | None = None
    instructions: str | None = None
    options: Options | None = None


async def before_step(hooks: Iterable[BeforeStep], view: StepView[Any]) -> Changed:
    """Ask every hook what to change; a later one stands over those before it.

    Raise `ConfigError` for a change that cannot be made: what a hook meant to withhold must not be offered.
    """
    change = Changed()
    for hook in hooks:
        given = await _called(hook, view)
        if given is None:
            continue
        try:
            read = _read_change(given, view.tools)
        except ConfigError as error:
            name = getattr(hook, "__name__", type(hook).__name__)
            raise ConfigError(f"the before_step hook {name!r}: {error.message}") from None
        named = {name: value for name, value in msgspec.structs.asdict(read).items() if value is not None}
        change = msgspec.structs.replace(change, **named)
    return change


def _read_change(given: object, offered: tuple[str, ...]) -> Changed:
    """Return a change with tools by their names; raise `ConfigError` for what is none."""
    if not isinstance(given, StepChange):
        raise ConfigError(f"it must return a StepChange or None, got {given!r}")
    check_types(instructions=(given.instructions, str), options=(given.options, Options))
    tools, force = _read_names(given.tools), read_force(given.force)
    for field, names in (("tools", tools or ()), ("force", (force,) if isinstance(force, str) else ())):
        for name in names:
            if name not in offered:
                listed = ", ".join(offered) or "nothing"
                raise ConfigError(
                    f"{field} names {name!r}, which is not on offer; on offer: {listed}{did_you_mean(name, offered)}"
                )
    return Changed(
        tools=None if tools is None else frozenset(tools),
        force=force,
        instructions=given.instructions,
        options=given.options,
    )


def _read_names(tools: object) -> list[str] | None:
    wanted = "tools must be a list of tools or their names"
    if tools is None:
        return None
    if isinstance(tools, str):
        raise ConfigError(f"{wanted}, got {tools!r}; write tools=[{tools!r}]")
    if not isinstance(tools, Iterable):
        raise ConfigError(f"{wanted}, got {tools!r}")
    names: list[str] = []
    for each in cast("Iterable[object]", tools):
        name = read_name(each)
        if name is None:
            raise ConfigError(f"{wanted}, got {each!r} in it")
        names.append(name)
    return names


async def after_step(hooks: Iterable[AfterStep], view: StepView[Any]) -> None:
    """Tell every hook what came of a step."""
    for hook in hooks:
        await _called(hook, view)


async def _called(hook: Callable[[StepView[Any]], Any], view: StepView[Any]) -> Any:
    try:
        given = hook(view)
        return await given if isawaitable(given) else given
    except MustcallError:
        raise
    except Exception as error:  # the user's own code
        _logger.warning("a hook of step %d failed: %s", view.number, type(error).__name__, exc_info=error)
        return None
