"""Two runs side by side: an earlier run, read from what `--json` wrote, and this one, question by question.

Only questions that both runs asked in the same arm are compared, so that another sample does not pass for a change.
"""

from pathlib import Path

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.evals.report.statistics import mcnemar
from mustcall.evals.report.summary import Column, EvalSummary, Graded

__all__ = ["ColumnChange", "compare_runs", "read_summary"]


class ColumnChange(msgspec.Struct, frozen=True, kw_only=True):
    """One column of one set in both runs: questions in common, right before and now, and how they moved."""

    set: str
    column: Column
    common: int
    before: int
    now: int
    gained: int
    lost: int
    p: float


def read_summary(file: Path) -> EvalSummary:
    """Return what an earlier run wrote; raise `ConfigError` if the file is none."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=EvalSummary)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not what `mustcall eval --json` writes: {error}") from None


def compare_runs(old: EvalSummary, new: EvalSummary) -> list[ColumnChange]:
    """Return what became of each set and column that both runs have, in the new one's order."""
    if old.facts.suite != new.facts.suite or old.facts.data != new.facts.data:
        raise ConfigError(
            f"the earlier run asked {old.facts.suite} ({old.facts.data}), this one {new.facts.suite} "
            f"({new.facts.data}); they have no questions in common"
        )
    changes = [_change(old, new, name, column) for name in new.facts.sets for column in Column]
    return [change for change in changes if change.common]


def _change(old: EvalSummary, new: EvalSummary, name: str, column: Column) -> ColumnChange:
    before, now = (_right(run.graded, name, column) for run in (old, new))
    both = [(before[question], now[question]) for question in now if question in before]
    gained, lost = both.count((False, True)), both.count((True, False))
    return ColumnChange(
        set=name,
        column=column,
        common=len(both),
        before=sum(was for was, _ in both),
        now=sum(is_ for _, is_ in both),
        gained=gained,
        lost=lost,
        p=mcnemar(lost, gained),
    )


def _right(graded: tuple[Graded, ...], name: str, column: Column) -> dict[str, bool]:
    return {each.row.id: each.grade.right for each in graded if each.row.set == name and each.column is column}
