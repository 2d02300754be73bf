"""A call as a JSON answer: the schema admits exactly calls that fit, the reader takes exactly such answers."""

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.origin import JsonObject
from mustcall.core.parts import CallKind
from mustcall.core.tools import Tool
from mustcall.policy.facts.profile import SchemaTarget
from mustcall.policy.request.json_call import answer_problems, call_schema, read_call, read_calls
from mustcall.policy.schema.arguments import check_arguments
from mustcall.policy.schema.tool_schemas import compile_schema
from mustcall.policy.schema.validation import Problem, validator_for

WEATHER = Tool(
    name="get_weather",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
TREE = Tool(
    name="plant",
    parameters={
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://example.com/tree",
        "type": "object",
        "properties": {"root": {"$ref": "#/definitions/Node"}, "twin": {"$ref": "#/properties/root"}},
        "required": ["root"],
        "definitions": {
            "Node": {
                "type": "object",
                "properties": {"kids": {"type": "array", "items": {"$ref": "#/definitions/Node"}}},
                "required": ["kids"],
            }
        },
    },
)
SHELL = Tool(name="shell", kind=CallKind.CUSTOM)
TOOLS = (WEATHER, TREE, SHELL)


def problems(schema: JsonObject | None, text: str) -> tuple[Problem, ...]:
    """Return what is wrong with an answer."""
    return answer_problems(schema, None if schema is None else validator_for(schema), text)


def validator(schema: JsonObject) -> jsonschema_rs.Validator:
    """A validator that fetches nothing."""
    return jsonschema_rs.validator_for(schema, offline=True)


CALLS: list[tuple[Any, bool]] = [
    ({"name": "get_weather", "arguments": {"city": "Rome"}}, True),
    ({"name": "get_weather", "arguments": {"days": 1}}, False),
    ({"name": "get_weather", "arguments": {"root": {"kids": []}}}, False),
    ({"name": "plant", "arguments": {"root": {"kids": [{"kids": []}]}}}, True),
    ({"name": "plant", "arguments": {"root": {"kids": [{}]}}}, False),
    ({"name": "plant", "arguments": {"root": {"kids": []}, "twin": {"kids": 5}}}, False),
    ({"name": "shell", "arguments": {"input": "ls"}}, True),
    ({"name": "other", "arguments": {}}, False),
    ({"name": "get_weather"}, False),
    ({"name": "get_weather", "arguments": {"city": "Rome"}, "why": "x"}, False),
]


@pytest.mark.parametrize(("call", "valid"), CALLS)
def test_the_schema_admits_exactly_calls_that_fit(call: Any, valid: bool) -> None:
    """Rule 76: name and arguments belong together, and relocated references still mean the same."""
    assert validator(call_schema(TOOLS, single=True)).is_valid(call) is valid
    assert validator(call_schema(TOOLS, single=True, rooted=True)).is_valid({"call": call}) is valid
    assert validator(call_schema(TOOLS, single=False)).is_valid({"calls": [call, call]}) is valid
    assert not validator(call_schema(TOOLS, single=False)).is_valid({"calls": []})


def test_one_tool_needs_no_union() -> None:
    """Rule 76: the form of one tool is an object at the root, its own schema in it."""
    assert call_schema([WEATHER], single=True) == {
        "type": "object",
        "properties": {"name": {"type": "string", "enum": ["get_weather"]}, "arguments": WEATHER.parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
    assert call_schema([WEATHER], single=True, rooted=True) == call_schema([WEATHER], single=True)


def test_no_reference_leaves_the_document() -> None:
    """Rule 130: every reference points into the root's own definitions, and ids do not rebase them."""
    schema = call_schema(TOOLS, single=True)
    text = json.dumps(schema)
    assert "$id" not in text
    assert "definitions" not in text
    assert set(schema["$defs"]) == {"tool1_part0", "tool1_part1"}


def test_tools_of_the_same_inner_names_do_not_mix() -> None:
    """Rule 130: two tools' definitions of one name stay two."""

    def tool(name: str, kind: str) -> Tool:
        return Tool(
            name=name,
            parameters={"type": "object", "properties": {"x": {"$ref": "#/$defs/T"}}, "$defs": {"T": {"type": kind}}},
        )

    check = validator(call_schema([tool("a", "string"), tool("b", "integer")], single=True))
    assert check.is_valid({"name": "a", "arguments": {"x": "s"}})
    assert check.is_valid({"name": "b", "arguments": {"x": 1}})
    assert not check.is_valid({"name": "b", "arguments": {"x": "s"}})


@pytest.mark.parametrize(
    "parameters",
    [None, {}, {"type": "nonsense"}, {"$ref": "http://127.0.0.1:9/x"}, {"type": "string"}, {"properties": {"a": True}}],
)
def test_any_tool_has_a_form(parameters: JsonObject | None) -> None:
    """Rule 130: a tool without a usable schema takes any object."""
    check = validator(call_schema([Tool(name="t", parameters=parameters), WEATHER], single=True))
    assert check.is_valid({"name": "t", "arguments": {"value": "x"}})
    assert not check.is_valid({"name": "t", "arguments": "x"})


def test_no_tools_admit_no_answer() -> None:
    """Rule 8: a call of no tools cannot be made."""
    assert not validator(call_schema([], single=True)).is_valid({"name": "x", "arguments": {}})


def test_bounds_are_set_where_there_are_none() -> None:
    """Rule 76: strings, integers and arrays end, never short of the schema's own lower bounds."""
    tool = Tool(
        name="t",
        parameters={
            "type": "object",
            "properties": {
                "free": {"type": "string"},
                "long": {"type": ["string", "null"], "minLength": 900},
                "own": {"type": "string", "maxLength": 5},
                "one": {"type": "string", "enum": ["x"]},
                "count": {"type": "integer"},
                "many": {"type": "integer", "minimum": 5_000_000_000},
                "few": {"type": "integer", "maximum": -5_000_000_000},
                "list": {"type": "array", "items": {"type": "string"}},
                "wide": {"type": "array", "minItems": 40},
            },
        },
    )
    arguments = call_schema([tool], single=True, bound=True)["properties"]["arguments"]
    assert arguments["properties"] == {
        "free": {"type": "string", "maxLength": 200},
        "long": {"type": ["string", "null"], "minLength": 900, "maxLength": 900},
        "own": {"type": "string", "maxLength": 5},
        "one": {"type": "string", "enum": ["x"]},
        "count": {"type": "integer", "minimum": -999_999_999, "maximum": 999_999_999},
        "many": {"type": "integer", "minimum": 5_000_000_000, "maximum": 5_000_000_001},
        "few": {"type": "integer", "minimum": -5_000_000_001, "maximum": -5_000_000_000},
        "list": {"type": "array", "items": {"type": "string", "maxLength": 200}, "maxItems": 16},
        "wide": {"type": "array", "minItems": 40, "maxItems": 40},
    }
    assert arguments["additionalProperties"] is False


def test_the_form_of_several_tools_has_a_strict_form() -> None:
    """Rule 130: the rooted form can be sent as a strict schema, and its answers fit the caller's own schema."""
    compiled = compile_schema(call_schema((WEATHER, SHELL), single=True, rooted=True), SchemaTarget.OPENAI, strict=True)
    assert compiled.expressible
    assert compiled.schema["type"] == "object"
    answer = {"call": {"name": "get_weather", "arguments": {"city": "Rome", "days": None}}}
    assert validator(compiled.schema).is_valid(answer)
    read = read_call(json.dumps(answer), TOOLS)
    assert read is not None
    assert check_arguments(WEATHER, read[1], null_is_absent=True).arguments == '{"city":"Rome"}'


GOOD = '{"name": "get_weather", "arguments": {"city": "Rome", "km": 1.50}}'


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"\n  {GOOD}\n",
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}```\n",
        f'{{"call": {GOOD}}}',
        f'{{"calls": [{GOOD}]}}',
        GOOD.replace("get_weather", "getWeather"),
    ],
)
def test_an_answer_that_is_a_call_is_read(text: str) -> None:
    """Rule 60: blanks and a fence around it are tolerated, and no digit is lost."""
    assert read_call(text, TOOLS) == ("get_weather", '{"city":"Rome","km":1.50}')


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Sure! " + GOOD,
        GOOD + GOOD,
        f"```json\n{GOOD}",
        '{"name": "other", "arguments": {}}',
        '{"name": "get_weather"}',
        '{"name": "get_weather", "args": {}}',
        '{"name": "get_weather", "arguments": {}, "extra": 1}',
        '{"name": "get_weather", "arguments": "{}"}',
        '{"name": ["get_weather"], "arguments": {}}',
        '{"name": "get_weather", "arguments": {"a": 1, "a": 2}}',
        '{"name": "shell", "arguments": {"command": "ls"}}',
        '{"calls": []}',
        f'{{"calls": [{GOOD}, {GOOD}]}}',
        f'{{"calls": [{GOOD}, 5]}}',
        '{"calls": 5}',
        "[]",
        "5",
    ],
)
def test_an_answer_that_is_no_call_is_not_read(text: str) -> None:
    """Rule 60, 61: nothing is guessed from an answer of another form."""
    assert read_call(text, TOOLS) is None


