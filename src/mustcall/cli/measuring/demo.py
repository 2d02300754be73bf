"""`mustcall demo`: mustcall's own prompts with and without mustcall, on any upstream, and what came of it.

A face of `mustcall eval builtin`: the same questions and arms, with a report that shows every prompt.
"""

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from mustcall import __version__
from mustcall.cli.measuring.options import (
    INTERRUPTED,
    check_files,
    measured_settings,
    open_subject,
    read_key,
    read_sampling,
    report_options,
    sampling_options,
    upstream_options,
)
from mustcall.cli.writing import written
from mustcall.evals.asking.arms import make_askers
from mustcall.evals.asking.client_requests import Sampling
from mustcall.evals.asking.rows import Arm
from mustcall.evals.prompts import EvalPrompt, as_question, choose_prompts
from mustcall.evals.report.figures import add_up
from mustcall.evals.report.page import write_page
from mustcall.evals.report.pairs import compare
from mustcall.evals.report.picture import draw_picture
from mustcall.evals.report.results import EvalConditions, EvalResults, Pair, Trial
from mustcall.gateway.config.settings import Settings

__all__ = ["command"]


@click.command(name="demo", short_help="Measure a model with and without mustcall.")
@upstream_options
@click.option("--prompts", "count", type=int, metavar="N", help="Number of prompts to ask, of 40.")
@click.option("--seed", type=int, help="Shuffle the prompts; the same number gives the same order.")
@sampling_options
@report_options
def command(
    *,
    file: Path | None,
    upstream: str | None,
    gguf: Path | None,
    model: str | None,
    key_env: str | None,
    count: int | None,
    seed: int | None,
    temperature: str,
    max_tokens: int | None,
    page: Path | None,
    picture: Path | None,
    data: Path | None,
) -> None:
    """Ask a model the same questions with and without mustcall, and compare.

    Each prompt wants one tool call. It is sent twice: to the upstream as it is, and through mustcall. The report says
    how many replies were a valid call, of the right tool, with the right arguments, and what it cost. Without an
    upstream the embedded model is measured. Ctrl-C stops and reports what was measured so far.

    `mustcall eval` measures with public benchmarks, and keeps every reply.
    """
    logging.getLogger("mustcall").addHandler(logging.NullHandler())  # what fails is in the report
    prompts = choose_prompts(count, seed)
    check_files(page, data, picture=picture)
    settings = measured_settings(file, upstream, gguf, model, key_env)
    sampling = read_sampling(settings, temperature, max_tokens)
    run = _measure(settings, model, read_key(key_env), prompts=prompts, sampling=sampling, seed=seed)
    if run is None:
        click.echo("mustcall: stopped before anything was measured", err=True)
        sys.exit(INTERRUPTED)
    _report(run, page, picture, data)
    if run.partial:
        sys.exit(INTERRUPTED)


def _measure(
    settings: Settings,
    model: str | None,
    key: str | None,
    *,
    prompts: tuple[EvalPrompt, ...],
    sampling: Sampling,
    seed: int | None,
) -> EvalResults | None:
    """Run to the end or until Ctrl-C; None if nothing was measured."""
    from mustcall.cli.measuring.demo_screen import progress_bar  # noqa: PLC0415  `--help` needs no rich

    circumstances: EvalConditions | None = None
    pairs: list[Pair] = []

    async def measure(note: Callable[[Arm, Trial], None]) -> None:
        nonlocal circumstances
        async with open_subject(settings, model, key, sampling, as_question(prompts[0])) as subject:
            endpoint = subject.endpoint
            circumstances = EvalConditions(
                model=subject.model,
                upstream=endpoint.name,
                wire=endpoint.wire,
                address=endpoint.base_url,
                version=__version__,
                started=datetime.now(UTC).isoformat(timespec="seconds"),
                planned=len(prompts),
                sampling=sampling,
                form=subject.form,
                seed=seed,
            )
            askers = make_askers(subject)
            async with contextlib.aclosing(compare(prompts, askers, name=endpoint.name, note=note)) as compared:
                async for pair in compared:
                    pairs.append(pair)  # noqa: PERF401  Ctrl-C must find what is there

    with contextlib.suppress(KeyboardInterrupt), progress_bar(len(prompts)) as note:
        asyncio.run(measure(note))
    if circumstances is None or not pairs:
        return None
    return EvalResults(circumstances=circumstances, pairs=tuple(pairs))


def _report(run: EvalResults, page: Path | None, picture: Path | None, data: Path | None) -> None:
    """Write the files that were asked for, then print the figures: a reader who stops reading loses no file."""
    from mustcall.cli.measuring.demo_screen import print_report  # noqa: PLC0415  `--help` needs no rich

    if data is not None:
        with written(data) as part:
            measured = msgspec.json.encode({"run": run, "figures": add_up(run)})
            part.write_bytes(msgspec.json.format(measured, indent=2) + b"\n")
    if page is not None:
        with written(page) as part:
            part.write_text(write_page(run), encoding="utf-8")
    if picture is not None:
        with written(picture) as part:
            draw_picture(run, part)
    if (reconfigure := getattr(sys.stdout, "reconfigure", None)) is not None:
        reconfigure(errors="replace")  # a terminal that lacks a character gets a question mark, not an error
    print_report(run)
    for path in (page, picture, data):
        if path is not None:
            click.echo(f"wrote {path}")
