"""Values against schemas: the library's verdicts, bounded work, and problems that name the branch that was meant."""

import gc
import json
import random
import weakref
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest

from mustcall.core.memo import Caches, owned
from mustcall.core.origin import JsonObject
from mustcall.policy.schema import checker, misfits, workload
from mustcall.policy.schema.checker import LARGEST_SCHEMA, fits, problems_in, schema_fault, validator_for
from mustcall.policy.schema.problems import Problem
from mustcall.policy.schema.subschemas import MOST_FAULTS, Path, rewrite
from mustcall.policy.schema.workload import MOST_STEPS, Uncountable, effort_of, places_in
from support.examples import PROFILE

NAMES = ("a", "b", "kind")
TYPES = ("string", "integer", "number", "boolean", "null", "object", "array")
PARTS = ("one", "two", "three")

LEAVES: list[Any] = [
    *({"type": name} for name in TYPES),
    *({"type": ["string", name]} for name in TYPES[1:]),
    *(True, False, {}, {"const": "a"}, {"enum": ["a", 1]}, {"minimum": 1}, {"maxLength": 1}, {"minItems": 1}),
    *({"pattern": "^a"}, {"uniqueItems": True}, {"maxProperties": 1}, {"multipleOf": 2}, {"required": ["a"]}),
    *({"dependentRequired": {"a": ["b"]}}, {"required": ["kind", "b"]}),
    *({"$ref": f"#/$defs/{name}"} for name in PARTS),
]
ONE = ("not", "items", "additionalProperties", "contains", "propertyNames", "if", "then", "else")
UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
MANY = ("anyOf", "oneOf", "anyOf", "oneOf", "allOf", "prefixItems")
NAMED = ("properties", "dependentSchemas", "properties")


def checks_all(schema: JsonObject) -> bool:
    """Tell whether values can be held against all of a schema."""
    checker = validator_for(schema)
    return checker is not None and checker.whole


def _any_value(draw: random.Random, left: int = 3) -> Any:
    match draw.randrange(8 if left else 6):
        case 6:
            return [_any_value(draw, left - 1) for _ in range(draw.randrange(4))]
        case 7:
            return {name: _any_value(draw, left - 1) for name in draw.sample([*NAMES, "zz"], draw.randrange(4))}
        case _:
            return draw.choice([None, True, -2, 0, 1, 2, 3, 0.5, 1.0, "", "a", "xyz"])


def _any_schema(draw: random.Random, left: int = 3) -> Any:
    if not left or draw.random() < 0.25:
        return draw.choice(LEAVES)
    schema: JsonObject = {}
    for word in draw.sample([*ONE, *UNEVALUATED, *MANY, *NAMED, "patternProperties", "required", "type"], 3):
        if word in ONE or word in UNEVALUATED:
            schema[word] = _any_schema(draw, left - 1)
        elif word in MANY:
            schema[word] = [_any_schema(draw, left - 1) for _ in range(draw.randint(1, 3))]
        elif word in NAMED:
            schema[word] = {name: _any_schema(draw, left - 1) for name in draw.sample(NAMES, draw.randint(1, 3))}
        elif word == "patternProperties":
            schema[word] = {pattern: _any_schema(draw, left - 1) for pattern in draw.sample(["^a", "b|k"], 1)}
        else:
            schema[word] = draw.choice(TYPES) if word == "type" else draw.sample(NAMES, 1)
    return schema


def _any_document(draw: random.Random) -> JsonObject:
    body = _any_schema(draw)
    return {
        **(body if isinstance(body, dict) else {"allOf": [body]}),
        "$defs": {name: _any_schema(draw, 2) for name in PARTS},
    }


@pytest.mark.parametrize("seed", range(4))
def test_verdicts_are_those_of_the_library(seed: int) -> None:
    """Rule 90: recursive and union-heavy schemas get the verdict of the library itself, and a problem if it is no.

    The descent ends at a keyword that fails, never by giving up.
    """
    draw = random.Random(seed)
    for _ in range(250 if PROFILE == "ci" else 2_500):
        schema = _any_document(draw)
        library = jsonschema_rs.validator_for(schema)
        checker = validator_for(schema)
        assert checker is not None
        for _ in range(3):
            value = _any_value(draw)
            valid = library.is_valid(value)
            assert fits(checker, value) is valid, (schema, value)
            told = checker.problems(value)
            assert bool(told) is not valid, (schema, value)
            assert all(problem.expected != "a value of the declared form" for problem in told), (schema, value)


