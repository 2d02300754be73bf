"""What a request says about its tools, read the same from all three wires, forgiving of anything odd.

Renderers need the kind and namespace of the tool they call, the demo needs schemas and the caller's choice. Nothing
is checked here: wrong shapes read as absent; `mustcall.testing.rules` is where requests are refused.
"""

from collections.abc import Iterator
from typing import Any, Literal, cast

import msgspec

from mustcall.core.origin import JsonObject, Wire

__all__ = ["Choice", "OfferedTool", "as_object", "as_objects", "choice_of", "find_offer", "offers_of", "output_schema"]


class OfferedTool(msgspec.Struct, frozen=True):
    """One client-side tool on offer."""

    name: str
    schema: JsonObject
    custom: bool = False
    namespace: str | None = None


class Choice(msgspec.Struct, frozen=True):
    """The caller's tool choice; `name` is set for a named tool."""

    mode: Literal["none", "auto", "required", "named"]
    name: str | None = None


def as_object(value: Any) -> JsonObject:
    """Return a JSON object, empty if the value is none."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}  # JSON objects have string keys


def as_objects(value: Any) -> list[JsonObject]:
    """Return the objects of a JSON array, empty if the value is none."""
    if not isinstance(value, list):
        return []
    values = cast("list[Any]", value)  # elements are checked here
    return [cast("JsonObject", item) for item in values if isinstance(item, dict)]


def offers_of(wire: Wire, body: Any) -> list[OfferedTool]:
    """Return the client-side tools a request offers, in order."""
    tools = as_objects(as_object(body).get("tools"))
    match wire:
        case Wire.CHAT:
            return list(_chat_offers(tools))
        case Wire.RESPONSES:
            return list(_responses_offers(tools, None))
        case Wire.MESSAGES:
            return [
                OfferedTool(str(tool.get("name")), as_object(tool["input_schema"]))
                for tool in tools
                if "input_schema" in tool
            ]


def _chat_offers(tools: list[JsonObject]) -> Iterator[OfferedTool]:
    for tool in tools:
        if tool.get("type") == "custom":
            yield OfferedTool(str(as_object(tool.get("custom")).get("name")), {}, custom=True)
        elif tool.get("type") == "function":
            function = as_object(tool.get("function"))
            yield OfferedTool(str(function.get("name")), as_object(function.get("parameters")))


def _responses_offers(tools: list[JsonObject], namespace: str | None) -> Iterator[OfferedTool]:
    for tool in tools:
        name = str(tool.get("name"))
        match tool.get("type"):
            case "function":
                yield OfferedTool(name, as_object(tool.get("parameters")), namespace=namespace)
            case "custom":
                yield OfferedTool(name, {}, custom=True, namespace=namespace)
            case "namespace":
                yield from _responses_offers(as_objects(tool.get("tools")), name)
            case _:
                pass


def find_offer(offers: list[OfferedTool], name: str) -> OfferedTool | None:
    """Return the offer of this name; a top-level tool wins over a namespaced one."""
    found = [offer for offer in offers if offer.name == name]
    return next((offer for offer in found if offer.namespace is None), found[0] if found else None)


def choice_of(wire: Wire, body: Any) -> Choice:
    """Return the caller's tool choice (`auto` where nothing, or nothing understandable, is said)."""
    choice: Any = as_object(body).get("tool_choice")
    if isinstance(choice, dict):
        fields = as_object(choice)
        kind = fields.get("type")
        if wire is Wire.MESSAGES:
            kind = {"any": "required", "tool": "named"}.get(str(kind), kind)
        elif kind in {"function", "custom"}:
            kind = "named"
        elif kind == "allowed_tools":
            kind = as_object(fields.get("allowed_tools", fields)).get("mode")
        inner = as_object(fields.get(str(fields.get("type")))) or fields  # chat nests the name
        choice = kind if kind != "named" else Choice("named", str(inner.get("name")))
    if isinstance(choice, Choice):
        return choice
    return Choice(choice) if choice in ("none", "required") else Choice("auto")


def output_schema(wire: Wire, body: Any) -> JsonObject | None:
    """Return the schema that the answer must fit, None if plain text is asked for. JSON of any shape is an object."""
    fields = as_object(body)
    match wire:
        case Wire.CHAT:
            wanted = as_object(fields.get("response_format"))
            schema = as_object(as_object(wanted.get("json_schema")).get("schema"))
        case Wire.RESPONSES:
            wanted = as_object(as_object(fields.get("text")).get("format"))
            schema = as_object(wanted.get("schema"))
        case Wire.MESSAGES:
            wanted = as_object(as_object(fields.get("output_config")).get("format") or fields.get("output_format"))
            schema = as_object(wanted.get("schema"))
    return schema or {"type": "object"} if wanted.get("type") in ("json_schema", "json_object") else None
