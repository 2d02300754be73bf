"""The fuzz targets take their seeds and some changed ones: nothing but our errors. tools/fuzz.py goes on from there."""

import random

import pytest
from fuzz import NAMES, mutated
from fuzzing.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_takes_anything(name: str) -> None:
    """Rule 118: seeds and a hundred mutations of them, each time the same ones."""
    take, seeds = TARGETS[name]
    chance = random.Random(name)
    for seed in seeds[:50]:
        take(seed)
    for _ in range(100):
        take(mutated(chance.choice(seeds), chance))


def test_every_target_can_be_named() -> None:
    """The command knows the targets without importing the product."""
    assert set(NAMES) == set(TARGETS)
