"""What `mustcall eval` draws in a terminal: progress while it runs, then the figures as tables.

Every number comes from `evals.report.summary`. Progress goes to standard error, the report to standard output.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mustcall.cli.measuring.progress import counting_bar
from mustcall.evals.asking.rows import Arm, EvalRow
from mustcall.evals.report.comparing import ColumnChange
from mustcall.evals.report.summary import EvalSummary
from mustcall.evals.report.summary_wording import (
    CHANGE_HEADS,
    COST_HEADS,
    COST_NOTE,
    RIGHT_HEADS,
    RIGHT_NOTE,
    change_rows,
    circumstances,
    cost_rows,
    count_lines,
    headline,
    partial_note,
    right_rows,
)
from mustcall.evals.suites import Suite

__all__ = ["print_summary", "progress_bar"]

_EVERY = 10
_LOG_WIDTH = 120


@contextmanager
def progress_bar(planned: int, suite: Suite) -> Generator[Callable[[EvalRow, bool], None]]:
    """Show a bar with the time left; what is yielded takes each reply, and whether it was there before.

    Where there is no terminal, a line now and then says how far it is.
    """
    console = Console(stderr=True, highlight=False)
    right = dict.fromkeys(Arm, 0)
    count = 0

    def shown() -> str:
        return "right: " + ", ".join(f"{arm} {right[arm]}" for arm in Arm)

    def tally(row: EvalRow) -> None:
        nonlocal count
        count += 1
        right[row.arm] += row.fault is None and suite.grade(row.id, row.calls).right

    if not console.is_terminal:

        def say(row: EvalRow, before: bool) -> None:
            tally(row)
            if count % _EVERY == 0 and not before:
                console.print(f"{count} of {planned} replies; {shown()}")

        yield say
        return
    with counting_bar(console) as progress:
        task = progress.add_task("asking", total=planned)

        def advance(row: EvalRow, before: bool) -> None:
            tally(row)
            if before:  # what was there says nothing of the speed
                progress.reset(task, completed=count, total=planned, description=shown())
            else:
                progress.update(task, advance=1, description=shown())

        yield advance


def print_summary(summary: EvalSummary, changes: Sequence[ColumnChange] | None = None) -> None:
    """Print the figures of a run, and what changed since an earlier one."""
    console = Console(highlight=False)
    if not console.is_terminal:  # a log or a file: nobody's window is too narrow
        console = Console(highlight=False, width=_LOG_WIDTH)
    console.print(Text(headline(summary), style="bold"))
    console.print(Text(circumstances(summary), style="dim"))
    if summary.partial:
        console.print(partial_note(summary), style="bold yellow")
    console.print()
    console.print(_table(RIGHT_HEADS, right_rows(summary)))
    console.print(RIGHT_NOTE, style="dim")
    console.print()
    console.print(_table(COST_HEADS, cost_rows(summary)))
    console.print(COST_NOTE, style="dim")
    console.print()
    for line in count_lines(summary):
        console.print(line)
    if changes is not None:
        console.print()
        console.print(_table(CHANGE_HEADS, change_rows(changes)))


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for number, column in enumerate(heads):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
    for first, *others in rows:
        table.add_row(Text(first, style="" if others else "italic"), *others)
    return table
