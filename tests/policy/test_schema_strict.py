"""The closed form of a schema, and which schemas have none."""

import pytest

from mustcall.core.origin import JsonObject
from mustcall.policy.facts.profile import SchemaTarget
from mustcall.policy.schema.tool_schemas import compile_schema

PLAIN: JsonObject = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where", "minLength": 1},
        "days": {"type": "integer", "minimum": 1},
        "unit": {"type": "string", "enum": ["c", "f"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city"],
}
NODE: JsonObject = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/Node"}},
    "$defs": {
        "Node": {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}}},
    },
}


def test_openai_strict_requires_all_and_makes_the_optional_nullable() -> None:
    """Rule 130: closed objects, every key required, optional ones nullable, refused words dropped and told."""
    schema: JsonObject = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "default": "x"},
            "days": {"type": "integer", "not": {"const": 3}},
            "unit": {"type": "string", "enum": ["c"]},
            "kind": {"const": "k"},
            "node": {"$ref": "#/$defs/N", "description": "d"},
            "alt": {"oneOf": [{"type": "string"}, {"type": "null"}]},
            "old": {"allOf": [{"$ref": "#/$defs/N"}]},
        },
        "required": ["city"],
        "$defs": {"N": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}},
    }
    compiled = compile_schema(schema, SchemaTarget.OPENAI, strict=True)
    null = {"type": "null"}
    assert compiled.schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": ["integer", "null"]},
            "unit": {"type": ["string", "null"], "enum": ["c", None]},
            "kind": {"anyOf": [{"const": "k"}, null]},
            "node": {"anyOf": [{"$ref": "#/$defs/N"}, null]},
            "alt": {"anyOf": [{"type": "string"}, null]},
            "old": {"anyOf": [{"$ref": "#/$defs/N"}, null]},
        },
        "required": ["city", "days", "unit", "kind", "node", "alt", "old"],
        "additionalProperties": False,
        "$defs": {
            "N": {
                "type": "object",
                "properties": {"x": {"type": "string"}},
                "required": ["x"],
                "additionalProperties": False,
            }
        },
    }
    assert compiled.losses == ("days: not dropped",)


def test_anthropic_strict_is_closed_but_keeps_the_optional() -> None:
    """Rule 130: no other fields, limits dropped and told."""
    compiled = compile_schema(PLAIN, SchemaTarget.ANTHROPIC, strict=True)
    assert compiled.schema["additionalProperties"] is False
    assert compiled.schema["required"] == ["city"]
    assert compiled.losses == ("city: minLength dropped", "days: minimum dropped")


REFUSED: JsonObject = {
    "not": {"const": 1},
    "if": {"const": 1},
    "then": {"const": 1},
    "else": {"const": 1},
    "dependentRequired": {"a": ["b"]},
    "dependentSchemas": {"a": {"const": 1}},
    "dependencies": {"a": ["b"]},
    "propertyNames": {"const": "x"},
    "unevaluatedProperties": False,
    "unevaluatedItems": False,
    "minProperties": 1,
    "maxProperties": 1,
    "contains": {"const": 1},
    "minContains": 1,
    "maxContains": 1,
    "uniqueItems": True,
}
LIMITS: JsonObject = {
    "minimum": 1,
    "maximum": 2,
    "exclusiveMinimum": 1,
    "exclusiveMaximum": 2,
    "multipleOf": 2,
    "minLength": 1,
    "maxLength": 2,
    "maxItems": 2,
}


@pytest.mark.parametrize("word", [*REFUSED, *LIMITS])
@pytest.mark.parametrize("target", [SchemaTarget.OPENAI, SchemaTarget.ANTHROPIC])
def test_each_refused_word_is_dropped_and_told(word: str, target: SchemaTarget) -> None:
    """Rule 130: conditions are refused by both providers, limits by Anthropic."""
    field: JsonObject = {"type": "string", word: (REFUSED | LIMITS)[word]}
    schema: JsonObject = {"type": "object", "properties": {"a": field}, "required": ["a"]}
    compiled = compile_schema(schema, target, strict=True)
    assert compiled.expressible
    refused = word in REFUSED or target is SchemaTarget.ANTHROPIC
    assert compiled.schema["properties"]["a"] == ({"type": "string"} if refused else field)
    assert compiled.losses == ((f"a: {word} dropped",) if refused else ())


OPEN: list[JsonObject] = [
    {"type": "object", "properties": {"m": {"type": "object", "additionalProperties": {"type": "string"}}}},
    {"type": "object", "properties": {"m": {"type": "object"}}},
    {"type": "object", "properties": {}, "additionalProperties": True},
    {"type": "object", "properties": {"m": {"allOf": [{"properties": {}}, {"type": "object"}]}}},
    {"type": "object", "properties": {"m": {"patternProperties": {"x": {}}}}},
]


@pytest.mark.parametrize("schema", OPEN)
@pytest.mark.parametrize("target", [SchemaTarget.OPENAI, SchemaTarget.ANTHROPIC])
def test_what_cannot_be_closed_stays_open(schema: JsonObject, target: SchemaTarget) -> None:
    """Rule 130: a map of free keys has no strict form, and is not made into an empty object."""
    compiled = compile_schema(schema, target, strict=True)
    assert not compiled.expressible
    assert compiled.schema is schema


def test_recursion_is_strict_for_openai_only() -> None:
    """Rule 130: Anthropic compiles no recursive schema."""
    assert compile_schema(NODE, SchemaTarget.OPENAI, strict=True).expressible
    assert not compile_schema(NODE, SchemaTarget.ANTHROPIC, strict=True).expressible
    once: JsonObject = {
        "properties": {"a": {"$ref": "#/$defs/A"}},
        "$defs": {"A": {"properties": {"b": {"$ref": "#/$defs/B"}}}, "B": {"type": "string"}},
    }
    assert compile_schema(once, SchemaTarget.ANTHROPIC, strict=True).expressible
