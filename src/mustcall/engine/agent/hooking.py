"""Code of the user's around each step of a run: before the model is asked, and after its calls have their results.

A hook sees the run as it stands and may change what this one step asks. A `MustcallError` it raises ends the run; any
other exception is logged, and the step goes on without the hook. What a hook changes is never part of the history.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable
from inspect import isawaitable
from typing import Any, Generic

import msgspec

from mustcall.core.errors import MustcallError
from mustcall.core.message import Message
from mustcall.core.reply import Usage
from mustcall.engine.agent.options import Options
from mustcall.engine.parameters import Deps_co
from mustcall.engine.records import TurnRecord
from mustcall.engine.tooling.outcomes import ExecutedCall
from mustcall.telemetry.logs import log_of

__all__ = ["AfterStep", "BeforeStep", "StepChange", "StepView", "after_step", "before_step"]

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
    """Changes for one step: fewer tools, a forced tool, other instructions or options. None changes nothing."""

    tools: Collection[str] | None = None
    force: bool | str | None = None
    instructions: str | None = None
    options: Options | None = None


BeforeStep = Callable[[StepView[Any]], StepChange | Awaitable[StepChange | None] | None]
"""Called before the model is asked."""

AfterStep = Callable[[StepView[Any]], Awaitable[None] | None]
"""Called once the calls of a step have their results, or it has answered."""


async def before_step(hooks: Iterable[BeforeStep], view: StepView[Any]) -> StepChange:
    """Ask every hook what to change; a later one stands over those before it."""
    change = StepChange()
    for hook in hooks:
        given = await _called(hook, view)
        if isinstance(given, StepChange):
            named = {name: value for name, value in msgspec.structs.asdict(given).items() if value is not None}
            change = msgspec.structs.replace(change, **named)
    return change


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
