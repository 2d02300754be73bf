"""The bar that `demo` and `eval` show while they ask: how many, for how long, and how long it will take."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["counting_bar"]

#: Seconds over which the speed is measured: questions of a small model on a slow machine take minutes.
_SPEED_SECONDS = 600


def counting_bar(console: Console) -> Progress:
    """Return a bar that goes away when it is done."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
        console=console,
        expand=True,
        transient=True,
        speed_estimate_period=_SPEED_SECONDS,
    )
