"""What an agent is given, read and checked: addresses into upstreams, words into settings. It starts nothing."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from enum import StrEnum
from types import UnionType
from typing import Any, TypeVar, cast

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.engine.agent.upstream import Upstream
from mustcall.engine.spending.budget_account import Budget, Metering
from mustcall.engine.spending.metering import Meter
from mustcall.engine.turns import OperatorSettings, Turns
from mustcall.policy.facts.checking import check_kind
from mustcall.policy.facts.model_size import is_small
from mustcall.policy.limits.budget import Caps
from mustcall.policy.reply.faithfulness import AnswerCheck
from mustcall.upstream.embedded.store import is_embedded
from mustcall.upstream.endpoint import Endpoint

__all__ = [
    "check_callables",
    "check_outside",
    "check_types",
    "checks_answers",
    "is_small_model",
    "metering_of",
    "read_deps",
    "read_list",
    "read_setting",
    "read_upstream",
    "the_caller",
    "turns_on",
]


def the_caller(upstream: Upstream | str | None, caller: Upstream | str | None, *, planned: bool) -> Upstream:
    """Return the upstream whose model makes the calls; raise `ConfigError` where it is not named once."""
    if caller is not None and not planned:
        raise ConfigError("caller= is the second of two models: pass planner= as well, or the upstream alone")
    if (upstream is None) == (caller is None):
        raise ConfigError("an agent needs exactly one upstream: Agent('chat=…', …), or Agent(planner=…, caller=…)")
    one = upstream if caller is None else caller
    assert one is not None, "one of them is there"
    return read_upstream("upstream" if caller is None else "caller", one)


def read_upstream(name: str, given: Upstream | str) -> Upstream:
    """Return an upstream by its address, or as it is; raise `ConfigError` for anything else."""
    check_kind(name, given, Upstream | str | Endpoint, "an Upstream or its address")
    return given if isinstance(given, Upstream) else Upstream(given)


async def turns_on(upstream: Upstream, operator: OperatorSettings, stack: AsyncExitStack) -> Turns:
    """Return turns on an upstream; the stack closes its connections."""
    transport = await stack.enter_async_context(upstream.connected())
    turns = Turns(transport, upstream.clock, operator)
    turns.learnt = upstream.learnt
    return turns


_S = TypeVar("_S", bound=StrEnum)
_T = TypeVar("_T")


def read_setting(name: str, kind: type[_S], given: str) -> _S:
    """Return a setting by its word; raise `ConfigError`."""
    try:
        return kind(given)
    except ValueError:
        raise ConfigError(f"{name} must be one of {', '.join(kind)}, got {given!r}") from None


def check_types(**settings: tuple[object, type[Any] | UnionType]) -> None:
    """Raise `ConfigError` for a setting, or a field of one, that is not of its type; None stands for the default."""
    for name, (value, kind) in settings.items():
        if value is None:
            continue
        check_kind(name, value, kind)
        if isinstance(value, msgspec.Struct):
            try:
                _check_fields(value)
            except (TypeError, ValueError) as error:
                raise ConfigError(f"{name}: {error}") from None


def _check_fields(settings: msgspec.Struct) -> None:
    """Raise `ValueError` or `TypeError` for what is of another type, or on no wire. 1e6 is a whole number."""
    fields = msgspec.structs.asdict(settings)
    whole = {name: int(value) for name, value in fields.items() if isinstance(value, float) and value.is_integer()}
    msgspec.convert({**fields, **whole}, type(settings))
    for value in fields.values():
        if isinstance(value, msgspec.Struct):
            _check_fields(value)
        elif isinstance(value, Mapping):
            msgspec.to_builtins(dict(cast("Mapping[str, Any]", value)))


def read_list(name: str, given: Iterable[_T]) -> tuple[_T, ...]:
    """Return what a setting lists; raise `ConfigError` for what is no list, a text included."""
    check_kind(name, given, Iterable, f"a list: {name}=[…]")
    if isinstance(given, str):
        raise ConfigError(f"{name} must be a list: {name}=[{given!r}], got {given!r}")
    return tuple(given)


def check_callables(**settings: Iterable[object]) -> None:
    """Raise `ConfigError` for what cannot be called."""
    for name, given in settings.items():
        for each in given:
            if not callable(each):
                raise ConfigError(f"{name} must be functions, got {each!r}")


def checks_answers(given: str | None, upstream: Upstream, *, small: bool) -> bool:
    """Tell whether a model's answers are held against the results of its calls."""
    usual = AnswerCheck.SMALL if is_embedded(upstream.endpoint.base_url) else AnswerCheck.OFF
    check = usual if given is None else read_setting("check_answers", AnswerCheck, given)
    return check is AnswerCheck.ALWAYS or (check is AnswerCheck.SMALL and small)


def is_small_model(upstream: Upstream, model: str) -> bool:
    """Tell whether a model is known to be small: by its name, or by its weights where it runs in this process."""
    address = upstream.endpoint.base_url
    weights = re.split(r"[:/\\]", address)[-1] if is_embedded(address) else ""  # not what its folders say
    return is_small(weights or model)


def metering_of(budget: Budget | Caps | None, upstream: Upstream, meter: Meter) -> Metering | None:
    """Return what counts an agent's spending; None where nothing bounds it."""
    if budget is None:
        return None
    if isinstance(budget, Caps):
        budget = Budget(caps=budget)
    return Metering(budget, upstream.clock, meter=meter, breakers=upstream.breakers)


def check_outside(name: str) -> None:
    """Raise `ConfigError` inside an event loop, where the asynchronous form is the one to use."""
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise ConfigError(f"{name}_sync cannot be used inside an event loop; write `await agent.{name}(…)` there")


def read_deps(given: Any, own: Any, kind: type[Any] | None) -> Any:
    """Return what a run's tools depend on: what the run is given, else the agent's own; raise `ConfigError`."""
    value = own if given is None else given
    if kind is None or isinstance(value, kind):
        return value
    if value is None:
        raise ConfigError(f"this agent's tools depend on {kind.__name__}: pass deps=… to the run, or to the Agent")
    raise ConfigError(f"deps must be {kind.__name__}, as the agent's deps_type says, got {type(value).__name__}")
