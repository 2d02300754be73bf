"""Tools on offer and the caller's choice among them."""

from enum import StrEnum
from typing import Any, cast

import msgspec

from mustcall.core.memo import Mapped, Remembered
from mustcall.core.origin import JsonObject, Value
from mustcall.core.parts import CallKind

__all__ = ["ChoiceMode", "ProviderTool", "Tool", "ToolChoice", "ToolList", "functions_of"]


class Tool(Value, frozen=True, tag="tool", dict=True):
    """A client-side tool: a function with a JSON schema, or a custom tool that takes free text."""

    name: str
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None
    kind: CallKind = CallKind.FUNCTION
    namespace: str | None = None
    namespace_description: str | None = None
    deferred: bool = False
    format: JsonObject | None = None

    def __post_init__(self) -> None:
        if self.parameters.__class__ is dict:
            msgspec.structs.force_setattr(self, "parameters", Mapped(self.parameters or ()))


class ProviderTool(Value, frozen=True, tag="provider_tool"):
    """A tool the provider itself runs or defines (`web_search`, `bash_20250124`, …), known only by its type."""

    type: str
    value: JsonObject


class ToolList(tuple[Tool | ProviderTool, ...]):  # noqa: SLOT001  takes attributes, which is what it is for
    """The tools of a request, in which what was made of them is kept (`core.memo`): it lives as long as they do.

    Otherwise a tuple like any other, and equal to one; a copy knows nothing of what was made.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)


def functions_of(tools: tuple[Tool | ProviderTool, ...]) -> tuple[Tool, ...]:
    """Return the tools a client runs; the same tuple for the same tools."""
    return _functions.of(tools) if tools else ()


def _functions_among(tools: tuple[Tool | ProviderTool, ...]) -> "tuple[Tool, ...]":
    return cast("tuple[Tool, ...]", ToolList([tool for tool in tools if isinstance(tool, Tool)]))


_functions = Remembered(_functions_among)


class ChoiceMode(StrEnum):
    """The four things a caller can ask for (rule 1)."""

    NONE = "none"
    AUTO = "auto"
    REQUIRED = "required"
    NAMED = "named"


class ToolChoice(Value, frozen=True):
    """The caller's demand. `allowed` narrows `auto` and `required` to a set of tool names.

    `name` and `allowed` hold bare tool names; `namespace` qualifies `name` where the wire has namespaces.
    """

    mode: ChoiceMode
    name: str | None = None
    namespace: str | None = None
    kind: CallKind = CallKind.FUNCTION
    allowed: tuple[str, ...] | None = None
