"""How much work a schema can make of checking one value, counted before the schema is compiled.

A few hundred bytes of `allOf` and `$ref` say "check this 2^40 times". The library that checks values follows such a
schema to the letter and cannot be stopped, so what is above the limits here is never given to it: the schema is
reported as not checkable, or the value as one that takes too many steps. The unit is one step of the library on one
place of a value, about 25 ns on the machine this was measured on. Nothing is compiled or validated here.

`effort_of` counts, for each schema, how often one place of a value can be looked at: in-place keywords (`allOf`,
`anyOf`, `$ref`, ...) add up, keywords that go down into the value count by the dearest of them. A reference back into
a schema that is being counted ends there, because the library remembers what it found at each place for those.

Cost: linear in the schema, each subschema is looked at once.
"""

import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.policy.limits.work_allowance import spend
from mustcall.policy.schema.subschemas import as_list, as_object, resolve

__all__ = ["MOST_STEPS", "SchemaWorkload", "Uncountable", "effort_of", "inner_values", "places_in"]

#: The most steps that one check of one value may take: about 50 ms.
MOST_STEPS = 2_000_000
#: The most steps at one place of a value; a schema above it is not checkable.
_MOST_AT_ONE_PLACE = 100_000
#: Up to so many steps at one place the size of the value does not matter.
_FEW = 8
#: The longest chain of subschemas and references, and the most subschemas of one document.
_LONGEST_CHAIN = 200
_MOST_SUBSCHEMAS = 50_000

#: What was measured to take more than one step: remembering places, telling items apart, matching names, and so on.
_RECURSIVE, _UNIQUE, _NAME_PATTERN, _BACKTRACKING, _KNOWN_ELSEWHERE = 4, 40, 8, 5_000, 100
_LISTED_PER_STEP = 8

