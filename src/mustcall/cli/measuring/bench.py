"""`mustcall bench`: what the gateway costs on this machine, beside the floor, other versions and other gateways."""

import contextlib
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import click
import msgspec

from mustcall import __version__
from mustcall.bench.check import WrongAnswer
from mustcall.bench.peers import read_pairs, read_peers
from mustcall.bench.processes import Variant, serve_knows
from mustcall.bench.report.compare import FigureChange, compare
from mustcall.bench.report.page import write_page
from mustcall.bench.report.picture import check_drawable, draw_picture
from mustcall.bench.report.results import BenchResults, read_run, write_run
from mustcall.bench.report.tables import plain
from mustcall.bench.running import BenchOptions, run_bench, run_memory, settings_variant
from mustcall.bench.workloads import ALL_PAIRS, PAIRS, WORKLOADS, BenchPlan
from mustcall.core.errors import ConfigError

__all__ = ["command"]

_FILE = click.Path(path_type=Path, dir_okay=False)
_NAMES = [load.name for load in WORKLOADS]
#: The ledger that `--ledger on` and a full run use: a file that is gone with the run.
_LEDGER = "ledger-{wire}.db"


@click.command(name="bench", short_help="Measure what the gateway costs here.")
@click.option("--quick", is_flag=True, help="Under a minute: session, whole, call and stream, at most 32 at once.")
@click.option("--all-pairs", is_flag=True, help="All nine pairs of wires rather than the five common ones.")
@click.option(
    "--workload", "loads", multiple=True, type=click.Choice(_NAMES), help="Only this kind of traffic. May be repeated."
)
@click.option("--rounds", type=click.IntRange(1), help="How often everybody takes a turn.  [default: 5]")
@click.option(
    "--processes",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How often everybody is started anew for these rounds: two processes of one version differ by up to 25 %.",
)
@click.option("--share", type=click.FloatRange(0.001, 10), help="Requests of a run, as a share of the usual number.")
@click.option(
    "--protocol",
    type=click.Choice(["on", "off", "both"]),
    help="The gateway with its contract, as a pass-through, or both.  [default: both; on if --quick]",
)
@click.option(
    "--ledger",
    metavar="off|on|both|PATH",
    help="The gateway's ledger, where `serve` has one.  [default: both; off if --quick]",
)
@click.option(
    "--flow",
    type=click.IntRange(0, 1_000_000),
    default=600,
    show_default=True,
    help="Characters of the call that is streamed at 50 tokens a second; 20000 take 100 s, 0 leaves it out.",
)
@click.option(
    "--before", type=click.Path(path_type=Path, file_okay=False), metavar="CHECKOUT", help="Also another checkout's."
)
@click.option(
    "--peer", "peers", multiple=True, metavar="NAME=URL", help="Also this gateway: litellm=http://127.0.0.1:4000."
)
@click.option(
    "--peer-pid", "pids", multiple=True, metavar="NAME=PID", help="Its process.  [default: who listens there]"
)
@click.option(
    "--peer-model", "models", multiple=True, metavar="NAME=TEXT", help="What it calls a model: openai/{model}."
)
@click.option("--upstream-port", type=click.IntRange(1, 65535), help="Where the scripted upstream listens, for peers.")
@click.option("--memory", is_flag=True, help="Instead: memory of open streams, and over many requests.")
@click.option("--streams", type=click.IntRange(0), default=500, show_default=True, help="With --memory: open at once.")
@click.option("--seconds", type=click.FloatRange(1), default=60.0, show_default=True, help="With --memory: how long.")
@click.option("--requests", type=click.IntRange(0), default=100_000, show_default=True, help="With --memory: how many.")
@click.option("--compare", "old", type=_FILE, metavar="OLD.json", help="Say what got dearer since that run.")
@click.option("--results", type=_FILE, metavar="RUN.json", help="Report on that run rather than measure.")
@click.option("--json", "data", type=_FILE, help="Write everything that was measured.")
@click.option("--html", "page", type=_FILE, help="Write the report as a page that needs no other file.")
@click.option("--png", "picture", type=_FILE, help="Write the chart as a picture.")
def command(
    *,
    quick: bool,
    all_pairs: bool,
    loads: tuple[str, ...],
    rounds: int | None,
    processes: int,
    share: float | None,
    protocol: str | None,
    ledger: str | None,
    flow: int,
    before: Path | None,
    peers: tuple[str, ...],
    pids: tuple[str, ...],
    models: tuple[str, ...],
    upstream_port: int | None,
    memory: bool,
    streams: int,
    seconds: float,
    requests: int,
    old: Path | None,
    results: Path | None,
    data: Path | None,
    page: Path | None,
    picture: Path | None,
) -> None:
    """Measure what the gateway costs: CPU and latency per request, beside the least that is possible.

    Starts a scripted upstream, a bare pass-through (the floor) and gateways, all on this machine, and lets them take
    turns. CPU time per request is the figure to trust. docs/benchmarks.md explains the columns. Exits with 0 whatever
    the figures are, with 1 if an answer was wrong. Ctrl-C and SIGTERM keep the rounds that are whole.
    """
    _check_files(data, page, picture)
    earlier = read_run(old) if old is not None else None
    given = read_peers(read_pairs("--peer", peers), read_pairs("--peer-pid", pids), read_pairs("--peer-model", models))
    try:
        if results is not None:
            run = read_run(results)
        elif memory:
            run = run_memory(
                __version__,
                _tell,
                streams=streams,
                seconds=seconds,
                requests=requests,
                settings=_settings(protocol or "on", ledger or "off"),
            )
        else:
            plan = _plan(quick=quick, loads=loads, rounds=rounds, share=share)
            protocol = protocol or ("on" if quick else "both")
            ledger = ledger or ("off" if quick or not serve_knows("--ledger") else "both")
            options = BenchOptions(
                plan=plan,
                pairs=ALL_PAIRS if all_pairs else PAIRS,
                variants=_variants(protocol, ledger),
                settings=_settings(protocol, ledger),
                before=before,
                processes=processes,
                peers=tuple(given),
                upstream_port=upstream_port,
                starts=min(3, plan.rounds),
                flow=flow,
                arguments=(100_000,) if quick else (100_000, 1_000_000),
            )
            with _ended_by_sigterm():
                run = run_bench(options, __version__, _tell)
    except WrongAnswer as error:
        click.echo(f"mustcall: {error}", err=True)
        sys.exit(1)
    if data is not None:
        write_run(run, data)
    if page is not None:
        page.write_text(write_page(run), encoding="utf-8")
    if picture is not None:
        draw_picture(run, picture)
    _show(run, compare(earlier, run) if earlier is not None else None)


