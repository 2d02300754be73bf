"""`mustcall eval`: a suite of questions with and without mustcall, every reply kept, scored again at will."""

import hashlib
import logging
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from mustcall.cli.measuring.eval_report import EvalReports, check_reports, report
from mustcall.cli.measuring.eval_run import EvalOptions, EvalRun, started_server
from mustcall.cli.measuring.options import (
    FILE,
    INTERRUPTED,
    measured_settings,
    read_key,
    read_sampling,
    report_options,
    sampling_options,
    upstream_options,
)
from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.core.text.nearest import did_you_mean
from mustcall.evals.asking.journal import read_journal
from mustcall.evals.floors import check_floors, read_floor
from mustcall.evals.loading import SUITES, open_suite
from mustcall.evals.questions import AskedCall
from mustcall.evals.report.summary import summarise
from mustcall.evals.suites import Suite, check_sets, choose_questions, pick_questions, read_ids

__all__ = ["command"]

_SCORE = "score"
#: So many digits of the digest of listed ids tell one list from another.
_LISTED = 12
_GIVEN = "mustcall.eval.given"


class _Suites(click.Group):
    """A group whose commands are the suites, and `score`."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is None:
            raise ConfigError(
                f"there is no suite called {cmd_name!r}; there are: {', '.join(SUITES)} (and `{_SCORE} FILE` for "
                f"replies that were kept){did_you_mean(cmd_name, [*SUITES, _SCORE])}"
            )
        return found


@click.group(name="eval", cls=_Suites, short_help="Measure a model on a suite, with and without mustcall.")
def command() -> None:
    """Ask a model the questions of a suite with and without mustcall, and count the right answers.

    Each question is asked in two arms: `bare`, the upstream as it is, and `mustcall`. Every reply is kept in a file as
    soon as it is there; the same command goes on with a run that was stopped.
    docs/eval.md says how to repeat the published figures.
    """
    logging.getLogger("mustcall").addHandler(logging.NullHandler())  # what fails is in the report


def _split(_ctx: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


_RUN_OPTIONS = (
    click.option(
        "--set", "sets", multiple=True, callback=_split, help="A set to ask; may be repeated.  [default: all]"
    ),
    click.option("--limit", type=click.IntRange(1), help="Number of questions of each set, drawn by the seed."),
    click.option("--seed", type=int, default=0, show_default=True, help="What --limit draws by."),
    click.option(
        "--questions", "listing", type=FILE, help="Ask only the questions whose ids this file lists, one a line."
    ),
    click.option(
        "--choice",
        type=click.Choice([str(demand) for demand in AskedCall]),
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
        "--out",
        type=click.Path(path_type=Path),
        help="Keep the replies in this file or directory; continue a run in it.  [default: a file in the user's cache]",
    ),
    click.option(
        "--new", is_flag=True, help="Start a new run, even if a stopped one with the same options could be continued."
    ),
)
_LLAMA_OPTION = click.option(
    "--llama",
    metavar="MODEL",
    help="Measure a model of `mustcall models list`, or a GGUF file, on llama.cpp's HTTP server, started for the run.",
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


class _SuiteCommand(click.Command):
    """A command that remembers its words, to say how to go on."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_GIVEN] = tuple(args)
        return super().parse_args(ctx, args)


def _suite_command(name: str, about: str) -> click.Command:
    @click.command(name=name, cls=_SuiteCommand, short_help=about, help=about)
    @_with(_RUN_OPTIONS)
    @_LLAMA_OPTION
    @upstream_options
    @sampling_options
    @report_options
    @_with(_REPORT_OPTIONS)
    def run(
        *,
        sets: tuple[str, ...],
        limit: int | None,
        seed: int,
        listing: Path | None,
        choice: str | None,
        wire: str | None,
        stream: bool,
        via: str,
        gateway: str | None,
        gateway_key_env: str | None,
        out: Path | None,
        new: bool,
        llama: str | None,
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
        if new and out is not None:
            raise click.UsageError("--new is for runs without --out; name another file with --out to start a new run")
        if listing is not None and limit is not None:
            raise click.UsageError("--questions lists the questions; leave out --limit")
        if llama is not None and (upstream is not None or gguf is not None):
            raise click.UsageError("--llama is an upstream of its own; leave out --upstream and --gguf")
        reports = EvalReports(page=page, picture=picture, data=data, old=old, floors=tuple(map(read_floor, floors)))
        check_reports(reports)
        keys = read_key(key_env), read_key(gateway_key_env, "--gateway-key-env")
        suite = _opened(name)
        demand = AskedCall(choice) if choice else None
        chosen = check_sets(suite, sets, demand)
        ids = _read_listing(listing)
        if ids:
            questions = pick_questions(suite, chosen, demand, ids)
            chosen = tuple(name for name in chosen if any(question.set == name for question in questions))
        else:
            questions = choose_questions(suite, chosen, demand, limit=limit, seed=seed)
        check_floors(reports.floors, chosen)
        with started_server(llama) as served:
            settings = measured_settings(file, served.flag or upstream, gguf, model, key_env)
            options = EvalOptions(
                sets=chosen,
                limit=limit,
                seed=seed,
                listed=hashlib.sha256("\n".join(sorted(set(ids))).encode()).hexdigest()[:_LISTED] if ids else "",
                choice=demand,
                wire=Wire(wire) if wire else None,
                stream=stream,
                gateway=gateway,
                gateway_key=keys[1],
                via=via,
                model=model,
                key=keys[0],
                address=served.address,
                weights=served.weights,
                sampling=read_sampling(settings, temperature, max_tokens),
                out=out,
                new=new,
            )
            _finish(EvalRun(suite, questions, settings, options, _note), suite, reports)

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
    reports = EvalReports(page=page, picture=picture, data=data, old=old, floors=tuple(map(read_floor, floors)))
    check_reports(reports)
    facts, rows = read_journal(replies)
    check_floors(reports.floors, facts.sets)
    suite = _opened(facts.suite)
    if suite.version != facts.data:
        raise ConfigError(
            f"{replies} holds replies to other data of {suite.name} ({facts.data}) than is here ({suite.version})"
        )
    sys.exit(report(summarise(facts, rows, suite), suite, reports))


def _read_listing(file: Path | None) -> tuple[str, ...]:
    """Return the ids in a file; raise `ConfigError` if it cannot be read or lists nothing."""
    if file is None:
        return ()
    try:
        ids = read_ids(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not a list of questions: it is not UTF-8 text") from None
    if not ids:
        raise ConfigError(f"{file} lists no question; write one id on each line, as in simple_python_40")
    return ids


def _opened(name: str) -> Suite:
    """Open a suite; a download is announced."""
    return open_suite(name, note=_note)


def _note(line: str) -> None:
    click.echo(f"note: {line}", err=True)


def _finish(run: EvalRun, suite: Suite, reports: EvalReports) -> None:
    """Run to the end or until Ctrl-C, report, and exit."""
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
    if interrupted:
        click.echo(f"stopped; to go on: {_command_to_go_on(run.file)}", err=True)
    sys.exit(INTERRUPTED if interrupted else code)


def _command_to_go_on(file: Path | None) -> str:
    """Return the command that was given, with the file that its replies are in."""
    context = click.get_current_context()
    given = [word for word in context.meta[_GIVEN] if word != "--new"]
    if context.params["out"] is None:
        given += ["--out", str(file)]
    return shlex.join([*context.command_path.split(), *given])
