"""Attacks by schemas of tools and the arguments a model writes for them. Finding 1, and variants."""

import json
from typing import Any

from attacks.sending import Attack, Place, turn

__all__ = ["ATTACKS"]

_ANSWERED = frozenset({200, 400, 413, 422, 502, 503, 599})
_FORCED: dict[str, Any] = {"tool_choice": "required"}


def _schema_attack(name: str, schema: dict[str, Any], arguments: Any, *, quick: bool = False) -> Attack:
    """The upstream calls the tool with these arguments, whatever it is asked."""

    def run(place: Place) -> set[int]:
        tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return {turn(place, "call:" + text, tools=tools, **_FORCED)}

    return Attack(name, run, _ANSWERED, quick=quick)


def _filter(tagged: bool) -> dict[str, Any]:
    again = {"$ref": "#/$defs/f"}
    leaf = {
        "type": "object",
        "properties": {"field": {"type": "string"}, "value": {"type": "string"}},
        "required": ["field", "value"],
    }
    branches: list[Any] = []
    for word in ("and", "or", "not"):
        if tagged:
            fields: dict[str, Any] = {"op": {"const": word}, "args": {"type": "array", "items": again}}
        else:
            fields = {word: {"type": "array", "items": again}}
        branches.append({"type": "object", "properties": fields, "required": list(fields)})
    return {"$defs": {"f": {"anyOf": [*branches, leaf]}}, "type": "object", "properties": {"filter": again}}


def _filtered(depth: int, tagged: bool) -> dict[str, Any]:
    value: dict[str, Any] = {"field": "a", "value": 1}
    for level in range(depth):
        word = ("and", "or", "not")[level % 3]
        value = {"op": word, "args": [value]} if tagged else {word: [value]}
    return {"filter": value}


def _unfolding(word: str, levels: int) -> dict[str, Any]:
    twice = {f"d{level}": {word: [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)}
    last = {f"d{levels}": {"type": "array", "items": {"type": "string"}}}
    return {"$defs": {**twice, **last}, "type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}}


def _again(word: str) -> dict[str, Any]:
    """A schema that applies itself twice to all that is below."""
    below = {"type": "object", "additionalProperties": {"$ref": "#"}}
    return {word: [below, {**below, "minProperties": 1}, {"type": "string"}][: 2 if word == "allOf" else 3]}


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


_PATTERNS = ("^(a+)+$", "^(a|aa)+$", "(?=(a+)+$)(a|aa)+\\1b", "(?:a{1,100}){1,1000}", "^(\\w+\\s?)*$")

ATTACKS: tuple[Attack, ...] = (
    *(
        _schema_attack(
            f"a wrong leaf at depth {depth} of a filter {tagged=}",
            _filter(tagged),
            _filtered(depth, tagged),
            quick=depth == 10,
        )
        for depth in (1, 5, 7, 9, 10, 12, 20, 45)
        for tagged in (True, False)
    ),
    *(
        _schema_attack(
            f"{levels} levels of {word}, {items} items",
            _unfolding(word, levels),
            {"a": ["x"] * items + [1]},
            quick=levels == 12,
        )
        for word in ("anyOf", "allOf", "oneOf")
        for levels, items in ((6, 3_000), (12, 3_000), (18, 10), (40, 1))
    ),
    *(_schema_attack(f"{word} of itself, depth 90", _again(word), _nested(90)) for word in ("anyOf", "allOf", "oneOf")),
    *(
        _schema_attack(
            f"the pattern {pattern}",
            {"type": "object", "properties": {"a": {"items": {"pattern": pattern}}}},
            {"a": ["a" * 5_000] * 500},
        )
        for pattern in _PATTERNS
    ),
    _schema_attack(
        "a schema of 5 MB",
        {"type": "object", "properties": {f"p{n}": {"type": "string", "description": "x" * 40} for n in range(60_000)}},
        {"p1": 1},
    ),
    _schema_attack(
        "a chain of 5,000 references",
        {
            "$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(5_000)},
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/d0"}},
        },
        {"a": 1},
    ),
    _schema_attack(
        "5,000 patterns for names",
        {"type": "object", "patternProperties": {f"a{n}": {"type": "string"} for n in range(5_000)}},
        {f"a{n}": n for n in range(5_000)},
    ),
    _schema_attack(
        "items that all differ",
        {"type": "object", "properties": {"a": {"uniqueItems": True}}},
        {"a": [{"b": [n]} for n in range(50_000)]},
    ),
    _schema_attack(
        "a wrong item at the end of 100,000",
        {"type": "object", "properties": {"a": {"items": {"type": "string"}}}},
        {"a": ["x"] * 90_000 + [1]},
    ),
    _schema_attack(
        "arguments of 5 MB of text",
        {"type": "object", "properties": {"a": {"type": "integer"}}},
        {"a": "x" * 5_000_000},
    ),
    _schema_attack(
        "a reference to itself", {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}, {"a": 1}
    ),
)
