"""How figures are written."""

import pytest

from mustcall.evals.report.figures import add_up
from mustcall.evals.report.statistics import Share
from mustcall.evals.report.wording import cost_rows, headline, interval, percent, seconds, when
from support.evaluating import OSLO, called, pair, run_of, small_run


@pytest.mark.parametrize(
    ("rate", "written"),
    [(0, "0 %"), (1, "100 %"), (0.225, "23 %"), (0.575, "58 %"), (0.001, "<1 %"), (0.999, ">99 %"), (1 / 3, "33 %")],
)
def test_percent(rate: float, written: str) -> None:
    """Halves go up; nothing but all is written as all, nothing but none as none."""
    assert percent(rate) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [(0.0004, "0 ms"), (0.02, "20 ms"), (1.26, "1.3 s"), (42.4, "42 s"), (119, "119 s"), (605, "10 min 05 s")],
)
def test_seconds(value: float, written: str) -> None:
    """Times are written in the unit people think in."""
    assert seconds(value) == written


def test_sentences() -> None:
    """The headline counts valid calls; an interval is a range; a moment is UTC."""
    assert headline(add_up(small_run())) == "Valid tool calls: 1 of 4 bare, 3 of 4 through mustcall"
    assert interval(Share(1, 4, 0.046, 0.699)) == "5–70 %"  # noqa: RUF001  as it is written
    assert when("2026-11-15T10:48:49+01:00") == "2026-11-15 09:48 UTC"


def test_changes() -> None:
    """A change is a percentage of the bare arm, and nothing where that was nothing."""
    run = run_of(pair(OSLO, called(OSLO, seconds=2.0, output_tokens=50), called(OSLO, seconds=1.0, output_tokens=60)))
    changes = {name: change for name, _, _, change in cost_rows(add_up(run))}
    assert changes["time in all"] == "−50 %"  # noqa: RUF001  as it is written
    assert changes["tokens written"] == "+20 %"
    assert changes["tokens read"] == ""
    assert changes["upstream calls"] == "+0"
