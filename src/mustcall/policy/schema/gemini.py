"""A JSON schema in the subset Gemini takes: OpenAPI's words, no references, one type a field.

Starting facts (docs and issue threads, see the providers page): `$schema`, `$ref`, `$defs`, `additionalProperties`,
`const`, `oneOf`, `allOf`, type lists, enums of anything but strings and unknown formats are refused, sometimes with an
empty answer instead of an error; an array needs `items`; `required` may only name declared properties. References are
inlined; a recursive one is cut. Every loss is reported. It validates nothing.

Cost: linear in the result, which is cut at a fixed number of schemas: inlining can grow a small text without end.
"""

from collections.abc import Sequence
from typing import Any

from mustcall.core.origin import JsonObject
from mustcall.dialects.reading.schema import type_name
from mustcall.policy.schema.subschemas import Path, as_list, as_object, resolve, spell

__all__ = ["Reduction", "merge_schemas", "reduce_for_gemini"]

_MOST_SCHEMAS = 2_000
_MOST_NESTED = 32
_KEPT = frozenset(
    {
        "type", "format", "title", "description", "nullable", "enum", "properties", "required", "items", "anyOf",
        "minItems", "maxItems", "minLength", "maxLength", "pattern", "minimum", "maximum", "minProperties",
        "maxProperties", "default", "example", "propertyOrdering",
    }
)  # fmt: skip
_SILENT = frozenset({"$schema", "$id", "$defs", "definitions", "$comment", "$anchor", "examples", "deprecated"})
_FORMATS = {
    "string": frozenset({"enum", "date-time"}),
    "integer": frozenset({"int32", "int64"}),
    "number": frozenset({"float", "double"}),
}
_NULL: JsonObject = {"type": "null"}


class Reduction:
    """Collects what a reduction lost, each once and in order: `field: what`."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}

    def lose(self, path: Path, what: str) -> None:
        """Note one loss; keywords on the way are left out of the field's name."""
        named = ".".join(
            str(step)
            for before, step in zip(("", *path), path, strict=False)
            if before in ("properties", "$defs", "definitions")
        )
        self._seen[f"{named or 'top level'}: {what}"] = None

    @property
    def losses(self) -> tuple[str, ...]:
        """Return what was lost."""
        return tuple(self._seen)


def merge_schemas(node: JsonObject, members: Sequence[JsonObject], path: Path, report: Reduction) -> JsonObject:
    """Return one schema that says what a schema and its `allOf` members say together, as far as one can."""
    merged = dict(node)
    for member in members:
        for keyword, value in member.items():
            ours = merged.get(keyword)
            if keyword not in merged or ours == value:
                merged[keyword] = value
            elif keyword == "required":
                merged[keyword] = list(dict.fromkeys([*as_list(ours), *as_list(value)]))
            elif keyword in ("properties", "$defs", "definitions"):
                known, new = as_object(ours) or {}, as_object(value) or {}
                for name in known.keys() & new.keys():
                    if known[name] != new[name]:
                        report.lose((*path, "properties", name), "one of two declarations dropped")
                merged[keyword] = {**new, **known}
            elif keyword not in ("title", "description", "default", "examples"):
                report.lose(path, f"one of two values of {keyword} dropped")
    return merged


def reduce_for_gemini(schema: JsonObject, report: Reduction) -> JsonObject:
    """Return the schema as Gemini takes it, an equal one if it is so already."""
    return _Gemini(schema, report).reduce(schema, (), ())


