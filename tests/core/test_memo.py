import sys
import types
from collections.abc import Generator
from contextvars import copy_context
from threading import Thread
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core import memory
from mustcall.core.memo import Bounded, Caches, Remembered, Store, kept, owned, owner
from mustcall.core.memory import footprint
from mustcall.core.tools import Tool
from mustcall.engine.off_loop import heavily


def test_the_same_object_is_looked_at_once() -> None:
    """Identity is what counts: an equal object is another one."""
    made: list[object] = []

    def make(of: object, _more: str) -> int:
        made.append(of)
        return len(made)

    memo = Remembered(make)
    one, other = (1, [2]), (1, [2])
    assert [memo.of(one, "") for _ in range(3)] == [1, 1, 1]
    assert memo.of(other, "") == 2
    assert memo.of(one, "more") == 3
    assert [memo.of(one, ""), memo.of(other, "")] == [1, 2]
    assert made == [one, other, one]


def test_the_oldest_is_forgotten() -> None:
    """No more than `most` values are kept, and a forgotten one is made again."""
    memo = Remembered(list[int], most=2)
    keys = [(number,) for number in range(3)]
    first, _, last = [memo.of(key) for key in keys]
    assert memo.of(keys[2]) is last
    assert memo.of(keys[0]) is not first


def test_large_objects_are_few() -> None:
    """What values are made of is bounded by its bytes: many small objects are kept, few large ones, none too large."""
    made: list[object] = []
    memo = Remembered(made.append, most=100, most_bytes=100_000)

    def ask(*keys: object) -> int:
        """Ask for what is made of each; return how often it was made."""
        made.clear()
        for key in keys:
            memo.of(key)
        return len(made)

    small = [("x" * 100, number) for number in range(50)]
    assert ask(*small) == 50
    assert ask(*small) == 0
    large = [("x" * 30_000, number) for number in range(10)]
    assert ask(*large) == 10
    assert ask(*large[-3:]) == 0
    assert ask(large[0], *small) == 51, "the large ones have pushed out all others"
    huge = ("x" * 200_000,)
    assert ask(huge, huge) == 2


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
leaves = st.one_of(texts, st.integers(-(2**63), 2**63), st.floats(allow_nan=False), st.booleans(), st.none())
schemas = st.dictionaries(
    texts,
    st.recursive(leaves, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(texts, inner, max_size=6)),
    max_size=6,
)


def walked(value: Any) -> int:
    """What a value takes, one by one."""
    inner: list[Any] = []
    if issubclass(value.__class__, dict):
        inner = [*value, *value.values()]
    elif issubclass(value.__class__, (tuple, list, frozenset)):
        inner = [*value]
    elif issubclass(value.__class__, msgspec.Struct):
        inner = [*msgspec.structs.astuple(value)]
    return sys.getsizeof(value) + sum(map(walked, inner))


@given(st.lists(st.builds(Tool, name=texts, description=texts, parameters=schemas), max_size=4).map(tuple))
def test_all_that_a_value_holds_is_counted(tools: tuple[Tool, ...]) -> None:
    """Keys, values, members and fields, at any depth."""
    assert footprint(tools) == walked(tools)


def test_a_value_of_very_many_values_is_not_walked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is too large to be remembered; finding that out takes few milliseconds, and no depth is too much for it."""
    asked: list[object] = []

    def counted(value: object) -> int:
        asked.append(value)
        return sys.getsizeof(value)

    monkeypatch.setattr(memory, "getsizeof", counted)
    assert footprint((Tool(name="t", parameters={"enum": list(range(1_000_000))}),)) == sys.maxsize
    assert len(asked) < 65_536
    deep: list[object] = []
    for _ in range(20_000):
        deep = [deep]
    assert 20_000 * 56 < footprint(deep) < 20_000 * 100


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


def _listed(text: str) -> list[str]:
    return [text]


def test_without_an_owner_nothing_is_kept() -> None:
    """A single call of a pure function leaves nothing behind: everything is made anew."""
    memo, function, store = Remembered(list[int]), kept(most=8)(_listed), Store(list[int])
    key = (1,)
    with owned(None):
        assert memo.of(key) is not memo.of(key)
        assert function("a") is not function("a")
        assert store.here() is None


def test_each_owner_has_its_own() -> None:
    """What one keeps is not there for another, and goes when its owner goes."""
    memo, function, store = Remembered(list[int]), kept(most=8)(_listed), Store(list[int])
    key, mine, theirs = (1,), Caches(), Caches()
    with owned(mine):
        first, second, third = memo.of(key), function("a"), store.here()
        with owned(theirs):
            assert memo.of(key) is not first
            assert function("a") is not second
            assert store.here() is not third
        assert memo.of(key) is first
        assert function("a") is second
        assert store.here() is third


def test_what_is_kept_of_a_function_is_bounded() -> None:
    """By the number of values and by the bytes of their arguments; arguments by name are told apart from others."""
    made: list[tuple[str, bool]] = []

    @kept(most=4, most_bytes=2_000)
    def ask(text: str, *, loud: bool = False) -> None:
        made.append((text, loud))

    with owned(Caches()):
        for _ in range(2):
            ask("a")
            ask("a", loud=True)
        assert made == [("a", False), ("a", True)]
        for number in range(4):
            ask(str(number))
        ask("a")
        assert made[-1] == ("a", False), "the fifth of four was forgotten"
        made.clear()
        for _ in range(2):
            ask("x" * 2_000)
        assert made == [("x" * 2_000, False)] * 2


def test_a_failure_is_not_kept() -> None:
    """Whoever asks again is told again."""
    made: list[str] = []

    @kept(most=4)
    def ask(text: str) -> None:
        made.append(text)
        raise ValueError(text)

    with owned(Caches()):
        for _ in range(2):
            with pytest.raises(ValueError, match="a"):
                ask("a")
    assert made == ["a", "a"]


async def test_a_step_in_a_thread_keeps_for_the_same_owner() -> None:
    """Threads inherit no owner; what runs aside keeps its values for the owner of the request."""
    memo, key = Remembered(list[int]), (1,)
    with owned(Caches()):
        assert await heavily(memo.of, key) is memo.of(key)
    with owned(None):
        assert await heavily(memo.of, key) is not await heavily(memo.of, key)


def test_what_was_made_may_weigh_more_than_its_object() -> None:
    """A compiled form is counted as well, where whoever made it knows its size."""
    memo = Remembered(list[int], most_bytes=10_000, weigh=lambda made: 1_000 * len(made))
    keys = [(1, 2, 3), (4, 5, 6), (7, 8, 9), tuple(range(20))]
    with owned(Caches()):
        first, _, third = [memo.of(key) for key in keys[:3]]
        assert memo.of(keys[2]) is third
        assert memo.of(keys[0]) is first
        memo.of((10, 11, 12))
        assert memo.of(keys[0]) is not first, "three of three thousand bytes are all there may be"
        assert memo.of(keys[3]) is not memo.of(keys[3]), "one that is larger than all is not kept"


def test_a_coroutine_that_nobody_finishes_ends_without_a_word() -> None:
    """It is closed in another context than the one it began in."""

    @types.coroutine
    def wait() -> Generator[None]:
        yield

    async def work() -> None:
        with owned(Caches()):
            await wait()

    begun, before = work(), owner.get()
    copy_context().run(begun.send, None)
    begun.close()
    assert owner.get() is before
