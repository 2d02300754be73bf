"""Walking a schema: only schemas are visited, and local references survive a move."""

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.origin import JsonObject
from mustcall.policy.schema.subschemas import deeper_than, hoist, resolve, rewrite, types_of

TREE: JsonObject = {
    "type": "object",
    "properties": {"root": {"$ref": "#/definitions/Node"}, "again": {"$ref": "#"}},
    "required": ["root"],
    "definitions": {
        "Node": {
            "type": "object",
            "properties": {"value": {"type": "integer"}, "next": {"$ref": "#/definitions/Node"}},
            "required": ["value"],
        }
    },
}

schemas = st.recursive(
    st.sampled_from([{"type": "string"}, {"type": "integer"}, {}, {"$ref": "#"}, {"$ref": "#/properties/a"}]),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(lambda p: {"type": "object", "properties": p}),
        inner.map(lambda item: {"type": "array", "items": item}),
        st.lists(inner, min_size=1, max_size=3).map(lambda members: {"anyOf": members}),
    ),
    max_leaves=8,
)


def test_only_schemas_are_visited() -> None:
    """A property called `$ref`, an enum and a default are data, not schemas."""
    seen: list[tuple[str | int, ...]] = []

    def look(node: JsonObject, path: tuple[str | int, ...]) -> JsonObject:
        seen.append(path)
        return node

    schema: JsonObject = {
        "properties": {"$ref": {"type": "string"}, "items": {"default": {"type": "x"}, "enum": [{"items": {}}]}},
        "anyOf": [{"not": {"type": "null"}}],
    }
    assert rewrite(schema, look) is schema
    assert sorted(seen, key=str) == sorted(
        [(), ("properties", "$ref"), ("properties", "items"), ("anyOf", 0), ("anyOf", 0, "not")], key=str
    )


def test_a_change_copies_only_its_own_branch() -> None:
    """What a rewrite leaves alone stays the same object, and the original is never touched."""
    schema: JsonObject = {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}
    before = json.dumps(schema)
    new = rewrite(schema, lambda node, _: {"type": "number"} if node.get("type") == "integer" else node)
    assert new["properties"]["b"] == {"type": "number"}
    assert new["properties"]["a"] is schema["properties"]["a"]
    assert json.dumps(schema) == before


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("#", "root"),
        ("#/$defs/a~1b", 1),
        ("#/anyOf/0", 2),
        ("#/anyOf/9", None),
        ("#/anyOf/x", None),
        ("#/anyOf/²", None),
        ("#/nope/deeper", None),
        ("#anchor", None),
        ("http://example.com/x", None),
        (7, None),
        (None, None),
    ],
)
def test_references(reference: object, expected: object) -> None:
    """A reference resolves inside its document or not at all."""
    schema: JsonObject = {"$id": "root", "$defs": {"a/b": {"minimum": 1}}, "anyOf": [{"minimum": 2}]}
    found = resolve(schema, reference)
    assert (found if found is None else found.get("$id", found.get("minimum"))) == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"type": "string", "nullable": True}, {"string", "null"}),
        ({"enum": [1, None]}, {"integer", "null"}),
        ({"const": True}, {"boolean"}),
        ({"anyOf": [{"type": "string"}, {"type": "array"}]}, {"string", "array"}),
        ({"anyOf": [{"type": "string"}, {}]}, None),
        ({"allOf": [{}, {"type": "number"}]}, {"number"}),
        ({"properties": {}}, {"object"}),
        ({"$ref": "#"}, None),
        ({}, None),
    ],
)
def test_declared_types(schema: JsonObject, expected: set[str] | None) -> None:
    """The types a schema admits, None where it does not say."""
    assert types_of(schema, schema) == expected


def test_types_of_a_circle_are_unknown() -> None:
    """Rule 68: a union of itself, ten times over, is given up, not followed."""
    schema: JsonObject = {"anyOf": [{"$ref": "#"}] * 10}
    assert types_of(schema, schema) is None


def test_a_moved_schema_means_the_same() -> None:
    """Rule 130: recursive references still work when the schema stands inside another."""
    body, definitions = hoist(TREE, "x_")
    moved = jsonschema_rs.validator_for({"properties": {"inner": body}, "$defs": definitions}, offline=True)
    alone = jsonschema_rs.validator_for(TREE, offline=True)
    good: Any = {"root": {"value": 1, "next": {"value": 2}}, "again": {"root": {"value": 3}}}
    bad: Any = {"root": {"value": 1, "next": {"value": "2"}}}
    bad_again: Any = {"root": {"value": 1}, "again": {}}
    for value in (good, bad, bad_again):
        assert moved.is_valid({"inner": value}) is alone.is_valid(value)
    assert alone.is_valid(good)
    assert not alone.is_valid(bad)


@given(schemas, st.recursive(st.sampled_from([1, "x", None]), lambda v: st.dictionaries(st.sampled_from("abc"), v)))
def test_hoisting_keeps_the_meaning(schema: JsonObject, value: Any) -> None:
    """Rule 130: wherever references resolve, a moved schema judges every value alike."""
    try:
        alone = jsonschema_rs.validator_for(schema, offline=True)
    except ValueError:
        return
    body, definitions = hoist(schema, "p")
    moved = jsonschema_rs.validator_for({"properties": {"inner": body}, "$defs": definitions}, offline=True)
    assert moved.is_valid({"inner": value}) is alone.is_valid(value)


def test_depth_is_measured_without_recursion() -> None:
    """A bomb of any depth is measured, not overflowed."""
    value: Any = 1
    for _ in range(50_000):
        value = [value]
    assert deeper_than(value, 100)
    assert not deeper_than({"a": [{"b": 1}]}, 3)
    assert deeper_than({"a": [{"b": 1}]}, 2)