class _Gemini:
    def __init__(self, root: JsonObject, report: Reduction) -> None:
        self._root = root
        self._report = report
        self._left = _MOST_SCHEMAS

    def reduce(self, schema: Any, path: Path, inside: tuple[str, ...]) -> JsonObject:
        """Return one schema reduced; `inside` are the references that led here."""
        node = as_object(schema)
        if node is None:
            if schema is False:
                self._report.lose(path, "a field that takes nothing takes anything")
            return {}
        self._left -= 1
        if self._left < 0 or len(path) > 2 * _MOST_NESTED:
            self._report.lose(path, "cut, the schema is too large")
            return _outline(node)
        for _ in range(_MOST_NESTED):
            before = node
            node, inside, cut = self._inlined(node, path, inside)
            if cut:
                return _outline(node)
            node = _without_null(_one_type(self._one_union(node, path)))
            if node is before:
                break
        kept = {keyword: value for keyword, value in node.items() if keyword in _KEPT}
        for keyword in [key for key in node if key not in _KEPT and key not in _SILENT]:
            if not _restate(keyword, node, kept):
                self._report.lose(path, f"{keyword} dropped")
        self._reduce_members(kept, path, inside)
        self._tidy(kept, path)
        return kept

    def _inlined(
        self, node: JsonObject, path: Path, inside: tuple[str, ...]
    ) -> tuple[JsonObject, tuple[str, ...], bool]:
        """Return the schema without references and `allOf` of its own, and whether it had to be cut."""
        for _ in range(_MOST_NESTED):
            if "$ref" in node:
                reference = node["$ref"]
                rest = {key: value for key, value in node.items() if key != "$ref"}
                target = resolve(self._root, reference)
                if target is None:
                    self._report.lose(path, "a reference out of the schema dropped")
                    node = rest
                elif reference in inside:
                    self._report.lose(path, "a recursive reference cut")
                    return {**target, **rest}, inside, True
                else:
                    inside = (*inside, str(reference))
                    node = {**target, **rest}
            elif "allOf" in node:
                members = [member for item in as_list(node["allOf"]) if (member := as_object(item)) is not None]
                rest = {key: value for key, value in node.items() if key != "allOf"}
                resolved: list[JsonObject] = []
                for member in members:
                    target, inside, cut = self._inlined(member, path, inside)
                    resolved.extend(() if cut else (target,))
                node = merge_schemas(rest, resolved, path, self._report)
            else:
                return node, inside, False
        return node, inside, True

    def _one_union(self, node: JsonObject, path: Path) -> JsonObject:
        if "oneOf" not in node:
            return node
        rest = {key: value for key, value in node.items() if key != "oneOf"}
        if "anyOf" in node:
            self._report.lose(path, "oneOf dropped beside anyOf")
            return rest
        return {**rest, "anyOf": node["oneOf"]}

    def _reduce_members(self, kept: JsonObject, path: Path, inside: tuple[str, ...]) -> None:
        properties = as_object(kept.get("properties"))
        if properties is not None:
            kept["properties"] = {
                name: self.reduce(member, (*path, "properties", name), inside) for name, member in properties.items()
            }
        if "anyOf" in kept:
            kept["anyOf"] = [
                self.reduce(member, (*path, "anyOf", index), inside)
                for index, member in enumerate(as_list(kept["anyOf"]))
            ]
        items = kept.get("items")
        if isinstance(items, list):
            self._report.lose(path, "the order of item types dropped")
            members = as_list(items)
            items = {"anyOf": members} if len(members) > 1 else (members or [{}])[0]
        if items is not None:
            kept["items"] = self.reduce(items, (*path, "items"), inside)

    def _tidy(self, kept: JsonObject, path: Path) -> None:
        if "properties" in kept:
            kept.setdefault("type", "object")
        kind = kept.get("type")
        values = kept.get("enum")
        if values is not None:
            options = [value for value in as_list(values) if value is not None]
            if len(options) < len(as_list(values)):
                kept["nullable"] = True
            if options and kind in (None, "string") and all(isinstance(option, str) for option in options):
                kept["enum"] = options
                kept["type"] = "string"
            elif kind is None and any(isinstance(option, str) for option in options) and _are_scalars(options):
                # Said as strings, which arguments are read back from, rather than as anything at all.
                kept["enum"] = list(
                    dict.fromkeys(option if isinstance(option, str) else spell(option) for option in options)
                )
                kept["type"] = "string"
                self._report.lose(path, "enum of several types written as strings")
            else:
                kept.pop("enum")
                if options and len({type_name(option) for option in options}) == 1:
                    kept.setdefault("type", type_name(options[0]))
                self._report.lose(path, "enum of other values than strings dropped")
        if "format" in kept and kept["format"] not in _FORMATS.get(str(kept.get("type")), ()):
            self._report.lose(path, f"format {kept.pop('format')} dropped")
        if "required" in kept:
            properties = as_object(kept.get("properties")) or {}
            named = [name for name in as_list(kept["required"]) if name in properties]
            if len(named) < len(as_list(kept["required"])):
                self._report.lose(path, "required fields without a declaration dropped")
                kept["required"] = named
            if not named:
                kept.pop("required")
        if kept.get("type") == "array" and not kept.get("items"):
            kept["items"] = {"type": "string"}
            self._report.lose(path, "items of any type offered as strings")


