"""A call's arguments text as the `input` object this wire demands.

The wire has no place for text that is not a JSON object. Nothing is guessed: the empty text and `null` stand for `{}`
only where the tool's schema requires nothing (rules 107 and 131); every other text that is no object has no input.
"""

import msgspec

from mustcall.core.memo import Remembered
from mustcall.core.origin import JsonObject
from mustcall.core.parts import CallKind, ToolCall
from mustcall.core.tools import ProviderTool, Tool
from mustcall.wire.crossing.naming import flat_name
from mustcall.wire.crossing.offer import custom_arguments
from mustcall.wire.reading import maybe_object

__all__ = ["Schemas", "parse_object"]


def parse_object(text: str) -> JsonObject | None:
    """Return the JSON object the text is, None if it is anything else."""
    try:
        return maybe_object(msgspec.json.decode(text))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _by_name(tools: tuple[Tool | ProviderTool, ...]) -> dict[str, Tool]:
    named: dict[str, Tool] = {}
    for tool in tools:
        if isinstance(tool, Tool):
            named[flat_name(tool.namespace, tool.name)] = tool
            named.setdefault(tool.name, tool)
    return named


_named = Remembered(_by_name)


class Schemas:
    """The tools on offer by name: what a call may leave out."""

    __slots__ = ("_tools",)

    def __init__(self, tools: tuple[Tool | ProviderTool, ...]) -> None:
        self._tools = _named.of(tools)

    def requires_nothing(self, name: str) -> bool:
        """Tell whether `{}` is a legal input of the tool; of a tool not on offer that is not known."""
        tool = self._tools.get(name)
        return tool is not None and not (tool.parameters or {}).get("required")

    def input_of(self, call: ToolCall) -> tuple[JsonObject | None, bool]:
        """Return the call's input (None if it has none) and whether `{}` stands in for arguments left out."""
        if call.kind is CallKind.CUSTOM:
            return parse_object(custom_arguments(call.arguments_json)), False
        found = parse_object(call.arguments_json)
        if found is not None:
            return found, False
        if call.arguments_json.strip() in ("", "null") and self.requires_nothing(flat_name(call.namespace, call.name)):
            return {}, True
        return None, False
