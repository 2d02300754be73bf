"""What a strict rule is, and the checks that both OpenAI wires share."""

import re
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.testing.issued import IssuedMemory
from mustcall.testing.offers import as_object, as_objects
from mustcall.testing.script import Fail

__all__ = ["OPENAI_NAME", "Rule", "SeenRequest", "find_loose_object", "refuse"]

OPENAI_NAME = re.compile(r"[a-zA-Z0-9_-]+")
"""What OpenAI allows in a tool name; the length is a rule of its own."""


class SeenRequest(msgspec.Struct, frozen=True):
    """A request as a rule sees it, and what the upstream has issued before it."""

    body: JsonObject
    headers: Mapping[str, str] = {}
    issued: IssuedMemory = msgspec.field(default_factory=IssuedMemory)


class Rule(Protocol):
    """Return the provider's refusal of a request, or None if the rule is kept."""

    @property
    def __name__(self) -> str: ...

    def __call__(self, ask: SeenRequest, /) -> Fail | None: ...  # noqa: D102


def refuse(message: str, param: str | None = None, code: str | None = None) -> Fail:
    """Return a 400 of either provider."""
    return Fail(400, message, param=param, code=code)


def find_loose_object(schema: Any, path: str = "()") -> str | None:
    """Return why a schema is not strict: an object without `additionalProperties: false` or with optional keys."""
    fields = as_object(schema)
    properties = as_object(fields.get("properties"))
    if fields.get("type") == "object" or properties:
        if fields.get("additionalProperties") is not False:
            return f"In context={path}, 'additionalProperties' is required to be supplied and to be false."
        required: Any = fields.get("required")
        missing = [key for key in properties if not isinstance(required, list) or key not in required]
        if missing:
            return (
                f"In context={path}, 'required' is required to be supplied and to be an array including every key in "
                f"properties. Missing '{missing[0]}'."
            )
    inner = [(f"{path}.properties.{key}", value) for key, value in properties.items()]
    inner += [(f"{path}.$defs.{key}", value) for key, value in as_object(fields.get("$defs")).items()]
    inner += [(f"{path}.items", fields["items"])] if "items" in fields else []
    inner += [(f"{path}.anyOf.{k}", value) for k, value in enumerate(as_objects(fields.get("anyOf")))]
    return next((found for place, value in inner if (found := find_loose_object(value, place))), None)
