"""What changed between two probes: a paired exact test for each cell, Benjamini-Hochberg over all of them. Pure.

The try of a number sends the same in every run, so tries pair by number. A cell with fewer differing pairs than can
ever be significant is no hypothesis (Tarone): it is told as a change of verdict and not as drift.
"""

from collections.abc import Sequence

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.evals.report.statistics import mcnemar
from mustcall.probe.results import CellResult, ProbeResult
from mustcall.probe.values import CellVerdict, Outcome

__all__ = ["ALPHA", "Drift", "compare", "discoveries"]

#: The expected share of false alarms among the cells that are called drifted.
ALPHA = 0.05


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """One cell in both runs: pairs of tries, how they moved, and whether that is more than chance."""

    id: str
    before: CellVerdict
    now: CellVerdict
    pairs: int
    lost: int
    gained: int
    p: float
    drifted: bool = False
    required: bool = False

    @property
    def changed(self) -> bool:
        """Whether the verdict is another one."""
        return self.before is not self.now

    @property
    def is_worse(self) -> bool:
        """Whether it drifted for the worse."""
        return self.drifted and self.lost > self.gained


def compare(old: ProbeResult, new: ProbeResult) -> list[Drift]:
    """Return what became of each cell that both runs have, in the order of the new one."""
    if old.wire is not new.wire:
        raise ConfigError(f"the earlier probe was on the {old.wire} wire, this one is on {new.wire}; they do not pair")
    before = {cell.id: cell for cell in old.cells}
    pairs = [_pair(before[cell.id], cell) for cell in new.cells if cell.id in before]
    found = discoveries([(drift.p, drift.lost + drift.gained) for drift in pairs])
    return [msgspec.structs.replace(drift, drifted=is_found) for drift, is_found in zip(pairs, found, strict=True)]


def discoveries(tests: Sequence[tuple[float, int]]) -> list[bool]:
    """Tell which tests are discoveries at `ALPHA`; each is a p-value and the number of pairs that differ."""
    family = sorted((p, number) for number, (p, differ) in enumerate(tests) if differ and 2.0 ** (1 - differ) <= ALPHA)
    last = max((rank for rank, (p, _) in enumerate(family, 1) if p <= ALPHA * rank / len(family)), default=0)
    chosen = {number for _, number in family[:last]}
    return [number in chosen for number in range(len(tests))]


def _pair(old: CellResult, new: CellResult) -> Drift:
    both = [
        (was is Outcome.HELD, now is Outcome.HELD)
        for was, now in zip(old.outcomes, new.outcomes, strict=False)
        if Outcome.UNMEASURED not in (was, now)
    ]
    lost, gained = both.count((True, False)), both.count((False, True))
    return Drift(
        id=new.id,
        before=old.verdict,
        now=new.verdict,
        pairs=len(both),
        lost=lost,
        gained=gained,
        p=mcnemar(lost, gained),
        required=new.required,
    )
