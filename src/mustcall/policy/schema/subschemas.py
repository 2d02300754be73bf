"""Where a JSON schema holds other schemas, where its local references point, and what is left without its faults.

The one table of keywords every walk over a schema is made from, so that a property called `$ref` or an example that
looks like a schema is never mistaken for one. It decides nothing about upstreams and fetches nothing: a reference out
of the document resolves to None.

Cost: `rewrite`, `deeper_than` and `types_of` are linear in the schema; `hoist` copies each referenced part once;
`without_faults` searches once for each fault, at most `MOST_FAULTS` times.
"""

import re
from collections.abc import Callable
from typing import Any, cast

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.dialects.reading.schema import type_name

__all__ = [
    "MAPS",
    "MAX_DEPTH",
    "MOST_FAULTS",
    "Path",
    "as_list",
    "as_object",
    "deeper_than",
    "hoist",
    "resolve",
    "rewrite",
    "spell",
    "types_of",
    "without_faults",
]

#: How deep a schema or a value may nest before it is refused; the same bound as the text readers'.
MAX_DEPTH = 100

_CONTAINERS = (dict, list)
_MAX_REFS = 16
#: The most parts that are taken out of one schema.
MOST_FAULTS = 32
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_ONE = (
    "items",
    "additionalProperties",
    "additionalItems",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contains",
    "propertyNames",
    "contentSchema",
    "not",
    "if",
    "then",
    "else",
)
_MANY = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
#: Keywords that hold schemas by name.
MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
#: Keywords that refuse more where a part of them, or of what stands beside them, is taken out.
_NOT_MONOTONE = frozenset({"not", "if", "then", "else", "maxContains", "unevaluatedItems", "unevaluatedProperties"})
#: A schema without any of these holds no other.
_HOLDING = frozenset({*_ONE, *_MANY, *MAPS})

_DOCUMENT_KEYS = frozenset({"$schema", "$id", "$defs", "definitions"})

Path = tuple[str | int, ...]


def spell(value: float) -> str:
    """Return a number or a truth as JSON writes it."""
    return msgspec.json.encode(value).decode()


def as_object(value: Any) -> JsonObject | None:
    """Return the value if it is an object; a schema comes from outside, so only its shape is certain."""
    return cast("JsonObject", value) if isinstance(value, dict) else None


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def rewrite(schema: JsonObject, change: Callable[[JsonObject, Path], JsonObject], path: Path = ()) -> JsonObject:
    """Apply `change` to every schema in the document, inner ones first; what nothing changed is the same object."""
    if _HOLDING.isdisjoint(schema):
        return change(schema, path)
    changed: JsonObject = {}
    for keyword in _ONE:
        if keyword not in schema:
            continue
        inner = as_object(schema[keyword])
        if inner is not None and (new := rewrite(inner, change, (*path, keyword))) is not inner:
            changed[keyword] = new
    for keyword in _MANY:
        if keyword not in schema:
            continue
        members = as_list(schema[keyword])
        new_members = [_rewritten(member, change, (*path, keyword, index)) for index, member in enumerate(members)]
        if any(new is not old for new, old in zip(new_members, members, strict=True)):
            changed[keyword] = new_members
    for keyword in MAPS:
        if keyword not in schema:
            continue
        named = as_object(schema[keyword]) or {}
        new_named = {name: _rewritten(member, change, (*path, keyword, name)) for name, member in named.items()}
        if any(new_named[name] is not member for name, member in named.items()):
            changed[keyword] = new_named
    return change({**schema, **changed} if changed else schema, path)


def _rewritten(member: Any, change: Callable[[JsonObject, Path], JsonObject], path: Path) -> Any:
    inner = as_object(member)
    return member if inner is None else rewrite(inner, change, path)


def resolve(root: JsonObject, reference: object) -> JsonObject | None:
    """Return the schema a local reference (`#`, `#/…`) points at, None if there is none in this document."""
    if reference == "#":
        return root
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    target: Any = root
    for written in (_unescaped(reference) if "%" in reference else reference)[2:].split("/"):
        step = written.replace("~1", "/").replace("~0", "~")
        match target:
            case dict():
                target = cast("JsonObject", target).get(step)
            case list() if step.isdecimal() and step.isascii() and len(step) < 7:
                members = cast("list[Any]", target)
                target = members[int(step)] if int(step) < len(members) else None
            case _:
                return None
    return as_object(target)


def _unescaped(reference: str) -> str:
    """Return a reference without the escapes that a URI needs; one that spells no text stays as it is."""
    raw = _ESCAPE.sub(lambda found: bytes((int(found.group(1), 16),)), reference.encode(errors="replace"))
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return reference


