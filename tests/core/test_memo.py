import copy
import gc
import sys
import weakref
from collections.abc import Callable
from threading import Thread

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.memo import Bounded, Listed, Remembered
from mustcall.core.tools import Tool, ToolList


class _Thing(msgspec.Struct, frozen=True, dict=True):
    value: int


class _Made:
    def __init__(self, _of: object) -> None:
        pass


def test_the_same_object_is_looked_at_once() -> None:
    """Identity is what counts: an equal object is another one."""
    made: list[object] = []

    def make(of: object, _more: str) -> int:
        made.append(of)
        return len(made)

    memo = Remembered(make)
    one, other = _Thing(1), _Thing(1)
    assert [memo.of(one, "") for _ in range(3)] == [1, 1, 1]
    assert memo.of(other, "") == 2
    assert memo.of(one, "more") == 3
    assert [memo.of(one, ""), memo.of(other, "")] == [1, 2]
    assert made == [one, other, one]


def test_what_was_made_goes_with_its_object() -> None:
    """Nothing but the object holds it, and it goes at once: without the collector."""
    gc.disable()
    try:
        memo = Remembered(_Made)
        key = ToolList((Tool(name="a"),))
        made = weakref.ref(memo.of(key))
        assert made() is not None
        del key
        assert made() is None
    finally:
        gc.enable()


def test_an_object_that_takes_nothing_has_all_made_anew() -> None:
    """A plain tuple cannot hold what was made of it."""
    memo = Remembered(list[int])
    assert memo.of((1,)) == [1]
    assert memo.of(key := (1,)) is not memo.of(key)


def test_one_object_holds_a_bounded_number_of_values() -> None:
    """Whatever is asked of it: what depends on a history is asked in as many forms as there are histories."""

    def make(_thing: _Thing, number: int) -> list[int]:
        return [number]

    memo = Remembered(make)
    thing = _Thing(1)
    for number in range(10_000):
        assert memo.of(thing, number) == [number]
    assert len(thing.__dict__) <= 128


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("holder", [ToolList((Tool(name="a"),)), Listed((1, 2))])
def test_copies_know_nothing(holder: tuple[object, ...], copied: Callable[[object], object]) -> None:
    """A copy is equal, and may be changed: what was made of the first is no longer true of it then."""
    Remembered(repr).of(holder)
    assert copied(holder) == holder
    assert not hasattr(copied(holder), "__dict__")


@given(
    most=st.integers(1, 4),
    most_bytes=st.integers(0, 30),
    kept=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=20),
)
def test_bounds_are_kept(most: int, most_bytes: int, kept: list[tuple[int, int]]) -> None:
    """Never more values or bytes than there may be; the last one is there if it fits; what went is told once."""
    told: list[tuple[int, int]] = []
    memo: Bounded[int, int] = Bounded(most, most_bytes, lambda key, value: told.append((key, value)))
    there: dict[int, tuple[int, int]] = {}
    for number, (key, size) in enumerate(kept, 1):
        memo.keep(key, number, size)
        there[key] = (number, size)
        there = {name: entry for name, entry in there.items() if memo.get(name) == entry[0]}
        assert memo.size == sum(taken for _, taken in there.values()) <= most_bytes
        assert len(there) <= most
        assert (memo.get(key) == number) is (size <= most_bytes)
    gone = [number for _, number in told]
    assert len(set(gone)) == len(gone)
    assert not set(gone) & {number for number, _ in there.values()}


def test_threads_may_share_one() -> None:
    """Nothing is raised and nothing is lost for good, whoever adds and drops at the same time."""
    memo: Bounded[int, int] = Bounded(8, 100)
    problems: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for number in range(4000):
                memo.keep(first + number % 40, number, 9)
        except BaseException as problem:  # noqa: BLE001  told to the test
            problems.append(problem)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [Thread(target=work, args=(start,)) for start in (0, 10, 20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert problems == []
    memo.keep(99, 1, 9)
    assert memo.get(99) == 1
