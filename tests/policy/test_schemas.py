"""Tool schemas go out as each upstream takes them, with every loss told, and no bad tool fails a request."""

import json
from typing import Any, cast

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.message import Message, Role
from mustcall.core.origin import JsonObject
from mustcall.core.parts import CallKind, Text
from mustcall.core.request import Request
from mustcall.core.tools import ProviderTool, Tool
from mustcall.policy.facts.profile import Profile, SchemaTarget
from mustcall.policy.schema.tool_schemas import compile_schema, compile_tools

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
STRICT: JsonObject = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"type": ["string", "null"], "enum": ["c", None]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
NODE: JsonObject = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/Node"}},
    "$defs": {
        "Node": {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}}},
    },
}
UNION: JsonObject = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "kind": {"type": "string"}},
            "required": ["id", "kind"],
        },
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, "kind": {"type": "string"}},
            "required": ["name", "kind"],
        },
    ]
}


@pytest.mark.parametrize("target", list(SchemaTarget))
def test_a_plain_schema_is_the_same_object(target: SchemaTarget) -> None:
    """Rule 130: what every upstream takes is not touched."""
    compiled = compile_schema(PLAIN, target)
    assert compiled.schema is PLAIN
    assert compiled.losses == ()


@pytest.mark.parametrize("target", [SchemaTarget.OPENAI, SchemaTarget.ANTHROPIC])
def test_a_closed_schema_is_the_same_object(target: SchemaTarget) -> None:
    """Rule 130: a strict schema that is strict already is not touched."""
    compiled = compile_schema(STRICT, target, strict=True)
    assert compiled.schema is STRICT
    assert compiled.expressible


def test_full_takes_everything() -> None:
    """Rule 130: an upstream that takes all of JSON Schema gets all of it."""
    odd: list[JsonObject] = [{}, {"$schema": "https://json-schema.org/draft/2020-12/schema", "not": {}}]
    for schema in (NODE, UNION, STRICT, *odd):
        assert compile_schema(schema, SchemaTarget.FULL, strict=True).schema is schema


@pytest.mark.parametrize("target", [SchemaTarget.OPENAI, SchemaTarget.ANTHROPIC, SchemaTarget.GEMINI])
def test_a_union_at_the_root_becomes_one_object(target: SchemaTarget) -> None:
    """Rule 130: all fields of the alternatives, required what all of them require."""
    compiled = compile_schema(UNION, target)
    assert compiled.schema == {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "kind": {"type": "string"}, "name": {"type": "string"}},
        "required": ["kind"],
    }
    assert compiled.losses == ("top level: the alternatives of anyOf became one object",)


@pytest.mark.parametrize("target", [SchemaTarget.OPENAI, SchemaTarget.ANTHROPIC])
def test_references_survive_a_flattened_root(target: SchemaTarget) -> None:
    """Rule 130: a root that was a reference or an `allOf` keeps its recursive definitions."""
    schema: JsonObject = {
        "allOf": [
            {"$ref": "#/definitions/Base"},
            {"properties": {"more": {"$ref": "#/allOf/1/properties/x"}, "x": {"type": "integer"}}},
        ],
        "definitions": {
            "Base": {"type": "object", "properties": {"self": {"$ref": "#/definitions/Base"}}, "required": ["self"]}
        },
    }
    compiled = compile_schema(schema, target).schema
    assert compiled["type"] == "object"
    assert not compiled.keys() & {"allOf", "anyOf", "oneOf", "$ref"}
    assert set(compiled["properties"]) == {"self", "more", "x"}
    assert compiled["required"] == ["self"]
    validator = jsonschema_rs.validator_for(compiled, offline=True)
    assert not validator.is_valid({"self": {"self": 5}})
    assert not validator.is_valid({"self": {}, "more": "x"})


@pytest.mark.parametrize(
    ("schema", "target", "expected"),
    [
        ({}, SchemaTarget.ANTHROPIC, {"type": "object"}),
        ({}, SchemaTarget.OPENAI, {"type": "object", "properties": {}}),
        ({"type": "object"}, SchemaTarget.OPENAI, {"type": "object", "properties": {}}),
        ({"type": ["object", "null"], "properties": {}}, SchemaTarget.OPENAI, {"type": "object", "properties": {}}),
        ({"properties": {}, "not": {}}, SchemaTarget.OPENAI, {"type": "object", "properties": {}}),
    ],
)
def test_the_root_says_that_it_is_an_object(schema: JsonObject, target: SchemaTarget, expected: JsonObject) -> None:
    """Rule 130: the type every provider asks for is written out."""
    assert compile_schema(schema, target).schema == expected


