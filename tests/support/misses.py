"""Requests that no kept answer was found for: each costs seconds of a model, and the run says so at its end."""

import os
from typing import Any

import pytest

__all__ = ["count", "forget", "hand_over", "take_over", "told"]

_KEY = "asked_anew"
_asked: list[str] = []


def count(file: str) -> None:
    """Note a request that is not in this file of kept answers; the current test is to blame."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "between tests").partition(" ")[0]
    _asked.append(f"{file}: {test}")


def forget() -> None:
    """Forget what was noted: in a forked worker, what the process that reports has noted itself."""
    _asked.clear()


def hand_over(config: pytest.Config) -> None:
    """Give what was noted to the process that reports, if this is a worker of its."""
    output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if output is not None:
        output[_KEY] = _asked


def take_over(node: object) -> None:
    """Take what a worker has noted."""
    output: dict[str, Any] = getattr(node, "workeroutput", {})
    _asked.extend(output.get(_KEY, ()))


def told() -> list[str]:
    """Return the lines about it, none where every answer was found."""
    if not _asked:
        return []
    head = f"{len(_asked)} requests went to a model because their answer is not kept (CONTRIBUTING.md, Tests):"
    return [head, *(f"  {line}" for line in sorted(set(_asked)))]
