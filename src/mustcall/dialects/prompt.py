"""The prompt protocol's text: tools, past calls and results, all in one dialect (rules 71 to 73).

The model sees one grammar: the same renderer that writes the example in the system text writes the calls already in
the history. Which dialect, and when to use the protocol at all, is decided elsewhere.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.core.tools import Tool
from mustcall.dialects.catalogue import find_dialect
from mustcall.dialects.dialect import Dialect, WrittenCall
from mustcall.dialects.reading.envelope import dump
from mustcall.dialects.reading.schema import resolve

__all__ = ["Prompt", "SystemText"]

_EXAMPLE = WrittenCall("TOOL_NAME", {"PARAMETER": "VALUE"})
_MARKER = re.compile(r"<[^<>]+>|\[[^\[\]]+\]")
# Where a schema keeps what it refers to, and what needs no words of its own.
_DEFINITIONS = ("$defs", "definitions")
_SAID = frozenset({"type", "properties", "required", "title", "description", "$schema", "$id", "additionalProperties"})
_SEPARATE_LINE = "\n\n"
_CUT = "Not listed for lack of space: {names}."


class SystemText(msgspec.Struct, frozen=True):
    """A rendered system text; `cut` names the tools that did not fit, which the text says as well."""

    text: str
    cut: tuple[str, ...] = ()


class Prompt:
    """Renders for one dialect, given by name or as a value of one's own."""

    def __init__(self, dialect: str | Dialect) -> None:
        self._dialect = find_dialect(dialect) if isinstance(dialect, str) else dialect

    @property
    def dialect(self) -> Dialect:
        """The dialect this prompt speaks."""
        return self._dialect

    def system(self, tools: Sequence[Tool], *, limit: int | None = None, keep: str | None = None) -> SystemText:
        """Return the system text that offers these tools.

        With a `limit` in characters, tools are left out from the end until the text fits; the text says so. The tool
        called `keep` is never left out.
        """
        described = {index: _describe(tool) for index, tool in enumerate(tools)}
        cut: list[str] = []
        text = self._assemble(described.values(), cut)
        if limit is None or len(text) <= limit:
            return SystemText(text)
        size = len(text) + len(_SEPARATE_LINE) + len(_CUT.format(names=""))
        for index in reversed(range(len(tools))):
            if size <= limit:
                break
            name = tools[index].name
            if name != keep:
                size += len(name) + (2 if cut else 0) - len(described.pop(index)) - len(_SEPARATE_LINE)
                cut.append(name)
        cut.reverse()
        return SystemText(self._assemble(described.values(), cut), tuple(cut))

    def _assemble(self, described: Iterable[str], cut: list[str]) -> str:
        parts = [
            "You can call tools. To call one, write exactly this, with the tool's name and its arguments:",
            self._dialect.render([_EXAMPLE]),
            "Write nothing after a call; its result will be given to you. These are the tools:",
            *described,
        ]
        if cut:
            parts.append(_CUT.format(names=", ".join(cut)))
        return _SEPARATE_LINE.join(parts)

    def calls(self, calls: Iterable[WrittenCall]) -> str:
        """Return past calls as the model would have written them."""
        return self._dialect.render(list(calls))

    def result(self, name: str, content: str) -> str:
        """Return a tool's result as the dialect shows it.

        Content cannot end its own frame: each marker in it that would gets a backslash behind its first character.
        Everything else stays as it is.
        """
        before, _, after = self._dialect.result.partition("{content}")
        for marker in dict.fromkeys(_MARKER.findall(after)):
            written = re.compile(re.escape(marker), re.IGNORECASE)
            content = written.sub(lambda found: found[0][0] + "\\" + found[0][1:], content)
        return before.replace("{name}", name) + content + after.replace("{name}", name)


def _describe(tool: Tool) -> str:
    """Return name, description and parameters with their types and what is required (rule 72)."""
    lines = [f"## {tool.name}"]
    if tool.description:
        lines.append(tool.description)
    root: JsonObject = tool.parameters or {}
    schema = resolve(root, root)
    parameters, names = schema.get("properties"), schema.get("required")
    # A schema comes from outside: only its shape is certain here.
    properties = cast("JsonObject", parameters) if isinstance(parameters, dict) else {}
    required = cast("list[Any]", names) if isinstance(names, list) else []
    own = {key: value for key, value in schema.items() if key not in _DEFINITIONS}
    if properties:
        lines.append("Parameters:")
    elif own.get("additionalProperties") or not own.keys() <= _SAID:
        lines.append(f"Parameters: an object of this JSON schema: {dump(own)}")
    else:
        lines.append("Parameters: none")
    for key, declared in properties.items():
        mark = "required" if key in required else "optional"
        lines.append(f"- {key} ({_type(declared)}, {mark}){_about(declared)}")
    lines += [f'Definitions under "#/{key}": {dump(root[key])}' for key in _DEFINITIONS if root.get(key)]
    return "\n".join(lines)


def _type(declared: Any) -> str:
    """Return a parameter's type in the shortest words that lose nothing."""
    if not isinstance(declared, dict):
        return "any"
    schema = cast("JsonObject", declared)
    listed = schema.get("enum")
    if isinstance(listed, list):
        return "one of " + ", ".join(dump(item) for item in cast("list[Any]", listed))
    kind = schema.get("type")
    rest = {key: value for key, value in schema.items() if key not in ("type", "description", "title", "default")}
    if isinstance(kind, str) and not rest:
        return kind
    return dump({key: value for key, value in schema.items() if key not in ("description", "title")})


def _about(declared: Any) -> str:
    description = cast("JsonObject", declared).get("description") if isinstance(declared, dict) else None
    return f": {description}" if isinstance(description, str) and description else ""
