"""Two runs side by side."""

from mustcall.bench.report.compare import compare
from mustcall.bench.report.tables import change_sheet, markdown, plain
from support.benching import measured, run_of, whole_run


def test_a_busy_machine_is_no_regression() -> None:
    """Twice the CPU with a floor that takes twice as much is the same; the ratio to the floor decides."""
    old = run_of(measured("floor chat", "floor", 0.2), measured("chat -> chat", "same-wire", 0.3))
    busy = run_of(measured("floor chat", "floor", 0.4), measured("chat -> chat", "same-wire", 0.6))
    (change,) = compare(old, busy)
    assert round(change.ratio, 2) == 2.0
    assert round(change.judged, 2) == 1.0
    assert change.word == "same"


def test_the_dearest_comes_first() -> None:
    """Regressions lead, improvements end; what only one run has is left out."""
    floor = measured("floor chat", "floor", 1.0)
    old = run_of(
        floor, measured("a", "same-wire", 1.0), measured("b", "translating", 1.0), measured("gone", "variant", 1.0)
    )
    new = run_of(
        floor, measured("a", "same-wire", 0.5), measured("b", "translating", 1.5), measured("new", "variant", 1.0)
    )
    changes = compare(old, new)
    assert [(change.contender, change.word) for change in changes] == [("b", "dearer"), ("a", "cheaper")]


def test_without_a_floor_the_figures_themselves_count() -> None:
    """Runs that have no floor are compared by CPU."""
    (change,) = compare(run_of(measured("a", "same-wire", 1.0)), run_of(measured("a", "same-wire", 1.2)))
    assert change.times_floor is None
    assert change.word == "dearer"


def test_what_could_not_be_measured_is_not_compared() -> None:
    """A peer with a problem has no figures to compare."""
    assert "forge <b>" not in [change.contender for change in compare(whole_run(), whole_run())]


def test_the_table_says_what_became_of_it() -> None:
    """The comparison is printed under the report, with its median."""
    old = run_of(measured("a", "same-wire", 1.0))
    changes = compare(old, run_of(measured("a", "same-wire", 2.0)))
    shown = markdown(change_sheet(changes))
    assert "| a | call | 32 | 1.000 | 2.000 | 2.00 |  | dearer |" in shown
    assert "median 2.00x" in shown
    assert plain(old, changes).endswith(shown)
    assert "median" not in change_sheet([]).title
