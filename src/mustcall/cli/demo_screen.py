"""What `mustcall demo` draws in a terminal: progress while it runs, then the figures as tables and bars.

Every number comes from `evals.figures`. Progress goes to standard error, the report to standard output.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from mustcall.evals.figures import Figures, Measure, Share, add_up
from mustcall.evals.results import Run, Side, Trial
from mustcall.evals.wording import SIDES, cost_rows, headline, interval, of, partial_note, percent, unread_note

__all__ = ["print_report", "progress_bar"]

_BAR = 30
_EVERY = 5
_EIGHTHS = " ▏▎▍▌▋▊▉"
_STYLES = {Side.BARE: "bright_black", Side.MUSTCALL: "green"}


@contextmanager
def progress_bar(planned: int) -> Generator[Callable[[Side, Trial], None]]:
    """Show a bar with the time left; what is yielded moves it on by one side of one prompt.

    Where there is no terminal, a line now and then says how far it is.
    """
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        asked = count(1)

        def say(_side: Side, _trial: Trial) -> None:
            prompts, half = divmod(next(asked), len(Side))
            if not half and prompts % _EVERY == 0:
                console.print(f"asked {prompts} of {planned} prompts")

        yield say
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, expand=True, transient=True) as progress:
        task = progress.add_task("asking", total=planned * len(Side))
        valid = dict.fromkeys(Side, 0)

        def advance(side: Side, trial: Trial) -> None:
            valid[side] += trial.score.valid
            shown = ", ".join(f"{SIDES[one]} {valid[one]}" for one in Side)
            progress.update(task, advance=1, description=f"valid calls: {shown}")

        yield advance


def print_report(run: Run) -> None:
    """Print what was measured, marked if it is partial."""
    console = Console(highlight=False)
    figures, told = add_up(run), run.circumstances
    console.print(Text(headline(figures), style="bold"))
    console.print(f"{told.model} at {told.address}; {len(run.pairs)} prompts, each asked both ways", style="dim")
    if run.partial:
        console.print(partial_note(run), style="bold yellow")
    blocks = console.encoding.startswith("utf")
    for part in (_shares(figures), _bars(figures, blocks=blocks), _costs(figures), _demands(figures)):
        console.print(part)
    alone = figures.only[Measure.RIGHT_ARGUMENTS]
    console.print(f"Prompts that only mustcall got all right: {alone[1]}; only bare: {alone[0]}.")
    if figures.unread:
        console.print(unread_note(figures))


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    return table


def _shares(figures: Figures) -> RenderableType:
    table = _table("share of replies", *(SIDES[side] for side in Side))
    for measure in Measure:
        shares = (figures.shares[side][measure] for side in Side)
        table.add_row(measure, *(f"{of(share)}  {percent(share.rate)}  ({interval(share)})" for share in shares))
    table.caption = "in brackets: 95 % interval (Wilson)"
    table.caption_justify = "left"
    return table


def _bars(figures: Figures, *, blocks: bool) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    for measure in Measure:
        for side in Side:
            share = figures.shares[side][measure]
            name = Text(measure if side is Side.BARE else "")
            table.add_row(name, SIDES[side], _bar(share, _STYLES[side], blocks=blocks), percent(share.rate))
    return table


def _bar(share: Share, style: str, *, blocks: bool) -> Text:
    """Draw a share in eighths of a character, or in whole ones where there are no blocks; the rest is dotted."""
    full, part = divmod(round(share.rate * _BAR * 8), 8)
    drawn = "█" * full + (_EIGHTHS[part] if part else "") if blocks else "#" * full
    return Text(drawn, style=style).append(("·" if blocks else ".") * (_BAR - len(drawn)), style="bright_black")


def _costs(figures: Figures) -> RenderableType:
    table = _table("what it cost", *(SIDES[side] for side in Side), "change")
    for row in cost_rows(figures):
        table.add_row(*row)
    return table


def _demands(figures: Figures) -> RenderableType:
    table = _table("tool_choice", "", *Measure)
    for demand, sides in figures.by_demand.items():
        for side in Side:
            name = str(demand) if side is Side.BARE else ""
            table.add_row(name, SIDES[side], *(of(sides[side][measure]) for measure in Measure))
    return table