def _tree(words: str, levels: int) -> JsonObject:
    """A schema that says 2^levels times that a value is a list of texts."""
    twice = {str(level): {words: [{"$ref": f"#/$defs/{level + 1}"}] * 2} for level in range(levels)}
    last = {str(levels): {"type": "array", "items": {"type": "string"}}}
    return {"$defs": {**twice, **last}, "$ref": "#/$defs/0"}


def _filter(form: Callable[[str, JsonObject], JsonObject]) -> JsonObject:
    again: JsonObject = {"$ref": "#/$defs/filter"}
    leaf: JsonObject = {
        "type": "object",
        "properties": {"field": {"type": "string"}, "value": {"type": "string"}},
        "required": ["field", "value"],
    }
    branches = [*(form(word, again) for word in ("and", "or", "not")), leaf]
    return {"$defs": {"filter": {"anyOf": branches}}, "$ref": "#/$defs/filter"}


def _tagged(word: str, again: JsonObject) -> JsonObject:
    fields: JsonObject = {"op": {"const": word}, "args": {"type": "array", "items": again}}
    return {"type": "object", "properties": fields, "required": ["op", "args"]}


def _keyed(word: str, again: JsonObject) -> JsonObject:
    return {"type": "object", "properties": {word: {"type": "array", "items": again}}, "required": [word]}


FILTERS: list[tuple[Callable[[str, JsonObject], JsonObject], Callable[[Any, int], JsonObject], str]] = [
    (_tagged, lambda inner, level: {"op": ("and", "or", "not")[level % 3], "args": [inner]}, "args[0]"),
    (_keyed, lambda inner, level: {("and", "or", "not")[level % 3]: [inner]}, ""),
]


@pytest.mark.parametrize("depth", [1, 7, 9, 10, 25])
@pytest.mark.parametrize(("form", "wrap", "step"), FILTERS)
def test_a_wrong_leaf_of_a_recursive_filter_is_found_in_few_steps(
    depth: int,
    form: Callable[[str, JsonObject], JsonObject],
    wrap: Callable[[Any, int], JsonObject],
    step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rule 68: the field is named, and the work grows with the square of the depth at most, not in its power."""
    searches: list[misfits.Misfits] = []
    made = misfits.Misfits.__init__

    def noted(self: misfits.Misfits, *args: Any) -> None:
        searches.append(self)
        made(self, *args)

    monkeypatch.setattr(misfits.Misfits, "__init__", noted)
    value: JsonObject = {"field": "a", "value": 1}
    for level in range(depth):
        value = wrap(value, level)
    (problem,) = problems_in(_filter(form), value)
    places = [f"{('and', 'or', 'not')[level % 3]}[0]" for level in reversed(range(depth))]
    where = ".".join([step] * depth if step else places) + ".value"
    assert problem.path in (where, where[:199] + "…")
    assert problem.expected == "string"
    (search,) = searches
    assert search.steps < 1_000 * (depth + 2) ** 2 * 2


@pytest.mark.parametrize("word", ["allOf", "anyOf", "oneOf"])
def test_a_schema_that_unfolds_without_end_is_not_checkable(word: str) -> None:
    """Rule 68: 2^40 checks are never begun; the schema is not called faulty for it."""
    for levels in (18, 40, 150):
        assert validator_for(_tree(word, levels)) is None
        assert schema_fault(_tree(word, levels)) is None
        assert problems_in(_tree(word, levels), [1]) == ()


@pytest.mark.parametrize("word", ["allOf", "anyOf"])
def test_a_long_value_under_a_dear_schema_does_not_fit(word: str) -> None:
    """Rule 68: twelve levels of unions are followed for a short list, and refused for one of 3,000 items."""
    checker = validator_for(_tree(word, 12))
    assert checker is not None
    assert fits(checker, ["a"] * 50)
    assert not fits(checker, ["a"] * 3_000)
    assert problems_in(_tree(word, 12), ["a"] * 3_000) == (
        Problem("", f"a value that can be checked in {MOST_STEPS:,} steps"),
    )


def test_a_large_schema_is_not_checkable() -> None:
    """Rule 68: compiling takes time on the loop, so it ends at a size."""
    small: JsonObject = {"properties": {f"f{number}": {"type": "string"} for number in range(1_000)}}
    large: JsonObject = {"description": "x" * LARGEST_SCHEMA, "type": "object"}
    assert validator_for(small) is not None
    assert validator_for(large) is None
    assert schema_fault(large) is None


def test_patterns_that_backtrack_are_counted() -> None:
    """Rule 68: a list of texts under a pattern that may backtrack without end is refused from some length on."""
    schema: JsonObject = {"items": {"pattern": "^(?=(a+)+$)(a|aa)+\\1b"}}
    checker = validator_for(schema)
    assert checker is not None
    assert checker.affords(["a"] * 100)
    assert not checker.affords(["a"] * 3_000)


def test_usual_schemas_are_not_counted_against_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 68: for a schema without unions of many branches the value is not counted."""
    schema: JsonObject = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
        "required": ["a"],
    }

    def count(_value: Any, _most: int) -> int:
        pytest.fail("counted")

    monkeypatch.setattr(workload, "places_in", count)
    checker = validator_for(schema)
    assert checker is not None
    assert checker.cheap
    assert fits(checker, {"a": "x", "b": None})


