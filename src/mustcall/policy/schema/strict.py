"""A JSON schema in the closed form that constrained decoding needs: strict tools and structured answers.

Starting facts (docs and issue threads): every object says `additionalProperties: false`; OpenAI wants every key
required, so optional ones become nullable (and `arguments` reads the nulls back as left out); Anthropic takes optional
keys but no limits on numbers and lengths and no recursion; neither takes conditions. A schema that would mean something
else when closed (a map of free keys) has no such form, and none is made up.

Cost: linear in the schema.
"""

from typing import Any

from mustcall.core.origin import JsonObject
from mustcall.policy.facts.profile import SchemaTarget
from mustcall.policy.schema.gemini import Reduction
from mustcall.policy.schema.subschemas import Path, as_list, as_object, hoist, rewrite

__all__ = ["close_schema"]

_CONDITIONS = frozenset(
    {
        "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", "patternProperties",
        "propertyNames", "unevaluatedProperties", "unevaluatedItems", "minProperties", "maxProperties", "contains",
        "minContains", "maxContains", "uniqueItems",
    }
)  # fmt: skip
#: Words a strict schema may not hold: both providers compile it to a grammar.
_STRICT_REFUSED = {
    SchemaTarget.OPENAI: _CONDITIONS | {"default"},
    SchemaTarget.ANTHROPIC: _CONDITIONS
    | {
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "maxItems",
    },
}
_STRICT_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)


def close_schema(schema: JsonObject, target: SchemaTarget, report: Reduction) -> JsonObject | None:
    """Return the schema closed for OpenAI or Anthropic, the same object if it is so already, None if it cannot be."""
    closing = _Closing(target, report)
    closed = rewrite(schema, closing.close)
    recursive = target is SchemaTarget.ANTHROPIC and _is_recursive(schema)
    return closed if closing.expressible and not recursive else None


def _is_recursive(schema: JsonObject) -> bool:
    """Whether a definition leads back to itself."""
    definitions = hoist(schema, "part")[1]
    leads: dict[str, set[str]] = {}
    for name, definition in definitions.items():
        found = leads.setdefault(name, set())

        def look(node: JsonObject, _path: Path, found: set[str] = found) -> JsonObject:
            if isinstance(reference := node.get("$ref"), str):
                found.add(reference.removeprefix("#/$defs/"))
            return node

        rewrite(definition, look)
    while leads:  # take away what leads nowhere; what cannot be taken away is a circle
        ends = {name for name, found in leads.items() if not found}
        if not ends:
            return True
        leads = {name: found - ends for name, found in leads.items() if name not in ends}
    return False


class _Closing:
    """Closes every object of a schema: no other fields and, for OpenAI, none optional (those become nullable)."""

    def __init__(self, target: SchemaTarget, report: Reduction) -> None:
        self.report = report
        self.expressible = True
        self._all_required = target is SchemaTarget.OPENAI
        self._refused = _STRICT_REFUSED[target]

    def close(self, node: JsonObject, path: Path) -> JsonObject:
        """Return one schema closed; those inside it are already."""
        node = self._one_form(node, path)
        if not self._refused.isdisjoint(node):
            if "patternProperties" in node:
                self.expressible = False
            for word in [word for word in node if word in self._refused]:
                if word != "default":
                    self.report.lose(path, f"{word} dropped")
            node = {key: value for key, value in node.items() if key not in self._refused}
        if "format" in node and node["format"] not in _STRICT_FORMATS:
            self.report.lose(path, f"format {node['format']} dropped")
            node = {key: value for key, value in node.items() if key != "format"}
        kind = node.get("type")
        if kind == "object" or "object" in as_list(kind) or "properties" in node:
            node = self._closed_object(node, path)
        return node

    def _one_form(self, node: JsonObject, path: Path) -> JsonObject:
        members = as_list(node.get("allOf"))
        only = as_object(members[0]) if len(members) == 1 else None
        if only is not None and ("$ref" in only or only.keys().isdisjoint(node)):
            node = {**{key: value for key, value in node.items() if key != "allOf"}, **only}
        elif "allOf" in node:
            self.expressible = False
        if "oneOf" in node and "anyOf" not in node:
            node = {("anyOf" if key == "oneOf" else key): value for key, value in node.items()}
        elif "oneOf" in node:
            self.expressible = False
        beside = node.keys() - {"$ref", "$defs", "definitions", "$schema"}
        if "$ref" in node and beside and self._all_required:
            if not beside <= {"title", "description", "default"}:
                self.report.lose(path, "what stood beside a reference dropped")
            node = {key: value for key, value in node.items() if key not in beside}
        return node

    def _closed_object(self, node: JsonObject, path: Path) -> JsonObject:
        properties = as_object(node.get("properties"))
        if node.get("additionalProperties", False) is not False or (properties is None and path):
            self.expressible = False  # a map of free keys: closing it would leave nothing of it
            return node
        properties = properties or {}
        required = as_list(node.get("required"))
        if any(name not in properties for name in required):
            self.expressible = False  # a field nobody declared could not be written any more
            return node
        closed: JsonObject = {}
        if node.get("additionalProperties") is not False:
            closed["additionalProperties"] = False
        if self._all_required and any(name not in required for name in properties):
            closed["properties"] = {
                name: member if name in required else _nullable(member) for name, member in properties.items()
            }
            closed["required"] = list(properties)
        if self._all_required and "required" not in node:
            closed["required"] = list(properties)
        if "properties" not in node:
            closed.setdefault("properties", properties)
        return {**node, **closed} if closed else node


def _nullable(member: Any) -> Any:
    """Return a schema that also takes null."""
    node = as_object(member)
    if not node:
        return member
    kind = node.get("type")
    types = [kind] if isinstance(kind, str) else as_list(kind)
    if not types or "const" in node:
        branches = as_list(node.get("anyOf"))
        if any((as_object(branch) or {}).get("type") == "null" for branch in branches):
            return member
        if branches:
            return {**node, "anyOf": [*branches, {"type": "null"}]}
        return {"anyOf": [node, {"type": "null"}]}
    if "null" in types:
        return member
    options = as_list(node.get("enum"))
    with_null: JsonObject = {**node, "type": [*types, "null"]}
    return {**with_null, "enum": [*options, None]} if options else with_null
