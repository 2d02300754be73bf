"""`mustcall eval`: a suite of questions with and without mustcall, every reply kept, scored again at will."""

import asyncio
import contextlib
import logging
import re
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from mustcall import __version__
from mustcall.cli.eval_report import Reports, check_reports, report
from mustcall.cli.measuring import (
    FILE,
    INTERRUPTED,
    measured_settings,
    open_subject,
    read_key,
    read_sampling,
    report_options,
    sampling_options,
    upstream_options,
)
from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.evals.arms import GatewayPath, Subject, make_askers
from mustcall.evals.asking import Sampling
from mustcall.evals.counting import CountedTransport
from mustcall.evals.floors import check_floors, read_floor
from mustcall.evals.journal import Journal, RunFacts, read_journal
from mustcall.evals.loading import SUITES, open_suite
from mustcall.evals.questions import Demand, Question
from mustcall.evals.rows import Row
from mustcall.evals.runner import ask_all
from mustcall.evals.suites import Suite, check_sets, choose_questions
from mustcall.evals.summary import summarise
from mustcall.gateway.settings import Settings
from mustcall.upstream.artifacts.places import cache_directory
from mustcall.upstream.schemes import SchemeTransport

__all__ = ["command"]

_SCORE = "score"


class _Suites(click.Group):
    """A group whose commands are the suites, and `score`."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is None:
            raise ConfigError(
                f"there is no suite called {cmd_name!r}; there are: {', '.join(SUITES)} (and `{_SCORE} FILE` for "
                "replies that were kept)"
            )
        return found


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is made with, as the command line gave it."""

    sets: tuple[str, ...]
    limit: int | None
    seed: int
    choice: Demand | None
    wire: Wire | None
    stream: bool
    gateway: str | None
    gateway_key: str | None
    via: str
    model: str | None
    key: str | None
    sampling: Sampling
    out: Path | None


@click.group(name="eval", cls=_Suites, short_help="Measure a model on a suite, with and without mustcall.")
def command() -> None:
    """Ask a model the questions of a suite with and without mustcall, and count the right answers.

    Each question is asked in two arms: `bare`, the upstream as it is, and `mustcall`. Every reply is kept in a file as
    soon as it is there; a run that was stopped goes on from it. docs/eval.md says how to repeat the published figures.
    """
    logging.getLogger("mustcall").addHandler(logging.NullHandler())  # what fails is in the report