def test_recursion_alone_is_no_multiplication() -> None:
    """Rule 68: a schema that refers to itself costs the same at each depth."""
    tree: JsonObject = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    assert effort_of(tree).steps < 50


@pytest.mark.parametrize("reference", ["#/$defs/a%20b", "#name"])
def test_references_are_followed_however_they_are_written(reference: str) -> None:
    """Rule 68: an escaped pointer or an anchor hides no work."""
    dear = {"anyOf": [{"const": number} for number in range(50)], "$anchor": "name"}
    assert effort_of({"$defs": {"a b": dear}, "$ref": reference}).steps > 50


def test_a_chain_of_references_ends() -> None:
    """Rule 68: ten thousand references in a row are not followed."""
    chain = {str(number): {"$ref": f"#/$defs/{number + 1}"} for number in range(1_000)}
    with pytest.raises(Uncountable):
        effort_of({"$defs": {**chain, "1000": {}}, "$ref": "#/$defs/0"})


@pytest.mark.parametrize(("text", "places"), [("1", 1), ("[]", 1), ("[1, [2, {}]]", 5), ('{"a": {"b": [null, 1]}}', 5)])
def test_places_are_counted(text: str, places: int) -> None:
    """Rule 68: each value within a value is one place, and counting ends above what is asked."""
    value = json.loads(text)
    assert places_in(value, 1_000) == places
    assert places_in([value] * 1_000, 3) == 1_001


SHAPES: JsonObject = {
    "type": "object",
    "properties": {
        "shape": {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}},
                    "required": ["kind", "radius"],
                },
                {"$ref": "#/$defs/square"},
                {"type": "string"},
            ]
        },
        "target": {
            "anyOf": [
                {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
                {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
            ]
        },
        "pair": {"anyOf": [{"type": "array", "prefixItems": [{"type": "string"}], "items": False}, {"type": "null"}]},
        "when": {"if": {"required": ["at"]}, "then": {"properties": {"at": {"type": "string"}}}},
    },
    "$defs": {
        "square": {
            "allOf": [
                {"type": "object", "properties": {"kind": {"enum": ["square", "box"]}}, "required": ["kind"]},
                {"properties": {"side": {"type": "number", "minimum": 1}}, "required": ["side"]},
            ]
        }
    },
}


@pytest.mark.parametrize(
    ("value", "path", "expected"),
    [
        ({"shape": {"kind": "circle", "radius": "x"}}, "shape.radius", "number"),
        ({"shape": {"kind": "circle"}}, "shape.radius", "number, required"),
        ({"shape": {"kind": "box", "side": 0}}, "shape.side", "at least 1"),
        ({"shape": {"kind": "square"}}, "shape.side", "number, required"),
        ({"shape": 5}, "shape", "object or string"),
        ({"target": {"id": "x"}}, "target.id", "integer"),
        ({"target": {"name": 1}}, "target.name", "string"),
        ({"target": {}}, "target", "exactly one of the declared forms"),
        ({"pair": [1]}, "pair[0]", "string"),
        ({"pair": ["a", 2]}, "pair[1]", "what the schema says under falseSchema"),
        ({"when": {"at": 5}}, "when.at", "string"),
    ],
)
def test_the_branch_that_was_meant_is_told(value: Any, path: str, expected: str) -> None:
    """Rule 90: type, constant fields and required fields choose the branch, references and `allOf` included."""
    assert problems_in(SHAPES, value) == (Problem(path, expected),)


