"""Large grids of parameters, thinned: fewer combinations, in which every pair of values still meets.

Most grids cross the caller's wire, the upstream's wire, streaming and a case. A fault that takes two of these together
is met by the covering array as surely as by the whole grid, which `MUSTCALL_TEST_PROFILE=deep` runs (`make soak`).
Only whole products of three and more parameters are thinned. A table of cases is one parameter: none of its rows is
left out. What is asked for by its id or by `-k` runs as asked.
"""

from collections.abc import Hashable, Iterator, Sequence
from enum import Enum
from functools import cache
from itertools import combinations
from math import prod
from typing import Any, cast
from zlib import crc32

import pytest

__all__ = ["cover", "thinned"]

_Row = tuple[int, ...]
_LEAST = 3


@cache
def cover(rows: tuple[_Row, ...], first: int = 0) -> frozenset[int]:
    """Return the places of rows that hold every pair of values of all rows, beginning with the row at `first`.

    Of four and more parameters the rows also hold every combination of the three with the fewest values: these are the
    wires and streaming, and the case is another.
    """
    sizes = [len(set(column)) for column in zip(*rows, strict=True)]
    few = sorted(sorted(range(len(sizes)), key=sizes.__getitem__)[:_LEAST]) if len(sizes) > _LEAST else []
    pairs: list[set[Any]] = [{*combinations(enumerate(row), 2), tuple(row[at] for at in few)} for row in rows]
    order = [*range(first, len(rows)), *range(first)]
    missing = set[Any]().union(*pairs)
    kept: set[int] = set()
    while missing:
        best = max(order, key=lambda place: len(pairs[place] & missing))  # the first of the best
        kept.add(best)
        missing -= pairs[best]
    return frozenset(kept)


def thinned(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Return the tests that may be left out."""
    functions: dict[tuple[Any, str], list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            functions.setdefault((item.parent, item.originalname), []).append(item)
    left: set[pytest.Item] = set()
    for grid in functions.values():
        rows = _rows(grid)
        if rows is not None:
            # Each test begins with another row: what one leaves out of the same grid, others run.
            kept = cover(rows, crc32(grid[0].originalname.encode()) % len(rows))
            left.update(item for place, item in enumerate(grid) if place not in kept)
    return left


def _rows(grid: Sequence[pytest.Function]) -> tuple[_Row, ...] | None:
    """Return the values of each test as numbers, None unless they are a whole product of three or more parameters."""
    marks = [_names(mark) for mark in grid[0].iter_markers("parametrize")]
    specs: list[Any] = [item.callspec for item in grid]
    named = {name for names in marks for name in names}
    if any(set(spec.indices) != named for spec in specs):  # fixtures with parameters of their own
        return None
    parts = [[[spec.params[name] for name in names] for spec in specs] for names in marks]
    places = [_numbered([tuple(map(_key, row)) for row in rows]) for rows in parts]
    if len(grid) != prod(len(set(one)) for one in places) or len(set(zip(*places, strict=True))) != len(grid):
        return None
    columns: list[list[int]] = []
    for rows, numbers in zip(parts, places, strict=True):
        values = dict(zip(numbers, rows, strict=True))
        factors = _factors(values) or {at: (at,) for at in values}
        columns += map(list, zip(*(factors[at] for at in numbers), strict=True))
    return tuple(zip(*columns, strict=True)) if len(columns) >= _LEAST else None


def _key(value: Hashable) -> Hashable:
    """Return what makes a value the same in two rows: itself, or which object it is."""
    return (type(value).__name__, value) if _simple(value) else id(value)


def _numbered(rows: Sequence[Hashable]) -> list[int]:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(row, len(numbers)) for row in rows]


def _names(mark: pytest.Mark) -> list[str]:
    names = mark.args[0] if mark.args else mark.kwargs["argnames"]
    return [name.strip() for name in names.split(",") if name.strip()] if isinstance(names, str) else list(names)


def _factors(values: dict[int, list[Any]]) -> dict[int, _Row] | None:
    """Return the parameters that a list of tuples is a whole product of, as numbers; None if it is a table."""
    flat = {at: list(_parts(row)) for at, row in values.items()}
    if len({len(row) for row in flat.values()}) != 1 or not all(_simple(part) for row in flat.values() for part in row):
        return None
    levels = [list(dict.fromkeys(column)) for column in zip(*flat.values(), strict=True)]
    rows = {at: tuple(levels[number].index(part) for number, part in enumerate(row)) for at, row in flat.items()}
    whole = prod(len(level) for level in levels) == len(rows) == len(set(rows.values()))
    return rows if whole else None


def _parts(row: Sequence[Any]) -> Iterator[Hashable]:
    for value in row:
        if type(value) is tuple:
            yield from _parts(cast("tuple[Any, ...]", value))  # of whatever a test says
        else:
            yield value


def _simple(value: object) -> bool:
    return value is None or isinstance(value, str | int | Enum)