@contextlib.contextmanager
def _ended_by_sigterm() -> Generator[None]:
    """Let the first SIGTERM do what Ctrl-C does: `timeout` and supervisors send it, `timeout` twice."""

    def end(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _check_files(data: Path | None, page: Path | None, picture: Path | None) -> None:
    """Raise now what would be raised after minutes of measuring."""
    if picture is not None:
        check_drawable()
    for path in (data, page, picture):
        if path is not None and not path.absolute().parent.is_dir():
            raise ConfigError(f"cannot write {path}: there is no directory {path.absolute().parent}")


def _plan(*, quick: bool, loads: tuple[str, ...], rounds: int | None, share: float | None) -> BenchPlan:
    plan = BenchPlan.quick() if quick else BenchPlan()
    changes: dict[str, object] = {}
    if loads:
        changes["workloads"] = tuple(load for load in WORKLOADS if load.name in loads)
    if rounds is not None:
        changes["rounds"] = rounds
    if share is not None:
        changes["share"] = share
    return msgspec.structs.replace(plan, **changes)


def _settings(protocol: str, ledger: str) -> Variant:
    """Return the settings of the gateway that is measured on all pairs."""
    chosen = {"both": "off", "on": _LEDGER}.get(ledger, ledger)
    return settings_variant(protocol="off" if protocol == "off" else "on", ledger=chosen)


def _variants(protocol: str, ledger: str) -> tuple[Variant, ...]:
    """Return the gateways that are measured beside it."""
    found: list[Variant] = []
    if protocol == "both":
        found.append(settings_variant("protocol off", protocol="off"))
    if ledger == "both":
        found.append(settings_variant("ledger", ledger=_LEDGER))
    return tuple(found)


def _show(run: BenchResults, changes: list[FigureChange] | None) -> None:
    if not sys.stdout.isatty():
        click.echo(plain(run, changes))
        return
    from mustcall.cli.measuring.bench_screen import print_run  # noqa: PLC0415  rich only where there is a terminal

    print_run(run, changes)
