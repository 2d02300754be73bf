"""Draws groups of shares as bars with their intervals, as a PNG: the one part of a report that needs matplotlib."""

from importlib.util import find_spec
from pathlib import Path

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.evals.report.statistics import Share
from mustcall.evals.report.wording import of, percent

__all__ = ["Chart", "Series", "check_drawable", "draw_chart"]

#: The colour of each arm and column, as in the style sheet of the pages.
_COLOURS = {"bare": "#8b959d", "plain": "#c9a23b", "mustcall": "#0b7a6b"}
_INK, _FAINT = "#1d2328", "#626c74"
#: What the bars of one group take of the room between two groups.
_FILLED = 0.76
_INCHES_A_GROUP = 1.6
_LEAST_WIDTH, _HEIGHT = 9.0, 5.2
#: Groups that have room for the count under the share.
_FEW = 4


class Series(msgspec.Struct, frozen=True):
    """The bars of one colour: one share for each group."""

    name: str
    shares: tuple[Share, ...]


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn."""

    title: str
    groups: tuple[str, ...]
    series: tuple[Series, ...]
    note: str


def check_drawable() -> None:
    """Raise before a run what would be raised after it: that matplotlib is not there."""
    if find_spec("matplotlib") is None:
        raise ConfigError("--png needs matplotlib: pip install 'mustcall[charts]'; --html needs nothing")


def draw_chart(chart: Chart, file: Path) -> None:
    """Write a chart to a file."""
    check_drawable()
    # The object interface: no global state, no display, no font cache of a GUI.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  heavy, and an extra
    from matplotlib.figure import Figure  # noqa: PLC0415  as above
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415  as above

    width = max(_LEAST_WIDTH, _INCHES_A_GROUP * len(chart.groups))
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    figure = Figure(figsize=(width, _HEIGHT), dpi=160, facecolor="white", layout=layout)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    step = _FILLED / len(chart.series)
    for place, series in enumerate(chart.series):
        shares = series.shares
        at = [number + (place - (len(chart.series) - 1) / 2) * step for number in range(len(shares))]
        rates = [share.rate * 100 for share in shares]
        below = [max(0.0, (share.rate - share.low) * 100) for share in shares]
        above = [max(0.0, (share.high - share.rate) * 100) for share in shares]
        axes.bar(at, rates, step - 0.02, color=_COLOURS[series.name], label=series.name)
        axes.errorbar(at, rates, yerr=[below, above], fmt="none", ecolor=_INK, elinewidth=1.3, capsize=4)
        for x, share in zip(at, shares, strict=True):
            axes.annotate(
                f"{percent(share.rate)}\n{of(share)}" if len(chart.groups) <= _FEW else percent(share.rate),
                (x, share.high * 100),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                fontsize=9 if len(chart.groups) <= _FEW else 8,
                color=_INK,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            )
    axes.set_xticks(range(len(chart.groups)), list(chart.groups), fontsize=11 if len(chart.groups) <= _FEW else 9)
    axes.set_ylim(0, 114)
    axes.set_yticks(range(0, 101, 20), [f"{tick} %" for tick in range(0, 101, 20)], color=_FAINT)
    axes.grid(axis="y", color="#e6e8e9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    for edge in ("top", "right", "left"):
        axes.spines[edge].set_visible(False)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False, ncols=len(chart.series), fontsize=10)
    # Three entries of the legend would run into the title: it goes above them.
    raised = 14 if len(chart.series) == 2 else 32
    axes.set_title(chart.title, loc="left", fontsize=12, fontweight="bold", color=_INK, pad=raised)
    axes.set_xlabel(chart.note, fontsize=9, color=_FAINT, labelpad=10)
    figure.savefig(file, format="png")
