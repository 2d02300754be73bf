"""The shapes of structured answers: schemas from types, values from texts."""

import sys
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from pydantic.dataclasses import dataclass as pydantic_dataclass

from mustcall.core.errors import ConfigError
from mustcall.core.tools import Tool
from mustcall.engine.answers import AnswerShape, answering_for, shape_of
from mustcall.engine.answers.answering import Answering, BadAnswer, Way
from mustcall.policy.facts.profile import Profile, Protocol, SchemaTarget


@dataclass
class Point:
    """A dataclass."""

    x: int
    y: int = 0


class Node(msgspec.Struct):
    """A struct that holds others of its kind."""

    name: str
    children: "list[Node]" = []


class Leg(TypedDict):
    """A TypedDict."""

    start: str


class Model(pydantic.BaseModel):
    """A pydantic model with a rule no schema tells."""

    n: int
    tags: list[str] = []

    @pydantic.field_validator("n")
    @classmethod
    def even(cls, value: int) -> int:
        """Take even numbers."""
        if value % 2:
            raise ValueError("odd")
        return value


@pydantic_dataclass
class Payment:
    """A dataclass of pydantic's with a rule no schema tells."""

    euros: int

    @pydantic.field_validator("euros")
    @classmethod
    def positive(cls, value: int) -> int:
        """Take positive amounts."""
        assert value > 0, "euros must be positive"
        return value


@dataclass
class Team:
    """A dataclass that holds models and constraints of pydantic's."""

    lead: Model
    size: Annotated[int, pydantic.Field(ge=1)] = 1


class Branch(pydantic.BaseModel):
    """A model that holds others of its kind."""

    name: str
    children: "list[Branch]" = []


@dataclass
class Cat:
    """One of two."""

    kind: Literal["cat"]


@dataclass
class Dog:
    """The other."""

    kind: Literal["dog"]


@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        (Point, '{"x": 1}', Point(1)),
        (Point, '{"x": 1, "y": null}', Point(1)),
        (Point, ' ```json\n{"x": 1}\n``` ', Point(1)),
        (Node, '{"name": "a", "children": [{"name": "b"}]}', Node("a", [Node("b")])),
        (Leg, '{"start": "a"}', {"start": "a"}),
        (Model, '{"n": 2}', Model(n=2)),
        (list[Point], '{"value": [{"x": 1}]}', [Point(1)]),
        (Payment, '{"euros": 1}', Payment(1)),
        (Team, '{"lead": {"n": 2}}', Team(Model(n=2))),
        (list[Model], '{"value": [{"n": 2}]}', [Model(n=2)]),
        (dict[str, Model], '{"a": {"n": 2}}', {"a": Model(n=2)}),
        (Model | None, '{"value": null}', None),
        (Branch, '{"name": "a", "children": [{"name": "b"}]}', Branch(name="a", children=[Branch(name="b")])),
        (Cat | Dog, '{"value": {"kind": "dog"}}', Dog("dog")),
        (list[Cat | Dog], '{"value": [{"kind": "dog"}, {"kind": "cat"}]}', [Dog("dog"), Cat("cat")]),
        (int, '{"value": 3}', 3),
        ({"type": "object", "required": ["a"]}, '{"a": [1]}', {"a": [1]}),
        ({"type": "array", "items": {"type": "integer"}}, '{"value": [1]}', [1]),
    ],
)
def test_values(output: Any, text: str, value: Any) -> None:
    """A text that fits is a value of the type."""
    assert Answering(shape=shape_of(output)).read(text, ()) == value