@pytest.mark.parametrize("cut", range(len(GOOD)))
def test_a_cut_answer_is_never_a_call(cut: int) -> None:
    """Rule 123: a truncated call is not read at any length."""
    assert read_call(GOOD[:cut], TOOLS) is None


def test_lists_and_free_text_are_read() -> None:
    """Rule 62: calls keep their order; a custom tool's input is its text."""
    text = f'{{"calls": [{{"name": "shell", "arguments": {{"input": "ls \\u00e9"}}}}, {GOOD}]}}'
    assert read_calls(text, TOOLS) == (("shell", "ls é"), ("get_weather", '{"city":"Rome","km":1.50}'))


@given(st.text())
def test_reading_never_raises(text: str) -> None:
    """Rule 60: any text is a call or none."""
    assert read_call(text, TOOLS) is None
    assert isinstance(problems(None, text), tuple)
    assert isinstance(problems({"type": "object"}, text), tuple)


@given(st.sampled_from(CALLS), st.booleans())
def test_what_the_schema_admits_can_be_read(case: tuple[Any, bool], wrapped: bool) -> None:
    """Rule 76: an answer the schema admits is a call whose arguments pass the check."""
    call, valid = case
    if valid:
        read = read_call(json.dumps({"call": call} if wrapped else call), TOOLS)
        assert read is not None
        tool = next(tool for tool in TOOLS if tool.name == read[0])
        assert check_arguments(tool, read[1]).valid


def test_structured_answers_are_checked() -> None:
    """Rule 84: an answer must be sound JSON and fit the schema that was asked for."""
    schema: JsonObject = {"type": "object", "properties": {"score": {"type": "number"}}, "required": ["score"]}
    assert problems(schema, ' {"score": 0.5}\n') == ()
    assert problems(schema, '{"score": "SECRET"}') == (Problem("score", "number"),)
    assert problems(schema, "{}") == (Problem("score", "number, required"),)
    assert problems(schema, "Here: {}") == (Problem("", "valid JSON"),)
    assert problems(schema, "") == (Problem("", "a JSON value, not an empty text"),)
    assert problems(schema, '{"score": 0.') == (Problem("", "complete JSON, which ended too early"),)
    assert problems({"type": "array"}, "[1]") == ()


def test_an_answer_without_a_schema_is_an_object() -> None:
    """Rule 84: `json_object` asks for an object and no more."""
    assert problems(None, '{"a": 1}') == ()
    assert problems(None, "[1]") == (Problem("", "a JSON object"),)
    assert problems({"type": "nonsense"}, '"any JSON"') == ()
