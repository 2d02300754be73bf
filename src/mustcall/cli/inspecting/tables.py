"""What the commands that show the ledger share: opening it, times, and cells of a table."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.text import Text

from mustcall.cli.wrapping import fold
from mustcall.gateway.config.settings import load_ledger
from mustcall.ledger import Ledger, open_ledger
from mustcall.toolkit.builtin.files import plain

__all__ = [
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
    if config is None and (place or os.environ.get("MUSTCALL_LEDGER")):
        return place or os.environ["MUSTCALL_LEDGER"]
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


def print_labelled(out: Console, label: str, text: str) -> None:
    """Print a text behind its label; in a terminal it is broken between words, and stays beside the label."""
    width = out.width - len(label) if out.is_terminal else 0
    first, *more = fold(text, width).split("\n")
    out.print(Text.assemble((label, "dim"), first), soft_wrap=True)
    for line in more:
        out.print(Text(" " * len(label) + line), soft_wrap=True)


def styled(word: str, styles: Mapping[str, str]) -> Text:
    """Return a word in its colour."""
    return Text(word, style=styles.get(word, ""))


def moment(seconds: float) -> str:
    """Return a time as people write it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
