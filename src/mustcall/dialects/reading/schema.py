"""What a tool's schema says about one parameter that was written as bare text, and the JSON that makes of it.

Only loss-free readings: text that says a value of the declared type becomes that value, everything else stays a
string for validation to judge. Without a declaration a value is a string (dialects that carry types of their own do
not come here). It validates nothing.
"""

import math
import re
from enum import Enum
from typing import Any, cast

from mustcall.core.memo import kept
from mustcall.core.origin import JsonObject
from mustcall.dialects.names import fold
from mustcall.dialects.reading.jsontext import quote, read_value
from mustcall.dialects.reading.pyliteral import read_literal
from mustcall.dialects.reading.reader import NotACall, Parse, Reader

__all__ = ["DeclaredParameter", "Kind", "child_schema", "declares_string", "resolve", "type_name"]

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,1000})\Z")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,1000})(?:\.[0-9]{1,1000})?(?:[eE][-+]?[0-9]{1,4})?\Z")
_MAX_REFS = 16
_STRING = frozenset({"string"})


def type_name(value: object) -> str:
    """Return the JSON type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return "string"


class Kind(Enum):
    """How a parameter's text can be passed on."""

    STRING = "string"  # at once, as the inside of a JSON string
    STRUCTURE = "structure"  # at once, if it is JSON
    HELD = "held"  # only when its end is known


class DeclaredParameter:
    """One parameter as its tool declares it."""

    __slots__ = ("_enum", "_types", "is_array", "kind")

    def __init__(self, declared: JsonObject | None = None, root: JsonObject | None = None) -> None:
        self._types = _types(declared, root or {}, _MAX_REFS) or _STRING
        self._enum = _enum(declared, root or {})
        self.is_array = "array" in self._types
        if self._types == _STRING:
            self.kind = Kind.STRING
        elif self._types <= {"array", "object"}:
            self.kind = Kind.STRUCTURE
        else:
            self.kind = Kind.HELD

    def convert(self, text: str) -> str:
        """Return the JSON that this text means."""
        types = self._types
        if self._enum is not None and text in self._enum:
            return quote(text)
        bare = text.strip()
        folded = bare.casefold()
        if "null" in types and (folded == "null" or (folded == "none" and "string" not in types)):
            return "null"
        if "boolean" in types and folded in ("true", "false"):
            return folded
        if "integer" in types and _INTEGER.match(bare):
            return bare
        if _NUMBER.match(bare) and ("number" in types or ("integer" in types and float(bare).is_integer())):
            # JSON can spell a number that no reader can hold; as a string it says what was written.
            return bare if _INTEGER.match(bare) or math.isfinite(float(bare)) else quote(text)
        if ("array" in types and bare[:1] == "[") or ("object" in types and bare[:1] == "{"):
            structure = _structure(bare)
            if structure is not None:
                return structure
        return quote(text)


def _structure(text: str) -> str | None:
    """Return the text if it is JSON, what it says if it is a Python literal, else None."""
    reader = _whole(text)
    if _runs(read_value(reader), reader):
        return text
    pieces: list[str] = []
    reader = _whole(text)
    return "".join(pieces) if _runs(read_literal(reader, pieces.append), reader) else None


def _whole(text: str) -> Reader:
    reader = Reader()
    reader.push(text)
    reader.closed = True
    return reader


def _runs(parse: Parse[None], reader: Reader) -> bool:
    try:
        for _ in parse:
            return False
    except NotACall:
        return False
    return reader.position == len(reader.buffer)


def resolve(schema: JsonObject, root: JsonObject) -> JsonObject:
    """Return what a schema refers to by a local `$ref`, or the schema itself."""
    return _follow(schema, root, _MAX_REFS)


def declares_string(schema: JsonObject | None, root: JsonObject | None) -> bool:
    """Tell whether a schema says that a value is a string and nothing else."""
    return _types(schema, root or {}, _MAX_REFS) == _STRING


def child_schema(schema: JsonObject | None, key: str | None, root: JsonObject | None) -> JsonObject | None:
    """Return what a schema declares for a key, or for the items of an array if the key is None.

    An exact key wins, else the one that differs only in case or separators.
    """
    if schema is None:
        return None
    schema = _follow(schema, root or {}, _MAX_REFS)
    if key is None:
        return _mapping(schema.get("items"))
    properties = _mapping(schema.get("properties")) or {}
    if key in properties:
        return _mapping(properties[key])
    meant = _by_fold(tuple(properties)).get(fold(key))
    if meant is not None:
        return _mapping(properties[meant])
    return _mapping(schema.get("additionalProperties"))


@kept(most=256)
def _by_fold(names: tuple[str, ...]) -> dict[str, str | None]:
    """Return names by how they look apart from case and separators, None where that is ambiguous.

    Kept, since a reply may hold thousands of keys that no schema knows.
    """
    found: dict[str, str | None] = {}
    for name in names:
        folded = fold(name)
        found[folded] = None if folded in found else name
    return found


def _mapping(value: Any) -> JsonObject | None:
    # A schema comes from outside: only its shape is certain here.
    return cast("JsonObject", value) if isinstance(value, dict) else None


def _items(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _follow(schema: JsonObject, root: JsonObject, left: int) -> JsonObject:
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/") or left <= 0:
        return schema
    target: JsonObject | None = root
    for step in reference[2:].split("/"):
        target = _mapping(target.get(step.replace("~1", "/").replace("~0", "~"))) if target else None
    return _follow(target, root, left - 1) if target is not None else schema


def _types(
    schema: JsonObject | None, root: JsonObject, left: int, seen: set[int] | None = None
) -> frozenset[str] | None:
    """Return the JSON types a schema admits, None if it does not say.

    Each schema is looked at once (`seen`), or one whose branches lead back to it would be read without end.
    """
    if schema is None or left <= 0:
        return None
    schema = _follow(schema, root, left)
    seen = set() if seen is None else seen
    if id(schema) in seen:
        return frozenset()
    seen.add(id(schema))
    declared = schema.get("type")
    if isinstance(declared, str):
        return frozenset({declared})
    if isinstance(declared, list):
        return frozenset(str(item) for item in _items(cast("Any", declared)))
    values = _items(schema.get("enum")) or ([schema["const"]] if "const" in schema else [])
    if values:
        return frozenset(type_name(value) for value in values)
    for word in ("anyOf", "oneOf"):
        branches = [_types(_mapping(branch), root, left - 1, seen) for branch in _items(schema.get(word))]
        if branches:
            return frozenset[str]().union(*(_STRING if branch is None else branch for branch in branches))
    for branch in _items(schema.get("allOf")):
        found = _types(_mapping(branch), root, left - 1, seen)
        if found:
            return found
    if _mapping(schema.get("properties")) is not None:
        return frozenset({"object"})
    return None


def _enum(schema: JsonObject | None, root: JsonObject) -> frozenset[str] | None:
    """Return the strings among a schema's listed values, None if it lists none."""
    if schema is None:
        return None
    schema = _follow(schema, root, _MAX_REFS)
    values = [*_items(schema.get("enum")), *([schema["const"]] if "const" in schema else [])]
    return frozenset(value for value in values if isinstance(value, str)) or None
