"""Grades the rows of a run and adds them up, by set and column. Every number of `mustcall eval` comes from here. Pure.

A column is an arm, or the plain reading: the bare replies once more, with a call that stands in the text read as one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from statistics import median

import msgspec

from mustcall.evals.asking.journal import RunFacts
from mustcall.evals.asking.rows import Arm, EvalRow, MadeCall
from mustcall.evals.plain import read_plainly
from mustcall.evals.report.statistics import Share, mcnemar, quantile, share_of
from mustcall.evals.suites import Grade, Suite

__all__ = ["ALL", "Column", "ColumnFigures", "Comparison", "EvalSummary", "Graded", "SetFigures", "summarise"]

#: The name of all sets together.
ALL = "all"


class Column(StrEnum):
    """What stands beside each other in a report."""

    BARE = "bare"
    PLAIN = "plain"
    MUSTCALL = "mustcall"


class Graded(msgspec.Struct, frozen=True):
    """One reply in one column, with its grade."""

    column: Column
    row: EvalRow
    grade: Grade


class ColumnFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One column of one set.

    `sends_per_turn` is None where upstream calls are not told, `sends_later` leaves out the first turn of each process.
    Times are of the questions that this arm asked first: a server that has read a prompt for the other arm is faster.
    Times and tokens of the plain reading are those of the bare replies it reads.
    """

    right: Share
    valid: Share
    called: Share
    calls: int
    errors: Mapping[str, int]
    verdicts: Mapping[str, int]
    rungs: Mapping[str, int]
    input_tokens: int
    output_tokens: int
    median_seconds: float
    p90_seconds: float
    sends_per_turn: float | None
    sends_later: float | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Right answers that only one of two columns gave, and the exact p of McNemar's test."""

    only_first: int
    only_second: int
    p: float


class SetFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One set: its columns, and mustcall against the two others by the questions that both answered."""

    name: str
    columns: Mapping[Column, ColumnFigures]
    against_bare: Comparison
    against_plain: Comparison


class EvalSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A run, graded and added up; the last set is all of them together if there are several."""

    facts: RunFacts
    graded: tuple[Graded, ...]
    sets: tuple[SetFigures, ...]

    @property
    def asked(self) -> int:
        """Questions that are answered in both arms."""
        seen = Counter(each.row.id for each in self.graded if each.column is not Column.PLAIN)
        return sum(count == len(Arm) for count in seen.values())

    @property
    def partial(self) -> bool:
        """Whether questions are left."""
        return self.asked < self.facts.planned

    def find(self, name: str) -> SetFigures | None:
        """Return the figures of a set."""
        return next((each for each in self.sets if each.name == name), None)


def summarise(facts: RunFacts, rows: Sequence[EvalRow], suite: Suite) -> EvalSummary:
    """Grade and add up."""
    graded = tuple(each for row in rows for each in _graded(row, suite))
    sets = [_set_figures(name, [each for each in graded if each.row.set == name]) for name in facts.sets]
    if len(sets) > 1:
        sets.append(_set_figures(ALL, graded))
    return EvalSummary(facts=facts, graded=graded, sets=tuple(sets))


def _graded(row: EvalRow, suite: Suite) -> Iterable[Graded]:
    if row.arm is Arm.MUSTCALL:
        yield Graded(Column.MUSTCALL, row, _grade(row, row.calls, suite))
        return
    yield Graded(Column.BARE, row, _grade(row, row.calls, suite))
    yield Graded(Column.PLAIN, row, _grade(row, row.calls or read_plainly(row.text), suite))


def _grade(row: EvalRow, calls: Sequence[MadeCall], suite: Suite) -> Grade:
    """Grade a reply; an error is never right, also where no call would be."""
    if row.fault is not None:
        return Grade(problem=f"{row.fault.code}: {row.fault.message}")
    return suite.grade(row.id, calls)


def _set_figures(name: str, graded: Sequence[Graded]) -> SetFigures:
    by_column = {column: [each for each in graded if each.column is column] for column in Column}
    return SetFigures(
        name=name,
        columns={column: _column_figures(column, members) for column, members in by_column.items()},
        against_bare=_compare(by_column[Column.BARE], by_column[Column.MUSTCALL]),
        against_plain=_compare(by_column[Column.PLAIN], by_column[Column.MUSTCALL]),
    )


def _column_figures(column: Column, graded: Sequence[Graded]) -> ColumnFigures:
    rows, grades, of = [each.row for each in graded], [each.grade for each in graded], len(graded)
    seconds = [row.seconds for row in rows if row.first] or [row.seconds for row in rows]
    return ColumnFigures(
        right=share_of(sum(grade.right for grade in grades), of),
        valid=share_of(sum(grade.valid for grade in grades), of),
        called=share_of(sum(grade.called for grade in grades), of),
        calls=sum(len(row.calls or (read_plainly(row.text) if column is Column.PLAIN else ())) for row in rows),
        errors=_counted(row.fault.code for row in rows if row.fault is not None),
        verdicts=_counted(word for row in rows for word in row.verdicts),
        rungs=_counted(word for row in rows for word in row.rungs),
        input_tokens=sum(row.input_tokens for row in rows),
        output_tokens=sum(row.output_tokens for row in rows),
        median_seconds=median(seconds) if seconds else 0.0,
        p90_seconds=quantile(seconds, 0.9),
        sends_per_turn=_mean([row.sends for row in rows if row.sends]),
        sends_later=_mean([row.sends for row in rows if row.sends and row.turn > 1]),
    )


def _counted(words: Iterable[str]) -> dict[str, int]:
    return dict(Counter(words).most_common())


def _mean(values: Sequence[int]) -> float | None:
    return sum(values) / len(values) if values else None


def _compare(first: Sequence[Graded], second: Sequence[Graded]) -> Comparison:
    """Compare by question; one that only one of them answered says nothing."""
    one, other = ({each.row.id: each.grade.right for each in column} for column in (first, second))
    both = [(one[name], other[name]) for name in one if name in other]
    only_first, only_second = both.count((True, False)), both.count((False, True))
    return Comparison(only_first=only_first, only_second=only_second, p=mcnemar(only_first, only_second))
