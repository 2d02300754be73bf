"""What `mustcall bench` draws in a terminal: a table per workload, then the goals. The figures come from `bench`."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mustcall.bench.report.compare import FigureChange
from mustcall.bench.report.figures import verdicts
from mustcall.bench.report.results import BenchResults
from mustcall.bench.report.tables import Sheet, change_sheet, circumstances_line, server_line, sheets

__all__ = ["print_run"]

_STYLES = {"direct": "bright_black", "floor": "bright_black", "dearer": "red", "cheaper": "green"}
#: Columns that a narrower terminal is spared, and the width from which on it has them.
_NEEDS_WIDTH = {
    "up / gen CPU": 110,
    "reads": 110,
    "p99, ms": 100,
    "of floor": 90,
    "added p50": 90,
    "us/event": 76,
    "ratio": 90,
    "old CPU ms": 76,
    "req/s": 66,
}


def print_run(run: BenchResults, changes: Sequence[FigureChange] | None = None, console: Console | None = None) -> None:
    """Print a run's tables and goals."""
    console = console or Console(highlight=False)
    console.print(Text(circumstances_line(run), style="bright_black"))
    for sheet in sheets(run):
        _print_sheet(console, sheet)
    for one in verdicts(run):
        mark = Text("met     ", "green") if one.met else Text("MISSED  ", "bold red")
        console.print(mark + Text(one.text))
    if run.servers:
        console.print(Text(server_line(run), style="bright_black"))
    if changes is not None:
        _print_sheet(console, change_sheet(changes))


def _print_sheet(console: Console, sheet: Sheet) -> None:
    console.print()
    console.print(Text(sheet.title, style="bold"))
    shown = [number for number, column in enumerate(sheet.columns) if console.width >= _NEEDS_WIDTH.get(column, 0)]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for number in shown:
        table.add_column(sheet.columns[number], justify="right" if number else "left", no_wrap=number > 0)
    for row in sheet.rows:
        style = _STYLES.get(row[0].split(" ", 1)[0]) or _STYLES.get(row[-1])
        table.add_row(*(Text(row[number]) for number in shown), style=style)
    console.print(table)