@pytest.mark.parametrize("target", list(SchemaTarget))
def test_a_root_that_is_no_object_becomes_a_field(target: SchemaTarget) -> None:
    """Rule 60: arguments are an object, so another value stands in a field of one."""
    compiled = compile_schema({"type": "array", "items": {"type": "string"}}, target)
    assert compiled.schema == {
        "type": "object",
        "properties": {"value": {"type": "array", "items": {"type": "string"}}},
        "required": ["value"],
    }
    assert compiled.losses == ("top level: a value that is no object became a field of one",)


@pytest.mark.parametrize("target", list(SchemaTarget))
@pytest.mark.parametrize(
    ("schema", "kept", "loss"),
    [
        (
            {"properties": {"a": {"type": "str", "title": "A"}}},
            {"a": {"title": "A"}},
            "a: type is not JSON Schema, dropped",
        ),
        ({"properties": {"a": {"type": "string", "required": True}}}, {"a": {"type": "string"}}, "a: required is not"),
        ({"properties": {"a": 5}}, {"a": {}}, "top level: a is not JSON Schema, dropped"),
        (
            {"properties": {"a": {"$ref": "https://example.com/a"}}},
            {"a": {}},
            "a: a reference out of the schema dropped",
        ),
        (
            {"properties": {"a": {"type": "string", "nullable": True, "pattern": "("}}},
            None,
            "pattern is not JSON Schema",
        ),
    ],
)
def test_only_the_faulty_part_of_a_schema_is_dropped(
    target: SchemaTarget, schema: JsonObject, kept: JsonObject | None, loss: str
) -> None:
    """Rule 130: one bad word costs that word, not the tool."""
    before = json.dumps(schema)
    compiled = compile_schema(schema, target)
    assert "a" in compiled.schema["properties"]
    assert kept is None or compiled.schema["properties"] == kept
    assert loss in compiled.losses[0]
    assert json.dumps(schema) == before
    assert jsonschema_rs.validator_for(compiled.schema, offline=True).is_valid({})


def deep(levels: int) -> JsonObject:
    """A schema nested this deep."""
    schema: JsonObject = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize("target", list(SchemaTarget))
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"\ud800": {}}},
        {"enum": [object()]},
        {"properties": []},
        {"type": 5, "properties": {"a": None}, "required": "a", "$defs": 3},
        {"$ref": "#/nope"},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"anyOf": []},
        {"$dynamicRef": "#x", "$id": "not a uri \x00"},
        deep(60),
        deep(400),
    ],
)
def test_hostile_schemas_compile_to_something(target: SchemaTarget, schema: JsonObject) -> None:
    """Rule 130: what is no JSON schema at all is still an object's schema for the upstream."""
    compiled = compile_schema(schema, target)
    assert jsonschema_rs.validator_for(compiled.schema, offline=True) is not None
    if target is not SchemaTarget.FULL:
        assert compiled.schema["type"] == "object"


def refused_by_gemini(node: Any) -> set[str]:
    """What a reduced schema holds that Gemini refuses."""
    words = {"$schema", "$ref", "$defs", "definitions", "additionalProperties", "oneOf", "allOf", "const", "not"}
    found: set[str] = {word for word in words if word in node}
    if isinstance(node.get("type"), list):
        found.add("type list")
    if node.get("type") == "array" and not node.get("items"):
        found.add("no items")
    if not set(node.get("required", [])) <= set(node.get("properties", {})):
        found.add("required")
    for inner in [
        *node.get("properties", {}).values(),
        *node.get("anyOf", []),
        *([node["items"]] if "items" in node else []),
    ]:
        found |= refused_by_gemini(inner)
    return found


