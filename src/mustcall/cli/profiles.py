"""`mustcall profiles`: what turns have learnt about models, how often it was seen, and how to forget it (rule 139)."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from time import time
from typing import TypeVar

import click
import msgspec

from mustcall.cli.groups import Group
from mustcall.ledger import FactRow, Ledger, TallyRow, default_place, open_ledger
from mustcall.profiles.tallies import EXPIRY

__all__ = ["command"]

T = TypeVar("T")

_place = click.option(
    "--ledger", "place", metavar="PATH|URL", help="Which ledger.  [default: $MUSTCALL_LEDGER, $DATABASE_URL, a file]"
)


class _Learnt(msgspec.Struct, frozen=True):
    """One line of the list, and of its JSON."""

    upstream: str
    model: str
    subject: str
    value: object
    made: int
    missed: int
    since: str
    last: str
    expires: str


def _with(place: str | None, work: Callable[[Ledger], Awaitable[T]]) -> T:
    async def run() -> T:
        async with open_ledger(place or default_place(), make=False) as ledger:
            return await work(ledger)

    return asyncio.run(run())


@click.group(name="profiles", cls=Group)
def command() -> None:
    """Show or forget what was learnt about upstreams and their models.

    A gateway with a ledger learns from its turns: which way of asking made a demanded call, which one the server
    refused or ignored, in which text format the model writes calls. The next turn starts with what worked. What is
    configured in mustcall.toml always has the last word, and what was learnt expires after seven days.
    """


@command.command(name="list", short_help="Show what was learnt.")
@_place
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array instead of a table.")
def list_command(place: str | None, *, as_json: bool) -> None:
    """Show every learnt fact with its counts, dates and expiry."""
    since = time() - EXPIRY

    async def read(ledger: Ledger) -> tuple[list[FactRow], list[TallyRow]]:
        return await ledger.facts(since=since), await ledger.tallies(since=since)

    facts, tallies = _with(place, read)
    lines = sorted([*map(_fact, facts), *map(_tally, tallies)], key=lambda one: (one.upstream, one.model, one.subject))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(lines), indent=2).decode())
        return
    if not lines:
        click.echo("nothing was learnt yet; a gateway with a ledger learns from its turns")
        return
    for one in lines:
        counted = f"made {one.made}, missed {one.missed}" if one.made or one.missed else f"is {one.value}"
        click.echo(f"{one.upstream}  {one.model}  {one.subject:<24} {counted:<24} last {one.last}, until {one.expires}")


@command.command(short_help="Forget what was learnt.")
@_place
@click.option("--upstream", default="", metavar="NAME", help="Only of this upstream.")
@click.option("--model", default="", metavar="NAME", help="Only of this model.")
@click.option("--all", "everything", is_flag=True, help="Of every upstream and model.")
def forget(place: str | None, upstream: str, model: str, *, everything: bool) -> None:
    """Remove learnt facts and counts from the ledger; running gateways forget them within half a minute."""
    if not (upstream or model or everything):
        raise click.UsageError("say what to forget: --upstream NAME, --model NAME, or --all")
    count = _with(place, lambda ledger: ledger.forget_learnt(upstream, model))
    click.echo(f"forgot {count} {'entry' if count == 1 else 'entries'}")


def _fact(row: FactRow) -> _Learnt:
    value = msgspec.json.decode(row.value)
    return _Learnt(
        row.upstream, row.model, row.field, value, 0, 0, _date(row.at), _date(row.at), _date(row.at + EXPIRY)
    )


def _tally(row: TallyRow) -> _Learnt:
    dates = (_date(row.first), _date(row.last), _date(row.last + EXPIRY))
    return _Learnt(row.upstream, row.model, row.subject, None, row.made, row.missed, *dates)


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")
