"""What was made of an object that comes again and again, remembered while it does.

An agent offers the same tools with every request. Codecs give equal tools as one object, and what is made of them
(compiled schemas, tables of names) is found again by its identity, without looking at a single schema.

Pure in effect: only functions that depend on nothing but the object and the hashable rest may be remembered.
"""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["Remembered"]

T = TypeVar("T")


class Remembered(Generic[T]):
    """At most `most` values, each with the object it was made of: kept alive, so that its identity stays its own."""

    __slots__ = ("_most", "_values")

    def __init__(self, most: int = 128) -> None:
        self._most = most
        self._values: dict[tuple[Hashable, ...], tuple[object, T]] = {}

    def get(self, key: object, *rest: Hashable, make: Callable[[], T]) -> T:
        """Return what was made of this very object before, or make it."""
        place = (id(key), *rest)
        known = self._values.get(place)
        if known is not None:
            return known[1]
        value = make()
        values = self._values
        if len(values) >= self._most:
            del values[next(iter(values))]
        values[place] = (key, value)
        return value
