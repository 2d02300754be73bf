"""How a lying server writes a whole reply: the wire's own body, bent in the ways servers bend it.

A table of bends and their effects, as `adversary_wire` has for streams.
"""

import copy
import random
from collections.abc import Callable
from typing import Any

from mustcall.core.origin import JsonObject
from mustcall.testing.adversary.wire import Effect, absurd_usage, read_loosely, spoil_somewhere
from mustcall.testing.offers import as_object, as_objects

__all__ = ["BODY_BENDS"]

BodyBend = Callable[[JsonObject, random.Random], Any]


def _spoil_body(body: JsonObject, source: random.Random) -> Any:
    spoilt = copy.deepcopy(body)  # parts of it are the renderer's own constants
    spoil_somewhere(spoilt, source)
    return spoilt


def _body_usage(body: JsonObject, source: random.Random) -> Any:
    return body | {"usage": absurd_usage(source)}


def _bare_body(body: JsonObject, _: random.Random) -> Any:
    """No id, no model, no usage, no object: what small servers leave out."""
    return {key: value for key, value in body.items() if key not in ("id", "model", "usage", "object", "created")}


def _object_arguments(body: JsonObject, _: random.Random) -> Any:
    """Arguments as an object where the wire has a string."""
    for choice in as_objects(body.get("choices")):
        for call in as_objects(as_object(choice.get("message")).get("tool_calls")):
            function = as_object(call.get("function"))
            function["arguments"] = read_loosely(str(function.get("arguments")))
    for item in as_objects(body.get("output")):
        if "arguments" in item:
            item["arguments"] = read_loosely(str(item["arguments"]))
    return body


def _no_ids(body: JsonObject, source: random.Random) -> Any:
    """Calls without ids, or all with the same."""
    same = source.choice([None, "", "call_1"])
    for choice in as_objects(body.get("choices")):
        for call in as_objects(as_object(choice.get("message")).get("tool_calls")):
            call["id"] = same
    for item in as_objects(body.get("output")) + as_objects(body.get("content")):
        for word in ("call_id", "id"):
            if word in item:
                item[word] = same
    return body


BODY_BENDS: tuple[tuple[BodyBend, Effect], ...] = (
    (_spoil_body, Effect.BENDS),
    (_spoil_body, Effect.BENDS),
    (_body_usage, Effect.BENDS),
    (_bare_body, Effect.KEEPS),
    (_object_arguments, Effect.KEEPS),
    (_no_ids, Effect.KEEPS),
)