def types_of(schema: JsonObject, root: JsonObject, left: int = _MAX_REFS) -> frozenset[str] | None:
    """Return the JSON types a schema admits as far as it says so, None if it does not; `nullable` counts."""
    if left <= 0:
        return None
    target = resolve(root, schema["$ref"]) if "$ref" in schema else None
    if target is not None:
        return types_of(target, root, left - 1)
    found = _declared(schema)
    if found is None:
        for word in ("anyOf", "oneOf"):
            branches = [
                types_of(branch, root, left // 4) if (branch := as_object(member)) is not None else None
                for member in as_list(schema.get(word))
            ]
            if branches and None not in branches:
                found = frozenset[str]().union(*(branch for branch in branches if branch is not None))
    if found is None:
        for member in as_list(schema.get("allOf")):
            branch = as_object(member)
            found = found or (types_of(branch, root, left // 4) if branch is not None else None)
    if found is None and as_object(schema.get("properties")) is not None:
        found = frozenset({"object"})
    return found | {"null"} if found is not None and schema.get("nullable") is True else found


def _declared(schema: JsonObject) -> frozenset[str] | None:
    declared = schema.get("type")
    if isinstance(declared, str):
        return frozenset({declared})
    if isinstance(declared, list):
        return frozenset(str(item) for item in as_list(cast("Any", declared)))
    values = as_list(schema.get("enum")) or ([schema["const"]] if "const" in schema else [])
    return frozenset(type_name(value) for value in values) or None


def deeper_than(value: Any, limit: int) -> bool:
    """Whether objects and arrays nest deeper than this."""
    level: list[Any] = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(limit):
        inner = [one.values() if issubclass(one.__class__, dict) else one for one in level]
        level = [item for one in inner for item in one if isinstance(item, _CONTAINERS)]
        if not level:
            return False
    return bool(level)


def hoist(schema: JsonObject, prefix: str) -> tuple[JsonObject, dict[str, JsonObject]]:
    """Return the schema fit to stand inside another, and what its references need in that one's root `$defs`.

    Definitions are named by the prefix and a number in order of appearance, so the same schema always gives the same
    text. A reference to nothing in the document is left out.
    """
    names: dict[str, str] = {}

    def point(node: JsonObject, _path: Path) -> JsonObject:
        reference = node.get("$ref")
        if reference is None:
            return node
        if not isinstance(reference, str) or resolve(schema, reference) is None:
            return {key: value for key, value in node.items() if key != "$ref"}
        name = names.setdefault(reference, f"{prefix}{len(names)}")
        return {**node, "$ref": f"#/$defs/{name}"}

    def moved(node: JsonObject) -> JsonObject:
        if not _DOCUMENT_KEYS.isdisjoint(node):
            node = {key: value for key, value in node.items() if key not in _DOCUMENT_KEYS}
        return rewrite(node, point)

    body = moved(schema)
    definitions: dict[str, JsonObject] = {}
    while len(definitions) < len(names):
        for reference, name in list(names.items())[len(definitions) :]:
            target = resolve(schema, reference)
            assert target is not None  # only references that resolve are given a name
            definitions[name] = moved(target)
    return body, definitions


def without_faults(
    schema: JsonObject,
    fault_of: Callable[[JsonObject], Path | None],
    lose: Callable[[Path, str], None],
    *,
    most: int = MOST_FAULTS,
    admitting: bool = False,
) -> JsonObject | None:
    """Return the schema without its faults, None if no schema is left; the one that is given is changed in place.

    `fault_of` returns where the first fault is: empty if nobody can say, None if there is none. `lose` is told of each
    part that is taken out, of which there may be so many. An `admitting` schema takes every value that the whole one
    would: so it may be checked by.
    """
    local = False
    for count in range(most):
        fault = fault_of(schema)
        if fault is None:
            return schema
        if admitting and not count:
            schema = rewrite(schema, _monotone)
            continue  # the fault may be gone, or stand elsewhere
        if len(fault) > 0:
            _remove(schema, fault, admitting=admitting)
            lose(fault[:-1], f"{fault[-1]} is not JSON Schema, dropped")
        elif local:
            break
        else:
            schema, local = _local(schema, lose), True
    return None


def _monotone(node: JsonObject, _path: Path) -> JsonObject:
    """Return a schema of which every part can be taken out without refusing more than before; it admits no less."""
    kept = {key: value for key, value in node.items() if key not in _NOT_MONOTONE}
    if "oneOf" in kept:
        kept["allOf"] = [*as_list(kept.get("allOf")), {"anyOf": kept.pop("oneOf")}]
    if "patternProperties" in kept:
        kept.pop("additionalProperties", None)
    return kept


def _remove(schema: JsonObject, path: Path, *, admitting: bool) -> None:
    """Take the faulty part out, or what is around it where the path does not lead through the schema as written."""
    holders: list[Any] = [schema]
    for step in path[:-1]:
        if not _holds(holders[-1], step):
            break
        holders.append(holders[-1][step])
    if not _holds(holders[-1], path[len(holders) - 1]):
        holders.pop()
    place = len(holders) - 1
    if not holders:
        schema.clear()
    elif place and path[place - 1] in MAPS and path[place - 1] != "patternProperties":
        holders[-1][path[place]] = {}  # the field stays known, its declaration does not
    elif place and admitting and path[place - 1] in _MANY:
        holders[-1][path[place]] = {}  # one alternative less would refuse more
    else:
        del holders[-1][path[place]]


def _holds(holder: Any, step: str | int) -> bool:
    if isinstance(step, str):
        return step in (as_object(holder) or {})
    return step < len(as_list(holder))


def _local(schema: JsonObject, lose: Callable[[Path, str], None]) -> JsonObject:
    """Leave out names of the document and references to what is not in it: nothing is ever fetched."""
    schema = {key: value for key, value in schema.items() if key != "$id"}

    def keep_local(node: JsonObject, path: Path) -> JsonObject:
        if "$ref" not in node or resolve(schema, node["$ref"]) is not None:
            return node
        lose(path, "a reference out of the schema dropped")
        return {key: value for key, value in node.items() if key != "$ref"}

    return rewrite(schema, keep_local)
