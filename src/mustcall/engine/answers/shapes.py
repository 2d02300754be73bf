"""The shape of a structured answer: its JSON schema, and its text as a value of the type that was asked for.

A shape is made from a type (dataclass, TypedDict, msgspec struct, pydantic model, or plain) or from a JSON schema. It
says what fits; how an answer is asked for, and what happens to one that does not fit, is decided elsewhere.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.origin import JsonObject
from mustcall.engine.tooling.pydantic_types import load_pydantic, misfits, reason_of, uses_pydantic
from mustcall.engine.tooling.reading import Unfit, decode_text
from mustcall.policy.schema.subschemas import types_of
from mustcall.policy.schema.validation import schema_fault

__all__ = ["WRAPPED", "AnswerShape", "Output", "shape_of"]

Output = type[Any] | Mapping[str, Any]
"""What people ask for: a type, or a JSON schema."""

#: What an answer that is no object stands under: providers want an object at the root.
WRAPPED = "value"
_ROOT = "#/$defs/"
_UNIONS = ("anyOf", "oneOf")


class AnswerShape(msgspec.Struct, frozen=True):
    """What an answer must be. `read` takes JSON that fits the schema and raises `Unfit` where the type says more.

    `inside` is the shape that was asked for, where an object had to be put around it. `write` gives a value as JSON
    that `read` takes, where its fields alone do not say it: pydantic knows them by other names.
    """

    schema: JsonObject
    read: Callable[[str], Any]
    inside: "AnswerShape | None" = None
    write: Callable[[Any], str] | None = None

    @property
    def asked(self) -> "AnswerShape":
        """The shape of the value itself: what is written down of an answer, and read back."""
        return self.inside or self


def shape_of(output: Output) -> AnswerShape:
    """Return the shape of a type or a schema; raise `ConfigError` for what has none."""
    asked = _asked(output)
    schema = asked.schema
    union = "type" not in schema and not schema.keys().isdisjoint(_UNIONS)
    if types_of(schema, schema) == frozenset({"object"}) and not union:
        return asked
    return AnswerShape(_wrapped(schema), lambda text: asked.read(_unwrapped(text)), asked)


def _asked(output: Output) -> AnswerShape:
    """Return the shape of the value itself."""
    if isinstance(output, Mapping):
        schema = dict(output)
        if schema_fault(schema) is not None:
            raise ConfigError("output is no JSON schema that can be checked")
        return AnswerShape(schema, msgspec.json.decode)
    model: Any = output
    if hasattr(model, "model_json_schema"):
        return AnswerShape(_rooted(model.model_json_schema()), lambda text: _validated(model.model_validate_json, text))
    if uses_pydantic(output):
        return _adapted(output)
    try:
        schema = _rooted(msgspec.json.schema(output))
        decoder = msgspec.json.Decoder(output)
    except (TypeError, NameError) as error:
        if "pydantic" in sys.modules:  # it has schemas for more types, such as unions of dataclasses
            return _adapted(output)
        raise _shapeless(output, error) from None
    return AnswerShape(schema, lambda text: decode_text(decoder, text))


def _adapted(output: Any) -> AnswerShape:
    """Return the shape that pydantic has for a type; raise `ConfigError` where it has none."""
    pydantic = load_pydantic()
    try:
        adapter = pydantic.TypeAdapter(output)
        schema = _rooted(adapter.json_schema())
    except Exception as error:
        raise _shapeless(output, error) from error
    return AnswerShape(
        schema,
        lambda text: _validated(adapter.validate_json, text),
        write=lambda value: bytes(adapter.dump_json(value, by_alias=True)).decode(),
    )


def _shapeless(output: Any, error: Exception) -> ConfigError:
    reason = reason_of(error).partition(" requires either:")[0]  # msgspec's hooks are not for users of agents
    return ConfigError(
        f"output {output!r} has no JSON schema: {reason}; use plain types, dataclasses, TypedDicts, msgspec structs or "
        "pydantic models, or pass a JSON schema as a dict"
    )


def _rooted(schema: JsonObject) -> JsonObject:
    """Return a schema whose root is an object's own and not a reference to it; some providers want that."""
    name = str(schema.get("$ref", "")).removeprefix(_ROOT)
    definitions: JsonObject = schema.get("$defs", {})
    if name not in definitions:
        return schema
    others = {key: value for key, value in definitions.items() if key != name}
    again = f'"{_ROOT}{name}"'.encode() in msgspec.json.encode(definitions)
    kept = definitions if again else others
    return {**definitions[name], "$defs": kept} if kept else dict(definitions[name])


def _wrapped(schema: JsonObject) -> JsonObject:
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    whole: JsonObject = {"type": "object", "properties": {WRAPPED: inner}, "required": [WRAPPED]}
    return {**whole, "additionalProperties": False, **({"$defs": schema["$defs"]} if "$defs" in schema else {})}


def _unwrapped(text: str) -> str:
    return bytes(msgspec.json.decode(text, type=dict[str, msgspec.Raw])[WRAPPED]).decode()


def _validated(validate: Callable[[str], Any], text: str) -> Any:
    try:
        return validate(text)
    except ValueError as error:  # pydantic's own is one
        raise Unfit(misfits(error, "the answer") if hasattr(error, "errors") else "it does not fit") from None
