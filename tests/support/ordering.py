"""Other orders: of the tests, by a seed, and of the folders that a worker collects.

What passes in one order only leans on what another test left behind.
"""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pytest

__all__ = ["collected_from", "shuffled"]


def shuffled(items: Sequence[pytest.Item], seed: str) -> list[pytest.Item]:
    """Return the tests with their modules in another order, and the tests of each module: the same for the same seed.

    The tests of a module stay together, so that what a module sets up is set up once.
    """
    order = random.Random(seed)
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    groups = list(modules.values())
    order.shuffle(groups)
    for group in groups:
        order.shuffle(group)
    return [item for group in groups for item in group]


def collected_from(folder: Path, worker: int, workers: int) -> list[Path]:
    """Return what the folder holds, beginning at another place for each worker.

    Every worker imports every test. In a fresh checkout nothing is compiled yet, and workers that all begin with the
    same module compile each module as often as there are workers. These begin a share of the source text apart, and
    find compiled what another one has imported before them.
    """
    sizes = Counter[Path]()
    for test in folder.rglob("test_*.py"):
        sizes[folder / test.relative_to(folder).parts[0]] += test.stat().st_size
    entries = sorted(sizes)
    before = accumulate((sizes[entry] for entry in entries), initial=0)
    start = sum(size < sizes.total() * worker // workers for size, _ in zip(before, entries, strict=False))
    return entries[start:] + entries[:start]
