"""`@tool`: the schema a function gets, the values it is called with, and functions that cannot be tools."""

import asyncio
import enum
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from mustcall import ToolCall, ToolContext, tool
from mustcall.core.errors import ConfigError
from mustcall.engine.tooling.definition import FunctionTool
from mustcall.engine.tooling.reading import Unfit
from mustcall.engine.tooling.roster import read_tools
from mustcall.policy.schema.arguments import check_arguments

CONTEXT = ToolContext(call=ToolCall(id="c1", name="t", arguments_json="{}"))


class Colour(enum.Enum):
    """A closed choice."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Place:
    """A dataclass."""

    city: str
    country: str = "NO"


class Leg(TypedDict):
    """A TypedDict."""

    start: str
    end: str


class Span(msgspec.Struct):
    """A struct."""

    days: Annotated[int, msgspec.Meta(ge=1)]


class Trip(pydantic.BaseModel):
    """A pydantic model."""

    to: str
    nights: int = pydantic.Field(default=1, ge=1)


def called(made: FunctionTool, **arguments: Any) -> Any:
    """Call a tool as a run does."""
    return made.prepare(msgspec.json.encode(arguments).decode(), CONTEXT)()


def test_plain_function() -> None:
    """Name, description and parameters come from the function; the function can still be called."""

    @tool
    def add(a: int, b: Annotated[int, "the other one"] = 2) -> int:
        """Add two numbers.

        It is exact.

        Args:
            a: one of them
            b: not read: the annotation says it
        """
        return a + b

    assert add.name == "add"
    assert add.description == "Add two numbers.\n\nIt is exact."
    assert add.schema == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "one of them"},
            "b": {"type": "integer", "description": "the other one", "default": 2},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert add(1, b=5) == 6
    assert called(add, a=1) == 3


def test_no_parameters() -> None:
    """A tool without parameters takes an empty object."""

    @tool(name="now", description="The time.")
    def current() -> str:
        return "noon"

    assert (current.name, current.description) == ("now", "The time.")
    assert current.schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert called(current) == "noon"


def test_every_kind_of_parameter() -> None:
    """Dataclasses, TypedDicts, structs, enums, literals, unions and paths are read as what the function takes."""
    got: list[Any] = []

    @tool
    def plan(  # noqa: PLR0917  one of each kind
        place: Place,
        legs: list[Leg],
        span: Span,
        colour: Colour,
        mode: Literal["fast", "slow"],
        root: Path,
        limit: float | None = None,
        tags: frozenset[str] = frozenset(),
    ) -> None:
        """Plan."""
        got.extend((place, legs, span, colour, mode, root, limit, tags))

    called(
        plan,
        place={"city": "Oslo"},
        legs=[{"start": "a", "end": "b"}],
        span={"days": 2},
        colour="blue",
        mode="fast",
        root="/tmp/x",  # noqa: S108  a name, not a file
    )
    assert got == [
        Place("Oslo"),
        [{"start": "a", "end": "b"}],
        Span(2),
        Colour.BLUE,
        "fast",
        Path("/tmp/x"),  # noqa: S108  as above
        None,
        frozenset(),
    ]
    checked = check_arguments(plan.offer, '{"place": {"city": 1}, "span": {"days": 0}}')
    assert not checked.valid
    assert set(plan.schema["$defs"]) == {"Colour", "Leg", "Place", "Span"}


def test_pydantic() -> None:
    """Models and constraints of pydantic are read by pydantic; a parameter may be called what a model's method is."""
    got: list[Any] = []

    @tool
    def book(
        trip: Trip,
        copy: Annotated[int, pydantic.Field(ge=1, description="copies")] = 1,
        others: list[Trip] | None = None,
    ) -> None:
        """Book.

        Args:
            trip: where to
        """
        got.extend((trip, copy, others))

    called(book, trip={"to": "Rome"}, others=[{"to": "Bern", "nights": 2}])
    assert got == [Trip(to="Rome"), 1, [Trip(to="Bern", nights=2)]]
    properties = book.schema["properties"]
    assert set(properties) == {"trip", "copy", "others"}
    assert (properties["copy"]["minimum"], properties["copy"]["description"]) == (1, "copies")
    assert book.schema["additionalProperties"] is False
    assert book.schema["required"] == ["trip"]
    assert check_arguments(book.offer, '{"trip": {"to": "x", "nights": 0}}').problems
    with pytest.raises(Unfit, match=r"trip\.nights"):
        book.prepare('{"trip": {"to": "secret", "nights": 0}}', CONTEXT)


def test_pydantic_inside_a_dataclass() -> None:
    """What msgspec does not know may still be known to pydantic."""

    @dataclass
    class Order:
        trip: Trip

    @tool
    def order(what: Order) -> str:
        """Order."""
        return what.trip.to

    assert called(order, what={"trip": {"to": "Rome"}}) == "Rome"


