"""Tools on offer and the caller's choice among them."""

from enum import StrEnum

from mustcall.core.memo import Remembered
from mustcall.core.origin import JsonObject, Value
from mustcall.core.parts import CallKind

__all__ = ["ChoiceMode", "ProviderTool", "Tool", "ToolChoice", "functions_of"]


class Tool(Value, frozen=True, tag="tool"):
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


class ProviderTool(Value, frozen=True, tag="provider_tool"):
    """A tool the provider itself runs or defines (`web_search`, `bash_20250124`, …), known only by its type."""

    type: str
    value: JsonObject


def functions_of(tools: tuple[Tool | ProviderTool, ...]) -> tuple[Tool, ...]:
    """Return the tools a client runs; the same tuple for the same tools."""
    return _functions.of(tools)


def _functions_among(tools: tuple[Tool | ProviderTool, ...]) -> tuple[Tool, ...]:
    return tuple(tool for tool in tools if isinstance(tool, Tool))


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
