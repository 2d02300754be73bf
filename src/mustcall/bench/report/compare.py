"""Two runs side by side: what got dearer, what got cheaper, as ratios. Pure."""

import math

import msgspec

from mustcall.bench.report.figures import FigureRow, rows_of
from mustcall.bench.report.results import BenchResults

__all__ = ["NOISE", "FigureChange", "compare"]

#: Ratios nearer to 1 than this are what two runs of the same code differ by on a busy machine.
NOISE = 0.10


class FigureChange(msgspec.Struct, frozen=True, kw_only=True):
    """One figure in both runs. `ratio` is new to old: above 1 is dearer. `times_floor` is the same of CPU over floor's.

    What the machine was doing weighs on floor and gateway alike, so that `times_floor` is the figure to trust.
    """

    workload: str
    concurrency: int
    contender: str
    old_cpu_ms: float
    new_cpu_ms: float
    ratio: float
    times_floor: float | None

    @property
    def judged(self) -> float:
        """The ratio that counts: against the floor where both runs have one."""
        return self.ratio if self.times_floor is None else self.times_floor

    @property
    def word(self) -> str:
        """What became of it."""
        if self.judged > 1 + NOISE:
            return "dearer"
        return "cheaper" if self.judged < 1 - NOISE else "same"


def compare(old: BenchResults, new: BenchResults) -> list[FigureChange]:
    """Return the gateway's and the peers' figures that both runs have, dearest first."""
    earlier = {row.measured.place: row for row in rows_of(old)}
    changes = [
        _change(earlier[row.measured.place], row)
        for row in rows_of(new)
        if row.measured.place in earlier and row.measured.kind not in ("direct", "floor")
    ]
    known = [change for change in changes if not math.isnan(change.judged)]
    return sorted(known, key=lambda change: -change.judged)


def _change(old: FigureRow, new: FigureRow) -> FigureChange:
    both = old.times_floor is not None and new.times_floor is not None
    return FigureChange(
        workload=new.measured.workload,
        concurrency=new.measured.concurrency,
        contender=new.measured.contender,
        old_cpu_ms=old.cpu_ms,
        new_cpu_ms=new.cpu_ms,
        ratio=_divide(new.cpu_ms, old.cpu_ms),
        times_floor=_divide(new.times_floor or 0.0, old.times_floor or 0.0) if both else None,
    )


def _divide(new: float, old: float) -> float:
    return new / old if old else math.nan
