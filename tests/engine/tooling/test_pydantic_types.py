"""Types and fields of pydantic as parameters of tools: what they say holds, wherever it stands."""

import functools
import sys
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, NewType

import annotated_types
import msgspec
import pydantic
import pytest
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic.fields import FieldInfo
from typing_extensions import TypeAliasType, TypedDict

from mustcall import ToolCall, ToolContext, tool
from mustcall.core.errors import ConfigError
from mustcall.engine.tooling.definition import FunctionTool
from mustcall.engine.tooling.pydantic_types import is_field, uses_pydantic
from mustcall.engine.tooling.reading import Unfit
from mustcall.engine.tooling.roster import read_tools

CONTEXT = ToolContext(call=ToolCall(id="c1", name="t", arguments_json="{}"))


def called(made: FunctionTool, **arguments: Any) -> Any:
    """Call a tool as a run does."""
    return made.prepare(msgspec.json.encode(arguments).decode(), CONTEXT)()


@pydantic_dataclass
class Payment:
    """A dataclass of pydantic's with a rule no schema tells."""

    euros: int

    @pydantic.field_validator("euros")
    @classmethod
    def positive(cls, value: int) -> int:
        """Take positive amounts."""
        if value <= 0:
            raise ValueError("euros must be positive")
        return value


@dataclass
class Limited:
    """A plain dataclass with a constraint of pydantic's."""

    n: Annotated[int, pydantic.Field(ge=1)]


@dataclass
class Defaulted:
    """A plain dataclass with a constraint of pydantic's in a default."""

    n: int = pydantic.Field(default=1, ge=1)


@dataclass
class Nested:
    """A plain dataclass whose field is further inside."""

    inside: "list[Limited | None]" = field(default_factory=list)


class Typed(TypedDict):
    """A TypedDict with a constraint of pydantic's."""

    n: Annotated[int, pydantic.Field(ge=1)]


class Named(NamedTuple):
    """A NamedTuple with a constraint of pydantic's."""

    n: Annotated[int, pydantic.Field(ge=1)]


@dataclass
class Tree:
    """A dataclass that holds others of its kind."""

    name: str
    children: "list[Tree]" = field(default_factory=list)


Count = NewType("Count", Annotated[int, pydantic.Field(ge=1)])  # pyrefly: ignore
Alias = TypeAliasType("Alias", list[Payment])


class Pattern:
    """A note of the user's that tells pydantic how to read a type."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Read it as pydantic would."""
        return handler(source)


class Kind(FieldInfo):  # pyrefly: ignore[invalid-inheritance]  other libraries do it
    """A field of another library's, made of pydantic's."""


def test_kinds_of_fields() -> None:
    """A field is known by what it is made of."""
    assert is_field(Kind(default=1))
    assert is_field(pydantic.Field(default=1))
    assert not is_field(None)
    assert not is_field(field(default=1))


@pytest.mark.parametrize(
    ("hint", "uses"),
    [
        (Payment, True),
        (list[Payment], True),
        (dict[str, Payment | None], True),
        (Limited, True),
        (Defaulted, True),
        (Nested, True),
        (Typed, True),
        (Named, True),
        (Count, True),
        (Alias, True),
        (pydantic.SecretStr, True),
        (Annotated[int, annotated_types.Ge(1)], True),
        (Annotated[bytes, Pattern], True),
        (Tree, False),
        (int, False),
        (Annotated[int, msgspec.Meta(ge=1)], False),
        (list[dict[str, int]], False),
        ("nothing", False),
    ],
)
def test_where_pydantic_is_needed(hint: Any, uses: bool) -> None:
    """A type needs pydantic where it is one of pydantic's, or anything inside it is."""
    assert uses_pydantic(hint) is uses


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (Payment, {"euros": 1}, {"euros": -500}),
        (list[Payment], [{"euros": 1}], [{"euros": -500}]),
        (dict[str, Payment], {"a": {"euros": 1}}, {"a": {"euros": -500}}),
        (Payment | None, {"euros": 1}, {"euros": -500}),
        (Limited, {"n": 1}, {"n": 0}),
        (Defaulted, {"n": 1}, {"n": 0}),
        (Nested, {"inside": [{"n": 1}]}, {"inside": [{"n": 0}]}),
        (Typed, {"n": 1}, {"n": 0}),
        (Named, [1], [0]),
    ],
)
def test_rules_of_pydantic_hold(hint: Any, good: Any, bad: Any) -> None:
    """A value that breaks a rule of pydantic's does not reach the tool, however deep the rule stands."""

    def take(value: Any) -> Any:
        """Take."""
        return value

    take.__annotations__["value"] = hint
    made = tool(take)
    assert called(made, value=good) is not None
    with pytest.raises(Unfit, match="value"):
        called(made, value=bad)


def test_a_validators_own_words_are_told() -> None:
    """The message that a validator raises reaches the model; the value that was given does not."""

    def pay(payment: Payment) -> None:
        """Pay."""
        assert payment

    with pytest.raises(Unfit, match=r"^payment\.euros: Value error, euros must be positive$"):
        called(tool(pay), payment={"euros": -500})
    with pytest.raises(Unfit, match=r"^payment\.euros: int_parsing$"):
        called(tool(pay), payment={"euros": "secret"})


