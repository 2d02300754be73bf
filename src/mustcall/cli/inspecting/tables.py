"""What the commands that show the ledger share: opening it, times, and cells of a table."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.text import Text

from mustcall.cli.wrapping import fold
from mustcall.gateway.config.settings import load_ledger
from mustcall.ledger import Ledger, named_place, open_ledger
from mustcall.toolkit.builtin.files import plain

__all__ = [
    "aligned",
    "cell",
    "config_option",
    "console",
    "gateway_ledger",
    "gateway_place_option",
    "moment",
    "on_ledger",
    "one_line",
    "place_option",
    "print_labelled",
    "styled",
    "where_kept",
]

T = TypeVar("T")

_LONGEST = 100
#: Columns between two cells of a line, and before what goes on from the line above.
_GAP = 2

#: The ledger of agents, which read no configuration file.
place_option = click.option(
    "--ledger", "place", metavar="PATH|URL", help="Which ledger.  [default: $MUSTCALL_LEDGER, $DATABASE_URL, a file]"
)
#: The ledger of the gateway: what both are given is resolved by `where_kept`.
gateway_place_option = click.option(
    "--ledger",
    "place",
    metavar="PATH|URL",
    help="Which ledger.  [default: $MUSTCALL_LEDGER, the file of --config, $DATABASE_URL, a file]",
)
config_option = click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to read.  [default: $MUSTCALL_CONFIG, else mustcall.toml]",
)


def where_kept(place: str | None, config: Path | None) -> str | None:
    """Return where the gateway keeps its ledger: as `mustcall serve` with the same flags finds it.

    Where a flag or the environment names the place, a file that nobody named is not read: it may be broken.
    """
    named = place or named_place(os.environ)
    if config is None and named:
        return named
    return load_ledger(config, place=place).place


def gateway_ledger(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --ledger and --config; the command gets the `place` they come to."""

    @wraps(command)
    def resolved(*, place: str | None, config: Path | None, **given: Any) -> Any:
        return command(place=where_kept(place, config), **given)

    return gateway_place_option(config_option(resolved))


def on_ledger(place: str | None, work: Callable[[Ledger], Awaitable[T]], *, make: bool = False) -> T:
    """Return what work makes of a ledger that is there; only who fills one makes its file."""

    async def run() -> T:
        async with open_ledger(place, make=make) as ledger:
            return await work(ledger)

    return asyncio.run(run())


def console() -> Console:
    """Return where tables go; lines are not broken where nobody looks."""
    return Console(highlight=False, soft_wrap=not Console().is_terminal)


def one_line(text: str) -> str:
    """Return a text as one line that does nothing to a terminal."""
    return plain(" ".join(text.split()))


def cell(text: str) -> Text:
    """Return a text as one line of bounded length that does nothing to a terminal."""
    line = one_line(text)
    return Text(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…")


def aligned(rows: Sequence[Sequence[Text]], width: int = 0) -> list[Text]:
    """Return rows as lines with aligned columns, each row on as many lines as its columns need at `width`; 0 is one.

    The same columns go on to the next line in every row, and are indented. A cell may have several lines of its own.
    """
    split = [[list(each.split("\n")) for each in row] for row in rows]
    widths = [max(line.cell_len for lines in column for line in lines) for column in zip(*split, strict=True)]
    parts: list[dict[int, int]] = [{}]  # the columns of each line, and where they begin
    end = 0
    for number, wide in enumerate(widths):
        if width and parts[-1] and end + wide > width:
            parts.append({})
            end = _GAP
        parts[-1][number] = end
        end += wide + _GAP
    lines: list[Text] = []
    for row in split:
        for part in parts:
            for place in range(max(len(row[number]) for number in part)):
                line = Text()
                for number, begin in part.items():
                    line.pad_right(begin - line.cell_len)
                    line.append_text(row[number][place] if place < len(row[number]) else Text())
                line.rstrip()
                lines.append(line)
    return lines


def print_labelled(out: Console, label: str, text: str, *, otherwise: int = 0) -> None:
    """Print a text behind its label; in a terminal it is broken between words, and stays beside the label.

    Elsewhere it is broken at `otherwise` columns; 0 is one line.
    """
    columns = out.width if out.is_terminal else otherwise
    first, *more = fold(text, columns - len(label) if columns else 0).split("\n")
    out.print(Text.assemble((label, "dim"), first), soft_wrap=True)
    for line in more:
        out.print(Text(" " * len(label) + line), soft_wrap=True)


def styled(word: str, styles: Mapping[str, str]) -> Text:
    """Return a word in its colour."""
    return Text(word, style=styles.get(word, ""))


def moment(seconds: float) -> str:
    """Return a time as people write it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
