"""Whether one argument is among the values a right answer allows, by the benchmark's AST rules. Pure.

Types are compared exactly (a boolean is no integer, a fraction no whole number), except that a whole number stands for
a fraction. Texts are compared without case, blanks and light punctuation, also inside lists and objects, one level
deep. An empty text among the allowed values means that the argument may be left out. Where the answer's values are of
another type than the function declares, the answer's type holds and values are compared as they are.
"""

import re
from collections.abc import Iterable
from typing import Any, cast

from mustcall.core.origin import JsonObject

__all__ = ["may_be_absent", "value_problem"]

#: What the benchmark's types are in Python.
_PYTHON: dict[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
_LISTS = frozenset({"array", "tuple"})
_IGNORED = re.compile(r"[ ,./\-_*^]")


def may_be_absent(allowed: object) -> bool:
    """Tell whether these values allow the argument to be left out."""
    return isinstance(allowed, (list, str, dict)) and "" in cast("list[Any]", allowed)


def value_problem(value: Any, schema: JsonObject, allowed: list[Any]) -> str | None:
    """Return what is wrong with an argument, None if it is right. `schema` is in the benchmark's own types."""
    kind = schema.get("type", "")
    expected = _PYTHON.get(kind)
    inner = _PYTHON.get(schema.get("items", {}).get("type", "")) if kind in _LISTS else None
    if kind == "float" and type(value) is int:
        value = float(value)
    usual = _usual_type(allowed)
    if type(value) is expected:
        if inner is not None and not any(
            _items_fit(cast("list[Any]", value), alternative, inner) for alternative in allowed
        ):
            return f"has items that are not of type {schema['items']['type']}"
        as_declared = usual is None or usual is expected
    elif usual is not None and type(value) is usual:
        as_declared = False
    else:
        return f"is not of type {kind}"
    right = _is_right(value, allowed, inner) if as_declared else value in allowed
    return None if right else "has another value than the right ones"


def _usual_type(allowed: Iterable[Any]) -> type | None:
    """Return the type of the first value, None if there is none but the mark of an argument that may be absent."""
    return next((_type(value) for value in allowed if value != ""), None)


def _type(value: object) -> type:
    return type(value)


def _items_fit(items: list[Any], alternative: Any, inner: type) -> bool:
    """Tell whether a list's items have the declared type or that of an alternative; one that is no list allows any."""
    if not isinstance(alternative, list):
        return True
    types = {inner, _usual_type(cast("list[Any]", alternative))}
    return all(type(item) in types for item in items)


def _is_right(value: Any, allowed: list[Any], inner: type | None) -> bool:
    """Compare a value of its declared type in the way of that type."""
    match value:
        case dict():
            return any(_is_object(cast("JsonObject", value), alternative) for alternative in allowed)
        case list() if inner is dict:
            return any(_are_objects(cast("list[Any]", value), alternative) for alternative in allowed)
        case list():
            items = list(map(_fold, cast("list[Any]", value)))
            return any(_listed(each) == items for each in allowed)
        case str():
            return _fold(value) in [_fold(each) for each in allowed if isinstance(each, str)]
        case _:
            return value in allowed


def _are_objects(values: list[Any], alternative: Any) -> bool:
    """Tell whether a list of objects is this one, object by object."""
    wanted = _listed(alternative)
    return wanted is not None and len(values) == len(wanted) and all(map(_is_object, values, wanted))


def _is_object(value: Any, alternative: Any) -> bool:
    """Tell whether an object has the keys of an alternative, each with one of the values it allows."""
    if not isinstance(value, dict) or not isinstance(alternative, dict):
        return False
    given, wanted = cast("JsonObject", value), cast("JsonObject", alternative)
    for key, each in given.items():
        if _fold(each) not in (_listed(wanted.get(key)) or []):
            return False
    return all(key in given or may_be_absent(choices) for key, choices in wanted.items())


def _listed(value: Any) -> list[Any] | None:
    """Return the items of a list as they are compared; a text is the list of its characters, as in Python."""
    return list(map(_fold, cast("Iterable[Any]", value))) if isinstance(value, (list, str)) else None


def _fold(value: Any) -> Any:
    """Return a text as it is compared; anything else as it is."""
    return _IGNORED.sub("", value).lower().replace("'", '"') if isinstance(value, str) else value
