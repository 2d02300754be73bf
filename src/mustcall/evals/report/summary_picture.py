"""Draws the right answers of a run of `mustcall eval` as a PNG."""

from pathlib import Path

from mustcall.evals.report.chart import Chart, Series, draw_chart
from mustcall.evals.report.summary import Column, EvalSummary
from mustcall.evals.report.summary_wording import headline, partial_note

__all__ = ["draw_summary_picture"]


def draw_summary_picture(summary: EvalSummary, file: Path) -> None:
    """Write the chart to a file."""
    facts = summary.facts
    note = (
        f"{facts.model}, {summary.asked} questions in both arms; lines are 95 % intervals (Wilson)\n"
        f"plain: the bare replies with a call in the text read as one. {partial_note(summary)}"
    )
    chart = Chart(
        title=headline(summary),
        groups=tuple(figures.name for figures in summary.sets),
        series=tuple(
            Series(str(column), tuple(figures.columns[column].right for figures in summary.sets)) for column in Column
        ),
        note=note.strip(),
    )
    draw_chart(chart, file)
