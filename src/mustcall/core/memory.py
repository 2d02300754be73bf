"""How much memory JSON takes once it is read: nothing is kept by the bytes it was written in.

`[]` is two bytes and takes 64; one emoji makes a text of a megabyte take four.
"""

from sys import getsizeof
from typing import Any, cast

__all__ = ["TOO_MANY", "weigh", "weigh_structure"]

#: What a text or a number takes beside its characters.
_LEAF = 56
#: A value of more values than this is not weighed.
TOO_MANY = 16_384


def weigh(value: Any) -> tuple[int, int] | None:
    """Return the bytes of a JSON value's texts and numbers, and those of its objects and arrays.

    None if it holds too many values.
    """
    texts = structure = 0
    left, waiting = TOO_MANY, [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            fields = cast("dict[str, Any]", one)
            texts += sum(map(getsizeof, fields))
            inner = [*fields.values()]
        elif isinstance(one, list):
            inner = cast("list[Any]", one)
        else:
            texts += getsizeof(one)
            continue
        left -= len(inner)
        if left < 0:
            return None
        structure += getsizeof(cast("object", one))
        waiting += inner
    return texts, structure


def weigh_structure(value: dict[str, Any] | list[Any]) -> int | None:
    """Return the bytes of a JSON value without those of its characters; None if it holds too many values."""
    size, left, waiting = 0, TOO_MANY, [value]
    for one in waiting:
        count = len(one)
        left -= count
        if left < 0:
            return None
        size += getsizeof(one) + _LEAF * count
        inner = one.values() if isinstance(one, dict) else one
        waiting += [each for each in inner if isinstance(each, dict | list)]
    return size
