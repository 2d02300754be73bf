"""`mustcall profiles`: what turns have learnt about models, how often it was seen, and how to forget it (rule 139)."""

from datetime import UTC, datetime
from pathlib import Path
from time import time

import click
import msgspec

from mustcall.cli.groups import Group
from mustcall.cli.printing import json_option, print_json
from mustcall.cli.tables import config_option, gateway_ledger, gateway_place_option, on_ledger
from mustcall.gateway.config.settings import load_ledger
from mustcall.ledger import FactRow, Ledger, TallyRow
from mustcall.profiles.learnt import TOOL, believed_for
from mustcall.toolkit.files import plain

__all__ = ["command"]


class _Learnt(msgspec.Struct, frozen=True):
    """One line of the list, and of its JSON."""

    upstream: str
    model: str
    subject: str
    #: Whose turns taught it: a digest of the caller's key, empty for callers without one.
    tenant: str
    value: object
    #: What taught it; of a refused tool also its name.
    note: str
    #: How often a fact was seen, each time when it was tried again.
    seen: int
    made: int
    missed: int
    since: str
    last: str
    expires: str


@click.group(name="profiles", cls=Group)
def command() -> None:
    """Show or forget what was learnt about upstreams and their models.

    A gateway with a ledger learns from its turns: which way of asking made a demanded call, which one the server
    refused or ignored, in which text format the model writes calls. The next turn starts with what worked. What one
    caller's turns teach holds for its key, and for others once two keys have learnt it. What is configured in
    mustcall.toml always has the last word. A refusal is tried again after an hour, then less and less often; what
    was learnt expires after seven days (`[ledger] keep_learnt`).
    """


@command.command(name="list", short_help="Show what was learnt.")
@gateway_place_option
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array instead of a table.")
def list_command(place: str | None, config: Path | None, *, as_json: bool) -> None:
    """Show every learnt fact with its counts, dates and expiry."""
    kept = load_ledger(config, place=place)
    keeps = kept.learnt_seconds
    since = max(0.0, time() - keeps)

    async def read(ledger: Ledger) -> tuple[list[FactRow], list[TallyRow]]:
        return await ledger.facts(since=since), await ledger.tallies(since=since)

    facts, tallies = on_ledger(kept.place, read)
    lines = sorted(
        [*(_fact(row, keeps) for row in facts), *(_tally(row, keeps) for row in tallies)],
        key=lambda one: (one.upstream, one.model, one.subject, one.tenant),
    )
    if as_json:
        print_json(lines, indent=2)
        return
    if not lines:
        click.echo("nothing was learnt yet; a gateway with a ledger learns from its turns")
        return
    for one in lines:
        counted = f"made {one.made}, missed {one.missed}" if one.made or one.missed else f"is {one.value}"
        if one.note and one.subject.startswith(TOOL):
            counted = plain(one.note)
        counted += f", seen {one.seen} times" if one.seen > 1 else ""
        whose = f"  key {one.tenant}" if one.tenant else ""
        click.echo(
            f"{one.upstream}  {one.model}  {one.subject:<24} {counted:<24} last {one.last}, until {one.expires}{whose}"
        )


@command.command(short_help="Forget what was learnt.")
@gateway_ledger
@click.option("--upstream", default="", metavar="NAME", help="Only of this upstream.")
@click.option("--model", default="", metavar="NAME", help="Only of this model.")
@click.option("--key", "tenant", default="", metavar="DIGEST", help="Only what this key's turns taught.")
@click.option("--all", "everything", is_flag=True, help="Of every upstream and model.")
@json_option
def forget(place: str | None, upstream: str, model: str, tenant: str, *, everything: bool, as_json: bool) -> None:
    """Remove learnt facts and counts from the ledger; running gateways forget them within half a minute.

    Keys are named by the digest that the list shows, never by themselves.
    """
    if not (upstream or model or tenant or everything):
        raise click.UsageError("say what to forget: --upstream NAME, --model NAME, --key DIGEST, or --all")
    count = on_ledger(place, lambda ledger: ledger.forget_learnt(upstream, model, tenant))
    if as_json:
        print_json({"forgotten": count})
        return
    click.echo(f"forgot {count} {'entry' if count == 1 else 'entries'}")


def _fact(row: FactRow, keeps: float) -> _Learnt:
    value = msgspec.json.decode(row.value)
    dates = (_date(row.first or row.at), _date(row.at), _date(row.at + believed_for(row.seen, keeps)))
    return _Learnt(row.upstream, row.model, row.field, row.tenant, value, row.note, row.seen, 0, 0, *dates)


def _tally(row: TallyRow, keeps: float) -> _Learnt:
    dates = (_date(row.first), _date(row.last), _date(row.last + keeps))
    return _Learnt(row.upstream, row.model, row.subject, row.tenant, None, "", 0, row.made, row.missed, *dates)


def _date(at: float) -> str:
    return "never" if at == float("inf") else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")