def refused_by_strict(node: JsonObject) -> set[str]:
    """What a closed schema holds that OpenAI refuses under strict."""
    found = {word for word in ("allOf", "oneOf", "not", "uniqueItems", "default") if word in node}
    if "properties" in node:
        if node.get("additionalProperties") is not False:
            found.add("open")
        if set(node.get("required", [])) != set(node["properties"]):
            found.add("optional")
    for word in ("properties", "$defs"):
        for inner in node.get(word, {}).values():
            found |= refused_by_strict(inner)
    for inner in [*node.get("anyOf", []), *([node["items"]] if "items" in node else [])]:
        found |= refused_by_strict(cast("JsonObject", inner))
    return found


names = st.sampled_from(["a", "b", "c"])
LEAVES: list[JsonObject] = [
    {"type": "string"},
    {"type": ["integer", "null"]},
    {"const": 1},
    {"enum": ["x", 2]},
    {"type": "array"},
    {},
    {"$ref": "#"},
    {"$ref": "#/properties/a"},
    {"$ref": "#/nope"},
    {"type": "bad"},
    {"type": "integer", "default": 3},
    {"type": "string", "format": "uri", "nullable": True},
    {"type": "array", "items": {"type": "string"}},
    {"type": "array", "uniqueItems": True, "items": {"not": {"type": "null"}}},
]
leaves = st.sampled_from(LEAVES)


def object_of(properties: JsonObject, required: list[str], extra: JsonObject) -> JsonObject:
    """An object's schema."""
    return {"type": "object", "properties": properties, "required": required, **extra}


def union_of(word: str, members: list[JsonObject]) -> JsonObject:
    """A union or conjunction."""
    return {word: members}


def grow(inner: st.SearchStrategy[JsonObject]) -> st.SearchStrategy[JsonObject]:
    """Schemas made of smaller ones."""
    extras: list[JsonObject] = [{}, {"additionalProperties": False}, {"additionalProperties": {"type": "string"}}]
    words = st.sampled_from(["anyOf", "oneOf", "allOf"])
    return st.builds(
        object_of,
        st.dictionaries(names, inner, max_size=3),
        st.lists(names, unique=True, max_size=2),
        st.sampled_from(extras),
    ) | st.builds(union_of, words, st.lists(inner, min_size=1, max_size=3))


schemas: st.SearchStrategy[JsonObject] = st.recursive(leaves, grow, max_leaves=8)
values = st.dictionaries(
    names,
    st.recursive(st.sampled_from([1, "x", None, [], ["x"]]), lambda v: st.dictionaries(names, v, max_size=2)),
    max_size=3,
)


@given(schemas, st.sampled_from(list(SchemaTarget)), st.booleans())
def test_every_schema_compiles_within_its_target(schema: JsonObject, target: SchemaTarget, strict: bool) -> None:
    """Rule 130: the result holds nothing the target refuses, and compiling it again changes nothing."""
    before = json.dumps(schema)
    compiled = compile_schema(schema, target, strict=strict)
    assert json.dumps(schema) == before
    assert compile_schema(compiled.schema, target, strict=strict).schema is compiled.schema
    if target is SchemaTarget.GEMINI:
        assert refused_by_gemini(compiled.schema) == set()
    if target is SchemaTarget.OPENAI and strict and compiled.expressible:
        assert refused_by_strict(compiled.schema) == set()
    if target is not SchemaTarget.FULL:
        assert compiled.schema["type"] == "object"


@given(schemas, values, st.sampled_from([SchemaTarget.FULL, SchemaTarget.OPENAI, SchemaTarget.ANTHROPIC]))
def test_a_reduced_schema_refuses_nothing_the_original_takes(
    schema: JsonObject, value: JsonObject, target: SchemaTarget
) -> None:
    """Rule 130: a reduction loosens and never tightens, so local validation can enforce the rest.

    Alternatives at the root are the exception: a field that one of them declares keeps that declaration.
    """
    try:
        original = jsonschema_rs.validator_for(schema, offline=True)
    except ValueError:
        return
    compiled = compile_schema(schema, target)
    if original.is_valid(value) and not any("alternatives" in loss for loss in compiled.losses):
        assert jsonschema_rs.validator_for(compiled.schema, offline=True).is_valid(value)


def request(*tools: Tool | ProviderTool) -> Request:
    """A request that offers these tools."""
    return Request(model="m", messages=(Message(role=Role.USER, parts=(Text(text="hi"),)),), tools=tools)


