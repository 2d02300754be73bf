"""Writes a run as one HTML page that needs nothing else: no script, no fetch; light and dark, wide and narrow.

Every number comes from `figures` and `tables`; the look is the style sheet of the other reports.
"""

import math
from collections.abc import Iterator
from html import escape
from importlib import resources

from mustcall.bench.report.figures import FigureRow, peer_ratios, rows_of, verdicts
from mustcall.bench.report.results import BenchResults, Kind
from mustcall.bench.report.tables import Sheet, circumstances_line, server_line, sheets

__all__ = ["COLOURS", "charted", "headline", "write_page"]

COLOURS: dict[Kind, str] = {
    "direct": "#c3c9cd",
    "floor": "#8b959d",
    "before": "#69b3a6",
    "same-wire": "#0b7a6b",
    "translating": "#0b7a6b",
    "variant": "#69b3a6",
    "peer": "#c9543b",
}
_STYLE = """
.cost { display: grid; grid-template-columns: 17rem 1fr 12rem; gap: .3rem .8rem; align-items: center; margin: .2rem 0; }
.cost svg { display: block; width: 100%; height: 1.1rem; }
.cost .value { font-variant-numeric: tabular-nums; }
main { max-width: 66rem; }
@media (max-width: 34rem) { .cost { grid-template-columns: 1fr auto; } .cost svg { grid-column: 1 / -1; grid-row: 2; } }
"""


def headline(run: BenchResults) -> str:
    """Return what a reader takes away: the range over all workloads for the dearest peer, else our own cost."""
    ratios = peer_ratios(run)
    if ratios:
        name = max(ratios, key=lambda pair: pair[1])[0].contender
        its = sorted(times for one, times in ratios if one.contender == name)
        return (
            f"mustcall: {_times(its[0])}{f' to {_times(its[-1])}' if len(its) > 1 else ''} times less CPU than {name}"
        )
    ours = [
        row for row in rows_of(run) if row.measured.kind == "same-wire" and row.measured.workload in ("call", "whole")
    ]
    if ours and not math.isnan(ours[0].cpu_ms):
        return f"mustcall: {ours[0].cpu_ms:.2f} ms of CPU for a checked request"
    return "What mustcall costs"


def _times(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"


def charted(run: BenchResults) -> list[tuple[str, list[FigureRow]]]:
    """Return what is drawn: each workload at the concurrency in its middle, servers that did something for it."""
    rows = rows_of(run)
    panels: list[tuple[str, list[FigureRow]]] = []
    for load in run.workloads:
        counts = sorted({row.measured.concurrency for row in rows if row.measured.workload == load.name})
        if not counts:
            continue
        chosen = counts[len(counts) // 2]
        shown = [
            row
            for row in rows
            if (row.measured.workload, row.measured.concurrency) == (load.name, chosen)
            and row.measured.samples
            and row.measured.kind != "direct"
        ]
        panels.append((f"{load.title}; {chosen} at once", shown))
    return panels


def write_page(run: BenchResults) -> str:
    """Return the report."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(headline(run))}</title>",
            f"<style>{_style()}</style></head><body><main>",
            f"<h1>{escape(headline(run))}</h1>",
            f'<p class="faint">{escape(circumstances_line(run))}</p>',
            *_charts(run),
            *_goals(run),
            *(line for sheet in sheets(run) for line in _table(sheet)),
            f'<p class="faint">{escape(server_line(run))}</p>',
            "</main></body></html>",
            "",
        ]
    )


def _style() -> str:
    return resources.files("mustcall").joinpath("evals", "data", "report.css").read_text(encoding="utf-8") + _STYLE


def _charts(run: BenchResults) -> Iterator[str]:
    panels = charted(run)
    if panels:
        yield '<h2>CPU per request</h2><p class="faint">CPU time of the server alone, without model and client.</p>'
    for title, rows in panels:
        yield f"<h3>{escape(title)}</h3>"
        most = max((row.cpu_ms for row in rows), default=1.0)
        for row in rows:
            yield _bar(row, most)


def _bar(row: FigureRow, most: float) -> str:
    times = "" if row.times_floor is None else f' <span class="faint">{row.times_floor:.2f}x floor</span>'
    name = escape(row.measured.contender)
    label = f"{name}: {row.cpu_ms:.3f} ms"
    return (
        f'<div class="cost"><span>{name}</span><svg role="img" aria-label="{label}"><title>{label}</title>'
        '<rect class="track" width="100%" height="100%" rx="4"/>'
        f'<rect fill="{COLOURS[row.measured.kind]}" width="{row.cpu_ms / most * 100:.2f}%" height="100%" rx="4"/></svg>'
        f'<span class="value"><b>{row.cpu_ms:.3f} ms</b>{times}</span></div>'
    )


def _goals(run: BenchResults) -> Iterator[str]:
    found = verdicts(run)
    if found:
        yield '<h2>Goals</h2><div class="scroll"><table>'
        for one in found:
            word = "met" if one.met else "<b>missed</b>"
            yield f"<tr><td>{word}</td><td>{escape(one.text)}</td></tr>"
        yield "</table></div>"


def _table(sheet: Sheet) -> Iterator[str]:
    yield f'<h2>{escape(sheet.title)}</h2><div class="scroll"><table>'
    for row, tag in ((sheet.columns, "th"), *((cells, "td") for cells in sheet.rows)):
        first, *rest = (escape(cell) for cell in row)
        yield f"<tr><{tag}>{first}</{tag}>" + "".join(f'<{tag} class="n">{cell}</{tag}>' for cell in rest) + "</tr>"
    yield "</table></div>"
