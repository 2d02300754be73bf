r"""Which inputs of a Responses request only refer to an item that is kept elsewhere.

`may_refer` is a cheap test of a body's bytes: it is true of every body that refers to something, and of some that do
not. A JSON string may spell any letter as `\uXXXX`, so a body with such an escape is always read. `is_reference` and
`references` decide.
"""

import re
from typing import Any, cast

__all__ = ["is_reference", "may_refer", "references"]

_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
#: `item_reference`, a type of null, and an object of nothing but ids.
_SIGNS = re.compile(
    rb'"item_reference"|"type"\s*:\s*null|\\u|\{\s*"id"\s*:\s*(?:[^"\s]|' + _STRING + rb'\s*(?:\}|,\s*"id"))', re.DOTALL
)


def may_refer(body: bytes) -> bool:
    """Tell whether a body has to be read to know whether it refers to an item."""
    return _SIGNS.search(body) is not None


def is_reference(item: Any) -> bool:
    """Tell whether an input item is a reference; its type may be null or left out, the id then stands alone."""
    if not isinstance(item, dict):
        return False
    held = cast("dict[str, Any]", item)
    if not isinstance(held.get("id"), str):
        return False
    kind = held.get("type")
    return kind == "item_reference" or (kind is None and held.keys() <= {"id", "type"})


def references(given: Any) -> tuple[str, ...]:
    """Return the ids of the items that an input only refers to."""
    if not isinstance(given, list):
        return ()
    return tuple(item["id"] for item in cast("list[Any]", given) if is_reference(item))
