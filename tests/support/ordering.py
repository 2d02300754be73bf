"""The order of the tests: long ones first, short ones last, or another one by a seed.

A long test that begins when the others have ended would be waited for. What passes in one order only leans on what
another test left behind.
"""

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

__all__ = ["LONG", "SHORT", "is_long", "rank", "shuffled"]

TESTS = Path(__file__).resolve().parent.parent
#: Files that take half a minute each.
LONG = (
    "test_type_checkers.py",
    "bench/test_running.py",
    "contract/test_contract.py",
    "docs/test_site.py",
    "cli/test_serve.py",
    "engine/durable/test_crash.py",
    "gateway/test_workers.py",
    "gateway/test_ui_browser.py",
    "tools/test_breaks.py",
    "tools/test_forking.py",
)
#: Folders whose tests are short, nearly all of them.
SHORT = frozenset({"core", "dialects", "policy", "profiles", "wire"})


@cache
def rank(path: Path) -> int:
    """Return where the tests of a file belong: files of one rank keep their order."""
    name = path.relative_to(TESTS)
    return LONG.index(name.as_posix()) if is_long(path) else len(LONG) + (name.parts[0] in SHORT)


def is_long(path: Path) -> bool:
    """Return whether a file is one of those that come first."""
    return path.relative_to(TESTS).as_posix() in LONG


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
