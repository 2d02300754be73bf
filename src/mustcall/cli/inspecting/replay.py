"""`mustcall replay`: a recorded request again, bare and through mustcall, and what came of it."""

import asyncio
import contextlib
import logging
import sys
from typing import Any

import click
import msgspec

from mustcall.cli.inspecting.recording import UNREACHABLE, Given, find_recorded, open_given, source_options
from mustcall.cli.measuring.options import INTERRUPTED
from mustcall.cli.printing import print_json
from mustcall.replay import (
    Announcement,
    RecordedRequest,
    ReplaySample,
    ReplaySubject,
    announce,
    is_unreachable,
    replay,
    summarise,
)

__all__ = ["command"]


@click.command(name="replay")
@source_options
@click.option("--times", type=click.IntRange(1), default=20, show_default=True, help="How often each way.")
@click.option("--json", "as_json", is_flag=True, help="Print everything that was measured as JSON.")
def command(*, times: int, as_json: bool, **given: Any) -> None:
    """Send a recorded request again, bare and through mustcall.

    ID is a turn (`x-mustcall-trace` of its answer) whose contents the ledger keeps. FILE is the body of a request, or a
    bundle that `mustcall turns export` wrote. The report gives the verdicts, how often the caller was served each way,
    the recovery rate with its 95 % interval, and what differs from the record. Ctrl-C reports what was measured so far.

    Exit codes: 0 measured, 2 the request cannot be sent, 3 the upstream cannot be reached, 130 stopped.
    """
    logging.getLogger("mustcall").addHandler(logging.NullHandler())  # what fails is in the report
    words = Given(**given)
    run = _Run(find_recorded(words), times)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run.measure(words))
    if not run.samples:
        click.echo("mustcall: stopped before anything was measured", err=True)
        sys.exit(INTERRUPTED)
    _report(run, as_json=as_json)
    if run.unreachable:
        last = run.samples[-1]
        click.echo(f"mustcall: the upstream cannot be reached: {last.message}; start it or correct --to", err=True)
        sys.exit(UNREACHABLE)
    if run.partial:
        sys.exit(INTERRUPTED)


class _Run:
    """One replay: what was announced, and what is there so far."""

    def __init__(self, recorded: RecordedRequest, times: int) -> None:
        self.recorded = recorded
        self.times = times
        self.samples: list[ReplaySample] = []
        self.announced: Announcement | None = None
        self.upstream = ""
        self.model = ""

    @property
    def partial(self) -> bool:
        """Whether samples are missing."""
        return len(self.samples) < 2 * self.times

    @property
    def unreachable(self) -> bool:
        """Whether no sample found the upstream there."""
        return not any(sample.reached for sample in self.samples)

    async def measure(self, given: Given) -> None:
        """Announce, then take samples until all are there; stop where the upstream is not."""
        from mustcall.cli.inspecting.replay_screen import sampling_bar  # noqa: PLC0415  `--help` needs no rich

        async with open_given(self.recorded, given) as (recorded, subject):
            self._announce(recorded, subject)
            with sampling_bar(2 * self.times) as advance:
                async with contextlib.aclosing(replay(recorded, subject, times=self.times)) as samples:
                    async for sample in samples:
                        self.samples.append(sample)
                        advance(sample)
                        if is_unreachable(self.samples):
                            return

    def _announce(self, recorded: RecordedRequest, subject: ReplaySubject) -> None:
        self.upstream, self.model = subject.endpoint.name, subject.model
        self.announced = announce(recorded, subject, times=self.times)
        where = f"{self.model} at {self.upstream} ({subject.endpoint.base_url})"
        click.echo(f"{recorded.source}: {self.times} times bare and through mustcall, to {where}", err=True)
        click.echo(f"announced: {self.announced.words}", err=True)
        if recorded.redacted:
            click.echo("note: the request was kept redacted; masked words are sent as they stand", err=True)


def _report(run: _Run, *, as_json: bool) -> None:
    told = summarise(run.recorded, run.samples)
    if as_json:
        whole = {
            "upstream": run.upstream,
            "model": run.model,
            "wire": run.recorded.wire,
            "times": run.times,
            "partial": run.partial,
            "announced": run.announced,
            "summary": told,
            "samples": [msgspec.structs.replace(sample, answer=None) for sample in run.samples],
        }
        print_json(whole)
        return
    from mustcall.cli.inspecting.replay_screen import print_summary  # noqa: PLC0415  `--help` needs no rich

    print_summary(told)
    if run.partial:
        click.echo(f"{len(run.samples)} of {2 * run.times} samples were taken")