def compile_for(target: SchemaTarget, *tools: Tool | ProviderTool) -> tuple[Request, Request, AdaptationLog]:
    """The request before and after, and what was noted."""
    log = AdaptationLog()
    before = request(*tools)
    return before, compile_tools(before, Profile(schema_target=target), log), log


@pytest.mark.parametrize("target", list(SchemaTarget))
def test_a_request_that_needs_no_change_is_the_same_object(target: SchemaTarget) -> None:
    """Rule 105: untouched tools are forwarded byte for byte."""
    before, after, log = compile_for(
        target,
        Tool(name="plain", parameters=PLAIN),
        Tool(name="none"),
        Tool(name="custom", kind=CallKind.CUSTOM, parameters={"type": "nonsense"}),
        ProviderTool(type="web_search", value={"parameters": {"type": "nonsense"}}),
    )
    assert after is before
    assert log.entries == ()


def test_one_bad_tool_never_fails_the_others() -> None:
    """Rule 130: the bad tool is offered without its faults and reported, the good one is the same object."""
    good = Tool(name="good", parameters=PLAIN)
    bad = Tool(name="bad", description="d", parameters={"type": "object", "properties": {"a": {"type": "text"}}})
    _, after, log = compile_for(SchemaTarget.FULL, good, bad)
    assert after.tools == (good, bad.evolve(parameters={"type": "object", "properties": {"a": {}}}))
    assert after.tools[0] is good
    assert [(entry.kind, entry.subject) for entry in log.entries] == [(AdaptationKind.SCHEMA_REDUCED, "bad")]
    assert log.entries[0].detail == "a: type is not JSON Schema, dropped"


def test_only_strict_tools_are_closed() -> None:
    """Rule 130: strictness is the caller's word, never ours."""
    open_tool, strict_tool = Tool(name="open", parameters=PLAIN), Tool(name="strict", parameters=PLAIN, strict=True)
    _, after, log = compile_for(SchemaTarget.OPENAI, open_tool, strict_tool)
    assert after.tools[0] is open_tool
    closed = after.tools[1]
    assert isinstance(closed, Tool)
    assert closed.parameters is not None
    assert closed.parameters["additionalProperties"] is False
    assert closed.strict
    assert [entry.subject for entry in log.entries] == ["strict"]


def test_a_strict_tool_without_a_closed_form_goes_out_open() -> None:
    """Rule 130: strictness is dropped and told rather than the tool's meaning."""
    schema: JsonObject = {"type": "object", "properties": {"env": {"type": "object", "additionalProperties": True}}}
    _, after, log = compile_for(SchemaTarget.OPENAI, Tool(name="run", parameters=schema, strict=True))
    assert after.tools == (Tool(name="run", parameters=schema, strict=False),)
    assert log.entries[0].detail == "top level: strict dropped, the schema has no closed form"


def test_anthropic_compiles_so_many_strict_tools() -> None:
    """Rule 130: at most 20 strict tools and 24 optional parameters together; the rest goes out open."""
    tools = [Tool(name=f"t{number}", parameters=STRICT, strict=True) for number in range(22)]
    _, after, _ = compile_for(SchemaTarget.ANTHROPIC, *tools)
    assert [tool.strict for tool in after.tools if isinstance(tool, Tool)] == [True] * 20 + [False] * 2
    wide = {
        "type": "object",
        "properties": {f"p{n}": {"type": "string"} for n in range(13)},
        "additionalProperties": False,
    }
    _, after, log = compile_for(SchemaTarget.ANTHROPIC, *(Tool(name=n, parameters=wide, strict=True) for n in "ab"))
    assert [tool.strict for tool in after.tools if isinstance(tool, Tool)] == [True, False]
    assert "more than the upstream compiles together" in log.entries[0].detail


def test_the_same_tools_give_the_same_bytes() -> None:
    """Rule 134: compiling depends on the tools alone, so prompt caches and prefix-bound reasoning survive."""
    schema: JsonObject = {"oneOf": [NODE, UNION], "additionalProperties": False}
    for target in SchemaTarget:
        first = compile_schema(json.loads(json.dumps(schema)), target).schema
        assert json.dumps(compile_schema(json.loads(json.dumps(schema)), target).schema) == json.dumps(first)
