"""Covering arrays: few combinations of some parameters in which every pair of values still meets.

A fault that takes two values together is met as surely as by the full grid; a grid of three by three by two shrinks
from 18 to 9. Where three values together matter, use the grid.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest

__all__ = ["pairs_of", "pairwise"]

_Row = tuple[Any, ...]
_Pair = tuple[int, int, int, int]


def _met(row: Sequence[int]) -> set[_Pair]:
    return {(a, row[a], b, row[b]) for a, b in combinations(range(len(row)), 2)}


def pairs_of(*values: Sequence[Any]) -> list[_Row]:
    """Return rows, one value of each parameter, that hold every pair of values; the same rows every time."""
    grid = list(product(*(range(len(one)) for one in values)))
    open_pairs = set[_Pair]().union(*(_met(row) for row in grid))
    rows: list[tuple[int, ...]] = []
    while open_pairs:
        best = max(grid, key=lambda row: len(_met(row) & open_pairs))  # the first of the best
        rows.append(best)
        open_pairs -= _met(best)
    return [tuple(one[place] for one, place in zip(values, row, strict=True)) for row in sorted(rows)]


def pairwise(parameters: Mapping[str, Sequence[Any]]) -> pytest.MarkDecorator:
    """Parametrize a test with a covering array of named parameters."""
    return pytest.mark.parametrize(tuple(parameters), pairs_of(*parameters.values()))
