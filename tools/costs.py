"""Measure what the tests cost: a plugin of pytest writes the CPU seconds of each test, a program adds them up.

`COSTS=costs.jsonl PYTHONPATH=tools pytest -p costs --workers auto` writes one JSON object a line: `phase` (`collect`,
`setup`, `call`, `teardown`, `around`: pytest's own work on a test, or `rest`: the start and the end of a process),
`test`, `own` (seconds of the process and all its threads) and `children` (seconds of the processes that it started and
waited for).
`python tools/costs.py costs.jsonl --by file` adds them up. CPU seconds are counted because other programs on the
machine change how long a test takes, but hardly how much it computes.
"""

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

#: What a line of the summary stands for, from the id of a test.
_KEYS = ("folder", "file", "function", "test")
#: So many lines are written at once.
_KEPT = 200


def _spent() -> tuple[float, float]:
    times = os.times()
    forked = sum(getattr(sys.modules.get("support.warm"), "SPENT", ()))  # by another process, for the tests of this one
    return time.process_time(), times.children_user + times.children_system + forked


@dataclass
class _Meter:
    """Counts what is spent between two points of a process and writes it to the file."""

    path: Path
    told: tuple[float, float] = (0.0, 0.0)
    """What the lines written so far add up to."""
    lines: list[str] = field(default_factory=list[str])

    def note(self, phase: str, test: str, own: float, children: float) -> None:
        self.told = (self.told[0] + own, self.told[1] + children)
        line = {"phase": phase, "test": test, "own": round(own, 6), "children": round(children, 3)}
        self.lines.append(json.dumps(line))
        if len(self.lines) >= _KEPT:
            self.write()

    def write(self) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in self.lines))
        self.lines.clear()


_METER = _Meter(Path(os.environ.get("COSTS", "costs.jsonl")))


def _begin_anew() -> None:
    """Count from nothing in a worker that is forked from a process with counts of its own, which that one writes."""
    _METER.told = (0.0, 0.0)
    _METER.lines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def _measured(phase: str, test: str) -> Generator[None, Any, Any]:
    """Note what one step of a test cost, less what was noted inside of it."""
    before, inside = _spent(), _METER.told
    try:
        return (yield)
    finally:
        after, told = _spent(), _METER.told
        own, children = ((after[at] - before[at]) - (told[at] - inside[at]) for at in (0, 1))
        _METER.note(phase, test, own, children)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Measure collecting."""
    return (yield from _measured("collect", ""))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure what pytest does around the three steps of a test."""
    return (yield from _measured("around", item.nodeid))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Measure the first step, with the fixtures made for it."""
    return (yield from _measured("setup", item.nodeid))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Measure the test itself."""
    return (yield from _measured("call", item.nodeid))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Measure the last step, with the fixtures that end with it."""
    return (yield from _measured("teardown", item.nodeid))


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Write what was measured, and what this process spent besides; workers count themselves."""
    own, children = _spent()
    forks = config.pluginmanager.hasplugin("forking") and not hasattr(config, "workerinput")
    if forks or config.getoption("numprocesses", None):
        children = _METER.told[1]
    _METER.note("rest", "", own - _METER.told[0], children - _METER.told[1])
    _METER.write()


def key_of(test: str, by: str) -> str:
    """Return the line of the summary that a test belongs to."""
    file, _, rest = test.partition("::")
    match by:
        case "folder":
            parts = file.split("/")
            return "/".join(parts[:2]) if len(parts) > 2 else file
        case "file":
            return file
        case "function":
            return f"{file}::{rest.partition('[')[0]}"
        case _:
            return test


def summary(lines: list[dict[str, Any]], by: str) -> list[tuple[str, int, dict[str, float]]]:
    """Return for each key the number of tests and the seconds by phase, the dearest first."""
    spent: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    tests: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        key = key_of(line["test"], by) if line["test"] else f"({line['phase']})"
        spent[key][line["phase"]] += line["own"]
        spent[key]["children"] += line["children"]
        if line["test"]:
            tests[key].add(line["test"])
    found = [(key, len(tests[key]), dict(phases)) for key, phases in spent.items()]
    return sorted(found, key=lambda entry: -sum(entry[2].values()))


def main() -> int:
    """Print the summary of a file of costs."""
    asked = argparse.ArgumentParser(description="Add up the CPU seconds that the plugin wrote.")
    asked.add_argument("file", type=Path)
    asked.add_argument("--by", choices=_KEYS, default="folder")
    asked.add_argument("--top", type=int, default=60)
    given = asked.parse_args()
    lines = [json.loads(line) for line in given.file.read_text(encoding="utf-8").splitlines()]
    found = summary(lines, given.by)
    total = sum(sum(phases.values()) for _, _, phases in found)
    columns = ("setup", "call", "teardown", "around", "children")
    print(f"{'all':>8} {'tests':>6} " + " ".join(f"{name:>8}" for name in columns))
    for key, count, phases in found[: given.top]:
        cells = " ".join(f"{phases.get(name, 0.0):8.1f}" for name in columns)
        print(f"{sum(phases.values()):8.1f} {count:6} {cells}  {key}")
    print(f"{total:8.1f} {sum(count for _, count, _ in found):6}  everything")
    return 0


if __name__ == "__main__":
    sys.exit(main())
