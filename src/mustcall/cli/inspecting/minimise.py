"""`mustcall minimise`: the smallest request that fails in the same way, and what is needed to report it."""

import asyncio
import contextlib
import logging
import platform
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from mustcall import __version__
from mustcall.cli.inspecting.recording import UNREACHABLE, Given, find_recorded, open_given, source_options
from mustcall.cli.measuring.options import INTERRUPTED
from mustcall.cli.printing import print_json
from mustcall.cli.writing import written
from mustcall.core.errors import ConfigError, UpstreamUnavailable
from mustcall.core.verdict import Verdict
from mustcall.gateway.config.settings import ServerSettings
from mustcall.replay import ReplaySubject
from mustcall.replay.minimising import Minimised, Minimising, announce_search, ask_of
from mustcall.replay.reducing import CONFIRMED, CONFIRMING, LEAST_CALLS, NEEDED, TRIALS
from mustcall.replay.reporting import FILES, files_of

__all__ = ["command"]

#: The exit code where there is nothing to report: the request works, or the result was not confirmed.
_NOT_CONFIRMED = 1


@click.command(name="minimise")
@source_options
@click.option(
    "--max-calls",
    type=click.IntRange(LEAST_CALLS),
    default=120,
    show_default=True,
    help="The most upstream calls that are made, the confirmation included.",
)
@click.option(
    "--verdict",
    type=click.Choice([str(word) for word in Verdict]),
    help="The failure to look for.  [default: the one the request shows]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("minimised"),
    show_default=True,
    help="The directory to write to.",
)
@click.option("--redact", is_flag=True, help="Mask what was said; lengths, names and structure stay.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(*, max_calls: int, verdict: str | None, out: Path, redact: bool, as_json: bool, **given: Any) -> None:
    """Find the smallest request that fails in the same way.

    Leaves out tools, messages (a call and its results together), settings, schema properties, descriptions and parts of
    texts, as long as the bare reply fails with the same verdict. What is left counts at 3 of 5 calls in a row; the
    result is asked 10 times and is confirmed at 8. Writes request.json, curl.sh, test_request.py and issue.md.
    Ctrl-C keeps the smallest request so far.

    Exit codes: 0 confirmed, 1 not confirmed or the request works, 2 the request cannot be sent, 3 the upstream cannot
    be reached, 130 stopped.
    """
    logging.getLogger("mustcall").addHandler(logging.NullHandler())
    words = Given(**given)
    search = Minimising(find_recorded(words), max_calls=max_calls, wanted=verdict or "", redact=redact)
    run = _Run(search, max_calls)
    gone: UpstreamUnavailable | None = None
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(run.search(words))
    except UpstreamUnavailable as error:
        gone = error
    if gone is None and not run.measured:
        click.echo("mustcall: stopped before anything was measured", err=True)
        sys.exit(INTERRUPTED)
    _report(run, out, as_json=as_json)
    if gone is not None:
        click.echo(f"mustcall: {gone.message}", err=True)
        sys.exit(UNREACHABLE)
    found = run.result
    if found is None or found.partial:
        sys.exit(INTERRUPTED)
    if not found.found.is_confirmed:
        sys.exit(_NOT_CONFIRMED)


class _Run:
    """One search from the command line."""

    def __init__(self, search: Minimising, max_calls: int) -> None:
        self._search = search
        self._max_calls = max_calls
        self._subject: ReplaySubject | None = None

    @property
    def subject(self) -> ReplaySubject | None:
        """Whom it asks, once that is known."""
        return self._subject

    @property
    def measured(self) -> bool:
        """Whether a reply was judged, or the search is at its end without one."""
        found = self.result
        return found is not None and (found.found.original[1] > 0 or not found.partial)

    @property
    def result(self) -> Minimised | None:
        """What was found, None before anything was asked."""
        return self._search.result() if self._search.calls else None

    async def search(self, given: Given) -> None:
        """Announce and search."""
        from mustcall.cli.inspecting.replay_screen import searching_bar  # noqa: PLC0415  `--help` needs no rich

        async with open_given(self._search.recorded, given) as (recorded, subject):
            self._subject = subject
            self._search.recorded = recorded
            told = announce_search(recorded, subject, self._max_calls)
            where = f"{subject.model} at {subject.endpoint.name} ({subject.endpoint.base_url})"
            click.echo(f"{recorded.source}: to {where}", err=True)
            click.echo(f"announced: at most {told.most_calls} upstream calls; {told.cost_words}", err=True)
            click.echo(
                f"a request counts at {NEEDED} of {TRIALS}, the result is confirmed at {CONFIRMED} of {CONFIRMING}",
                err=True,
            )
            with searching_bar(self._max_calls) as note:
                await self._search.run(ask_of(subject), note)


def _report(run: _Run, out: Path, *, as_json: bool) -> None:
    found, subject = run.result, run.subject
    if found is None or subject is None:
        return
    names: list[str] = []
    if found.reproduces:
        versions = {
            "mustcall": __version__,
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            "model": subject.model,
            "wire": f"{found.recorded.wire} to {subject.endpoint.wire}",
        }
        server = ServerSettings()
        gateway = f"http://{server.host}:{server.port}"
        names = _write(out, files_of(found, subject.endpoint, subject.model, versions, gateway=gateway))
    if as_json:
        print_json(_told(found, names))
        return
    click.echo(found.words)
    if found.caveat:
        click.echo(found.caveat)
    for name in names:
        click.echo(f"wrote {out / name}")


def _told(found: Minimised, names: list[str]) -> dict[str, object]:
    return {
        "verdict": found.found.verdict,
        "words": found.words,
        "caveat": found.caveat,
        "before": found.before,
        "after": found.after,
        "original": found.found.original,
        "confirmed": found.found.confirmed,
        "is_confirmed": found.found.is_confirmed,
        "calls": found.found.calls,
        "candidates": found.found.candidates,
        "spent": found.found.spent,
        "partial": found.partial,
        "request": msgspec.Raw(found.recorded.body),
        "files": names,
    }


def _write(out: Path, files: dict[str, str]) -> list[str]:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make {out}: {error.strerror}") from None
    for name in FILES - files.keys():  # of an earlier run: about another request, and perhaps not masked
        try:
            (out / name).unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot remove {out / name}: {error.strerror}") from None
    for name, text in files.items():
        with written(out / name, private=True) as part:
            part.write_text(text, encoding="utf-8")
    return list(files)
