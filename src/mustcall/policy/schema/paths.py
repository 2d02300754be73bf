"""Environment variables and `~` in the arguments of a call that are declared to be paths (rule 80).

Models write `$HOME/notes` and `~/notes` because people do; a tool that gets the text as it is finds nothing. Which
parameters are paths is declared by whoever offers the tool, which variables may be read is an allowlist; by default
it is empty and nothing is changed. The values come in as arguments: nothing here reads the environment. A variable
that is not on the list stays as it was written, and what a value holds is not expanded again.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.origin import JsonObject

__all__ = ["HOME", "expand_arguments", "expand_path"]

#: The variable that a leading `~` stands for.
HOME = "HOME"

_VARIABLE = re.compile(r"\$(?:\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\}|(?P<bare>[A-Za-z_][A-Za-z0-9_]*))")
_TILDE = re.compile(r"~(?=/|\\|$)")


def expand_arguments(
    arguments: JsonObject, parameters: Sequence[str], values: Mapping[str, str], log: AdaptationLog, *, tool: str = ""
) -> JsonObject:
    """Return the arguments with their declared paths expanded; the same object if nothing is to be done.

    `parameters` are the top-level fields that hold a path or a list of paths, `values` the variables on the allowlist.
    Each field that changes is reported with the variables it used, never with what they hold.
    """
    changed: JsonObject = {}
    for name in parameters:
        if not values or name not in arguments:
            continue
        used: dict[str, None] = {}
        value = _expand_value(arguments[name], values, used)
        if used:
            changed[name] = value
            subject = f"{tool}.{name}" if tool else name
            log.add(AdaptationKind.ARGUMENTS_EXPANDED, subject, ", ".join(used))
    return {**arguments, **changed} if changed else arguments


def expand_path(text: str, values: Mapping[str, str]) -> str:
    """Return a path with a leading `~` and every variable of `values` replaced, once."""
    return _expand(text, values, {})


def _expand_value(value: Any, values: Mapping[str, str], used: dict[str, None]) -> Any:
    if isinstance(value, str):
        return _expand(value, values, used)
    if isinstance(value, list):
        items = cast("list[Any]", value)  # JSON knows no item type
        return [_expand(item, values, used) if isinstance(item, str) else item for item in items]
    return value


def _expand(text: str, values: Mapping[str, str], used: dict[str, None]) -> str:
    def replace(found: re.Match[str]) -> str:
        name = found["braced"] or found["bare"]
        if name not in values:
            return found[0]
        used[f"${name}"] = None
        return values[name]

    head = ""
    if HOME in values and _TILDE.match(text):
        used["~"] = None
        head, text = values[HOME], text[1:]
    return head + _VARIABLE.sub(replace, text)
