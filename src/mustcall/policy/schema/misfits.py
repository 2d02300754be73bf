"""Finds what is wrong with a value that does not fit its schema: which field, and which branch of a union was meant.

The library tells errors of a union together with those of every branch, and so on down: one wrong leaf in a recursive
filter of depth 10 makes a million of them. So the descent is done here. The library is asked yes or no about parts of
the schema, and for errors of single schemas without anything below them. Of a union the branch is taken that the value
can only mean: by its type, its constant fields (discriminators), the fields it must have and those it may have.

Cost: at most `MOST_STEPS` steps, counted as in `workload`; what is not found by then is not told.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, cast

from mustcall.core.origin import JsonObject
from mustcall.policy.limits.work_allowance import spend
from mustcall.policy.schema.problems import Problem, declared_names, expected, one_line, written
from mustcall.policy.schema.subschemas import as_list, as_object, resolve, types_of
from mustcall.policy.schema.workload import MOST_STEPS, SchemaWorkload, inner_values

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

__all__ = ["Misfits", "Parts"]

#: How many problems are found at all.
_MOST_FOUND = 20
#: What one look at one schema costs in steps: it is done in Python.
_LOOK = 200
_DEEPEST = 400
_MOST_TAGS = 32

_UNIONS = ("anyOf", "oneOf")
#: Keywords that are followed here and not left to the library.
_FOLLOWED = frozenset(
    {
        *("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
        *("items", "prefixItems", "additionalItems", "contains", "minContains", "maxContains", "propertyNames"),
        *("dependentSchemas", "unevaluatedProperties", "unevaluatedItems", "contentSchema"),
        *("$defs", "definitions", "$id", "id", "$schema", "$anchor", "$dynamicAnchor", "$recursiveAnchor"),
    }
)
#: Keywords of which nothing is told but that they failed.
_OPAQUE = ("unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef")


class Parts(Protocol):
    """Compiled parts of the schema that a value is held against."""

    tuples: bool
    whole_references: bool

    def at(self, pointer: str) -> JsonObject:
        """Return a schema that refers to one part of the document."""
        ...

    def compiled(self, schema: JsonObject) -> "Validator":
        """Return a small schema compiled."""
        ...


class _Enough(Exception):
    """Twenty problems are found, or the steps are spent."""


class Misfits:
    """One search in one value."""

    def __init__(self, parts: Parts, schema: JsonObject, effort: SchemaWorkload) -> None:
        self._parts = parts
        self._root = schema
        self._effort = effort
        self._names = declared_names(schema)
        self._found: dict[Problem, None] = {}
        self._seen: set[tuple[str, tuple[str | int, ...]]] = set()
        self._sizes: dict[int, int] = {}
        self._deepest: tuple[str | int, ...] = ()
        #: Steps taken so far.
        self.steps = 0

    def find(self, value: Any) -> tuple[Problem, ...]:
        """Return the problems of a value that is not valid, at least the deepest place that was looked at."""
        with suppress(_Enough, RecursionError):
            self._look(self._root, "#", value, ())
        if not self._found:
            self._add(self._deepest, "a value of the declared form")
        return tuple(self._found)

    def _look(self, schema: Any, pointer: str, value: Any, path: tuple[str | int, ...]) -> None:
        """Note what is wrong with a value under one schema."""
        if (pointer, path) in self._seen or len(path) > _DEEPEST:
            return
        self._seen.add((pointer, path))
        if len(path) > len(self._deepest):
            self._deepest = path
        self._spend(_LOOK)
        node = as_object(schema)
        if node is None:
            if schema is False:
                self._note(path, "falseSchema", {}, {})
            return
        before = len(self._found)
        if "$ref" in node:
            self._follow(node["$ref"], pointer, value, path)
            if self._parts.whole_references:
                return
        for error in self._parts.compiled(_alone(node)).iter_errors(value):
            self._note_error(error, node, path)
        self._look_in_place(node, pointer, value, path)
        match value:
            case dict():
                self._look_into_object(node, pointer, cast("JsonObject", value), path)
            case list():
                self._look_into_array(node, pointer, cast("list[Any]", value), path)
            case _:
                pass
        opaque = next((word for word in _OPAQUE if word in node), None)
        if opaque is not None and len(self._found) == before and not self._fits(pointer, value):
            self._note(path, opaque, {}, node)

    def _follow(self, reference: Any, pointer: str, value: Any, path: tuple[str | int, ...]) -> None:
        target = resolve(self._root, reference)
        if target is not None:
            self._look(target, reference, value, path)
        elif not self._fits(pointer, value):
            self._note(path, "$ref", {}, {})

    def _look_in_place(self, node: JsonObject, pointer: str, value: Any, path: tuple[str | int, ...]) -> None:
        for index, member in enumerate(as_list(node.get("allOf"))):
            self._look(member, f"{pointer}/allOf/{index}", value, path)
        for word in _UNIONS:
            if word in node:
                self._look_into_union(word, as_list(node[word]), f"{pointer}/{word}", value, path)
        if "not" in node and self._fits(f"{pointer}/not", value):
            self._note(path, "not", {}, node)
        if "if" in node:
            word = "then" if self._fits(f"{pointer}/if", value) else "else"
            self._look(node.get(word), f"{pointer}/{word}", value, path)

    def _look_into_object(self, node: JsonObject, pointer: str, value: JsonObject, path: tuple[str | int, ...]) -> None:
        declared = as_object(node.get("properties")) or {}
        patterns = as_object(node.get("patternProperties")) or {}
        rest = node.get("additionalProperties")
        for name in declared.keys() & value.keys() if len(value) < len(declared) else declared:
            if name in value:
                self._descend(declared[name], f"{pointer}/properties/{_escaped(name)}", value[name], (*path, name))
        for key in value if patterns or as_object(rest) is not None else ():
            matched = key in declared
            for pattern, inner in patterns.items():
                self._spend(_LOOK)
                if self._parts.compiled({"pattern": pattern}).is_valid(key):
                    matched = True
                    place = f"{pointer}/patternProperties/{_escaped(pattern)}"
                    self._descend(inner, place, value[key], (*path, key))
            if not matched and as_object(rest) is not None:
                self._descend(rest, f"{pointer}/additionalProperties", value[key], (*path, key))
        if "propertyNames" in node:
            self._look_at_whole("propertyNames", node, pointer, value, path)
        for word in ("dependentSchemas", "dependencies"):
            for name, inner in (as_object(node.get(word)) or {}).items():
                if name in value and not isinstance(inner, list):
                    self._look(inner, f"{pointer}/{word}/{_escaped(name)}", value, path)

    def _look_into_array(self, node: JsonObject, pointer: str, value: list[Any], path: tuple[str | int, ...]) -> None:
        listed, rest = "prefixItems", "items"
        if self._parts.tuples:
            listed, rest = ("items", "additionalItems") if isinstance(node.get("items"), list) else ("", "items")
        places = as_list(node.get(listed))
        for index, (inner, item) in enumerate(zip(places, value, strict=False)):
            self._descend(inner, f"{pointer}/{listed}/{index}", item, (*path, index))
        if node.get(rest) is not None:
            for index, item in enumerate(value[len(places) :], len(places)):
                self._descend(node[rest], f"{pointer}/{rest}", item, (*path, index))
        if "contains" in node:
            self._look_at_whole("contains", node, pointer, value, path)

    def _look_at_whole(
        self, word: str, node: JsonObject, pointer: str, value: Any, path: tuple[str | int, ...]
    ) -> None:
        """Note that a keyword fails as a whole, without a word about what is under it."""
        self._charge(value)
        beside = {name: node[name] for name in ("minContains", "maxContains") if name in node}
        schema = beside | {word: self._parts.at(f"{pointer}/{word}")}
        if not self._parts.compiled(schema).is_valid(value):
            self._note(path, word, {}, node)

    def _descend(self, schema: Any, pointer: str, value: Any, path: tuple[str | int, ...]) -> None:
        """Look at a part of the value, unless it is in order: what has nothing below it is looked at at once."""
        if not isinstance(value, (dict, list)) or not self._fits(pointer, value):
            self._look(schema, pointer, value, path)

    def _look_into_union(
        self, word: str, branches: list[Any], pointer: str, value: Any, path: tuple[str | int, ...]
    ) -> None:
        fitting = sum(self._fits(f"{pointer}/{index}", value) for index in range(len(branches)))
        if fitting == 1 or (fitting and word == "anyOf"):
            return
        meant = None if fitting else self._meant(branches, value)
        if meant is not None:
            self._look(branches[meant], f"{pointer}/{meant}", value, path)
            return
        kinds = [types_of(node, self._root) if (node := as_object(branch)) is not None else None for branch in branches]
        foreign = [kind for kind in kinds if kind is not None and not _has_type(value, kind)]
        types = sorted(frozenset[str]().union(*foreign)) if not fitting else []
        self._note(path, word, {"types": types}, {})

    def _meant(self, branches: list[Any], value: Any) -> int | None:
        """Return the branch that a value can only mean, None if there is none or several are as near."""
        ranked: list[tuple[tuple[int, ...], int]] = []
        for index, branch in enumerate(branches):
            self._spend(_LOOK)
            nearness = self._nearness(branch, value)
            if nearness is not None:
                ranked.append((nearness, index))
        ranked.sort(reverse=True)
        if not ranked or (len(ranked) > 1 and ranked[0][0] == ranked[1][0]):
            return None
        return ranked[0][1]

    def _nearness(self, branch: Any, value: Any) -> tuple[int, ...] | None:
        """Return how near a branch is to a value, None if it is another type or says another constant."""
        node = as_object(branch)
        if node is None:
            return None
        types = types_of(node, self._root)
        if types is not None and not _has_type(value, types):
            return None
        conjuncts = list(self._conjuncts(node))
        if any(not _may_equal(conjunct, value) for conjunct in conjuncts):
            return None
        fields = as_object(value)
        if fields is None:
            return (0,)
        tags, known, missing, closed = 0, set[str](), 0, False
        for conjunct in conjuncts:
            properties = as_object(conjunct.get("properties")) or {}
            known.update(properties)
            closed = closed or conjunct.get("additionalProperties") is False
            missing += sum(name not in fields for name in as_list(conjunct.get("required")) if isinstance(name, str))
            for name in properties.keys() & fields.keys():
                declared = as_object(properties[name]) or {}
                if "const" in declared or "enum" in declared:
                    if not _may_equal(declared, fields[name]):
                        return None
                    tags += 1
        strange = sum(name not in known for name in fields) if closed else 0
        return (tags, int(not missing), -strange, -missing, len(known & fields.keys()))

    def _conjuncts(self, node: JsonObject) -> Iterator[JsonObject]:
        """Yield the schemas that all apply where this one does."""
        waiting, left = [node], _MOST_TAGS
        while waiting and left:
            left -= 1
            schema = waiting.pop()
            yield schema
            target = resolve(self._root, schema.get("$ref"))
            waiting.extend([] if target is None else [target])
            waiting.extend(inner for member in as_list(schema.get("allOf")) if (inner := as_object(member)) is not None)

    def _fits(self, pointer: str, value: Any) -> bool:
        self._charge(value)
        return self._parts.compiled(self._parts.at(pointer)).is_valid(value)

    def _charge(self, value: Any) -> None:
        self._spend(_LOOK + self._size(value) * self._effort.steps)

    def _spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MOST_STEPS or not spend(steps):
            raise _Enough

    def _size(self, value: Any) -> int:
        """Return how many values a value consists of; each is counted once in a search."""
        inner = inner_values(value)
        if inner is None:
            return 1
        known = self._sizes.get(id(value))
        if known is None:
            known = self._sizes[id(value)] = 1 + sum(map(self._size, inner))
        return known

    def _note_error(self, error: "ValidationError", node: JsonObject, path: tuple[str | int, ...]) -> None:
        details = error.kind.as_dict()
        place = (*path, *error.instance_path)
        if error.kind.name == "required":
            name = str(details.get("property", ""))
            field = as_object((as_object(node.get("properties")) or {}).get(name)) or {}
            declared = field.get("type")
            self._add((*place, name), f"{declared}, required" if isinstance(declared, str) else "required")
        else:
            self._note(place, error.kind.name, details, node)

    def _note(self, path: tuple[str | int, ...], word: str, details: dict[str, Any], node: JsonObject) -> None:
        self._add(path, expected(word, details, node))

    def _add(self, path: tuple[str | int, ...], words: str) -> None:
        self._found[Problem(written(path, self._names), one_line(words))] = None
        if len(self._found) >= _MOST_FOUND:
            raise _Enough


def _alone(node: JsonObject) -> JsonObject:
    """Return a schema without the schemas in it: where they only have to be known, they admit anything."""
    alone = {key: value for key, value in node.items() if key not in _FOLLOWED}
    for word in ("properties", "patternProperties"):
        named = as_object(alone.get(word))
        if named is not None:
            alone[word] = {name: {} for name in named}  # draft 4 has no schema that is `true`
    if alone.get("additionalProperties") is not False:
        alone.pop("additionalProperties", None)
    named = as_object(alone.get("dependencies"))
    if named is not None:
        alone["dependencies"] = {name: inner for name, inner in named.items() if isinstance(inner, list)}
    return alone


def _escaped(name: str) -> str:
    """Return a name as a reference writes it; what a URI cannot hold as it is, is written in hexadecimal."""
    text = name.replace("~", "~0").replace("/", "~1")
    if text.isascii() and text.replace("_", "").replace("-", "").isalnum():
        return text
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in text.encode(errors="replace"))


_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")


def _has_type(value: Any, types: frozenset[str]) -> bool:
    match value:
        case None:
            return "null" in types
        case bool():
            return "boolean" in types
        case str():
            return "string" in types
        case dict():
            return "object" in types
        case list():
            return "array" in types
        case int():
            return "integer" in types or "number" in types
        case _:
            return "number" in types or ("integer" in types and value == int(value))


def _may_equal(node: JsonObject, value: Any) -> bool:
    """Tell whether a text can be the constant, or one of those, that a schema names; other values always may."""
    if not isinstance(value, str):
        return True
    named: list[Any] = [node["const"]] if "const" in node else as_list(node.get("enum"))
    return not named or value in named
