"""What `mustcall demo` draws in a terminal: progress while it runs, then the figures as tables and bars.

Every number comes from `evals.report.figures`. Progress goes to standard error, the report to standard output.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from mustcall.cli.measuring.progress import counting_bar
from mustcall.evals.asking.rows import Arm
from mustcall.evals.report.figures import Figures, Measure, add_up
from mustcall.evals.report.results import EvalResults, Trial
from mustcall.evals.report.statistics import Share
from mustcall.evals.report.wording import ARMS, cost_rows, headline, interval, of, partial_note, percent, unread_note

__all__ = ["print_report", "progress_bar"]

_BAR = 30
_EVERY = 5
_EIGHTHS = " ▏▎▍▌▋▊▉"
_STYLES = {Arm.BARE: "bright_black", Arm.MUSTCALL: "green"}


@contextmanager
def progress_bar(planned: int) -> Generator[Callable[[Arm, Trial], None]]:
    """Show a bar with the time left; what is yielded moves it on by one arm of one prompt.

    Where there is no terminal, a line now and then says how far it is.
    """
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        asked = count(1)

        def say(_arm: Arm, _trial: Trial) -> None:
            prompts, half = divmod(next(asked), len(Arm))
            if not half and prompts % _EVERY == 0:
                console.print(f"asked {prompts} of {planned} prompts")

        yield say
        return
    with counting_bar(console) as progress:
        task = progress.add_task("asking", total=planned * len(Arm))
        valid = dict.fromkeys(Arm, 0)

        def advance(arm: Arm, trial: Trial) -> None:
            valid[arm] += trial.score.valid
            shown = ", ".join(f"{ARMS[one]} {valid[one]}" for one in Arm)
            progress.update(task, advance=1, description=f"valid calls: {shown}")

        yield advance


def print_report(run: EvalResults) -> None:
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
    table = _table("share of replies", *(ARMS[arm] for arm in Arm))
    for measure in Measure:
        shares = (figures.shares[arm][measure] for arm in Arm)
        table.add_row(measure, *(f"{of(share)}  {percent(share.rate)}  ({interval(share)})" for share in shares))
    table.caption = "in brackets: 95 % interval (Wilson)"
    table.caption_justify = "left"
    return table


def _bars(figures: Figures, *, blocks: bool) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    for measure in Measure:
        for arm in Arm:
            share = figures.shares[arm][measure]
            name = Text(measure if arm is Arm.BARE else "")
            table.add_row(name, ARMS[arm], _bar(share, _STYLES[arm], blocks=blocks), percent(share.rate))
    return table


def _bar(share: Share, style: str, *, blocks: bool) -> Text:
    """Draw a share in eighths of a character, or in whole ones where there are no blocks; the rest is dotted."""
    full, part = divmod(round(share.rate * _BAR * 8), 8)
    drawn = "█" * full + (_EIGHTHS[part] if part else "") if blocks else "#" * full
    return Text(drawn, style=style).append(("·" if blocks else ".") * (_BAR - len(drawn)), style="bright_black")


def _costs(figures: Figures) -> RenderableType:
    table = _table("what it cost", *(ARMS[arm] for arm in Arm), "change")
    for row in cost_rows(figures):
        table.add_row(*row)
    return table


def _demands(figures: Figures) -> RenderableType:
    table = _table("tool_choice", "", *Measure)
    for demand, arms in figures.by_demand.items():
        for arm in Arm:
            name = str(demand) if arm is Arm.BARE else ""
            table.add_row(name, ARMS[arm], *(of(arms[arm][measure]) for measure in Measure))
    return table
