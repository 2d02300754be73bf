"""Read a client's request on any of the three wires: its tools, its tool results, whether it streams.

The scripted model decides from this alone. Unknown fields are ignored; a request that cannot be read has no tools.
"""

import re
import shlex
from dataclasses import dataclass
from typing import Any, Literal

Wire = Literal["chat", "responses", "messages"]
WIRES: tuple[Wire, ...] = ("chat", "responses", "messages")
_READERS = ("read", "read_file", "readfile", "view", "view_file", "open_file", "cat")
_NO_READERS = re.compile("write|edit|image|patch|list|glob|grep|search")
_PATHS = ("path", "file_path", "filepath", "absolute_path", "file", "filename", "target_file")
_COMMANDS = ("command", "cmd", "script")


@dataclass(frozen=True)
class Tool:
    """One offered function; `namespace` is Codex's group, if it is in one."""

    name: str
    schema: dict[str, Any]
    namespace: str | None = None


@dataclass(frozen=True)
class Asked:
    """What one request says."""

    wire: Wire
    model: str
    stream: bool
    usage_wanted: bool
    tools: tuple[Tool, ...]
    results: tuple[str, ...]


def read_request(wire: Wire, body: dict[str, Any]) -> Asked:
    """Read a request's body."""
    options = body.get("stream_options") or {}
    return Asked(
        wire,
        str(body.get("model", "")),
        bool(body.get("stream")),
        bool(options.get("include_usage")),
        tuple(_read_tools(wire, body.get("tools") or [])),
        tuple(_read_results(wire, body)),
    )


def _read_tools(wire: Wire, offered: list[dict[str, Any]], namespace: str | None = None) -> list[Tool]:
    tools: list[Tool] = []
    for tool in offered:
        if tool.get("type") == "namespace":
            tools += _read_tools(wire, tool.get("tools") or [], str(tool.get("name")))
            continue
        function = tool.get("function", {}) if wire == "chat" else tool
        schema = function.get("input_schema") if wire == "messages" else function.get("parameters")
        if isinstance(schema, dict) and "name" in function and not tool.get("defer_loading"):
            tools.append(Tool(function["name"], schema, namespace))
    return tools


def _read_results(wire: Wire, body: dict[str, Any]) -> list[str]:
    match wire:
        case "chat":
            return [_flat(m.get("content")) for m in body.get("messages", []) if m.get("role") == "tool"]
        case "responses":
            given = body.get("input")
            items = given if isinstance(given, list) else []
            return [_flat(i.get("output")) for i in items if str(i.get("type", "")).endswith("_call_output")]
        case "messages":
            blocks = [b for m in body.get("messages", []) if isinstance(m.get("content"), list) for b in m["content"]]
            return [_flat(b.get("content")) for b in blocks if b.get("type") == "tool_result"]


def _flat(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(_flat(part.get("text") or part.get("content") or "") for part in content)
    return str(content or "")


def choose_reader(tools: tuple[Tool, ...]) -> Tool | None:
    """The tool that reads a file: by its name, else a tool with a path to read or a command to run."""
    plain = [tool for tool in tools if tool.namespace is None]
    for name in _READERS:
        for tool in plain:
            if tool.name.lower() == name:
                return tool
    for properties in (_PATHS, _COMMANDS):
        for tool in plain:
            if not _NO_READERS.search(tool.name.lower()) and any(p.lower() in properties for p in _properties(tool)):
                return tool
    return None


def fill(tool: Tool, path: str) -> dict[str, Any]:
    """Arguments of a call that reads `path`, by the tool's schema: what is required, and the path or the command."""
    properties = _properties(tool)
    required = tool.schema.get("required") or []
    arguments: dict[str, Any] = {}
    for name, schema in properties.items():
        known = name.lower() in (*_PATHS, *_COMMANDS)
        if known and not any(n.lower() in (*_PATHS, *_COMMANDS) for n in arguments):
            arguments[name] = _locate(name, schema, path)
        elif name in required:
            arguments[name] = _plain_value(schema)
    return arguments


def main_property(arguments: dict[str, Any]) -> str:
    """The property that holds the path or the command."""
    return next(name for name in arguments if name.lower() in (*_PATHS, *_COMMANDS))


def _locate(name: str, schema: dict[str, Any], path: str) -> Any:
    if name.lower() in _PATHS:
        return path
    return ["cat", path] if schema.get("type") == "array" else f"cat {shlex.quote(path)}"


def _plain_value(schema: dict[str, Any]) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    match schema.get("type"):
        case "boolean":
            return False
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "array":
            return []
        case "object":
            return {}
        case _:
            return "read the notes"


def _properties(tool: Tool) -> dict[str, Any]:
    found = tool.schema.get("properties")
    return found if isinstance(found, dict) else {}
