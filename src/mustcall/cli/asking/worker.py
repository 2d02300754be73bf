"""`mustcall worker`: carry out the queued runs of an agent, together with every other worker on the same database."""

import asyncio
import logging
import signal

import click

from mustcall.cli.asking.importing import load_agent
from mustcall.engine.worker import Worker, postgres_worker

__all__ = ["command"]


@click.command(name="worker")
@click.argument("agent", metavar="MODULE:ATTRIBUTE")
@click.option(
    "--ledger",
    "place",
    metavar="URL",
    help="The PostgreSQL the runs are in.  [default: $MUSTCALL_LEDGER, $DATABASE_URL]",
)
@click.option("--concurrency", type=click.IntRange(1), default=4, show_default=True, help="Runs at the same time.")
def command(agent: str, place: str | None, concurrency: int) -> None:
    """Carry out the queued runs of the agent at MODULE:ATTRIBUTE (`Agent.submit` queues them), until stopped.

    The attribute is an `Agent` or a function that makes one. Several workers share one database; the runs of a worker
    that dies are taken over by the others. A worker that is stopped leaves its runs to them.
    """
    logging.basicConfig(level=logging.WARNING, format="mustcall: %(message)s")
    logging.getLogger("mustcall.runs").setLevel(logging.INFO)
    worker = postgres_worker(load_agent(agent, place), place, concurrency=concurrency)
    asyncio.run(_work(worker))
    click.echo(f"stopped; {worker.finished} runs were carried to their end", err=True)


async def _work(worker: Worker) -> None:
    """Work until the first SIGINT or SIGTERM."""
    working = asyncio.ensure_future(worker.work())
    loop = asyncio.get_running_loop()
    for stop in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(stop, working.cancel)
    click.echo("working; Ctrl-C stops", err=True)
    await asyncio.wait({working})
    if not working.cancelled():
        working.result()
