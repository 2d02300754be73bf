"""Parameters that a run fills in by their type, and no model: the context of a call, and what the agent depends on.

A parameter annotated with `ToolContext` (or `ToolContext[Deps]`) takes the context. One annotated with the agent's
`deps_type` takes the dependencies. One of a class that no JSON schema can say takes them as well where they are of that
class, or the one attribute of theirs that is declared as it.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_origin, get_type_hints

from mustcall.core.memo import kept
from mustcall.core.parts import ToolCall
from mustcall.engine.tooling.definition import ToolContext

__all__ = ["Fill", "asked_with", "filling", "takes_context"]

Fill = Callable[[ToolContext[Any]], Any]
"""Gives a parameter its value."""


def takes_context(hint: Any) -> bool:
    """Tell whether a parameter is for the context of the call."""
    return hint is ToolContext or get_origin(hint) is ToolContext


def give_context(context: ToolContext[Any]) -> Any:
    """Fill a parameter with the context."""
    return context


def give_deps(context: ToolContext[Any]) -> Any:
    """Fill a parameter with what the agent depends on."""
    return context.deps


def filling(hint: Any, deps_type: type[Any] | None, *, sayable: bool) -> Fill | None:
    """Return how a run fills a parameter of this type; None for one that a model fills in.

    `sayable` tells whether a model could: then only the very type of the dependencies is theirs.
    """
    if takes_context(hint):
        return give_context
    if deps_type is None or not isinstance(hint, type) or hint.__module__ == "builtins":
        return None  # a plain text or number says nothing of whose it is; the context has such dependencies
    if hint is deps_type:
        return give_deps
    if sayable:
        return None
    if _is_kind_of(deps_type, hint):
        return give_deps
    named = [name for name, declared in _attributes(deps_type).items() if _is_kind_of(declared, hint)]
    if len(named) != 1:
        return None
    return lambda context: getattr(context.deps, named[0])


def asked_with(question: Callable[..., Any], call: ToolCall, context: ToolContext[Any]) -> Callable[[], Any]:
    """Return a question about a call, ready to be asked: with the context, or the dependencies, if it takes them."""
    second = _second(question)
    if second is None:
        return lambda: question(call)
    value = context if takes_context(second) else context.deps
    return lambda: question(call, value)


@kept(most=256, most_bytes=None)
def _second(question: Callable[..., Any]) -> Any:
    """Return the type of a question's second parameter, None where it has one only."""
    try:
        parameters = list(inspect.signature(question).parameters.values())
    except (TypeError, ValueError):
        return None
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = [parameter for parameter in parameters if parameter.kind in places]
    if len(positional) < 2 or positional[1].default is not inspect.Parameter.empty:
        return None
    hints = _attributes(question)
    return hints.get(positional[1].name, Any)


def _attributes(owner: Any) -> Mapping[str, Any]:
    try:
        return get_type_hints(owner)
    except (TypeError, NameError, AttributeError):
        return {}


def _is_kind_of(kind: Any, wanted: type[Any]) -> bool:
    try:
        return issubclass(kind, wanted)
    except TypeError:  # no class, or a protocol that cannot be asked
        return False
