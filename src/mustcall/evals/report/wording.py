"""How figures are written, the same in the terminal, on the page and in the picture. Pure."""

import math
from collections.abc import Callable
from datetime import UTC, datetime

from mustcall.evals.asking.rows import Arm
from mustcall.evals.report.figures import Cost, Figures, Measure
from mustcall.evals.report.results import EvalResults
from mustcall.evals.report.statistics import Share

__all__ = [
    "ARMS",
    "cost_rows",
    "headline",
    "interval",
    "of",
    "partial_note",
    "percent",
    "seconds",
    "unread_note",
    "when",
]

#: What each arm is called in a report.
ARMS = {Arm.BARE: "bare", Arm.MUSTCALL: "mustcall"}


def percent(rate: float) -> str:
    """Write a rate; what is not all is never written as all, nor something as nothing."""
    if 0 < rate < 0.005:
        return "<1 %"
    if 0.995 <= rate < 1:
        return ">99 %"
    return f"{_rounded(rate)} %"


def _rounded(rate: float) -> int:
    """Round to whole percent, halves up; what binary fractions lose of a half is given back."""
    return math.floor(rate * 100 + 0.5 + 1e-9)


def interval(share: Share, unit: str = " %") -> str:
    """Write the 95 % interval, in percent."""
    return f"{_rounded(share.low)}–{_rounded(share.high)}{unit}"  # noqa: RUF001  a range is written with a dash


def of(share: Share) -> str:
    """Write the count behind a share."""
    return f"{share.hits} of {share.of}"


def seconds(value: float) -> str:
    """Write a time."""
    if value >= 120:
        return f"{int(value) // 60} min {int(value) % 60:02} s"
    return f"{value:.0f} s" if value >= 20 else f"{value:.1f} s" if value >= 0.1 else f"{value * 1000:.0f} ms"


def cost_rows(figures: Figures) -> list[tuple[str, str, str, str]]:
    """Return what each arm took: the name, bare, mustcall, and the change."""
    bare, must = (figures.cost[arm] for arm in Arm)
    rows = [("upstream calls", str(bare.calls), str(must.calls), f"{must.calls - bare.calls:+d}")]
    kinds: tuple[tuple[str, Callable[[Cost], float], Callable[[float], str]], ...] = (
        ("time in all", lambda cost: cost.seconds, seconds),
        ("time for one prompt (median)", lambda cost: cost.median_seconds, seconds),
        ("tokens read", lambda cost: cost.input_tokens, "{:,}".format),
        ("tokens written", lambda cost: cost.output_tokens, "{:,}".format),
    )
    for name, value, write in kinds:
        before, after = value(bare), value(must)
        rows.append((name, write(before), write(after), _change(before, after)))
    for name, counts in (("errors instead of a reply", figures.failed), ("calls left in the text", figures.written)):
        rows.append((name, str(counts[Arm.BARE]), str(counts[Arm.MUSTCALL]), ""))
    return rows


def _change(before: float, after: float) -> str:
    if not before:
        return ""
    return f"{after / before - 1:+.0%}".replace("%", " %").replace("-", "−")  # noqa: RUF001  a minus, not a dash


def when(started: str) -> str:
    """Write the moment a run began."""
    return datetime.fromisoformat(started).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def headline(figures: Figures) -> str:
    """Say in one sentence what was measured."""
    bare, must = (figures.shares[arm][Measure.VALID] for arm in Arm)
    return f"Valid tool calls: {of(bare)} bare, {of(must)} through mustcall"


def unread_note(figures: Figures) -> str:
    """Say that the bare model was never shown the tools; nothing where it was."""
    if not figures.unread:
        return ""
    read = figures.cost[Arm.BARE].input_tokens
    return (
        f"The server read {read:,} tokens in all the bare prompts, fewer than the tools take: it dropped them and "
        "answered 200, so the bare model never saw a tool."
    )


def partial_note(run: EvalResults) -> str:
    """Say how far a run came that did not come to its end; nothing for one that did."""
    if not run.partial:
        return ""
    return f"Partial: stopped after {len(run.pairs)} of {run.circumstances.planned} prompts."
