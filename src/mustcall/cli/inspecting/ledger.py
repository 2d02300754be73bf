"""`mustcall ledger`: look at what is kept, remove what is old, carry it elsewhere."""

import sys
from collections.abc import Generator
from contextlib import aclosing, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

import click

from mustcall.cli.groups import Group, WrongInput
from mustcall.cli.inspecting.tables import gateway_ledger, on_ledger
from mustcall.cli.printing import json_option, print_json
from mustcall.cli.writing import written
from mustcall.core.errors import LedgerBroken, MustcallError
from mustcall.gateway.state.trace_keeper import read_age, read_size
from mustcall.ledger import ContentsKept, Health, Ledger, Pruned

__all__ = ["command"]


@click.group(name="ledger", cls=Group)
def command() -> None:
    """Check, prune, export and import what is kept."""


@command.command(short_help="Look at the whole ledger.")
@gateway_ledger
@json_option
def check(place: str | None, *, as_json: bool) -> None:
    """Look at the whole ledger and say what is in it. Exits with 1 if it is damaged."""
    try:
        health: Health = on_ledger(place, lambda ledger: ledger.check())
    except LedgerBroken as error:  # damaged so that it does not even open
        click.echo(f"damaged: {error.message}", err=True)
        sys.exit(1)
    if as_json:
        print_json(health)
        sys.exit(1 if health.problems else 0)
    click.echo(f"ledger   {health.place} ({health.store})")
    click.echo(f"steps    {', '.join(health.migrations)}")
    click.echo(f"stored   {health.stored_bytes:,} bytes")
    for table, count in health.rows.items():
        click.echo(f"  {table:<13}{count:>10,}")
    for problem in health.problems:
        click.echo(f"damaged: {problem}", err=True)
    if health.problems:
        sys.exit(1)
    click.echo("ok")


@command.command(short_help="Remove what is old.")
@gateway_ledger
@click.option("--keep", metavar="AGE", help="Remove entries older than this: 30d, 12h; 0 removes none.")
@click.option("--max-size", metavar="SIZE", help="Then remove the oldest until this much is left: 500MB; 0 for any.")
@click.option("--all", "everything", is_flag=True, help="Remove everything that has ended, however new.")
@json_option
def prune(place: str | None, keep: str | None, max_size: str | None, *, everything: bool, as_json: bool) -> None:
    """Remove old turns, stored responses and finished runs. Runs under way, budgets and facts stay."""
    if keep is None and max_size is None and not everything:
        raise click.UsageError("say what is to stay: --keep 30d, --max-size 500MB, both, or --all")
    age = float("-inf") if everything else None if keep is None else read_age(keep)
    size = None if max_size is None else read_size(max_size)
    pruned: Pruned = on_ledger(place, lambda ledger: ledger.prune(age=age, size=size))
    if as_json:
        print_json(pruned)
        return
    click.echo(f"removed {pruned.turns} turns, {pruned.responses} responses, {pruned.runs} runs")


@command.command(name="export", short_help="Write everything as lines of JSON.")
@gateway_ledger
@click.option(
    "--contents",
    type=click.Choice([str(one) for one in ContentsKept]),
    default=str(ContentsKept.REDACTED),
    show_default=True,
    help="How much of what was said goes out.",
)
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
def export(place: str | None, contents: str, file: str) -> None:
    """Write the whole ledger to FILE (default: standard output) as lines of JSON.

    Only its owner can read a file that is made. Where it cannot be written whole, there is none.
    """

    async def work(ledger: Ledger) -> int:
        count = 0
        with nullcontext(sys.stdout.buffer) if file == "-" else _private(Path(file)) as sink:
            async with aclosing(ledger.export(ContentsKept(contents))) as lines:
                async for line in lines:
                    sink.write(line)
                    count += 1
            sink.flush()
        return count

    click.echo(f"{on_ledger(place, work)} rows", err=True)


@command.command(name="import", short_help="Read exported lines back.")
@gateway_ledger
@click.argument("file", type=click.File("rb"), default="-")
@json_option
def import_(place: str | None, file: BinaryIO, *, as_json: bool) -> None:
    """Read FILE (default: standard input), as `export` wrote it. What is there already stays."""
    try:
        count = on_ledger(place, lambda ledger: ledger.import_lines(file), make=True)
    except MustcallError as error:
        raise WrongInput(error.message) from None
    if as_json:
        print_json({"rows": count})
    else:
        click.echo(f"{count} rows read", err=True)


@contextmanager
def _private(file: Path) -> Generator[BinaryIO]:
    """Open a file to write, which only its owner can read and which is put in place when it is whole."""
    with written(file, private=True) as part, part.open("wb") as sink:
        yield sink
