"""Shares that a run must reach: `--at-least SET=SHARE`, for CI. Pure."""

import math
from collections.abc import Sequence

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.evals.report.summary import ALL, Column, EvalSummary

__all__ = ["LeastShare", "check_floors", "missed_floors", "read_floor"]


class LeastShare(msgspec.Struct, frozen=True):
    """The least share of right answers that a column of a set must have, from 0 to 1."""

    set: str
    column: Column
    share: float


def read_floor(text: str) -> LeastShare:
    """Read `SET=SHARE` or `SET.ARM=SHARE`; a share is a number from 0 to 1, or from 0 % to 100 %."""
    place, equals, share = text.partition("=")
    name, dot, column = place.partition(".")
    if not equals or not name or (dot and column not in list(Column)):
        raise ConfigError(
            f"--at-least must be SET=SHARE or SET.ARM=SHARE with one of {', '.join(Column)} as the arm, got {text!r}"
        )
    return LeastShare(name, Column(column) if dot else Column.MUSTCALL, _read_share(share, text))


def _read_share(text: str, whole: str) -> float:
    number, percent, rest = text.strip().partition("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if rest or not 0 <= value <= 1:
        raise ConfigError(f"--at-least wants a share from 0 to 1 (or 0% to 100%), got {whole!r}")
    return value


def check_floors(floors: Sequence[LeastShare], sets: Sequence[str]) -> None:
    """Raise `ConfigError` for a floor of a set that is not asked."""
    for floor in floors:
        if floor.set not in (*sets, ALL):
            raise ConfigError(f"--at-least names the set {floor.set!r}, which is not asked; asked: {', '.join(sets)}")


def missed_floors(summary: EvalSummary, floors: Sequence[LeastShare]) -> list[str]:
    """Say which floors were missed, one line each."""
    missed: list[str] = []
    for floor in floors:
        figures = summary.find(floor.set) or summary.sets[-1]  # all of one set is that set
        right = figures.columns[floor.column].right
        if right.rate < floor.share:
            missed.append(
                f"{floor.set}, {floor.column}: {right.hits} of {right.of} right ({right.rate:.1%}), wanted at least "
                f"{floor.share:.1%}"
            )
    return missed
