"""What `mustcall probe` shows: a mark for each cell while it measures, and the matrix at the end."""

import contextlib
from collections.abc import Callable, Generator

import click
from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mustcall.probe import CellResult, CellVerdict, Drift, ProbePlan, ProbeResult
from mustcall.probe.planning import RequestBudget
from mustcall.probe.verdicts import is_settled
from mustcall.probe.wording import MARKS, headline, of, written_interval
from mustcall.toolkit.builtin.files import plain

__all__ = ["live_matrix", "print_drift", "print_matrix"]

_STYLES = {
    CellVerdict.HELD: "green",
    CellVerdict.FLAKY: "yellow",
    CellVerdict.IGNORED: "bold red",
    CellVerdict.REFUSED: "magenta",
    CellVerdict.CRASHED: "bold red",
    CellVerdict.UNMEASURED: "dim",
}

#: The columns of the matrix. What was seen stands beside them where it fits, else below.
_HEADS = ("cell", "verdict", "held", "95 %", "owner")
_GAP = 2


@contextlib.contextmanager
def live_matrix(plan: ProbePlan, request_budget: RequestBudget) -> Generator[Callable[[CellResult], None]]:
    """Show the cells while they are measured: a line for each group, a mark for each cell.

    Where there is no terminal, a line is printed when a cell is done.
    """
    console = Console(stderr=True)
    found: dict[str, CellResult] = {}

    def draw() -> Group:
        grid = Table.grid(padding=(0, 2))
        for group in dict.fromkeys(cell.group for cell in plan.cells):
            line = Text()
            for cell in plan.cells:
                if cell.group is group:
                    verdict = found[cell.id].verdict if cell.id in found else None
                    mark = "·" if verdict is None else MARKS[verdict]
                    line.append(f"{mark} ", style="dim" if verdict is None else _STYLES[verdict])
            grid.add_row(str(group), line)
        return Group(grid, Text(f"{request_budget.requests} of at most {plan.most_requests} requests", style="dim"))

    if not console.is_terminal:
        yield _Lines(plan).show
        return
    with Live(draw(), console=console, transient=True, refresh_per_second=8) as live:

        def show(cell: CellResult) -> None:
            found[cell.id] = cell
            live.update(draw())

        yield show


class _Lines:
    """Prints each cell once, when its tries are done."""

    def __init__(self, plan: ProbePlan) -> None:
        self._of = sum(cell.script is not None for cell in plan.cells)
        self._done: set[str] = set()

    def show(self, cell: CellResult) -> None:
        if cell.id in self._done or (len(cell.outcomes) < cell.planned and not is_settled(cell.outcomes)):
            return
        self._done.add(cell.id)
        words = " ".join(filter(None, (MARKS[cell.verdict], str(cell.verdict), of(cell))))
        click.echo(f"[{len(self._done)}/{self._of}] {cell.id} {words}", err=True)


def print_matrix(result: ProbeResult) -> None:
    """Print every cell with its verdict, and the headline."""
    console = Console(highlight=False)
    rows = [_row(cell) for cell in result.cells]
    widths = [max(map(len, column)) for column in zip(_HEADS, *rows, strict=True)]
    beside = sum(widths) + _GAP * len(widths)
    console.print(_line(_HEADS, widths, "dim"))
    group = None
    for cell, row in zip(result.cells, rows, strict=True):
        if cell.group is not group:
            group = cell.group
            console.print(Text(f"{group}", style="bold"))
        line = _line(row, widths, _STYLES[cell.verdict])
        note = Text(plain(cell.note) if cell.verdict is not CellVerdict.HELD else "", style="dim")
        if note and beside + note.cell_len <= console.width:
            line = Text.assemble(line, " " * (beside - line.cell_len), note)
            note = Text()
        console.print(line)
        if note:
            console.print(Padding(note, (0, 0, 0, 6), expand=False))
    console.print(Text(headline(result), style="bold"))
    console.print(Text("* a required guarantee", style="dim"))


def _row(cell: CellResult) -> tuple[str, ...]:
    """Return the columns of a cell."""
    name = f"  {cell.id}" + (" *" if cell.required else "")
    return name, f"{MARKS[cell.verdict]} {cell.verdict}", of(cell), written_interval(cell), str(cell.owner or "")


def _line(row: tuple[str, ...], widths: list[int], style: str) -> Text:
    """Return columns as one line; the verdict has the style."""
    name, verdict, *rest = (column.ljust(width) for column, width in zip(row, widths, strict=True))
    blank = " " * _GAP
    return Text.assemble(name, blank, (verdict, style), blank, blank.join(rest).rstrip())


def print_drift(old: ProbeResult, drift: list[Drift]) -> None:
    """Print what changed since an earlier probe."""
    console = Console(highlight=False)
    moved = [each for each in drift if each.drifted]
    console.print(Text(f"compared with {old.started}: {len(moved)} of {len(drift)} cells drifted", style="bold"))
    for each in drift:
        if each.drifted or each.changed:
            sure = f"p = {each.p:.2g}" if each.drifted else "too few tries to be sure"
            console.print(
                f"  {each.id}: {each.before} → {each.now} "
                f"({each.lost} lost, {each.gained} gained of {each.pairs} tries, {sure})"
            )
