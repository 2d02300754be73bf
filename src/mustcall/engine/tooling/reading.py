"""A function's parameters as a JSON schema, and JSON arguments as the values the function is written for.

Two readers do it: msgspec's own (plain types, dataclasses, structs, TypedDicts) and, for functions that use pydantic's
models or constraints, pydantic's. Pydantic is never a dependency: only who uses it has it.
"""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.origin import JsonObject
from mustcall.engine.tooling.pydantic_types import is_field, load_pydantic, misfits, reason_of, uses_pydantic

__all__ = ["ArgumentReader", "ToolParameter", "Unfit", "decode_text", "reader_for"]

_T = TypeVar("_T")

_DIGITS = 39  # a UUID as a number

_SIMPLE = (type(None), bool, int, float, str)


class ToolParameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter that a model fills in. `default` is `msgspec.NODEFAULT` where there is none.

    A `Field` of pydantic's as the default says constraints besides; then `read` gives the default as a value.
    """

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
    if any(uses_pydantic(parameter.hint) or is_field(parameter.default) for parameter in parameters):
        return _PydanticReader(function, parameters)
    try:
        return _MsgspecReader(parameters)
    except (TypeError, NameError) as error:
        if "pydantic" in sys.modules:  # it has schemas for more types, such as unions of dataclasses
            return _PydanticReader(function, parameters)
        raise _unreadable(function, parameters, error) from None


def _unreadable(function: str, parameters: list[ToolParameter], error: Exception) -> ConfigError:
    """Return the error for parameters that cannot be read together, with the name of the first to blame."""
    if len(parameters) == 1:
        name = parameters[0].name
        return ConfigError(
            f"tool {function!r}: the parameter {name!r} has no JSON schema: {reason_of(error)}; use plain types, "
            "dataclasses, TypedDicts, msgspec structs or pydantic models, or give the schema with FunctionTool"
        )
    for parameter in parameters:
        try:
            reader_for(function, [parameter])
        except ConfigError as its_own:
            return its_own
    which = "one"
    for parameter in parameters:
        try:
            _model_of([parameter])
        except Exception as its_own:  # noqa: BLE001  of a type's own code as well
            which, error = repr(parameter.name), its_own
            break
    return ConfigError(
        f"tool {function!r}: the parameter {which} has no JSON schema beside the others, which pydantic reads: "
        f"{reason_of(error)}; use plain types, dataclasses or pydantic models, or give the schema with FunctionTool"
    )


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
        pydantic = load_pydantic()
        # A parameter may be called what a model's own attributes are: only the alias bears its name.
        self._names = {f"p{number}": parameter.name for number, parameter in enumerate(parameters)}
        #: What has a value also where no argument is given: the function's own default is no value.
        self._filled = {own for own, each in zip(self._names, parameters, strict=True) if is_field(each.default)}
        self._wrong: type[Exception] = pydantic.ValidationError
        try:
            self._model, whole = _model_of(parameters)
        except Exception as error:
            raise _unreadable(function, parameters, error) from error
        definitions: JsonObject = whole.pop("$defs", {})
        for name, told in whole.get("properties", {}).items():
            if told.get("title", "").replace(" ", "_").lower() in (name.lower(), *self._names):
                told.pop("title")
        self.schema: JsonObject = _tidy(whole, definitions)

    def read(self, arguments: str) -> dict[str, Any]:
        """Return the arguments that were given, and defaults that only pydantic knows, as values; raise `Unfit`."""
        try:
            value = self._model.model_validate_json(arguments)
        except self._wrong as error:
            raise Unfit(misfits(error, "arguments")) from None
        return {self._names[own]: getattr(value, own) for own in (*value.model_fields_set, *self._filled)}


def _model_of(parameters: list[ToolParameter]) -> tuple[Any, JsonObject]:
    """Return pydantic's model of the parameters and its schema; raise what pydantic raises."""
    pydantic = load_pydantic()
    fields: dict[str, Any] = {}
    for number, parameter in enumerate(parameters):
        hint, default = parameter.hint, parameter.default
        given: dict[str, Any] = {"default": ... if default is msgspec.NODEFAULT else default}
        if is_field(default):
            made = default.default_factory
            hint = Annotated[hint, default]
            given = {"default": default.default} if made is None else {"default_factory": made}
        if parameter.description is not None:
            given["description"] = parameter.description
        fields[f"p{number}"] = (hint, pydantic.Field(alias=parameter.name, title=None, **given))
    model = pydantic.create_model("Arguments", __config__=pydantic.ConfigDict(extra="forbid"), **fields)
    return model, model.model_json_schema()
