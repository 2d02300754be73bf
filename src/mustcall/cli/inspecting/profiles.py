"""`mustcall profiles`: what probes measured and turns learnt about models, and how to forget it (rule 139)."""

from datetime import UTC, datetime
from pathlib import Path
from time import time

import click
import msgspec

from mustcall.cli.groups import Group
from mustcall.cli.inspecting.tables import config_option, gateway_ledger, gateway_place_option, on_ledger
from mustcall.cli.printing import json_option, print_json, print_line
from mustcall.gateway.config.probe_settings import Sourced
from mustcall.gateway.config.settings import load_ledger, load_measured
from mustcall.gateway.state.measured_profiles import profiles_in
from mustcall.ledger import FactRow, Ledger, MeasuredRow, TallyRow
from mustcall.profiles.learnt import TOOL, believed_for
from mustcall.toolkit.builtin.files import plain

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
    #: Where a measured fact was read; empty for what was learnt.
    source: str = ""


@click.group(name="profiles", cls=Group)
def command() -> None:
    """Show or forget what was measured and learnt about upstreams and their models.

    What `mustcall probe --write` measured stands over what came with mustcall and over what turns taught.

    A gateway with a ledger learns from its turns: which way of asking made a demanded call, which one the server
    refused or ignored, in which text format the model writes calls. The next turn starts with what worked. What one
    caller's turns teach holds for its key, and for others once two keys have learnt it. What is configured in
    mustcall.toml always has the last word. A refusal is tried again after an hour, then less and less often; what
    was learnt expires after seven days (`[ledger] keep_learnt`).
    """


@command.command(name="list", short_help="Show what was measured and learnt.")
@gateway_place_option
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array instead of a table.")
def list_command(place: str | None, config: Path | None, *, as_json: bool) -> None:
    """Show every measured fact with its day, count and source, and every learnt one with its counts and expiry."""
    kept = load_ledger(config, place=place)
    keeps = kept.learnt_seconds
    since = max(0.0, time() - keeps)

    async def read(ledger: Ledger) -> tuple[list[FactRow], list[TallyRow], list[MeasuredRow]]:
        facts, tallies = await ledger.facts(since=since), await ledger.tallies(since=since)
        return facts, tallies, await ledger.measured()

    facts, tallies, measured = on_ledger(kept.place, read)
    sourced = [*load_measured(config), *(Sourced(profile, "ledger") for profile, _ in profiles_in(measured))]
    lines = sorted(
        [
            *(line for one in sourced for line in _measured(one)),
            *(_fact(row, keeps) for row in facts),
            *(_tally(row, keeps) for row in tallies),
        ],
        key=lambda one: (one.upstream, one.model, one.subject, one.tenant),
    )
    if as_json:
        print_json(lines, indent=2)
        return
    if not lines:
        print_line("nothing was measured or learnt yet; `mustcall probe --write` measures, a gateway's turns teach")
        return
    for one in lines:
        if one.source:
            print_line(
                f"{one.upstream}  {one.model}  {one.subject:<24} is {one.value}  measured {one.note}, {one.source}",
                hang=4,
            )
            continue
        counted = f"made {one.made}, missed {one.missed}" if one.made or one.missed else f"is {one.value}"
        if one.note and one.subject.startswith(TOOL):
            counted = plain(one.note)
        counted += f", seen {one.seen} times" if one.seen > 1 else ""
        whose = f"  key {one.tenant}" if one.tenant else ""
        print_line(
            f"{one.upstream}  {one.model}  {one.subject:<24} {counted:<24} last {one.last}, until {one.expires}{whose}",
            hang=4,
        )


@command.command(short_help="Forget what was learnt.")
@gateway_ledger
@click.option("--upstream", default="", metavar="NAME", help="Only of this upstream.")
@click.option("--model", default="", metavar="NAME", help="Only of this model.")
@click.option("--key", "tenant", default="", metavar="DIGEST", help="Only what this key's turns taught.")
@click.option("--all", "everything", is_flag=True, help="Of every upstream and model.")
@click.option("--measured", is_flag=True, help="What a probe measured, instead of what was learnt.")
@json_option
def forget(
    place: str | None, upstream: str, model: str, tenant: str, *, everything: bool, measured: bool, as_json: bool
) -> None:
    """Remove learnt facts and counts from the ledger; running gateways forget them within half a minute.

    With --measured what a probe wrote to the ledger is removed instead. What stands in mustcall.toml is removed there.

    Keys are named by the digest that the list shows, never by themselves.
    """
    if not (upstream or model or tenant or everything):
        raise click.UsageError("say what to forget: --upstream NAME, --model NAME, --key DIGEST, or --all")
    if measured and tenant:
        raise click.UsageError("what is measured belongs to no key: leave out --key, or --measured")

    async def remove(ledger: Ledger) -> int:
        if measured:
            return await ledger.forget_measured(upstream, model)
        return await ledger.forget_learnt(upstream, model, tenant)

    count = on_ledger(place, remove)
    if as_json:
        print_json({"forgotten": count})
        return
    click.echo(f"forgot {count} {'entry' if count == 1 else 'entries'}")


def _measured(one: Sourced) -> list[_Learnt]:
    about = (one.profile.upstream or one.profile.endpoint, one.profile.model)
    return [
        _Learnt(
            *about,
            fact.field,
            "",
            fact.value,
            fact.measured,
            0,
            fact.held,
            fact.of - fact.held,
            fact.day,
            fact.day,
            "never",
            one.source,
        )
        for fact in one.profile.facts
    ]


def _fact(row: FactRow, keeps: float) -> _Learnt:
    value = msgspec.json.decode(row.value)
    dates = (_date(row.first or row.at), _date(row.at), _date(row.at + believed_for(row.seen, keeps)))
    return _Learnt(row.upstream, row.model, row.field, row.tenant, value, row.note, row.seen, 0, 0, *dates)


def _tally(row: TallyRow, keeps: float) -> _Learnt:
    dates = (_date(row.first), _date(row.last), _date(row.last + keeps))
    return _Learnt(row.upstream, row.model, row.subject, row.tenant, None, "", 0, row.made, row.missed, *dates)


def _date(at: float) -> str:
    return "never" if at == float("inf") else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")