@pytest.mark.parametrize(
    ("schema", "value", "path", "expected"),
    [
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]}, [1], "[0]", "string"),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "definitions": {"a": {"type": "string"}},
                "properties": {"a": {"$ref": "#/definitions/a", "minLength": 5}},
            },
            {"a": 1},
            "a",
            "string",
        ),
        ({"properties": {"a/b c": {"anyOf": [{"items": {"type": "string"}}]}}}, {"a/b c": [1]}, "a/b c[0]", "string"),
        ({"properties": {"a": {"minimum": 0, "exclusiveMinimum": True}}}, {"a": 0}, "a", "more than 0"),
        ({"contains": {"type": "string"}}, [1], "", "what the schema says under contains"),
        ({"propertyNames": {"pattern": "^b"}}, {"a": 1}, "", "what the schema says under propertyNames"),
        ({"not": {"type": "string"}}, "x", "", "what the schema says under not"),
        ({"properties": {"a": True}, "unevaluatedProperties": False}, {"b": 1}, "", "no fields but a"),
        (
            {"patternProperties": {"^a": {"type": "string"}}, "additionalProperties": {"type": "null"}},
            {"b": 1},
            "*",
            "null",
        ),
    ],
)
def test_problems_under_other_keywords(schema: JsonObject, value: Any, path: str, expected: str) -> None:
    """Rule 90: each keyword that holds schemas is followed, as its draft has it."""
    assert problems_in(schema, value) == (Problem(path, expected),)


@pytest.mark.parametrize(
    ("pattern", "least", "most"),
    [
        ("^a$", 4_000, 8_000),
        ("^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$", 8_000, 64_000),
        (r"^\d{4}-\d{2}-\d{2}$", 8_000, 64_000),
        ("[a-z]{1,8000}", 1_000_000, 1_100_000),
        ("[a-z]{000000000900}", 100_000, 400_000),
        ("((a{10}){10}){10}", 500_000, 1_100_000),
        (r"\p{L}" * 18, 900_000, 1_100_000),
        ("{" + "0" * 20_000, 1_000_000, 1_100_000),
    ],
)
@pytest.mark.parametrize("form", ["value", "name"])
def test_compiled_schemas_are_weighed_by_their_patterns(pattern: str, least: int, most: int, form: str) -> None:
    """A pattern of few characters may take a megabyte; one that people write takes a few kilobytes."""
    schema = {"properties": {"a": {"pattern": pattern}}} if form == "value" else {"patternProperties": {pattern: True}}
    weight = checker._weight("", schema)
    assert weight == 0, "without a pattern in its text none is looked for"
    weight = checker._weight('"pattern', schema)
    assert least <= weight <= most


def test_what_is_kept_of_a_schema_holds_nobody_who_asked() -> None:
    """One that cannot be counted was found by an exception, and that has the frames of all who asked."""
    chain = {str(number): {"$ref": f"#/$defs/{number + 1}"} for number in range(1_000)}
    endless: JsonObject = {"$defs": {**chain, "1000": {}}, "$ref": "#/$defs/0"}

    def ask() -> "weakref.ref[set[int]]":
        held = {1}
        assert validator_for(endless) is None
        return weakref.ref(held)

    with owned(Caches()):
        asked = ask()
        gc.collect()
        assert asked() is None


#: Faults that tools have, each beside a field that can be checked; where the fault is.
FAULTS: list[tuple[JsonObject, tuple[str | int, ...]]] = [
    ({"pattern": r"^[\w-.]+$"}, ("properties", "odd", "pattern")),
    ({"pattern": "^a{,3}$", "maxLength": 3}, ("properties", "odd", "pattern")),
    ({"type": "any"}, ("properties", "odd", "type")),
    ({"type": "string", "required": True}, ("properties", "odd", "required")),
    ({"type": "string", "minLength": "1"}, ("properties", "odd", "minLength")),
    ({"$ref": "#/$defs/nowhere"}, ()),
    ({"$ref": "https://example.com/schema.json"}, ()),
]


