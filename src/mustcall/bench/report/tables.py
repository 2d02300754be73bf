"""A run as tables of words, the same for terminal, file and page; and those tables as Markdown. Pure."""

import math
from collections.abc import Sequence
from statistics import median

import msgspec

from mustcall.bench.report.compare import NOISE, FigureChange
from mustcall.bench.report.figures import FigureRow, rows_of, verdicts
from mustcall.bench.report.results import BenchResults

__all__ = ["Sheet", "change_sheet", "circumstances_line", "markdown", "plain", "server_line", "sheets"]

_COLUMNS = (
    "contender",
    "at once",
    "req/s",
    "of floor",
    "CPU ms",
    "x floor",
    "us/event",
    "added p50",
    "p99, ms",
    "reads",
    "up / gen CPU",
)

#: How much of a peer's problem a table shows; the JSON has all of it.
_PROBLEM = 100


class Sheet(msgspec.Struct, frozen=True):
    """A titled table; all columns but the first are figures."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def circumstances_line(run: BenchResults) -> str:
    """Return when and on what it was measured."""
    told = run.circumstances
    libraries = ", ".join(f"{name} {version}" for name, version in told.libraries.items())
    load = "/".join(f"{value:.1f}" for value in told.load)
    rounds = f"; medians of {run.rounds} rounds" if run.rounds else ""
    return (
        f"{told.date}, mustcall {told.version}, {told.cores} cores, Python {told.python}, {libraries}; load average "
        f"{load}{rounds}"
    )


def server_line(run: BenchResults) -> str:
    """Return how long each process took to answer, and how much memory it holds at the end."""
    told = [f"{server.name} {_seconds(server.start_seconds)}{server.memory_mb:.0f} MB" for server in run.servers]
    return f"start / memory at the end: {', '.join(told)}" if told else ""


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} s / "


def sheets(run: BenchResults) -> list[Sheet]:
    """Return a table for each workload."""
    rows = rows_of(run)
    return [
        Sheet(
            f"{load.name} - {load.title}",
            _COLUMNS,
            tuple(_cells(row) for row in rows if row.measured.workload == load.name),
        )
        for load in run.workloads
    ]


def _cells(row: FigureRow) -> tuple[str, ...]:
    one = row.measured
    if one.problem is not None:
        return (f"{one.contender}: {one.problem[:_PROBLEM]}", str(one.concurrency), *[""] * (len(_COLUMNS) - 2))
    latency = one.concurrency == 1
    return (
        one.contender,
        str(one.concurrency),
        f"{row.rate:,.0f}",
        _figure(row.of_floor, ".0%"),
        f"{row.cpu_ms:.3f}",
        _figure(row.times_floor, ".2f"),
        _figure(row.event_us, ".1f"),
        _figure(row.added_p50_ms if latency else None, ".2f"),
        _figure(row.added_p99_ms if latency else None, ".2f"),
        f"{row.reads:.0f}",
        f"{row.upstream_cpu_ms:.2f} / {row.generator_cpu_ms:.2f}",
    )


def _figure(value: float | None, form: str) -> str:
    return "" if value is None or math.isnan(value) else format(value, form)


def change_sheet(changes: Sequence[FigureChange]) -> Sheet:
    """Return the table of a comparison with an earlier run."""
    middle = f"; median {median(change.judged for change in changes):.2f}x" if changes else ""
    return Sheet(
        f"against the earlier run: CPU per request, new / old (within {NOISE:.0%} is the same){middle}",
        ("contender", "workload", "at once", "old CPU ms", "new CPU ms", "ratio", "ratio, of floor", ""),
        tuple(
            (
                change.contender,
                change.workload,
                str(change.concurrency),
                f"{change.old_cpu_ms:.3f}",
                f"{change.new_cpu_ms:.3f}",
                f"{change.ratio:.2f}",
                _figure(change.times_floor, ".2f"),
                change.word,
            )
            for change in changes
        ),
    )


def markdown(sheet: Sheet) -> str:
    """Write a table as Markdown."""
    lines = [f"### {sheet.title}", "", _line(sheet.columns), "|---" + "|--:" * (len(sheet.columns) - 1) + "|"]
    return "\n".join([*lines, *map(_line, sheet.rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/').replace(chr(10), ' ') for cell in cells)} |"


def plain(run: BenchResults, changes: Sequence[FigureChange] | None = None) -> str:
    """Return the whole report as Markdown."""
    goals = [f"{'met   ' if one.met else 'MISSED'} {one.text}" for one in verdicts(run)]
    blocks = [circumstances_line(run), *map(markdown, sheets(run)), "\n".join(goals), server_line(run)]
    if changes is not None:
        blocks.append(markdown(change_sheet(changes)))
    return "\n\n".join(block for block in blocks if block)
