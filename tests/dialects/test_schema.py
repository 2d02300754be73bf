"""Bare text becomes a value of the type its parameter declares, without loss, or stays a string."""

from typing import Any

import pytest

from mustcall.dialects.reading.schema import DeclaredParameter, Kind, child_schema

ROOT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "size": {"$ref": "#/$defs/Size"},
        "loop": {"$ref": "#/$defs/Loop"},
        "Max-Items": {"type": "integer"},
    },
    "additionalProperties": {"type": "boolean"},
    "$defs": {"Size": {"type": "integer"}, "Loop": {"$ref": "#/$defs/Loop"}},
}


@pytest.mark.parametrize(
    ("declared", "text", "said"),
    [
        ({"type": "string"}, " 42 ", '" 42 "'),
        (None, "42", '"42"'),
        ({}, "true", '"true"'),
        ({"type": "integer"}, "42", "42"),
        ({"type": "integer"}, "\n-7 ", "-7"),
        ({"type": "integer"}, "5.0", "5.0"),
        ({"type": "integer"}, "5.5", '"5.5"'),
        ({"type": "integer"}, "007", '"007"'),
        ({"type": "integer"}, "4 2", '"4 2"'),
        ({"type": "number"}, "1e3", "1e3"),
        ({"type": "number"}, "NaN", '"NaN"'),
        ({"type": "boolean"}, "True", "true"),
        ({"type": "boolean"}, "yes", '"yes"'),
        ({"type": "null"}, "None", "null"),
        ({"type": ["string", "null"]}, "null", "null"),
        ({"type": ["string", "null"]}, "nil", '"nil"'),
        ({"type": ["integer", "string"]}, "12", "12"),
        ({"type": ["integer", "string"]}, "a12", '"a12"'),
        ({"type": "array"}, "[1, 2]", "[1, 2]"),
        ({"type": "array"}, "['a', None]", '["a", null]'),
        ({"type": "array"}, "[1", '"[1"'),
        ({"type": "array"}, '{"a": 1}', '"{\\"a\\": 1}"'),
        ({"type": "object"}, '{"a": {"a": 1, "a": 2}}', '"{\\"a\\": {\\"a\\": 1, \\"a\\": 2}}"'),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "3", "3"),
        ({"oneOf": [{"type": "array"}, {"type": "string"}]}, "[1]", "[1]"),
        ({"allOf": [{"description": "x"}, {"type": "integer"}]}, "3", "3"),
        ({"enum": ["1", 1]}, "1", '"1"'),
        ({"enum": ["a", 2]}, "2", "2"),
        ({"const": True}, "true", "true"),
        ({"properties": {}}, '{"x": 1}', '{"x": 1}'),
    ],
)
def test_conversion(declared: dict[str, Any] | None, text: str, said: str) -> None:
    """Rule 131: only what the text plainly says in the declared type is converted."""
    assert DeclaredParameter(declared, {}).convert(text) == said


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        (None, Kind.STRING),
        ({"type": "string"}, Kind.STRING),
        ({"enum": ["a", "b"]}, Kind.STRING),
        ({"type": "object"}, Kind.STRUCTURE),
        ({"type": ["object", "array"]}, Kind.STRUCTURE),
        ({"type": "integer"}, Kind.HELD),
        ({"type": ["string", "null"]}, Kind.HELD),
    ],
)
def test_what_has_to_wait(declared: dict[str, Any] | None, kind: Kind) -> None:
    """Strings and structures go out as they come; only what needs its end to be typed is held."""
    assert DeclaredParameter(declared, {}).kind is kind


@pytest.mark.parametrize(
    ("key", "said"), [("size", "3"), ("loop", '"3"'), ("max_items", "3"), ("other", '"3"'), ("MAXITEMS", "3")]
)
def test_declarations_are_found(key: str, said: str) -> None:
    """Rule 106: references are followed (not for ever), and a key may differ in case and separators."""
    assert DeclaredParameter(child_schema(ROOT, key, ROOT), ROOT).convert("3") == said


def test_additional_properties() -> None:
    """An undeclared key takes the type declared for all others."""
    assert DeclaredParameter(child_schema(ROOT, "extra", ROOT), ROOT).convert("false") == "false"
    assert DeclaredParameter(child_schema({"properties": {}}, "extra", {}), {}).convert("false") == '"false"'


@pytest.mark.parametrize("word", ["anyOf", "oneOf", "allOf"])
def test_branches_that_lead_back(word: str) -> None:
    """A schema whose branches refer to itself is read once, not once for every way through it."""
    loop: dict[str, Any] = {word: [{"$ref": "#/$defs/Loop"}] * 8 + [{"type": "integer"}]}
    root: dict[str, Any] = {"properties": {"loop": {"$ref": "#/$defs/Loop"}}, "$defs": {"Loop": loop}}
    assert DeclaredParameter(child_schema(root, "loop", root), root).convert("42") == "42"


def test_ambiguous_keys_mean_nothing() -> None:
    """Rule 106: a key that may mean two parameters is typed as neither; an exact one wins."""
    root: dict[str, Any] = {"properties": {"max_items": {"type": "integer"}, "maxItems": {"type": "boolean"}}}
    assert child_schema(root, "max-items", root) is None
    assert child_schema(root, "maxItems", root) == {"type": "boolean"}


@pytest.mark.parametrize("text", ["1e999", "-1e999", "1.5E+400"])
def test_numbers_no_reader_can_hold(text: str) -> None:
    """A number that is not finite is no number: it stays a string. Long integers are as long as they are."""
    for kind in ("number", "integer"):
        root: dict[str, Any] = {"properties": {"a": {"type": kind}}}
        assert DeclaredParameter(child_schema(root, "a", root), root).convert(text) == f'"{text}"'
        assert DeclaredParameter(child_schema(root, "a", root), root).convert("1" * 400) == "1" * 400