def test_context_is_filled_in() -> None:
    """A parameter annotated with `ToolContext` is not offered and gets the call."""

    @tool
    def who(name: str, context: ToolContext) -> str:
        """Say who calls."""
        return f"{name} {context.call.id}"

    assert list(who.schema["properties"]) == ["name"]
    assert called(who, name="x") == "x c1"


def test_defaults_are_the_functions_own() -> None:
    """An argument that is not given is not passed: the default, however odd, is Python's."""
    marker = object()

    @tool
    def odd(value: Any = marker, items: list[int] = [1]) -> Any:  # noqa: B006  the point of the test
        """Odd."""
        return value is marker, items

    assert called(odd) == (True, [1])
    assert called(odd, value=None) == (False, [1])


@pytest.mark.parametrize("kind", ["async", "partial", "object", "method"])
def test_things_that_can_be_called(kind: str) -> None:
    """Async functions, partials, objects and methods are tools as well; only async ones run in the loop."""

    async def slow(x: int) -> int:
        """Slow."""
        return x

    class Caller:
        """An object that is called."""

        async def __call__(self, x: int) -> int:
            """Do it."""
            return x

        def method(self, x: int) -> int:
            """Do it."""
            return x

    made = {
        "async": lambda: tool(slow),
        "partial": lambda: tool(name="part")(functools.partial(slow)),
        "object": lambda: tool(name="object")(Caller()),
        "method": lambda: tool(Caller().method),
    }[kind]()
    assert made.is_async is (kind != "method")
    value = called(made, x=3)
    assert (asyncio.run(value) if made.is_async else value) == 3


class Opaque:
    """A type without a schema."""


def unnamed(*args: int) -> None:
    """No names."""


def untyped(x) -> None:  # pyrefly: ignore[implicit-any-parameter]  # noqa: ANN001
    """No type."""


def unknown(x: "Nowhere") -> None:  # pyrefly: ignore[unknown-name]  # noqa: F821
    """A type that is not there."""


def opaque(x: Opaque) -> None:
    """A type without a schema."""


class Holder:
    """A class whose method is taken from the class."""

    def unbound(self, x: int) -> None:
        """A method without its object."""


def maybe(context: ToolContext | None = None) -> None:
    """A context that might not be there."""


BAD: list[tuple[Any, str]] = [
    (unnamed, "by name"),
    (untyped, "`x: str`"),
    (unknown, "type hints"),
    (Holder.unbound, "pass the method of an object"),
    (maybe, "`context: ToolContext`"),
]


@pytest.mark.parametrize(
    ("function", "words"),
    BAD,
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_functions_that_cannot_be_tools(function: Any, words: str) -> None:
    """What is wrong is said when the tool is made, with the tool's name and the fix."""
    with pytest.raises(ConfigError, match=words) as raised:
        tool(function)
    assert function.__name__ in raised.value.message


def test_a_type_that_no_model_can_write() -> None:
    """A parameter of a class without a schema is a dependency: an agent without one says so, with the fix."""
    made = tool(opaque)
    assert made.needs == {"x": Opaque}
    assert "properties" not in made.schema or made.schema["properties"] == {}
    with pytest.raises(ConfigError, match=r"'opaque': the parameter 'x' is of the type Opaque.*deps of that type"):
        read_tools([made])
    assert read_tools([made], Opaque)[0].name == "opaque"


@pytest.mark.parametrize(
    "settings",
    [{"timeout": 0}, {"retries": -1}, {"result_cap": 0}, {"concurrency": -1}, {"name": " "}, {"name": "files.read"}],
)
def test_settings_that_make_no_sense(settings: dict[str, Any]) -> None:
    """Limits and names are checked when the tool is made."""
    given: dict[str, Any] = {"name": "t", **settings}
    with pytest.raises(ConfigError):
        tool(**given)(lambda: None)


def test_arguments_that_cannot_be_read() -> None:
    """What passes the schema and still cannot be read is a misfit whose words do not repeat it."""

    @dataclass
    class Even:
        number: int

        def __post_init__(self) -> None:
            if self.number % 2:
                raise ValueError("an even number is needed")

    @tool
    def halve(value: Even) -> int:
        """Halve."""
        return value.number // 2

    with pytest.raises(Unfit, match="even number"):
        halve.prepare('{"value": {"number": 3}}', CONTEXT)


class _Yields:
    """An object whose call is a generator."""

    def __call__(self, n: int) -> Any:
        yield n


def _yields(n: int) -> Any:
    yield n


async def _yields_later(n: int) -> Any:
    yield n


@pytest.mark.parametrize("function", [_yields, _yields_later, functools.partial(_yields, n=1), _Yields()])
def test_generators_are_refused_at_once(function: Any) -> None:
    """Rule 89: a function whose body a call does not run is no tool."""
    with pytest.raises(ConfigError, match="generator"):
        tool(function)
