"""How much memory JSON takes once it is read: nothing is kept by the bytes it was written in.

`[]` is two bytes and takes 64; one emoji makes a text of a megabyte take four.
"""

from sys import getsizeof
from typing import Any, cast

__all__ = ["TOO_MANY", "weigh"]

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
            left -= len(fields)
            waiting += fields.values()
        elif isinstance(one, list):
            elements = cast("list[Any]", one)
            left -= len(elements)
            if left >= 0:
                waiting += elements
        else:
            texts += getsizeof(one)
            continue
        structure += getsizeof(cast("object", one))
        if left < 0:
            return None
    return texts, structure
