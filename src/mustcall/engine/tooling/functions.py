"""`@tool`: a tool from a function, its schema from the type hints, its words from the docstring.

    @tool
    def get_weather(city: Annotated[str, "a city's name"]) -> str:
        "Look up today's weather."

Parameters may be plain types, dataclasses, TypedDicts, msgspec structs or pydantic models. A parameter annotated with
`ToolContext`, or with the type of the agent's dependencies, is filled in by the run and not offered to the model.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Generic, ParamSpec, TypeVar, get_args, get_origin, get_type_hints, overload

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.engine.tooling.definition import Approve, Check, FunctionTool, ToolContext, ToolSettings, is_async
from mustcall.engine.tooling.docstrings import read_docstring
from mustcall.engine.tooling.injecting import Fill, filling, takes_context
from mustcall.engine.tooling.pydantic_types import is_field, reason_of, uses_pydantic
from mustcall.engine.tooling.reading import ArgumentReader, ToolParameter, reader_for

__all__ = ["DecoratedTool", "name_for", "tool"]

P = ParamSpec("P")
R = TypeVar("R")

_UNNAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class DecoratedTool(FunctionTool, Generic[P, R]):
    """A tool that is also still the function it was made from."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None,
        description: str | None,
        settings: ToolSettings,
        deps_type: type[Any] | None = None,
    ) -> None:
        called = name or name_for(function)
        if _generates(_unpacked(function)):
            raise ConfigError(f"tool {called!r} is a generator, whose body no call runs; return the result")
        told = read_docstring(inspect.getdoc(_unpacked(function)))
        self._given = given = _parameters(function, called, told.parameters)
        #: The parameters of types that no schema can say: what the tool depends on.
        self.needs: Mapping[str, type[Any]] = _unsayable(called, given)
        self._fills = self._filled(deps_type)
        taken = {*self.needs, *self._fills}
        self._reader: ArgumentReader = reader_for(called, [each for each in given if each.name not in taken])
        self.function = function
        written: Callable[..., Any] = function
        super().__init__(
            called,
            description or told.description or None,
            self._reader.schema,
            lambda values: written(**values),
            settings=settings,
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    @property
    def is_async(self) -> bool:
        """Whether calling the function gives something to await."""
        return is_async(self.function)

    def _filled(self, deps_type: type[Any] | None) -> dict[str, Fill]:
        """Return how the parameters are filled that a run fills in."""
        ways = ((each.name, filling(each.hint, deps_type, sayable=each.name not in self.needs)) for each in self._given)
        return {name: fill for name, fill in ways if fill is not None}

    def taking(self, deps_type: type[Any] | None) -> "DecoratedTool[P, R]":
        """Return the tool for an agent with dependencies of this type; raise `ConfigError` where it needs others."""
        made = self
        if self._filled(deps_type).keys() != self._fills.keys():
            described = self.description
            made = DecoratedTool(
                self.function, name=self.name, description=described, settings=self.settings, deps_type=deps_type
            )
        for name, kind in made.needs.items():
            if name not in made._fills:
                raise ConfigError(
                    f"tool {self.name!r}: the parameter {name!r} is of the type {kind.__name__}, which has no JSON "
                    f"schema{_why(kind)}; use plain types, dataclasses, TypedDicts or msgspec structs, give the schema "
                    "with FunctionTool, or give the agent deps of that type"
                )
        return made

    def prepare(self, arguments: str, context: ToolContext[Any]) -> Callable[[], Any]:
        """Return the function's call with these arguments; raise `Unfit`."""
        values = self._reader.read(arguments)
        for name, fill in self._fills.items():
            values[name] = fill(context)
        function: Callable[..., Any] = self.function
        return lambda: function(**values)


@overload
def tool(function: Callable[P, R], /) -> DecoratedTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float = 60.0,
    retries: int = 0,
    idempotent: bool = False,
    side_effect: bool = True,
    approve: Approve | None = None,
    check: Check | None = None,
    prerequisites: Sequence[str] = (),
    result_cap: int | None = None,
    concurrency: int = 0,
) -> Callable[[Callable[P, R]], DecoratedTool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float = 60.0,
    retries: int = 0,
    idempotent: bool = False,
    side_effect: bool = True,
    approve: Approve | None = None,
    check: Check | None = None,
    prerequisites: Sequence[str] = (),
    result_cap: int | None = None,
    concurrency: int = 0,
) -> Any:
    """Make a tool from a function. Use it as a decorator, with or without settings (see `ToolSettings`).

    The name and description come from the function, the schema from its type hints, and parameter descriptions from
    `Annotated` or the docstring. Raise `ConfigError` if the name is illegal, a type has no JSON schema, or `retries` is
    set for a tool that may not be repeated.
    """
    settings = ToolSettings(
        timeout=timeout,
        retries=retries,
        idempotent=idempotent,
        side_effect=side_effect,
        approve=approve,
        check=check,
        prerequisites=tuple(prerequisites),
        result_cap=result_cap,
        concurrency=concurrency,
    )

    def made(wanted: Callable[..., Any]) -> DecoratedTool[..., Any]:
        return DecoratedTool(wanted, name=name, description=description, settings=settings)

    return made if function is None else made(function)