def _split(_ctx: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


_RUN_OPTIONS = (
    click.option(
        "--set", "sets", multiple=True, callback=_split, help="A set to ask; may be repeated.  [default: all]"
    ),
    click.option("--limit", type=click.IntRange(1), help="Ask so many questions of each set, drawn by the seed."),
    click.option("--seed", type=int, default=0, show_default=True, help="What --limit draws by."),
    click.option(
        "--choice",
        type=click.Choice([str(demand) for demand in Demand]),
        help="What tool_choice says.  [default: auto; of builtin: each prompt's own]",
    ),
    click.option(
        "--wire", type=click.Choice([str(wire) for wire in Wire]), help="The caller's wire of the mustcall arm."
    ),
    click.option("--stream", is_flag=True, help="Ask for streams in both arms."),
    click.option(
        "--via",
        type=click.Choice(["engine", "gateway"]),
        default="engine",
        show_default=True,
        help="Take the turns of the mustcall arm in this process, or over HTTP in a gateway of its own.",
    ),
    click.option("--gateway", metavar="URL", help="Send the mustcall arm to this gateway."),
    click.option("--gateway-key-env", metavar="NAME", help="The environment variable that holds that gateway's key."),
    click.option(
        "--out", type=click.Path(path_type=Path), help="Keep the replies in this file or directory, or go on."
    ),
)
_REPORT_OPTIONS = (
    click.option("--compare", "old", type=FILE, metavar="OLD.json", help="Compare with an earlier run's --json."),
    click.option(
        "--at-least",
        "floors",
        multiple=True,
        metavar="SET[.ARM]=SHARE",
        help="Exit with 1 if fewer are right: simple_python=70%. May be repeated.",
    ),
)


def _with(options: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _suite_command(name: str, about: str) -> click.Command:
    @click.command(name=name, short_help=about, help=about)
    @_with(_RUN_OPTIONS)
    @upstream_options
    @sampling_options
    @report_options
    @_with(_REPORT_OPTIONS)
    def run(
        *,
        sets: tuple[str, ...],
        limit: int | None,
        seed: int,
        choice: str | None,
        wire: str | None,
        stream: bool,
        via: str,
        gateway: str | None,
        gateway_key_env: str | None,
        out: Path | None,
        file: Path | None,
        upstream: str | None,
        gguf: Path | None,
        model: str | None,
        key_env: str | None,
        temperature: str,
        max_tokens: int | None,
        page: Path | None,
        picture: Path | None,
        data: Path | None,
        old: Path | None,
        floors: tuple[str, ...],
    ) -> None:
        if gateway is not None and via != "engine":
            raise click.UsageError("--gateway is a gateway already; leave out --via")
        reports = Reports(page=page, picture=picture, data=data, old=old, floors=tuple(map(read_floor, floors)))
        check_reports(reports)
        settings = measured_settings(file, upstream, gguf, model)
        options = Options(
            sets=sets,
            limit=limit,
            seed=seed,
            choice=Demand(choice) if choice else None,
            wire=Wire(wire) if wire else None,
            stream=stream,
            gateway=gateway,
            gateway_key=read_key(gateway_key_env, "--gateway-key-env"),
            via=via,
            model=model,
            key=read_key(key_env),
            sampling=read_sampling(settings, temperature, max_tokens),
            out=out,
        )
        _evaluate(name, settings, options, reports)

    return run


for _name, _about in SUITES.items():
    command.add_command(_suite_command(_name, _about))


@command.command(name=_SCORE, short_help="Score replies that were kept, without asking anybody.")
@click.argument("replies", type=FILE)
@report_options
@_with(_REPORT_OPTIONS)
def score_command(
    *,
    replies: Path,
    page: Path | None,
    picture: Path | None,
    data: Path | None,
    old: Path | None,
    floors: tuple[str, ...],
) -> None:
    """Score the replies in the file REPLIES once more, as it stands, and report as a run does."""
    reports = Reports(page=page, picture=picture, data=data, old=old, floors=tuple(map(read_floor, floors)))
    check_reports(reports)
    facts, rows = read_journal(replies)
    check_floors(reports.floors, facts.sets)
    suite = _opened(facts.suite)
    if suite.version != facts.data:
        raise ConfigError(
            f"{replies} holds replies to other data of {suite.name} ({facts.data}) than is here ({suite.version})"
        )
    sys.exit(report(summarise(facts, rows, suite), suite, reports))


def _opened(name: str) -> Suite:
    """Open a suite; a download is announced."""
    return open_suite(name, note=lambda line: click.echo(f"note: {line}", err=True))


def _evaluate(name: str, settings: Settings, options: Options, reports: Reports) -> None:
    """Run to the end or until Ctrl-C, report, and exit."""
    suite = _opened(name)
    sets = check_sets(suite, options.sets, options.choice)
    check_floors(reports.floors, sets)
    questions = choose_questions(suite, sets, options.choice, limit=options.limit, seed=options.seed)
    run = _Run(suite, sets, questions, settings, options)
    interrupted = False
    try:
        run.measure()
    except KeyboardInterrupt:
        interrupted = True
    if run.facts is None or not run.rows:
        click.echo("mustcall: stopped before anything was measured", err=True)
        sys.exit(INTERRUPTED)
    code = report(summarise(run.facts, list(run.rows.values()), suite), suite, reports)
    click.echo(f"replies kept in {run.file}")
    sys.exit(INTERRUPTED if interrupted else code)


class _Run:
    """One run: what was planned, and what is there so far."""

    def __init__(
        self, suite: Suite, sets: tuple[str, ...], questions: tuple[Question, ...], settings: Settings, options: Options
    ) -> None:
        self.facts: RunFacts | None = None
        self.file: Path | None = None
        self.rows: dict[tuple[str, str], Row] = {}
        self._suite = suite
        self._sets = sets
        self._questions = questions
        self._settings = settings
        self._options = options

    def measure(self) -> None:
        """Ask what is not answered yet; raise `KeyboardInterrupt` when stopped."""
        from mustcall.cli.eval_screen import progress_bar  # noqa: PLC0415  `--help` needs no rich

        with progress_bar(2 * len(self._questions), self._suite) as advance:
            asyncio.run(self._ask(advance))

    async def _ask(self, advance: Callable[[Row, bool], None]) -> None:
        options = self._options
        async with (
            open_subject(
                self._settings,
                options.model,
                options.key,
                options.sampling,
                self._questions[0],
                wire=options.wire,
                stream=options.stream,
            ) as subject,
            self._path(subject) as path,
        ):
            facts = self._facts(subject)
            file = self.file = _place(options.out, facts)
            with Journal(file, facts) as journal:
                self.facts = facts
                for row in journal.rows:
                    self.rows[row.id, row.arm] = row
                    advance(row, True)
                askers = make_askers(subject, path)
                asked = ask_all(self._questions, askers, name=subject.endpoint.name, done=journal.done)
                async with contextlib.aclosing(asked) as rows:
                    async for row in rows:
                        journal.add(row)
                        self.rows[row.id, row.arm] = row
                        advance(row, False)

    def _facts(self, subject: Subject) -> RunFacts:
        options, endpoint = self._options, subject.endpoint
        return RunFacts(
            suite=self._suite.name,
            data=self._suite.version,
            sets=self._sets,
            limit=options.limit,
            seed=options.seed,
            choice=options.choice,
            model=subject.model,
            upstream=endpoint.name,
            address=endpoint.base_url,
            upstream_wire=endpoint.wire,
            wire=subject.caller_wire,
            stream=options.stream,
            via=options.gateway or options.via,
            form=subject.form,
            sampling=options.sampling,
            planned=len(self._questions),
            version=__version__,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    @contextlib.asynccontextmanager
    async def _path(self, subject: Subject) -> AsyncGenerator[GatewayPath | None]:
        """Return the gateway the mustcall arm goes to, started here if it is to be its own; None for the engine."""
        options = self._options
        model = options.model or subject.model
        if options.gateway is not None:
            base = options.gateway.rstrip("/").removesuffix("/v1") + "/v1"
            yield GatewayPath(base_url=base, model=model, key=options.gateway_key)
        elif options.via == "gateway":
            from mustcall.testing.gateway import RunningGateway  # noqa: PLC0415  only here

            counted = CountedTransport(SchemeTransport)
            keyed = tuple(
                subject.endpoint if endpoint.name == subject.endpoint.name else endpoint
                for endpoint in self._settings.endpoints
            )
            settings = msgspec.structs.replace(self._settings, endpoints=keyed, ledger=None, client_keys=())
            with RunningGateway(settings=settings, transport=counted) as gateway:
                yield GatewayPath(base_url=gateway.base_url, model=model, sent=lambda: counted.sent)
        else:
            yield None


def _place(out: Path | None, facts: RunFacts) -> Path:
    """Return the file of a run: the one named, one in the directory named, or a new one in the user's cache."""
    words = [facts.suite, facts.model, facts.choice or "", facts.wire, "stream" if facts.stream else ""]
    stem = re.sub(r"[^\w.]+", "-", "-".join(str(word) for word in words if word)).strip("-")
    if out is None:
        file = cache_directory("evals") / "runs" / f"{stem}-{re.sub(r'[^0-9]', '', facts.started)[:14]}.jsonl"
    else:
        file = out / f"{stem}.jsonl" if out.is_dir() or not out.suffix else out
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from None
    return file
