"""What was made of an object that comes again and again, remembered while it does.

An agent offers the same tools with every request. Codecs give equal tools as one object, and what is made of them
(compiled schemas, tables of names) is found again by its identity, without looking at a single schema.

Pure in effect: only functions that depend on nothing but the object and the hashable rest may be remembered.
"""

import sys
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar, TypeVarTuple

from mustcall.core.memory import footprint

__all__ = ["Attached", "Bounded", "Remembered"]

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
V = TypeVar("V")
Rest = TypeVarTuple("Rest")


class Bounded(Generic[K, T]):
    """At most so many values of at most so many bytes, the oldest forgotten first.

    `forgotten` is called with the key and the value of what is no longer there. Threads may share one: no value is
    wrong then, and the bounds are kept to within what the threads are just adding.
    """

    __slots__ = ("_forgotten", "_most", "_most_bytes", "_sizes", "_values", "get", "size")

    def __init__(
        self, most: int, most_bytes: int = sys.maxsize, forgotten: Callable[[K, T], None] | None = None
    ) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._forgotten = forgotten
        self._values: dict[K, T] = {}
        self._sizes: dict[K, int] = {}
        #: The bytes that are remembered.
        self.size = 0
        #: What is known under a key, None if nothing is: the dict's own method, because it is called all the time.
        self.get: Callable[[K], T | None] = self._values.get

    def keep(self, key: K, value: T, size: int = 0) -> None:
        """Remember a value of so many bytes; one larger than all there may be is not remembered."""
        self._drop(key)
        if size > self._most_bytes:
            return
        while len(self._values) >= self._most or self.size + size > self._most_bytes:
            try:
                oldest = next(iter(self._values), None)
            except RuntimeError:  # another thread has just changed it
                continue
            if oldest is None:
                self.size = 0
                break
            self._drop(oldest)
        self._values[key] = value
        self._sizes[key] = size
        self.size += size

    def _drop(self, key: K) -> None:
        value = self._values.pop(key, None)
        self.size -= self._sizes.pop(key, 0)
        if value is not None and self._forgotten is not None:
            self._forgotten(key, value)


class Remembered(Generic[V, *Rest, T]):
    """What `make` makes of an object and the hashable rest: at most `most` values, each kept with its object.

    So the object stays alive, and its identity its own. Bounded by the bytes of those objects as well; of a larger one
    everything is made again.
    """

    __slots__ = ("_make", "_values")

    def __init__(self, make: Callable[[V, *Rest], T], *, most: int = 128, most_bytes: int = 4 * 1024 * 1024) -> None:
        self._make = make
        self._values: Bounded[object, tuple[V, T]] = Bounded(most, most_bytes)

    def of(self, key: V, *rest: *Rest) -> T:
        """Return what was made of this very object before, or make it."""
        place = (id(key), *rest) if rest else id(key)
        known = self._values.get(place)
        if known is not None:
            return known[1]
        value = self._make(key, *rest)
        self._values.keep(place, (key, value), _size_of(key))
        return value


#: The last objects that something was made of: whoever offers new tools has many things made of them at once.
_sizes: Bounded[int, tuple[object, int]] = Bounded(8)


def _size_of(key: object) -> int:
    known = _sizes.get(id(key))
    if known is not None:
        return known[1]
    size = footprint(key)
    _sizes.keep(id(key), (key, size))
    return size


class Attached(Generic[V, T]):
    """What was made of a frozen value, kept in the value itself: found without a lookup, gone when the value goes.

    The values must take attributes (`msgspec.Struct` with `dict=True`); what is made of one must not be None.
    """

    __slots__ = ("_make", "_name")

    def __init__(self, name: str, make: Callable[[V], T]) -> None:
        self._name = name
        self._make = make

    def of(self, value: V) -> T:
        """Return what was made of this value before, or make it."""
        held = value.__dict__
        known: T | None = held.get(self._name)
        if known is None:
            known = held[self._name] = self._make(value)
        return known

    def each(self, values: Iterable[V]) -> list[T]:
        """Return what was made of each of these values."""
        name, of = self._name, self.of
        return [value.__dict__.get(name) or of(value) for value in values]
