"""A benchmark that is stopped tells what it has measured."""

from typing import Any

import pytest

from mustcall.bench import cases
from mustcall.bench.cases import Contender, measure
from mustcall.bench.report.results import BenchSample
from mustcall.bench.workloads import WORKLOADS, BenchPlan

_SAMPLE = BenchSample(rate=1.0, cpu_ms=1.0, upstream_cpu_ms=1.0, generator_cpu_ms=1.0, p50=1.0, p99=1.0, reads=1.0)
_WHOLE = next(one for one in WORKLOADS if one.name == "whole")


class _StoppedBench:
    """Takes so many samples, then somebody presses Ctrl-C."""

    left = 0

    def __init__(self, *_: object) -> None: ...

    def check(self, cell: Any) -> None:
        """Every contender answers."""

    def sample(self, cell: Any) -> None:
        """Take a sample, or be stopped."""
        if not self.left:
            raise KeyboardInterrupt
        type(self).left -= 1
        cell.samples.append(_SAMPLE)


def stopped_after(samples: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], bool, list[str]]:
    """Measure two contenders at three concurrencies in five rounds; return the samples of each, and what was told."""
    monkeypatch.setattr(cases, "_Bench", _StoppedBench)
    monkeypatch.setattr(_StoppedBench, "left", samples)
    server: Any = None
    group = [Contender(kind=kind, caller="chat", upstream="chat", server=server) for kind in ("direct", "floor")]
    told: list[str] = []
    measured, whole = measure(server, server, [group], BenchPlan(workloads=(_WHOLE,)), told.append)
    assert len(measured) == 6
    return [len(one.samples) for one in measured], whole, told


@pytest.mark.parametrize(("samples", "rounds"), [(6, 1), (11, 1), (12, 2), (29, 4)])
def test_whole_rounds_are_kept(samples: int, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that was not finished counts for nobody: contenders are compared within rounds."""
    counts, whole, told = stopped_after(samples, monkeypatch)
    assert counts == [rounds] * 6
    assert not whole
    assert told[-1] == f"stopped: these are the figures of {rounds} of 5 rounds, and no other section"


def test_all_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run to its end is whole."""
    counts, whole, told = stopped_after(30, monkeypatch)
    assert (counts, whole) == ([5] * 6, True)
    assert told[-1].startswith("round 5 of 5 done")


def test_nothing_measured_is_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the end of the first round there is nothing to tell."""
    with pytest.raises(KeyboardInterrupt):
        stopped_after(5, monkeypatch)
