"""Values made from schemas: each is what its schema allows, and the same every time."""

from typing import Any

import pytest

from mustcall.testing.placeholder import make_value

CASES: list[tuple[str, Any, Any]] = [
    ("text", {"type": "string"}, "word"),
    ("no type", {}, "word"),
    ("bounded text", {"type": "string", "minLength": 6, "maxLength": 7}, "word.."),
    ("short text", {"type": "string", "maxLength": 2}, "wo"),
    ("date", {"type": "string", "format": "date"}, "2026-01-31"),
    ("pattern", {"type": "string", "pattern": "^[0-9]{3}$"}, "123"),
    ("impossible pattern", {"type": "string", "pattern": "(?<bad"}, "word"),
    ("enum", {"type": "string", "enum": ["c", "f"]}, "c"),
    ("const", {"const": 7}, 7),
    ("default", {"type": "integer", "default": 5}, 5),
    ("integer", {"type": "integer"}, 1),
    ("minimum", {"type": "integer", "minimum": 10}, 10),
    ("above", {"type": "integer", "exclusiveMinimum": 10}, 11),
    ("maximum", {"type": "integer", "maximum": -3}, -3),
    ("below", {"type": "number", "exclusiveMaximum": 0}, -1),
    ("multiple", {"type": "integer", "minimum": 7, "multipleOf": 5}, 10),
    ("boolean", {"type": "boolean"}, True),
    ("null", {"type": "null"}, None),
    ("nullable", {"type": ["null", "integer"]}, 1),
    ("union", {"anyOf": [{"type": "null"}, {"type": "boolean"}]}, True),
    ("array", {"type": "array", "items": {"type": "integer"}}, [1]),
    ("long array", {"type": "array", "items": {"type": "integer"}, "minItems": 3}, [1, 1, 1]),
    ("bounded array", {"type": "array", "items": {"type": "integer"}, "maxItems": 4}, []),
    ("set", {"type": "array", "items": {"type": "integer"}, "minItems": 2, "uniqueItems": True}, [1, 2]),
    ("set of texts", {"type": "array", "items": {}, "minItems": 2, "uniqueItems": True}, ["word", "word 2"]),
    ("set of names", {"type": "array", "items": {"enum": [3, 1]}, "minItems": 2, "uniqueItems": True}, [3, 1]),
    ("tuple", {"type": "array", "prefixItems": [{"type": "boolean"}, {"type": "integer"}]}, [True, 1]),
    ("empty object", {"type": "object"}, {}),
    ("first property", {"properties": {"a": {"type": "integer"}, "b": {}}}, {"a": 1}),
    ("required", {"properties": {"a": {}, "b": {"type": "integer"}}, "required": ["b"]}, {"b": 1}),
    (
        "nested",
        {
            "type": "object",
            "properties": {"list": {"type": "array", "items": {"$ref": "#/$defs/point"}}},
            "required": ["list"],
            "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
        },
        {"list": [{"x": 1}]},
    ),
    (
        "all of",
        {
            "allOf": [
                {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"properties": {"b": {"type": "boolean"}}, "required": ["b"]},
            ]
        },
        {"a": 1, "b": True},
    ),
]


@pytest.mark.parametrize(("schema", "value"), [pytest.param(schema, value, id=name) for name, schema, value in CASES])
def test_values_fit(schema: Any, value: Any) -> None:
    """The value is the expected one, of the expected type."""
    made = make_value(schema, lambda _: "word")
    assert made == value
    assert type(made) is type(value)


def test_recursive_schemas_end() -> None:
    """A schema that requires itself without end is cut off."""
    node: dict[str, Any] = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    assert make_value(node, str)


def test_text_is_asked_for_by_name() -> None:
    """Each string is asked for under its property's name."""
    schema = {"type": "object", "properties": {"a": {}, "b": {"type": "array"}}, "required": ["a", "b"]}
    assert make_value(schema, str.upper) == {"a": "A", "b": ["B"]}