@pytest.mark.parametrize(
    ("output", "text", "words"),
    [
        (Point, "{}", "x"),
        (Point, '{"x": "secret"}', "x"),
        (Point, "It is 3.", "JSON"),
        (Point, '{"x": 1', "complete"),
        (Point, '{"x": 1} and more', "JSON"),
        (Point, "", ""),
        (Model, '{"n": 3}', "n: Value error, odd"),
        (list[Model], '{"value": [{"n": 3}]}', "0.n: Value error, odd"),
        (Payment, '{"euros": -500}', "euros: Assertion failed, euros must be positive"),
        (Team, '{"lead": {"n": 2}, "size": 0}', "size"),
        (list[Point], "[]", "object"),
    ],
)
def test_misfits(output: Any, text: str, words: str) -> None:
    """What does not fit is told by its fields, never by its words."""
    with pytest.raises(BadAnswer) as raised:
        Answering(shape=shape_of(output)).read(text, ())
    assert words in str(raised.value)
    assert "secret" not in str(raised.value)


ANYTHING = Answering(shape=AnswerShape({"type": "object"}, msgspec.json.decode))
OFFERED = (Tool(name="get_weather", parameters={"type": "object"}),)


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "get_weather", "arguments": {"city": "Oslo"}}',
        '```json\n{"name": "get_weather", "arguments": {}}\n```',
        '{"calls": [{"name": "get_weather", "arguments": {}}]}',
    ],
)
def test_a_call_is_no_answer(text: str) -> None:
    """Rule 81: JSON that is a call of an offered tool is not the answer, however loose the schema."""
    with pytest.raises(BadAnswer, match="not a tool call"):
        ANYTHING.read(text, OFFERED)
    assert isinstance(ANYTHING.read(text, ()), dict)


def test_roots_are_objects() -> None:
    """Providers want an object at the root: references are resolved, recursion kept, other types put into a field."""
    assert shape_of(Point).schema["properties"]["x"] == {"type": "integer"}
    assert "$ref" not in shape_of(Node).schema
    assert set(shape_of(Node).schema["$defs"]) == {"Node"}
    assert shape_of(Branch).schema["type"] == "object"
    assert set(shape_of(Branch).schema["$defs"]) == {"Branch"}
    assert shape_of(dict[str, Model]).schema["additionalProperties"] == {"$ref": "#/$defs/Model"}
    assert shape_of(int).schema["properties"] == {"value": {"type": "integer"}}


class Opaque:
    """A type without a schema."""


@pytest.mark.parametrize("output", [Opaque, {"type": "nonsense"}])
def test_no_shape(output: Any) -> None:
    """What has no schema is said at once."""
    with pytest.raises(ConfigError, match="output"):
        shape_of(output)


@pytest.mark.parametrize("output", [Cat | Dog, list[Opaque]])
def test_no_shape_without_pydantic(output: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pydantic is not in use, the message says in one line what to use instead, with no hook of msgspec's."""
    monkeypatch.delitem(sys.modules, "pydantic")
    with pytest.raises(ConfigError, match=r"has no JSON schema.*; use .*pydantic models") as raised:
        shape_of(output)
    assert "\n" not in raised.value.message
    assert "schema_hook" not in raised.value.message


def test_hops() -> None:
    """A budget below nothing is said at once."""
    with pytest.raises(ConfigError, match="hops"):
        answering_for(Point, -1)
    assert answering_for(None, 0) is None


@pytest.mark.parametrize(
    ("facts", "way"),
    [
        ({}, Way.TRIED),
        ({"schema_output": False}, Way.WORDS),
        ({"schema_output": True}, Way.LAST),
        ({"schema_output": True, "protocol": Protocol.NATIVE, "schema_target": SchemaTarget.OPENAI}, Way.NATIVE),
        ({"schema_output": True, "protocol": Protocol.NATIVE, "schema_target": SchemaTarget.GEMINI}, Way.LAST),
        ({"protocol": Protocol.NATIVE, "schema_target": SchemaTarget.OPENAI}, Way.TRIED),
    ],
)
def test_ways(facts: dict[str, Any], way: Way) -> None:
    """Rules 74, 140: beside tools only where the two are known to go together; what is not known is tried."""
    assert ANYTHING.way(Profile(**facts)) is way