@tool
def search(
    query: str,
    limit: int = pydantic.Field(default=10, ge=1, le=100, description="at most"),
    tags: list[str] = pydantic.Field(default_factory=lambda: ["all"]),  # noqa: B008  the point of the test
) -> Any:
    """Search.

    Args:
        limit: not read: the field says it
    """
    return query, limit, tags


def test_a_field_as_default() -> None:
    """A `Field` as the default of a parameter says its limits, description and default; the tool gets a value."""
    assert search.schema["required"] == ["query"]
    assert search.schema["properties"]["limit"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 100,
        "default": 10,
        "description": "at most",
    }
    assert called(search, query="a") == ("a", 10, ["all"])
    assert called(search, query="a", limit=7) == ("a", 7, ["all"])
    assert called(search, query="a")[2] is not called(search, query="a")[2]
    with pytest.raises(Unfit, match="limit"):
        called(search, query="a", limit=-5)


def test_a_field_without_default() -> None:
    """A parameter whose default is a `Field` without one is required, and keeps the name the function has for it."""

    @tool
    def must(n: int = pydantic.Field(ge=1, alias="number")) -> int:
        """Must."""
        return n

    assert must.schema["required"] == ["n"]
    assert called(must, n=2) == 2
    for given in ({}, {"n": 0}):
        with pytest.raises(Unfit, match="n:"):
            called(must, **given)


def test_a_field_in_both_places() -> None:
    """Constraints of the type and the default of the `Field` hold together."""

    @tool
    def both(n: Annotated[int, pydantic.Field(ge=1)] = pydantic.Field(5, le=9)) -> int:
        """Both."""
        return n

    assert called(both) == 5
    for given in (0, 10):
        with pytest.raises(Unfit, match="n:"):
            called(both, n=given)
    assert called(tool(name="partial")(functools.partial(both.function, n=3))) == 3


def test_a_fields_description_stands_over_the_docstrings() -> None:
    """What an annotation says of a parameter is what the model reads, however it says it."""

    def describe(
        a: Annotated[int, pydantic.Field(description="from the field")],
        b: Annotated[int, "from the annotation"],
        c: int,
    ) -> None:
        """Describe.

        Args:
            a: from the docstring
            b: from the docstring
            c: from the docstring
        """

    told = {name: each["description"] for name, each in tool(describe).schema["properties"].items()}
    assert told == {"a": "from the field", "b": "from the annotation", "c": "from the docstring"}


def test_a_default_made_from_other_values() -> None:
    """A default that is made from other fields' values is refused: parameters are no fields of a model."""

    def late(n: int = pydantic.Field(default_factory=lambda data: data["m"])) -> int:
        """Late."""
        return n

    with pytest.raises(ConfigError, match=r"tool 'late': the parameter 'n'.*default_factory"):
        tool(late)


class Opaque:
    """A type without a schema."""


def test_the_parameter_without_a_schema_is_named() -> None:
    """Where several parameters are there, the message names the one that cannot be, and why."""

    def mixed(trip: Payment, what: list[Opaque]) -> None:
        """Mixed."""

    with pytest.raises(ConfigError, match=r"tool 'mixed': the parameter 'what' has no JSON schema: .*Opaque") as raised:
        tool(mixed)
    assert "\n" not in raised.value.message
    assert "arbitrary_types_allowed" not in raised.value.message

    def plain(city: str, what: list[Opaque]) -> None:
        """Plain."""

    with pytest.raises(ConfigError, match=r"tool 'plain': the parameter 'what' has no JSON schema"):
        tool(plain)


class Span(msgspec.Struct):
    """A struct, which pydantic cannot read."""

    days: int


def test_a_parameter_that_is_only_in_the_way_of_others() -> None:
    """A type that could be read alone is blamed last, and the message says what it cannot stand beside."""

    def both(span: Span, payment: Payment) -> None:
        """Both."""

    with pytest.raises(ConfigError, match=r"the parameter 'span' has no JSON schema beside the others, which pydantic"):
        tool(both)

    def worse(span: Span, what: list[Opaque]) -> None:
        """Worse."""

    with pytest.raises(ConfigError, match=r"the parameter 'what' has no JSON schema: "):
        tool(worse)


def test_constraints_without_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pydantic is not installed, constraints that only it reads are an error with the fix."""

    def take(n: Annotated[int, annotated_types.Ge(1)]) -> None:
        """Take."""

    assert tool(take).schema["properties"]["n"]["minimum"] == 1
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(ConfigError, match="pip install pydantic"):
        tool(take)


def test_pydantics_advice_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pydantic says of a type it cannot read is in the message, in one line."""

    class Refused:
        """A type that pydantic refuses with advice."""

        @classmethod
        def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
            raise pydantic.PydanticUserError("Please use another type.", code="typed-dict-version")

    def mixed(payment: Payment, where: list[Refused]) -> None:
        """Mixed."""

    with pytest.raises(ConfigError, match=r"the parameter 'where' has no JSON schema: Please use another type\.; use"):
        tool(mixed)

    def own(where: Refused) -> None:
        """Own."""

    with pytest.raises(ConfigError, match=r"the parameter 'where' is of the type Refused.*\(Please use another type"):
        read_tools([own])

    def alone(where: list[Opaque]) -> None:
        """Alone."""

    monkeypatch.delitem(sys.modules, "pydantic")
    with pytest.raises(ConfigError, match=r"tool 'alone': the parameter 'where' has no JSON schema: Opaque; use plain"):
        tool(alone)
