"""Draws a run's shares as a PNG, with matplotlib: the one part of the report that needs the `charts` extra."""

# pyright: reportUnknownMemberType=false
# matplotlib declares the keywords of its drawing methods as untyped.

from importlib.util import find_spec
from pathlib import Path

from mustcall.core.errors import ConfigError
from mustcall.evals.figures import Measure, add_up
from mustcall.evals.results import Run
from mustcall.evals.rows import Arm
from mustcall.evals.wording import ARMS, headline, of, partial_note, percent

__all__ = ["check_drawable", "draw_picture"]

_COLOURS = {Arm.BARE: "#8b959d", Arm.MUSTCALL: "#0b7a6b"}
_INK, _FAINT = "#1d2328", "#626c74"
_WIDTH = 0.36


def check_drawable() -> None:
    """Raise before a run what would be raised after it: that matplotlib is not there."""
    if find_spec("matplotlib") is None:
        raise ConfigError("--png needs matplotlib: pip install 'mustcall[charts]'; --html needs nothing")


def draw_picture(run: Run, file: Path) -> None:
    """Write the chart to a file."""
    check_drawable()
    # The object interface: no global state, no display, no font cache of a GUI.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  heavy, and an extra
    from matplotlib.figure import Figure  # noqa: PLC0415  as above
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415  as above

    figures = add_up(run)
    figure = Figure(
        figsize=(9, 5.2), dpi=160, facecolor="white", layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    )
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for place, arm in enumerate(Arm):
        shares = [figures.shares[arm][measure] for measure in Measure]
        at = [number + (place - 0.5) * (_WIDTH + 0.02) for number in range(len(shares))]
        rates = [share.rate * 100 for share in shares]
        below = [max(0.0, (share.rate - share.low) * 100) for share in shares]
        above = [max(0.0, (share.high - share.rate) * 100) for share in shares]
        axes.bar(at, rates, _WIDTH, color=_COLOURS[arm], label=ARMS[arm])
        axes.errorbar(at, rates, yerr=[below, above], fmt="none", ecolor=_INK, elinewidth=1.3, capsize=4)
        for x, share in zip(at, shares, strict=True):
            axes.annotate(
                f"{percent(share.rate)}\n{of(share)}",
                (x, share.high * 100),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                fontsize=9,
                color=_INK,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            )
    axes.set_xticks(range(len(Measure)), [str(measure) for measure in Measure], fontsize=11)
    axes.set_ylim(0, 114)
    axes.set_yticks(range(0, 101, 20), [f"{tick} %" for tick in range(0, 101, 20)], color=_FAINT)
    axes.grid(axis="y", color="#e6e8e9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    for edge in ("top", "right", "left"):
        axes.spines[edge].set_visible(False)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False, ncols=2, fontsize=10)
    axes.set_title(headline(figures), loc="left", fontsize=12, fontweight="bold", color=_INK, pad=14)
    told = run.circumstances
    note = f"{told.model}, {len(run.pairs)} prompts; lines are 95 % intervals (Wilson). {partial_note(run)}".strip()
    if figures.unread:
        note += "\nThe bare model never saw a tool: its server dropped them and answered 200."
    axes.set_xlabel(note, fontsize=9, color=_FAINT, labelpad=10)
    figure.savefig(file, format="png")
