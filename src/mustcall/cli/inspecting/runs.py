"""`mustcall runs`: what durable runs there are, what each did, and going on with or ending one."""

import asyncio
import sys
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mustcall.cli.asking.importing import load_agent
from mustcall.cli.groups import Group
from mustcall.cli.inspecting.tables import cell, console, moment, on_ledger, place_option, styled
from mustcall.cli.printing import json_option, print_json
from mustcall.core.errors import UnknownRun
from mustcall.core.origin import JsonObject
from mustcall.engine.durable.documents import outcome_of
from mustcall.engine.durable.showing import Line, describe_event, event_as_json, run_as_json
from mustcall.engine.run_records.results import RunResult, Stopped
from mustcall.ledger import JournalEvent, Ledger, RunStatus, StoredRun
from mustcall.toolkit.builtin.files import plain

__all__ = ["command"]

_STYLES = {
    "done": "green",
    "ok": "green",
    "failed": "red",
    "unknown": "bold yellow",
    "running": "cyan",
    "waiting": "yellow",
    "cancelled": "dim",
}

#: Columns of the journal that are not broken.
_WHOLE = ("status", "fence", "time")


@click.group(name="runs", cls=Group)
def command() -> None:
    """List, show, resume and cancel durable runs."""


@command.command(name="list", short_help="Show the runs there are.")
@place_option
@click.option(
    "--status", type=click.Choice([str(status) for status in RunStatus]), help="Show only runs with this status."
)
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="The most to show.")
@json_option
def list_command(place: str | None, status: str | None, limit: int, *, as_json: bool) -> None:
    """Show runs, the newest first."""
    wanted = None if status is None else RunStatus(status)
    runs = on_ledger(place, lambda ledger: ledger.runs(status=wanted, most=limit))
    if as_json:
        print_json([run_as_json(run) for run in runs])
        return
    if not runs:
        click.echo("no runs")
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("run", "status", "created", "owner"):
        table.add_column(name)
    for run in runs:
        table.add_row(cell(run.id), _styled(str(run.status)), moment(run.created), cell(run.owner or ""))
    console().print(table)


@command.command(short_help="Show one run and its journal.")
@click.argument("run_id")
@place_option
@json_option
def show(run_id: str, place: str | None, *, as_json: bool) -> None:
    """Show where RUN_ID stands and everything its journal says."""

    async def read(ledger: Ledger) -> tuple[StoredRun, list[JournalEvent]]:
        found = await ledger.get_run(run_id)
        if found is None:
            raise UnknownRun(f"there is no run {run_id!r} in the ledger at {ledger.store.place}")
        return found, await ledger.events(run_id)

    run, events = on_ledger(place, read)
    shown, lines = run_as_json(run), [describe_event(event) for event in events]
    if as_json:
        print_json({**shown, "journal": [event_as_json(line) for line in lines]})
        return
    out = console()
    out.print(Text.assemble(cell(run.id), "  ", _styled(str(run.status)), f"  since {moment(run.updated)}"))
    out.print(_journal(lines))
    _print_end(out, shown)


@command.command(short_help="Continue a run.")
@click.argument("run_id")
@click.option("--agent", "path", required=True, metavar="MODULE:ATTRIBUTE", help="The agent the run belongs to.")
@click.option("--take", is_flag=True, help="Take the run even if its owner's lease lasts.")
@place_option
@json_option
def resume(run_id: str, path: str, place: str | None, *, take: bool, as_json: bool) -> None:
    """Continue RUN_ID where it was interrupted, and print its answer. Finished steps are not repeated.

    Exit codes: 0 answered; 1 the run failed; 2 the command cannot be carried out as given.
    """
    agent = load_agent(path, place)
    result = asyncio.run(agent.resume(run_id, take=take, check=False))
    if as_json:
        print_json(msgspec.Raw(outcome_of("", result)))
    else:
        _print_result(result)
    sys.exit(1 if result.stopped in (Stopped.FAILED, Stopped.CANCELLED) else 0)


@command.command(short_help="End a run.")
@click.argument("run_id")
@place_option
@json_option
def cancel(run_id: str, place: str | None, *, as_json: bool) -> None:
    """Cancel RUN_ID. The process that carries it out stops. Exits with 1 if there is nothing to cancel."""
    cancelled = on_ledger(place, lambda ledger: ledger.cancel_run(run_id)) is not None
    if as_json:
        print_json({"run": run_id, "cancelled": cancelled})
        sys.exit(0 if cancelled else 1)
    if not cancelled:
        click.echo(f"{plain(run_id)} is not there, or has ended", err=True)
        sys.exit(1)
    click.echo(f"cancelled {plain(run_id)}")


def _print_result(result: RunResult[Any]) -> None:
    for call in result.unknown:
        click.echo(f"mustcall: whether {plain(call.name)} took effect is not known", err=True)
    if result.error is not None:
        click.echo(f"mustcall: {plain(result.error.message)}", err=True)
    else:
        click.echo(plain(result.text, keep="\n\t") if sys.stdout.isatty() else result.text)


def _journal(lines: list[Line]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("step", "what", "status", "fence", "time", ""):
        table.add_column(name, no_wrap=name in _WHOLE, overflow="fold")
    for line in lines:
        attempt = f" ({line.attempt + 1}. time)" if line.attempt else ""
        table.add_row(
            cell(line.step),
            f"{line.kind}{attempt}",
            _styled(line.status),
            str(line.fence),
            moment(line.at),
            cell(line.said),
        )
    return table


def _print_end(out: Console, shown: JsonObject) -> None:
    if shown.get("unknown"):
        names = ", ".join(shown["unknown"])
        out.print(Text(f"not known whether they took effect: {plain(names)}", style="bold yellow"))
    if "error" in shown:
        out.print(Text(plain(str(shown["error"]["message"])), style="red"))
    elif shown.get("answer"):
        out.print(Text(plain(str(shown["answer"]), keep="\n\t")))


def _styled(word: str) -> Text:
    return styled(word, _STYLES)
