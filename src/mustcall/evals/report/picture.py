"""Draws the shares of the demo's run as a PNG."""

from pathlib import Path

from mustcall.evals.asking.rows import Arm
from mustcall.evals.report.chart import Chart, Series, draw_chart
from mustcall.evals.report.figures import Measure, add_up
from mustcall.evals.report.results import EvalResults
from mustcall.evals.report.wording import ARMS, headline, partial_note

__all__ = ["draw_picture"]


def draw_picture(run: EvalResults, file: Path) -> None:
    """Write the chart to a file."""
    figures, told = add_up(run), run.circumstances
    note = f"{told.model}, {len(run.pairs)} prompts; lines are 95 % intervals (Wilson). {partial_note(run)}".strip()
    if figures.unread:
        note += "\nThe bare model never saw a tool: its server dropped them and answered 200."
    chart = Chart(
        title=headline(figures),
        groups=tuple(map(str, Measure)),
        series=tuple(Series(ARMS[arm], tuple(figures.shares[arm].values())) for arm in Arm),
        note=note,
    )
    draw_chart(chart, file)
