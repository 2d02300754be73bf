"""Responses tools and tool choice, both ways.

A `namespace` is a group of tools: each nested tool is a canonical tool of its own, and they are put together again
when they go out. Provider tools and choices of provider tools are carried unread.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.origin import JsonObject, Origin, Wire
from mustcall.core.parts import CallKind
from mustcall.core.tools import ChoiceMode, ProviderTool, Tool, ToolChoice
from mustcall.wire.crossing.naming import flat_name
from mustcall.wire.reading import (
    FOREIGN_DEMANDS,
    ShapeError,
    as_list,
    as_object,
    at,
    maybe_object,
    opt_bool,
    opt_object,
    opt_str,
    rest,
    str_field,
)
from mustcall.wire.responses.parts import is_foreign, note_foreign

__all__ = ["decode_choice", "decode_tools", "encode_choice", "encode_tools"]

_WIRE = Wire.RESPONSES
_FUNCTION_KEYS = frozenset({"type", "name", "description", "parameters", "strict", "defer_loading"})
_CUSTOM_KEYS = frozenset({"type", "name", "description", "format", "defer_loading"})
_NESTED_TYPES = frozenset({"function", "custom"})

#: The unknown field under which a nested tool keeps a namespace object that its canonical fields cannot tell whole.
_GROUP = "mustcall.namespace"


def decode_tools(values: Iterable[Any]) -> tuple[Tool | ProviderTool, ...]:
    """Read `tools`."""
    tools: list[Tool | ProviderTool] = []
    spaces: set[str] = set()
    for number, value in enumerate(values):
        with at(f"[{number}]"):
            tool = as_object(value)
            kind = str_field(tool, "type")
            if kind == "namespace":
                tools.extend(_decode_namespace(tool, spaces))
            else:
                tools.append(_decode_tool(kind, tool, Tool(name="")))
    return tuple(tools)


def _decode_tool(kind: str, tool: JsonObject, space: Tool) -> Tool | ProviderTool:
    if kind not in _NESTED_TYPES:
        return ProviderTool(type=kind, value=tool, origin=Origin(_WIRE, raw=tool))
    function = kind == "function"
    fields = {**rest(tool, _FUNCTION_KEYS if function else _CUSTOM_KEYS), **space.fields_for(_WIRE)}
    return Tool(
        name=str_field(tool, "name"),
        description=opt_str(tool, "description"),
        parameters=opt_object(tool, "parameters") if function else None,
        strict=opt_bool(tool, "strict") if function else None,
        kind=CallKind(kind),
        namespace=space.namespace,
        namespace_description=space.namespace_description,
        deferred=opt_bool(tool, "defer_loading") or False,
        format=None if function else opt_object(tool, "format"),
        origin=Origin(_WIRE, fields, tool),
    )


def _decode_namespace(group: JsonObject, spaces: set[str]) -> list[Tool | ProviderTool]:
    name = str_field(group, "name")
    description = opt_str(group, "description")
    nested: list[tuple[str, JsonObject]] = []
    with at("tools"):
        for number, value in enumerate(as_list(group.get("tools"))):
            with at(f"[{number}]"):
                tool = as_object(value)
                nested.append((opt_str(tool, "type") or "function", tool))
    if not nested or any(kind not in _NESTED_TYPES for kind, _ in nested):
        return [ProviderTool(type="namespace", value=group, origin=Origin(_WIRE, raw=group))]
    head = {key: value for key, value in group.items() if key != "tools"}
    plain = name not in spaces and head == _namespace_head(name, description)
    spaces.add(name)
    space = Tool(
        name="",
        namespace=name,
        namespace_description=description,
        origin=Origin(_WIRE, {} if plain else {_GROUP: head}),
    )
    with at("tools"):
        return [_decode_tool(kind, tool, space) for kind, tool in nested]


def _namespace_head(name: str, description: str | None) -> JsonObject:
    head: JsonObject = {"type": "namespace", "name": name}
    if description is not None:
        head["description"] = description
    return head


def encode_tools(tools: Sequence[Tool | ProviderTool], log: AdaptationLog) -> list[JsonObject]:
    """Write `tools`: nested ones in their namespace, which stands where its first tool stood."""
    encoded: list[JsonObject] = []
    groups: dict[tuple[str, int], list[JsonObject]] = {}
    for tool in tools:
        if isinstance(tool, ProviderTool):
            encoded.append(tool.raw_for(_WIRE) or tool.value)
            continue
        one = _encode_tool(tool, log)
        if tool.namespace is None or is_foreign(tool):
            encoded.append(one)
            continue
        head = maybe_object(tool.fields_for(_WIRE).get(_GROUP))
        key = (tool.namespace, id(head) if head is not None else 0)
        group = groups.get(key)
        if group is None:
            group = groups[key] = []
            start = head if head is not None else _namespace_head(tool.namespace, tool.namespace_description)
            encoded.append({**start, "tools": group})
        group.append(one)
    return encoded


def _encode_tool(tool: Tool, log: AdaptationLog) -> JsonObject:
    raw = tool.raw_for(_WIRE)
    if raw is not None:
        return raw
    note_foreign(tool, log)
    foreign = is_foreign(tool)
    encoded: JsonObject = {
        "type": str(tool.kind),
        "name": flat_name(tool.namespace, tool.name) if foreign else tool.name,
    }
    if tool.description is not None:
        encoded["description"] = tool.description
    if tool.kind is CallKind.CUSTOM:
        if tool.format is not None:
            encoded["format"] = _flat_format(tool.format)
    else:
        encoded["parameters"] = tool.parameters
        if tool.strict is not None:
            encoded["strict"] = tool.strict
        elif tool.origin is None or foreign:
            encoded["strict"] = False  # absent means strict here, and not strict on every other wire
        if tool.parameters is None and foreign:
            encoded["parameters"] = {"type": "object", "properties": {}}
    if tool.deferred and not foreign:
        encoded["defer_loading"] = True
    fields = {name: value for name, value in tool.fields_for(_WIRE).items() if name != _GROUP}
    return {**encoded, **fields}


def _flat_format(form: JsonObject) -> JsonObject:
    grammar = maybe_object(form.get("grammar"))  # the chat wire nests it once more
    return {"type": "grammar", **grammar} if grammar is not None and form.get("type") == "grammar" else form


def decode_choice(value: Any) -> ToolChoice | None:
    """Read `tool_choice`; None also for choices of provider tools."""
    if value is None:
        return None
    origin = Origin(_WIRE, raw=value)
    match value:
        case ("none" | "auto" | "required" as word) | {"type": "none" | "auto" | "required" as word}:
            return ToolChoice(mode=ChoiceMode(word), origin=origin)
        case {"type": "function" | "custom" as kind, **fields}:
            return ToolChoice(
                mode=ChoiceMode.NAMED,
                name=str_field(fields, "name"),
                namespace=opt_str(fields, "namespace"),
                kind=CallKind(kind),
                origin=origin,
            )
        case {"type": "allowed_tools", "mode": "auto" | "required" as mode, "tools": list()}:
            names: list[str] = []
            for entry in as_list(value["tools"]):
                match maybe_object(entry):
                    case {"type": "function" | "custom", "name": str() as name}:
                        names.append(name)
                    case {"type": str() as kind}:
                        names.append(kind)  # a provider's tool is known by its type alone
                    case _:
                        return None
            return ToolChoice(mode=ChoiceMode(mode), allowed=tuple(names), origin=origin)
        case {"type": str() as kind} if kind != "allowed_tools" and kind not in FOREIGN_DEMANDS:
            return None
        case _:
            raise ShapeError('"none", "auto", "required" or {"type": "function", "name": …}', value)


def encode_choice(choice: ToolChoice, tools: Sequence[Tool | ProviderTool], foreign: bool) -> Any:
    """Write `tool_choice`; `tools` say which kind each named tool is, `foreign` that another wire named them."""
    raw = choice.raw_for(_WIRE)
    if raw is not None:
        return raw
    kinds: dict[str, CallKind] = {}
    for tool in tools:
        if isinstance(tool, Tool):
            kinds[tool.name] = kinds[flat_name(tool.namespace, tool.name)] = tool.kind

    def name_of(name: str) -> str:
        return flat_name(None, name) if foreign else name

    if choice.mode is ChoiceMode.NAMED:
        name = choice.name or ""
        named: JsonObject = {"type": str(kinds.get(name, choice.kind)), "name": name_of(name)}
        if choice.namespace is not None and not foreign:
            named["namespace"] = choice.namespace
        return named
    if choice.allowed is not None:
        provided = {tool.type for tool in tools if isinstance(tool, ProviderTool)} - kinds.keys()
        entries: list[JsonObject] = [
            {"type": name}
            if name in provided
            else {"type": str(kinds.get(name, CallKind.FUNCTION)), "name": name_of(name)}
            for name in choice.allowed
        ]
        return {"type": "allowed_tools", "mode": str(choice.mode), "tools": entries}
    return str(choice.mode)
