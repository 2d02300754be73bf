"""What was made of an object that comes again and again, remembered while it does.

An agent offers the same tools with every request. A server gives equal tools as one object (`wire.caching`), and what
is made of them (compiled schemas, tables of names) is kept in them, found without looking at a single schema.

Pure in effect: only functions that depend on nothing but the object and the hashable rest may be remembered.
"""

import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar, TypeVarTuple

__all__ = ["Attached", "Bounded", "Listed", "Mapped", "Remembered", "compiled"]

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
V = TypeVar("V")
Rest = TypeVarTuple("Rest")


class Bounded(Generic[K, T]):
    """At most so many values of at most so many bytes, the oldest forgotten first.

    `forgotten` is called with the key and the value of what is no longer there. Threads may share one: no value is
    wrong then, and the bounds are kept to within what the threads are just adding.
    """

    __slots__ = ("_forgotten", "_most", "_most_bytes", "_move", "_sizes", "_values", "get", "size")

    def __init__(
        self, most: int, most_bytes: int = sys.maxsize, forgotten: Callable[[K, T], None] | None = None
    ) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._forgotten = forgotten
        self._values: OrderedDict[K, T] = OrderedDict()
        self._move = self._values.move_to_end
        self._sizes: dict[K, int] = {}
        #: The bytes that are remembered.
        self.size = 0
        #: What is known under a key, None if nothing is: the dict's own method, because it is called all the time.
        self.get: Callable[[K], T | None] = self._values.get

    def use(self, key: K) -> T | None:
        """Return what is known under a key, which is now the last to be forgotten."""
        value = self.get(key)
        if value is not None:
            try:  # noqa: SIM105  costs nothing, and this is called for each request
                self._move(key)
            except KeyError:  # another thread has just forgotten it
                pass
        return value

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
    """What `make` makes of an object and the hashable rest, kept in the object itself: gone when the object goes.

    So there is no store, and nobody else's object finds it. The object must take attributes (a `Struct` with
    `dict=True`, `core.tools.ToolList`, `Listed`, `Mapped`); of any other everything is made each time. What was made
    must not refer to the object, which would only go with the garbage then.
    """

    __slots__ = ("_make",)

    #: What is made of one object; with more, all of it is forgotten.
    _MOST = 128

    def __init__(self, make: Callable[[V, *Rest], T]) -> None:
        self._make = make

    def of(self, key: V, *rest: *Rest) -> T:
        """Return what was made of this very object before, or make it."""
        try:
            held: Any = key.__dict__
        except AttributeError:
            return self._make(key, *rest)
        place = (self, *rest) if rest else self
        known: T | None = held.get(place)
        if known is None:
            known = self._make(key, *rest)
            if len(held) >= self._MOST:
                held.clear()
            held[place] = known
        return known


class Listed(list[T]):
    """A list that nobody changes, so that what was made of it can be kept in it (`Remembered`). A copy has none."""

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


def compiled(expression: str) -> re.Pattern[str]:
    """Compile an expression that holds words of a caller; `re.compile` keeps the last 512 for the whole process."""
    return _compile(expression)


#: Without the store of `re`, where this version of Python has it apart.
_compile: Callable[[str], re.Pattern[str]] = getattr(getattr(re, "_compiler", None), "compile", re.compile)


class Mapped(dict[str, Any]):
    """A JSON object that nobody changes, a schema for example, so that what was made of it can be kept in it.

    A copy has none of that.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


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