def _one_type(node: JsonObject) -> JsonObject:
    """Write a list of types as `nullable` and a union."""
    types = as_list(node.get("type"))
    if not types:
        return node
    named = [name for name in types if name != "null"]
    nullable: JsonObject = {"nullable": True} if len(named) < len(types) else {}
    if len(named) == 1:
        return {**node, "type": named[0], **nullable}
    rest = {key: value for key, value in node.items() if key != "type"}
    if "anyOf" in node or not named:
        return {**rest, **nullable}
    described = {key: value for key, value in rest.items() if key in ("title", "description")}
    return {**described, "anyOf": [{"type": name, **_belonging(rest, name)} for name in named], **nullable}


def _restate(keyword: str, node: JsonObject, kept: JsonObject) -> bool:
    """Say a refused keyword in other words; False if something of it is lost."""
    value = node[keyword]
    match keyword:
        case "const" if isinstance(value, str):
            kept["enum"] = [value]
            return True
        case "const":
            kept.setdefault("type", type_name(value))
        case "exclusiveMinimum" if type(value) is int and node.get("type") == "integer":
            kept["minimum"] = max(value + 1, kept.get("minimum", value + 1))
            return True
        case "exclusiveMaximum" if type(value) is int and node.get("type") == "integer":
            kept["maximum"] = min(value - 1, kept.get("maximum", value - 1))
            return True
        case "prefixItems":
            kept["items"] = as_list(value)
        case _:
            pass
    return False


def _outline(node: JsonObject) -> JsonObject:
    """What is left of a schema that is cut: its type and its words."""
    kind = node.get("type")
    outline: JsonObject = {"type": kind if isinstance(kind, str) else "object"}
    if outline["type"] == "array":
        outline["items"] = {"type": "string"}
    return {**outline, **{key: node[key] for key in ("title", "description") if key in node}}


def _without_null(node: JsonObject) -> JsonObject:
    """Write a null branch of a union as `nullable`, and a union of one as that one."""
    branches = as_list(node.get("anyOf"))
    others = [branch for branch in branches if branch != _NULL]
    if not branches or (len(others) == len(branches) and len(branches) > 1):
        return node
    rest = {key: value for key, value in node.items() if key != "anyOf"}
    if len(others) < len(branches):
        rest["nullable"] = True
    if len(others) > 1:
        return {**rest, "anyOf": others}
    only = as_object(others[0]) if others else None
    return rest if only is None else {**only, **rest}


_BELONGING = {
    "object": frozenset({"properties", "required", "additionalProperties", "minProperties", "maxProperties"}),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "format", "enum", "const"}),
    "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
}


def _belonging(node: JsonObject, name: str) -> JsonObject:
    return {key: value for key, value in node.items() if key in _BELONGING.get(name, ())}


def _are_scalars(options: Sequence[Any]) -> bool:
    return all(isinstance(option, str | int | float) for option in options)