_IN_PLACE_MANY = ("allOf", "anyOf", "oneOf")
_IN_PLACE_ONE = ("not", "if", "then", "else")
_IN_PLACE_NAMED = ("dependentSchemas", "dependencies")
_BELOW_ONE = (
    "additionalProperties",
    "items",
    "additionalItems",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_BELOW_MANY = ("prefixItems", "items")
_LISTED = ("enum", "required", "properties", "prefixItems")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
#: What only a backtracking matcher can do: look around, and refer back.
_LOOKS_AROUND = re.compile(r"\(\?[=!<]|\\[1-9]|\\k")
#: Meta-schemas, which the library has with it.
_KNOWN = ("http://json-schema.org/", "https://json-schema.org/")


class Uncountable(Exception):
    """The schema makes more work than is ever done, or more than can be counted. Never leaves policy."""


class SchemaWorkload(msgspec.Struct, frozen=True):
    """What a schema may cost at each place of a value."""

    steps: int
    #: A reference leads to where it cannot be followed: if the library can, nobody knows what that costs.
    unknown: bool = False

    @property
    def bounded(self) -> bool:
        """Whether the steps are so few that values of any size may be checked: reading them was dearer."""
        return self.steps <= _FEW

    def affords(self, value: Any) -> bool:
        """Tell whether a value can be checked within `MOST_STEPS` and what else is allowed; the steps are spent."""
        if self.bounded:
            return True
        most = MOST_STEPS // self.steps
        places = places_in(value, most)
        return places <= most and spend(places * self.steps)


def inner_values(value: Any) -> list[Any] | None:
    """Return the values that an object or array holds, None of what holds none."""
    if isinstance(value, list):
        return cast("list[Any]", value)
    found = as_object(value)
    return None if found is None else list(found.values())


def places_in(value: Any, most: int) -> int:
    """Return how many values a value consists of, itself included; counting ends above `most`."""
    count = 1
    waiting = [value]
    while waiting:
        inner = inner_values(waiting.pop())
        if inner is None:
            continue
        count += len(inner)
        if count > most:
            break
        waiting += filter(_holds_others, inner)
    return count


def _holds_others(value: Any) -> bool:
    return isinstance(value, (dict, list))


def effort_of(schema: JsonObject) -> SchemaWorkload:
    """Return what checking by a schema costs, or raise `Uncountable`."""
    counter = _Counter(schema)
    steps = counter.count(schema, 0)
    # Each schema that is referred to from within itself is remembered by place, and so counted once for each place.
    if counter.recursive:
        steps = (steps + sum(counter.cost[key] for key in counter.recursive)) * _RECURSIVE
    return SchemaWorkload(_bounded(steps), counter.unknown)


def _bounded(steps: int) -> int:
    if steps > _MOST_AT_ONE_PLACE:
        raise Uncountable
    return steps


class _Counter:
    """Counts each subschema once."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._anchors: dict[str, JsonObject] | None = None
        self._under_way: set[int] = set()
        self.cost: dict[int, int] = {}
        self.recursive: set[int] = set()
        self.unknown = False

    def count(self, schema: Any, depth: int) -> int:
        """Return how many steps one place, here or below, may take if this schema is applied once."""
        node = as_object(schema)
        if node is None:
            return 1
        key = id(node)
        known = self.cost.get(key)
        if known is not None:
            return known
        if key in self._under_way:
            self.recursive.add(key)
            return 1
        if depth > _LONGEST_CHAIN or len(self.cost) > _MOST_SUBSCHEMAS:
            raise Uncountable
        self._under_way.add(key)
        here = _own_steps(node) + sum(self.count(inner, depth + 1) for inner in self._in_place(node))
        total = self.cost[key] = _bounded(here + self._below(node, depth + 1))
        self._under_way.remove(key)
        return total

    def _in_place(self, node: JsonObject) -> Iterator[Any]:
        for word in _REFERENCES:
            if word in node:
                yield self._target(node[word])
        for word in _IN_PLACE_MANY:
            yield from as_list(node.get(word))
        yield from (node[word] for word in _IN_PLACE_ONE if word in node)
        for word in _IN_PLACE_NAMED:
            yield from (as_object(node.get(word)) or {}).values()

    def _below(self, node: JsonObject, depth: int) -> int:
        """Return what one place below may cost: one property, every pattern, and what applies to the rest."""
        named = (as_object(node.get("properties")) or {}).values()
        dearest = max((self.count(inner, depth) for inner in named), default=0)
        patterns = as_object(node.get("patternProperties")) or {}
        matching = sum(self.count(inner, depth) for inner in patterns.values())
        listed = (inner for word in _BELOW_MANY for inner in as_list(node.get(word)))
        placed = max((self.count(inner, depth) for inner in listed), default=0)
        rest = sum(self.count(node[word], depth) for word in _BELOW_ONE if as_object(node.get(word)) is not None)
        return dearest + matching + placed + rest

    def _target(self, reference: object) -> JsonObject:
        """Return what a reference means, an empty schema for one that leads nowhere in this document."""
        if not isinstance(reference, str):
            return {}
        own = self._root.get("$id", self._root.get("id"))
        if isinstance(own, str) and own and reference.startswith(own.removesuffix("#")):
            reference = "#" + reference.removeprefix(own.removesuffix("#")).removeprefix("#")
        found = resolve(self._root, reference)
        if found is None and reference.startswith("#"):
            found = self._named_anchors().get(reference[1:])
        if found is not None:
            return found
        if reference.startswith(_KNOWN):
            return {"enum": [None] * _KNOWN_ELSEWHERE * _LISTED_PER_STEP}
        self.unknown = self.unknown or not reference.startswith("#")
        return {}  # a boolean schema, or nothing: then it does not compile

    def _named_anchors(self) -> dict[str, JsonObject]:
        if self._anchors is None:
            self._anchors = {}
            waiting: list[Any] = [self._root]
            while waiting:
                part = waiting.pop()
                waiting.extend(inner_values(part) or ())
                node = as_object(part) or {}
                for word in ("$anchor", "$dynamicAnchor"):
                    if isinstance(node.get(word), str):
                        self._anchors.setdefault(node[word], node)
                name = node.get("$id")
                if isinstance(name, str) and name.startswith("#"):
                    self._anchors.setdefault(name[1:], node)
        return self._anchors


def _own_steps(node: JsonObject) -> int:
    steps = 1 + sum(len(inner_values(node.get(word)) or ()) for word in _LISTED) // _LISTED_PER_STEP
    if node.get("uniqueItems") is True:
        steps += _UNIQUE
    pattern = node.get("pattern")
    if isinstance(pattern, str) and _LOOKS_AROUND.search(pattern):
        steps += _BACKTRACKING
    for name in as_object(node.get("patternProperties")) or {}:
        steps += _BACKTRACKING if _LOOKS_AROUND.search(name) else _NAME_PATTERN
    return steps
