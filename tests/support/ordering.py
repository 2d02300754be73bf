"""Another order of the tests, by a seed.

What passes in one order only leans on what another test left behind.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

__all__ = ["shuffled"]


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
