"""Draws a run's CPU per request as a PNG, with matplotlib: the one part of the report that needs the `charts` extra."""

import math
from importlib.util import find_spec
from pathlib import Path

from mustcall.bench.report.figures import FigureRow
from mustcall.bench.report.page import COLOURS, charted, headline
from mustcall.bench.report.results import BenchResults
from mustcall.bench.report.tables import circumstances_line
from mustcall.core.errors import ConfigError

__all__ = ["check_drawable", "draw_picture"]

_INK, _FAINT = "#1d2328", "#626c74"


def check_drawable() -> None:
    """Raise before a run what would be raised after it: that matplotlib is not there."""
    if find_spec("matplotlib") is None:
        raise ConfigError("--png needs matplotlib: pip install 'mustcall[charts]'; --html needs nothing")


def draw_picture(run: BenchResults, file: Path) -> None:
    """Write the chart to a file: a panel for each workload, a bar for each contender."""
    check_drawable()
    # The object interface: no global state, no display, no font cache of a GUI.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  heavy, and an extra
    from matplotlib.figure import Figure  # noqa: PLC0415  as above
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415  as above

    panels = charted(run)
    bars = sum(len(rows) for _, rows in panels)
    figure = Figure(
        figsize=(9, 1.6 + 0.8 * max(1, len(panels)) + 0.3 * bars),
        dpi=160,
        facecolor="white",
        layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08),
    )
    FigureCanvasAgg(figure)
    figure.suptitle(headline(run), fontsize=12, fontweight="bold", color=_INK, x=0.02, ha="left")
    heights = [max(1, len(rows)) for _, rows in panels] or [1]
    grid = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    for number, (title, rows) in enumerate(panels):
        axes = figure.add_subplot(grid[number, 0])
        values = [row.cpu_ms for row in rows]
        places = list(range(len(rows)))
        axes.barh(places, values, 0.7, color=[COLOURS[row.measured.kind] for row in rows])
        for place, row in zip(places, rows, strict=True):
            axes.annotate(
                _label(row),
                (row.cpu_ms, place),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=_INK,
            )
        axes.set_yticks(places, [row.measured.contender for row in rows], fontsize=9)
        axes.invert_yaxis()
        axes.margins(x=0.3)
        axes.tick_params(length=0, axis="y")
        axes.tick_params(labelsize=8, axis="x", colors=_FAINT)
        axes.set_title(f"CPU ms per request; {title}", loc="left", fontsize=9, color=_FAINT)
        for edge in ("top", "right", "left"):
            axes.spines[edge].set_visible(False)
    figure.supxlabel(circumstances_line(run), fontsize=6, color=_FAINT)
    figure.savefig(file, format="png")


def _label(row: FigureRow) -> str:
    times = "" if row.times_floor is None or math.isnan(row.times_floor) else f", {row.times_floor:.2f}x floor"
    return f"{row.cpu_ms:.3f} ms{times}"
