"""Gemini's own words for a schema, and what it has no word for."""

import json

import pytest

from mustcall.core.origin import JsonObject
from mustcall.policy.facts.profile import SchemaTarget
from mustcall.policy.schema.gemini import Reduction
from mustcall.policy.schema.tool_schemas import compile_schema

NODE: JsonObject = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/Node"}},
    "$defs": {
        "Node": {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}}},
    },
}


@pytest.mark.parametrize(
    ("schema", "expected", "losses"),
    [
        ({"$schema": "x:y", "type": "object", "properties": {}}, {"type": "object", "properties": {}}, ()),
        (
            {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
            {"type": "object", "properties": {"a": {"type": "string", "nullable": True}}},
            (),
        ),
        (
            {"type": "object", "properties": {"a": {"type": ["string", "integer"], "minimum": 1, "description": "d"}}},
            {
                "type": "object",
                "properties": {
                    "a": {"description": "d", "anyOf": [{"type": "string"}, {"type": "integer", "minimum": 1}]}
                },
            },
            (),
        ),
        (
            {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "A"}}},
            {"type": "object", "properties": {"a": {"type": "string", "title": "A", "nullable": True}}},
            (),
        ),
        (
            {"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}},
            {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}},
            (),
        ),
        (
            {"type": "object", "properties": {"a": {"const": "x"}}},
            {"type": "object", "properties": {"a": {"type": "string", "enum": ["x"]}}},
            (),
        ),
        (
            {"type": "object", "properties": {"a": {"const": 1}}},
            {"type": "object", "properties": {"a": {"type": "integer"}}},
            ("a: const dropped",),
        ),
        (
            {"type": "object", "properties": {"a": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 9}}},
            {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1, "maximum": 8}}},
            (),
        ),
        (
            {"type": "object", "properties": {"a": {"type": "number", "exclusiveMinimum": 0}}},
            {"type": "object", "properties": {"a": {"type": "number"}}},
            ("a: exclusiveMinimum dropped",),
        ),
        (
            {"type": "object", "properties": {"a": {"enum": [1, 2]}, "b": {"enum": ["x", None]}}},
            {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "string", "enum": ["x"], "nullable": True}},
            },
            ("a: enum of other values than strings dropped",),
        ),
        (
            {"type": "object", "properties": {"a": {"type": "array"}}},
            {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}},
            ("a: items of any type offered as strings",),
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string", "format": "uri"}}, "required": ["a", "b"]},
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            ("a: format uri dropped", "top level: required fields without a declaration dropped"),
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"$ref": "#/definitions/A", "description": "here"}},
                "definitions": {
                    "A": {"type": "object", "properties": {"x": {"type": "string"}}, "description": "there"}
                },
            },
            {
                "type": "object",
                "properties": {
                    "a": {"type": "object", "properties": {"x": {"type": "string"}}, "description": "here"},
                },
            },
            (),
        ),
        (
            NODE,
            {
                "type": "object",
                "properties": {
                    "root": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "next": {"type": "object"}},
                    }
                },
            },
            ("root.next: a recursive reference cut",),
        ),
        (
            {
                "type": "object",
                "properties": {
                    "a": {
                        "allOf": [
                            {"properties": {"x": {"type": "string"}}, "required": ["x"]},
                            {"properties": {"y": {"type": "string"}}, "required": ["y"]},
                        ],
                        "additionalProperties": False,
                    }
                },
            },
            {
                "type": "object",
                "properties": {
                    "a": {
                        "type": "object",
                        "properties": {"x": {"type": "string"}, "y": {"type": "string"}},
                        "required": ["x", "y"],
                    }
                },
            },
            ("a: additionalProperties dropped",),
        ),
        (
            {
                "type": "object",
                "properties": {"p": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "null"}]}},
            },
            {"type": "object", "properties": {"p": {"type": "array", "items": {"type": "string", "nullable": True}}}},
            ("p: prefixItems dropped", "p: the order of item types dropped"),
        ),
    ],
)
def test_gemini_gets_its_own_words(schema: JsonObject, expected: JsonObject, losses: tuple[str, ...]) -> None:
    """Rule 130: Gemini's subset, nothing refused in it, and what it cannot say is reported."""
    compiled = compile_schema(schema, SchemaTarget.GEMINI)
    assert compiled.schema == expected
    assert compiled.losses == losses


def test_inlining_does_not_explode() -> None:
    """Rule 68: definitions that double at each step are cut, not inlined a billion times."""
    definitions: JsonObject = {
        f"d{n}": {"type": "object", "properties": {k: {"$ref": f"#/$defs/d{n + 1}"} for k in "ab"}} for n in range(30)
    }
    definitions["d30"] = {"type": "string"}
    schema: JsonObject = {"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": definitions}
    compiled = compile_schema(schema, SchemaTarget.GEMINI)
    assert len(json.dumps(compiled.schema)) < 500_000
    assert any("too large" in loss for loss in compiled.losses)


def test_losses_name_the_field() -> None:
    """Rule 130: a loss is told by the field's own path, without the keywords on the way."""
    report = Reduction()
    report.lose(("properties", "a", "items", "properties", "b"), "x dropped")
    report.lose(("properties", "a", "items", "properties", "b"), "x dropped")
    report.lose((), "y dropped")
    assert report.losses == ("a.b: x dropped", "top level: y dropped")
