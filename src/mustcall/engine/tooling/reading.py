"""A function's parameters as a JSON schema, and JSON arguments as the values the function is written for.

Two readers do it: msgspec's own (plain types, dataclasses, structs, TypedDicts) and, for functions that use pydantic's
models or constraints, pydantic's. Pydantic is never a dependency: only who uses it has it.
"""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar, get_args, get_origin

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.origin import JsonObject

__all__ = ["ArgumentReader", "ToolParameter", "Unfit", "decode_text", "reader_for"]

_T = TypeVar("_T")

_DIGITS = 39  # a UUID as a number

_SIMPLE = (type(None), bool, int, float, str)
_PYDANTIC = ("pydantic", "pydantic_core", "annotated_types")


class ToolParameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter that a model fills in. `default` is `msgspec.NODEFAULT` where there is none."""

    name: str
    hint: Any
    default: Any = msgspec.NODEFAULT
    description: str | None = None


class Unfit(Exception):
    """The arguments cannot be read as what the function takes. The words never repeat them. Stays inside tooling."""


class ArgumentReader(Protocol):
    """Reads arguments."""

    @property
    def schema(self) -> JsonObject:
        """The schema of the arguments."""
        ...

    def read(self, arguments: str) -> dict[str, Any]:
        """Return the arguments that were given, as values; raise `Unfit`."""
        ...


def reader_for(function: str, parameters: list[ToolParameter]) -> ArgumentReader:
    """Return the reader for a function's parameters; raise `ConfigError` for types no reader knows."""
    if any(_is_pydantic(parameter.hint) for parameter in parameters):
        return _PydanticReader(function, parameters)
    try:
        return _MsgspecReader(parameters)
    except (TypeError, NameError) as error:
        if "pydantic" in sys.modules:  # a dataclass or TypedDict may hold a model somewhere inside
            return _PydanticReader(function, parameters)
        raise ConfigError(
            f"tool {function!r}: a parameter has a type without a JSON schema: {error}; use plain types, dataclasses, "
            "TypedDicts or msgspec structs, or give the schema with FunctionTool"
        ) from None


def _is_pydantic(hint: Any) -> bool:
    """Tell whether a type is one of pydantic's, or carries its constraints."""
    if isinstance(hint, type) and hasattr(hint, "model_json_schema"):
        return True
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        modules = {type(note).__module__.partition(".")[0] for note in notes}
        return not modules.isdisjoint(_PYDANTIC) or _is_pydantic(inner)
    return any(_is_pydantic(inner) for inner in get_args(hint))


class _MsgspecReader:
    """Reads with a struct made for the function."""

    def __init__(self, parameters: list[ToolParameter]) -> None:
        fields = [(parameter.name, _described(parameter), _default(parameter)) for parameter in parameters]
        struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        self._decoder = msgspec.json.Decoder(struct, dec_hook=_read_custom)
        whole = msgspec.json.schema(struct, schema_hook=_custom_schema)
        definitions: JsonObject = dict(whole.pop("$defs"))
        own = definitions.pop("Arguments")
        self.schema: JsonObject = _tidy(own, definitions)

    def read(self, arguments: str) -> dict[str, Any]:
        """Return the arguments that were given, as values; raise `Unfit`."""
        value = decode_text(self._decoder, arguments)
        return {name: getattr(value, name) for name in msgspec.json.decode(arguments)}


def decode_text(decoder: "msgspec.json.Decoder[_T]", text: str) -> _T:
    """Read JSON that fits the schema as a value; raise `Unfit`. 1.0 is an integer to JSON Schema, not to msgspec."""
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError) as error:
        if isinstance(error, msgspec.ValidationError):
            with suppress(ValueError, RecursionError):  # msgspec's errors are such
                return decoder.decode(json.dumps(json.loads(text, parse_float=_number)))
        raise Unfit(str(error)) from None


def _number(written: str) -> int | float:
    """Return a number as it is written, a whole one as an integer: as a float 9007199254740993.0 is another one.

    Numbers of more digits than an identifier has stay as they are: 1e999999 would be a million digits.
    """
    exact = Decimal(written)
    return int(exact) if exact.adjusted() < _DIGITS and exact == exact.to_integral_value() else float(written)


def _described(parameter: ToolParameter) -> Any:
    """Return the type with its description where msgspec reads it."""
    hint, said = parameter.hint, parameter.description
    return hint if said is None else Annotated[hint, msgspec.Meta(description=said)]


def _default(parameter: ToolParameter) -> Any:
    default = parameter.default
    if default is msgspec.NODEFAULT or isinstance(default, _SIMPLE):
        return default
    return msgspec.field(default_factory=lambda: default)


def _tidy(schema: JsonObject, definitions: JsonObject) -> JsonObject:
    """Return the object's schema without a title and empty lists, which some providers refuse."""
    kept = {key: value for key, value in schema.items() if key != "title" and not (key == "required" and not value)}
    return {**kept, "$defs": definitions} if definitions else kept


#: Types msgspec does not know itself: their schema, and how they are read from its value.
_CUSTOM: dict[Any, tuple[JsonObject, Callable[[Any], Any]]] = {Path: ({"type": "string"}, Path)}


def _custom_schema(kind: Any) -> JsonObject:
    if kind in _CUSTOM:
        return dict(_CUSTOM[kind][0])
    raise TypeError(f"{getattr(kind, '__name__', kind)}")


def _read_custom(kind: Any, value: Any) -> Any:
    return _CUSTOM[kind][1](value)


class _PydanticReader:
    """Reads with a model made for the function."""

    def __init__(self, function: str, parameters: list[ToolParameter]) -> None:
        pydantic: Any = import_module("pydantic")
        fields: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        for number, parameter in enumerate(parameters):
            default = ... if parameter.default is msgspec.NODEFAULT else parameter.default
            # A parameter may be called what a model's own attributes are: only the alias bears its name.
            own = f"p{number}"
            self._names[own] = parameter.name
            told = {} if parameter.description is None else {"description": parameter.description}
            fields[own] = (parameter.hint, pydantic.Field(default, alias=parameter.name, title=None, **told))
        self._wrong: type[Exception] = pydantic.ValidationError
        try:
            self._model: Any = pydantic.create_model(
                "Arguments", __config__=pydantic.ConfigDict(extra="forbid"), **fields
            )
            whole: JsonObject = self._model.model_json_schema()
        except Exception as error:
            raise ConfigError(
                f"tool {function!r}: pydantic has no JSON schema for its parameters: {type(error).__name__}; use plain "
                "types or models, or give the schema with FunctionTool"
            ) from error
        definitions: JsonObject = whole.pop("$defs", {})
        for name, told in whole.get("properties", {}).items():
            if told.get("title", "").replace(" ", "_").lower() in (name.lower(), *self._names):
                told.pop("title")
        self.schema: JsonObject = _tidy(whole, definitions)

    def read(self, arguments: str) -> dict[str, Any]:
        """Return the arguments that were given, as values; raise `Unfit`."""
        try:
            value = self._model.model_validate_json(arguments)
        except self._wrong as error:
            wrong: Any = error
            found: list[Any] = wrong.errors(include_input=False, include_url=False)
            words = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['type']}" for each in found[:5])
            raise Unfit(words) from None
        return {self._names[own]: getattr(value, own) for own in value.model_fields_set}
