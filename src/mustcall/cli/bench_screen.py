"""What `mustcall bench` draws in a terminal: a table per workload, then the goals. The figures come from `bench`."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mustcall.bench.compare import Change
from mustcall.bench.figures import verdicts
from mustcall.bench.results import Run
from mustcall.bench.tables import Sheet, change_sheet, circumstances_line, server_line, sheets

__all__ = ["print_run"]

_STYLES = {"direct": "bright_black", "floor": "bright_black", "dearer": "red", "cheaper": "green"}


def print_run(run: Run, changes: Sequence[Change] | None = None, console: Console | None = None) -> None:
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
    table = Table(box=SIMPLE_HEAD, title=Text(sheet.title, style="bold"), title_justify="left", pad_edge=False)
    for number, column in enumerate(sheet.columns):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in sheet.rows:
        style = _STYLES.get(row[0].split(" ", 1)[0]) or _STYLES.get(row[-1])
        table.add_row(*map(Text, row), style=style)
    console.print(table)