def name_for(function: Callable[..., Any]) -> str:
    """Return the name of the tool that is made from a function, where it is given no other."""
    return getattr(_unpacked(function), "__name__", type(function).__name__)


def _parameters(function: Callable[..., Any], called: str, told: dict[str, str]) -> list[ToolParameter]:
    """Return what a function takes, whoever fills it in."""
    try:
        signature = inspect.signature(function)
        hints = _hints(function)
    except (TypeError, ValueError, NameError, AttributeError) as error:
        raise ConfigError(f"tool {called!r}: its type hints cannot be read: {error}") from None
    parameters: list[ToolParameter] = []
    for name, parameter in signature.parameters.items():
        if parameter.kind in _UNNAMED:
            raise ConfigError(f"tool {called!r}: the parameter {parameter} cannot be filled by name; give it a name")
        if name not in hints and name == "self":
            raise ConfigError(
                f"tool {called!r}: `self` cannot be filled in; pass the method of an object, like "
                f"tool(thing.{called}), instead of the class's"
            )
        if name not in hints:
            raise ConfigError(f"tool {called!r}: the parameter {name!r} has no type; write one, like `{name}: str`")
        said, hint = _said(hints[name])
        if any(map(takes_context, get_args(hint))):
            raise ConfigError(
                f"tool {called!r}: the parameter {name!r} always gets the context of its call; write "
                f"`{name}: ToolContext`, got {hint}"
            )
        default: Any = msgspec.NODEFAULT if parameter.default is parameter.empty else parameter.default
        if is_field(default):
            said = said or default.description
            if default.default_factory_takes_validated_data:
                raise ConfigError(
                    f"tool {called!r}: the parameter {name!r} has a default_factory that takes other values, which "
                    "parameters do not have; make the default in the function"
                )
        parameters.append(ToolParameter(name=name, hint=hint, default=default, description=said or told.get(name)))
    return parameters


def _unsayable(called: str, parameters: list[ToolParameter]) -> dict[str, type[Any]]:
    """Return the parameters of classes without a JSON schema; raise `ConfigError` where no class is to blame."""
    sayable = [each for each in parameters if not takes_context(each.hint)]
    try:
        reader_for(called, sayable)
    except ConfigError:
        found = {each.name: each.hint for each in sayable if isinstance(each.hint, type) and not _has_schema(each)}
        reader_for(called, [each for each in sayable if each.name not in found])
        return found
    return {}


def _has_schema(parameter: ToolParameter) -> bool:
    try:
        reader_for("", [parameter])
    except ConfigError:
        return False
    return True


def _why(kind: type[Any]) -> str:
    """Return why a type of pydantic's has no schema, in brackets; other types have a name, and that is all."""
    try:
        reader_for("", [ToolParameter(name="value", hint=kind, default=msgspec.NODEFAULT)])
    except ConfigError as error:
        if isinstance(error.__cause__, Exception) and uses_pydantic(kind):
            return f" ({reason_of(error.__cause__)})"
    return ""


def _unpacked(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _generates(function: Callable[..., Any]) -> bool:
    """Tell whether calling it runs nothing yet: a generator function, or an object whose call is one."""
    written = (function, getattr(function, "__call__", None))  # noqa: B004  the method itself is asked for
    return any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in written)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the resolved hints of a function, a method, a partial of one, or an object that can be called."""
    function = _unpacked(function)
    plain = inspect.isfunction(function) or inspect.ismethod(function) or inspect.isbuiltin(function)
    return get_type_hints(function if plain else type(function).__call__, include_extras=True)


def _said(hint: Any) -> tuple[str | None, Any]:
    """Return what an annotation says in plain words, and the type without them."""
    if get_origin(hint) is not Annotated:
        return None, hint
    inner, *notes = get_args(hint)
    words = next((note for note in notes if isinstance(note, str)), None)
    if words is None:
        words = next((note.documentation for note in notes if hasattr(note, "documentation")), None)
    if words is None:  # pydantic's Field and msgspec's Meta stay where they are: they say more
        words = next((note.description for note in notes if isinstance(getattr(note, "description", None), str)), None)
    rest = [note for note in notes if not isinstance(note, str) and not hasattr(note, "documentation")]
    return words, Annotated[(inner, *rest)] if rest else inner
