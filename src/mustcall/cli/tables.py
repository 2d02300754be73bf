"""What the commands that show the ledger share: opening it, times, and cells of a table."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import click
from rich.console import Console
from rich.text import Text

from mustcall.ledger import Ledger, open_ledger
from mustcall.toolkit.files import plain

__all__ = ["cell", "console", "moment", "on_ledger", "place_option", "styled"]

T = TypeVar("T")

_LONGEST = 100

place_option = click.option(
    "--ledger", "place", metavar="PATH|URL", help="Which ledger.  [default: $MUSTCALL_LEDGER, $DATABASE_URL, a file]"
)


def on_ledger(place: str | None, work: Callable[[Ledger], Awaitable[T]]) -> T:
    """Return what work makes of a ledger that is there."""

    async def run() -> T:
        async with open_ledger(place, make=False) as ledger:
            return await work(ledger)

    return asyncio.run(run())


def console() -> Console:
    """Return where tables go; lines are not broken where nobody looks."""
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def cell(text: str) -> Text:
    """Return a text as one line of bounded length that does nothing to a terminal."""
    line = plain(" ".join(text.split()))
    return Text(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…")


def styled(word: str, styles: Mapping[str, str]) -> Text:
    """Return a word in its colour."""
    return Text(word, style=styles.get(word, ""))


def moment(seconds: float) -> str:
    """Return a time as people write it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
