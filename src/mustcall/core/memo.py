"""What comes again and again is made once and kept, in stores that belong to whoever serves it.

An agent offers the same tools with every request. Codecs give equal tools as one object, and what is made of them
(compiled schemas, tables of names) is found again by its identity, without looking at a single schema.

A module declares a store (`Store`, `Remembered`, `kept`) and holds nothing. What is in it belongs to the `Caches` of a
server or of an agent's upstream, which are freed with it. Each request is served under `owned`; without an owner, as
in a single call of a pure function, nothing is kept and everything is made anew.

Pure in effect: only functions that depend on nothing but their arguments may be kept.
"""

import re
import sys
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar, TypeVarTuple

from mustcall.core.memory import footprint

__all__ = ["Attached", "Bounded", "Caches", "Remembered", "Store", "compile_unkept", "kept", "owned", "owner"]

K = TypeVar("K", bound=Hashable)
P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")
Rest = TypeVarTuple("Rest")

_MOST_BYTES = 4 * 1024 * 1024


class Caches(dict["Store[Any]", Any]):
    """The stores of one owner, by their declarations; each is made when it is first asked for.

    Each is bounded, and those that hold what callers wrote are bounded in bytes. Threads may share one.
    """

    __slots__ = ()

    def __missing__(self, store: "Store[T]") -> T:
        return self.setdefault(store, store.make())


#: The owner whose stores are used; with None nothing is kept. A task inherits it from the one that started it.
owner: ContextVar[Caches | None] = ContextVar("owner of caches", default=None)


class owned:  # noqa: N801  a context manager that is written out because it is used for each request
    """Use these caches inside the block; None keeps nothing."""

    __slots__ = ("_before", "_caches")

    def __init__(self, caches: Caches | None) -> None:
        self._caches = caches

    def __enter__(self) -> None:
        self._before = owner.set(self._caches)

    def __exit__(self, *_: object) -> None:
        # A coroutine that is never finished is closed in another context, where nothing was set.
        with suppress(ValueError):
            owner.reset(self._before)


class Store(Generic[T]):
    """A store, as a module declares it: `make` makes the empty one of an owner."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], T]) -> None:
        self.make = make

    def here(self) -> T | None:
        """Return the store of the current owner; None if there is none."""
        caches = owner.get()
        return None if caches is None else caches[self]


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


class Remembered(Store["Bounded[object, tuple[V, T]]"], Generic[V, *Rest, T]):
    """What `build` makes of an object and the hashable rest: at most `most` values, each kept with its object.

    So the object stays alive, and its identity its own. Bounded by the bytes of those objects as well, and by what
    `weigh` says of what was made; of a larger one everything is made again.
    """

    __slots__ = ("_build", "_weigh")

    def __init__(
        self,
        build: Callable[[V, *Rest], T],
        *,
        most: int = 128,
        most_bytes: int = _MOST_BYTES,
        weigh: Callable[[T], int] | None = None,
    ) -> None:
        super().__init__(lambda: Bounded(most, most_bytes))
        self._build = build
        self._weigh = weigh

    def of(self, key: V, *rest: *Rest) -> T:
        """Return what was made of this very object before, or make it."""
        caches = owner.get()
        if caches is None:
            return self._build(key, *rest)
        values: Bounded[object, tuple[V, T]] = caches[self]
        place = (id(key), *rest) if rest else id(key)
        known = values.get(place)
        if known is not None:
            return known[1]
        value = self._build(key, *rest)
        size = _size_of(key)
        values.keep(place, (key, value), size if self._weigh is None else size + self._weigh(value))
        return value


#: The last objects that something was made of: whoever offers new tools has many things made of them at once.
_sizes: Store[Bounded[int, tuple[object, int]]] = Store(lambda: Bounded(8))


def _size_of(key: object) -> int:
    sizes = _sizes.here()
    known = None if sizes is None else sizes.get(id(key))
    if known is not None:
        return known[1]
    size = footprint(key)
    if sizes is not None:
        sizes.keep(id(key), (key, size))
    return size


def kept(*, most: int, most_bytes: int | None = _MOST_BYTES) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Keep what a function of hashable arguments returns: at most so many values, of so many bytes with the arguments.

    None is for arguments that are short for another reason (they came in the head of a request), or the operator's own.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        store = Store(lambda: _weighed(function, most, most_bytes) if most_bytes else lru_cache(most)(function))

        def asked(*args: P.args, **kwargs: P.kwargs) -> T:
            caches = owner.get()
            return (function if caches is None else caches[store])(*args, **kwargs)

        return update_wrapper(asked, function)

    return decorate


def _weighed(function: Callable[..., T], most: int, most_bytes: int) -> Callable[..., T]:
    """Return a function that keeps what this one returns, bounded by the bytes of arguments and values, too."""
    values: Bounded[tuple[Any, ...], tuple[T]] = Bounded(most, most_bytes)

    def asked(*args: Any, **kwargs: Any) -> T:
        key = (*args, *kwargs.items()) if kwargs else args
        known = values.get(key)
        if known is None:
            known = (function(*args, **kwargs),)
            values.keep(key, known, footprint((key, known)))
        return known[0]

    return asked


def compile_unkept(expression: str) -> re.Pattern[str]:
    """Compile an expression that holds words of a caller: `re.compile` keeps the last 512 for the whole process."""
    return _compile(expression)


#: Without the store of `re`, where this version of Python has it apart.
_compile: Callable[[str], re.Pattern[str]] = getattr(getattr(re, "_compiler", None), "compile", re.compile)


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