@pytest.mark.parametrize(("odd", "place"), FAULTS)
def test_the_rest_of_a_faulty_schema_is_checked(odd: JsonObject, place: tuple[str | int, ...]) -> None:
    """Rule 130: one faulty keyword switches off its own check, and no other."""
    schema: JsonObject = {
        "type": "object",
        "properties": {"odd": odd, "city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    }
    assert schema_fault(schema) == place
    assert not checks_all(schema)
    assert problems_in(schema, {"city": "Oslo", "odd": "a"}) == ()
    assert problems_in(schema, {"city": 5}) == (Problem("city", "string"),)
    assert problems_in(schema, {"city": "Oslo", "zz": 1}) == (Problem("", "no fields but odd, city"),)
    assert problems_in(schema, {}) == (Problem("city", "string, required"),)


@pytest.mark.parametrize("limit", [{}, {"exclusiveMinimum": True, "minimum": 0}])
def test_an_array_in_items_is_checked_as_older_drafts_have_it(limit: JsonObject) -> None:
    """Rule 130: an upstream would refuse it, so that it counts as a fault; values are held against all of it."""
    number = {"type": "number", **limit}
    schema: JsonObject = {"type": "object", "properties": {"at": {"type": "array", "items": [number, number]}}}
    assert schema_fault(schema) is not None
    assert checks_all(schema)
    assert problems_in(schema, {"at": [1, 2]}) == ()
    assert problems_in(schema, {"at": [1, "x"]}) == (Problem("at[1]", "number"),)


@pytest.mark.parametrize("schema", [{"type": 5}, {"properties": 5}, {"anyOf": "x", "type": "object"}])
def test_a_root_fault_leaves_what_can_be_read(schema: JsonObject) -> None:
    """Rule 130: a fault at the top takes its keyword with it and raises nothing."""
    assert schema_fault(schema) is not None
    assert not checks_all(schema)
    assert problems_in(schema, {}) == ()


def _with_fault(schema: JsonObject, place: int, fault: JsonObject) -> JsonObject:
    """Return a schema with a fault added to one of its schemas, the outermost counted last."""
    seen = 0

    def add(node: JsonObject, _path: Path) -> JsonObject:
        nonlocal seen
        seen += 1
        return {**node, **fault} if seen - 1 == place else node

    return rewrite(schema, add)


@pytest.mark.parametrize("fault", [{"pattern": "("}, {"minLength": "1"}, {"$ref": "other.json#/x"}, {"type": "any"}])
def test_a_fault_never_makes_a_schema_refuse_more(fault: JsonObject) -> None:
    """Rule 130: whatever the schema without its fault takes is taken with it, under `not`, `oneOf` and `if` as well."""
    draw = random.Random(str(fault))
    taken = 0
    for _ in range(400):
        sound = _any_schema(draw)
        if not isinstance(sound, dict) or not checks_all(sound):
            continue
        nodes = _nodes(sound)
        if any(key in node for node in nodes for key in fault):
            continue
        faulty = _with_fault(sound, draw.randrange(len(nodes)), fault)
        if validator_for(faulty) is None:
            continue
        for value in [_any_value(draw) for _ in range(6)]:
            if problems_in(sound, value) == ():
                taken += 1
                assert problems_in(faulty, value) == (), (faulty, value)
    assert taken > 100


def _nodes(schema: JsonObject) -> list[JsonObject]:
    nodes: list[JsonObject] = []

    def look(node: JsonObject, _path: Path) -> JsonObject:
        nodes.append(node)
        return node

    rewrite(schema, look)
    return nodes


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"properties": {"a": {"oneOf": [{"$ref": "common.json#/Name"}, {"type": "null"}]}}}, {"a": None}),
        ({"properties": {"a": {"oneOf": [{"type": "str"}, {"type": "integer"}]}}}, {"a": 5}),
        ({"$ref": "c.json#/F", "properties": {"q": {}}, "unevaluatedProperties": False}, {"q": 1, "limit": 3}),
        ({"properties": {"a": {"not": {"type": "any"}}}}, {"a": 1}),
        ({"properties": {"a": {"if": {"pattern": "("}, "then": {"type": "null"}}}}, {"a": "x"}),
        ({"properties": {"a": {"contains": {"pattern": "("}, "maxContains": 1}}}, {"a": ["x", "y"]}),
        ({"patternProperties": {"(": {}}, "additionalProperties": False}, {"(": 1}),
        ({"properties": {"a": {"anyOf": ["x", {"type": "integer"}]}}}, {"a": "x"}),
        ({"properties": {"a": {"type": ["str", "null"]}}}, {"a": "x"}),
    ],
)
def test_what_a_faulty_part_may_have_meant_is_taken(schema: JsonObject, value: Any) -> None:
    """Rule 130: where a part cannot be read, nobody can say that a value does not fit it."""
    assert not checks_all(schema)
    assert problems_in(schema, value) == ()


@pytest.mark.parametrize(("size", "count"), [(2_000, 40), (20_000, 31), (120_000, 31)])
def test_faults_are_looked_for_a_bounded_number_of_times(
    monkeypatch: pytest.MonkeyPatch, size: int, count: int
) -> None:
    """Rule 68: neither many faults nor a large schema makes the compiler read it hundreds of times."""
    compiled = 0
    make = jsonschema_rs.validator_for

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal compiled
        compiled += 1
        return make(*args, **kwargs)

    monkeypatch.setattr(jsonschema_rs, "validator_for", counted)
    fields: JsonObject = {f"f{number}": {"type": "any"} for number in range(count)}
    fields["long"] = {"description": "x" * size}
    validator_for({"type": "object", "properties": fields})
    assert 0 < compiled <= 2 * MOST_FAULTS + 4
