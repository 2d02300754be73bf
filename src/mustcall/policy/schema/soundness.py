"""A schema without the parts that are no JSON Schema: what is left can be offered and checked by.

One faulty keyword is no reason to refuse a tool, or to check nothing of its arguments. Each fault is taken out with
the smallest part that holds it. Nothing is compiled here: whoever asks brings what finds the first fault of a schema.

Cost: one search for a fault for each fault, at most `_MOST_FAULTS`.
"""

from collections.abc import Callable
from typing import Any

from mustcall.core.origin import JsonObject
from mustcall.policy.schema.subschemas import MAPS, Path, as_list, as_object, resolve, rewrite

__all__ = ["without_faults"]

_MOST_FAULTS = 32


def without_faults(
    schema: JsonObject, fault_of: Callable[[JsonObject], Path | None], lose: Callable[[Path, str], None]
) -> JsonObject | None:
    """Return the schema without its faults, None if no schema is left; the one that is given is changed in place.

    `fault_of` returns where the first fault is: empty if nobody can say, None if there is none. `lose` is told of each
    part that is taken out.
    """
    local = False
    for _ in range(_MOST_FAULTS):
        fault = fault_of(schema)
        if fault is None:
            return schema
        if len(fault) > 0:
            _remove(schema, fault)
            lose(fault[:-1], f"{fault[-1]} is not JSON Schema, dropped")
        elif local:
            break
        else:
            schema, local = _local(schema, lose), True
    return None


def _remove(schema: JsonObject, path: Path) -> None:
    """Take the faulty part out, or what is around it where the path does not lead through the schema as written."""
    holders: list[Any] = [schema]
    for step in path[:-1]:
        if not _holds(holders[-1], step):
            break
        holders.append(holders[-1][step])
    if not _holds(holders[-1], path[len(holders) - 1]):
        holders.pop()
    place = len(holders) - 1
    if not holders:
        schema.clear()
    elif place and path[place - 1] in MAPS:
        holders[-1][path[place]] = {}  # the field stays known, its declaration does not
    else:
        del holders[-1][path[place]]


def _holds(holder: Any, step: str | int) -> bool:
    if isinstance(step, str):
        return step in (as_object(holder) or {})
    return step < len(as_list(holder))


def _local(schema: JsonObject, lose: Callable[[Path, str], None]) -> JsonObject:
    """Leave out names of the document and references to what is not in it: nothing is ever fetched."""
    schema = {key: value for key, value in schema.items() if key != "$id"}

    def keep_local(node: JsonObject, path: Path) -> JsonObject:
        if "$ref" not in node or resolve(schema, node["$ref"]) is not None:
            return node
        lose(path, "a reference out of the schema dropped")
        return {key: value for key, value in node.items() if key != "$ref"}

    return rewrite(schema, keep_local)
