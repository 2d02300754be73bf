"""What `mustcall eval` draws in a terminal: progress while it runs, then the figures as tables.

Every number comes from `evals.summary`. Progress goes to standard error, the report to standard output.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from mustcall.evals.rows import Arm, Row
from mustcall.evals.statistics import Share
from mustcall.evals.suites import Suite
from mustcall.evals.summary import Column, Summary
from mustcall.evals.wording import interval, percent, seconds

__all__ = ["print_summary", "progress_bar"]

_EVERY = 10
_LOG_WIDTH = 120
_RIGHT_NOTE = (
    "In brackets: 95 % interval (Wilson). plain: the bare replies, a call that is the whole text read as one. gain, "
    "loss: questions that only mustcall, only bare got right; p: exact McNemar test of the two."
)
_COST_NOTE = "valid, called: share of replies. read, written: tokens. sends: upstream calls a turn; later: without the first turn."


@contextmanager
def progress_bar(planned: int, suite: Suite) -> Generator[Callable[[Row, bool], None]]:
    """Show a bar with the time left; what is yielded takes each reply, and whether it was there before.

    Where there is no terminal, a line now and then says how far it is.
    """
    console = Console(stderr=True, highlight=False)
    right = dict.fromkeys(Arm, 0)
    count = 0

    def shown() -> str:
        return "right: " + ", ".join(f"{arm} {right[arm]}" for arm in Arm)

    def tally(row: Row) -> None:
        nonlocal count
        count += 1
        right[row.arm] += row.fault is None and suite.grade(row.id, row.calls).right

    if not console.is_terminal:

        def say(row: Row, before: bool) -> None:
            tally(row)
            if count % _EVERY == 0 and not before:
                console.print(f"{count} of {planned} replies; {shown()}")

        yield say
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=console, expand=True, transient=True, speed_estimate_period=600) as progress:
        task = progress.add_task("asking", total=planned)

        def advance(row: Row, before: bool) -> None:
            tally(row)
            if before:  # what was there says nothing of the speed
                progress.reset(task, completed=count, total=planned, description=shown())
            else:
                progress.update(task, advance=1, description=shown())

        yield advance


def print_summary(summary: Summary) -> None:
    """Print the figures of a run."""
    console = Console(highlight=False)
    if not console.is_terminal:  # a log or a file: nobody's window is too narrow
        console = Console(highlight=False, width=_LOG_WIDTH)
    facts = summary.facts
    console.print(Text(f"{facts.suite}: {facts.model} at {facts.address}", style="bold"))
    choice = facts.choice or "auto"
    console.print(
        f"tool_choice {choice}, wire {facts.wire}{', streamed' if facts.stream else ''}, via {facts.via}, "
        f"seed {facts.seed}; {summary.asked} of {facts.planned} questions asked in both arms",
        style="dim",
    )
    console.print()
    console.print(_right_table(summary))
    console.print(_RIGHT_NOTE, style="dim")
    console.print()
    console.print(_cost_table(summary))
    console.print(_COST_NOTE, style="dim")
    console.print()
    for name, of in (("errors", "errors"), ("verdicts", "verdicts"), ("rungs", "rungs")):
        for line in _counts(summary, of):
            console.print(f"{name}, {line}")


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
    return table


def _right_table(summary: Summary) -> Table:
    table = _table("right", "n", "bare", "plain", "mustcall", "gain", "loss", "p")
    for figures in summary.sets:
        bare, plain, mustcall = (figures.columns[column].right for column in Column)
        against = figures.against_bare
        table.add_row(
            figures.name,
            str(mustcall.of),
            _share(bare),
            percent(plain.rate),
            _share(mustcall),
            str(against.only_second),
            str(against.only_first),
            f"{against.p:.2g}",
        )
    return table


def _share(share: Share) -> str:
    return f"{percent(share.rate)} ({interval(share, unit='')})"


def _cost_table(summary: Summary) -> Table:
    table = _table("cost", "valid", "called", "errors", "median", "p90", "read", "written", "sends", "later")
    for figures in summary.sets:
        table.add_row(figures.name)
        for arm in (Column.BARE, Column.MUSTCALL):
            one = figures.columns[arm]
            table.add_row(
                f"  {arm}",
                percent(one.valid.rate),
                percent(one.called.rate),
                str(sum(one.errors.values())),
                seconds(one.median_seconds),
                seconds(one.p90_seconds),
                _thousands(one.input_tokens),
                _thousands(one.output_tokens),
                _mean(one.sends_per_turn),
                _mean(one.sends_later),
            )
    return table


def _thousands(count: int) -> str:
    return f"{count / 1000:.1f}k" if count >= 10_000 else str(count)


def _mean(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _counts(summary: Summary, what: str) -> Generator[str]:
    for figures in summary.sets[-1:]:
        for arm in (Column.BARE, Column.MUSTCALL):
            counted: Mapping[str, int] = getattr(figures.columns[arm], what)
            if counted:
                yield f"{arm}: " + ", ".join(f"{word} {count}" for word, count in counted.items())
