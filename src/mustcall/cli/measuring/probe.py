"""`mustcall probe`: measures what an endpoint really does, prints the matrix, and writes what it found."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import click
import msgspec

from mustcall.cli.inspecting.tables import gateway_place_option
from mustcall.cli.measuring.options import (
    FILE,
    INTERRUPTED,
    check_files,
    measured_settings,
    only_model,
    pick_endpoint,
    read_key,
)
from mustcall.cli.measuring.probe_keeping import Keeper, find_keeper
from mustcall.cli.setup.naming import UPSTREAM
from mustcall.cli.setup.offering import choose_offer, find_offers, read_ports
from mustcall.cli.telling import tell
from mustcall.cli.writing import written
from mustcall.core.errors import ConfigError, UpstreamError
from mustcall.core.origin import Wire
from mustcall.engine.plan_comparison import compare_plans
from mustcall.gateway.config.settings import Settings, configured_upstreams
from mustcall.policy.limits.budget import Price
from mustcall.probe import (
    Client,
    Drift,
    Level,
    ProbePlan,
    Prober,
    ProbeResult,
    Subject,
    cells_for,
    compare,
    plan_probe,
    profile_of,
    read_result,
)
from mustcall.probe.catalogue import CELLS
from mustcall.probe.clients import NEEDS
from mustcall.probe.facts import has_answers
from mustcall.probe.page import write_badge, write_page
from mustcall.probe.results import broken
from mustcall.profiles.prices import Prices
from mustcall.profiles.resolving import resolve
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.listing import ask_models
from mustcall.upstream.providers import local_providers, provider_at
from mustcall.upstream.retry import SystemClock
from mustcall.upstream.schemes import SchemeTransport
from mustcall.upstream.seam import Timeouts

__all__ = ["REACH_SECONDS", "command", "is_here"]

_BROKEN = 1
_NOT_MEASURED = 3
#: What a server on this machine costs where the operator sets no price.
_FREE = Price(input=0, output=0)
_NOBODY = (
    "no model server runs on these ports; name an UPSTREAM (ollama:qwen3, chat=http://127.0.0.1:9000/v1), or "
    "--config mustcall.toml for the gateway's own"
)
_TOO_DEAR = "not measurable: --max-usd {:g} is less than the first request may cost; raise it"
#: Seconds in which an upstream must say anything at all.
REACH_SECONDS = 8.0


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says."""

    upstream: str | None
    file: Path | None
    model: str | None
    key_env: str | None
    wire: str | None
    level: Level
    client: Client | None
    only: tuple[str, ...]
    max_usd: float
    timeout: float
    data: Path | None
    page: Path | None
    badge: Path | None
    profile: Path | None
    old: Path | None
    write: bool
    place: str | None
    yes: bool
    #: The name of a configured upstream that was chosen at the terminal.
    chosen: str


_GUARANTEES = f"Guarantees that --cell takes: {', '.join(dict.fromkeys(cell.guarantee for cell in CELLS))}."


@click.command(name="probe", short_help="Measure what an endpoint really does.", epilog=_GUARANTEES)
@click.argument("upstream", type=UPSTREAM, required=False)
@click.option("--config", "file", type=FILE, help="The file to read.  [default: $MUSTCALL_CONFIG, else mustcall.toml]")
@click.option("--model", "-m", help="The model's name; needed where the upstream lists several.")
@click.option("--key-env", metavar="NAME", help="The environment variable that holds the upstream's key.")
@click.option(
    "--wire",
    type=click.Choice([str(wire) for wire in Wire]),
    help="The wire to measure.  [default: that of --for, else the upstream's own]",
)
@click.option("--quick", "level", flag_value=str(Level.QUICK), help="The core of it: about 24 requests.")
@click.option(
    "--deep", "level", flag_value=str(Level.DEEP), help="73 tries of each required cell, 2 of the long prompt."
)
@click.option(
    "--for",
    "client",
    type=click.Choice([str(client) for client in Client]),
    help="Only what this client needs, on its wire.",
)
@click.option("--cell", "only", multiple=True, metavar="NAME", help="Only this cell or guarantee. May be repeated.")
@click.option(
    "--max-usd", type=click.FloatRange(0), default=1.0, show_default=True, help="The most it may cost, in US dollars."
)
@click.option(
    "--timeout",
    type=click.FloatRange(1),
    default=180.0,
    show_default=True,
    help="Seconds one answer may take to begin.",
)
@click.option("--json", "data", type=FILE, help="Write everything that was measured.")
@click.option("--html", "page", type=FILE, help="Write the matrix as a page that needs no other file.")
@click.option("--badge", type=FILE, help="Write an SVG badge.")
@click.option("--profile", type=FILE, help="Write the profile: the facts that were settled, for [probe] profiles.")
@click.option("--write", is_flag=True, help="Put the profile into mustcall.toml, or with --ledger into the ledger.")
@gateway_place_option
@click.option("--compare", "old", type=FILE, help="Say what changed since the probe that --json wrote to this file.")
@click.option(
    "--ports",
    callback=read_ports,
    default=",".join(str(provider.port) for provider in local_providers()),
    show_default=True,
    help="Where to look for model servers on this machine where neither UPSTREAM nor mustcall.toml names one.",
)
@click.option("--yes", "-y", is_flag=True, help="Ask nothing: start at once.")
def command(*, level: str | None, client: str | None, ports: tuple[int, ...], **given: object) -> None:
    """Measure what an endpoint really does, and whose fault it is where it does not.

    UPSTREAM is a provider and model (ollama:qwen3) or a wire and an address (chat=http://127.0.0.1:9000/v1). Without
    it, it is that of mustcall.toml; without such a file, model servers are looked for on the usual ports of this
    machine.

    What is planned is printed first: requests, tokens and cost at most. No more is ever sent, and nothing of yours: all
    words come from mustcall. A rate limit is waited for. Ctrl-C and SIGTERM keep what was measured.

    Verdicts: held, flaky, ignored (200 and not done), refused (4xx), crashed (5xx), unmeasured. Owners: parser (the
    text holds the call), server, model, transport. Intervals are Wilson's, 95 %.

    Exit codes: 0 all required guarantees hold, 1 one is broken, 2 wrong usage, 3 not measurable, 130 stopped.
    """
    logging.getLogger("mustcall").addHandler(logging.NullHandler())  # what fails is in the report
    address, chosen = given["upstream"], ""
    if not address:
        address, chosen = _found(given["file"], ports, ask=not (given["yes"] or given["model"]), yes=bool(given["yes"]))
    read = {
        **given,
        "level": Level(level or Level.DEFAULT),
        "client": Client(client) if client else None,
        "upstream": address,
        "chosen": chosen,
    }
    options = msgspec.convert(read, _Options)
    check_files(options.data, options.page, options.badge, options.profile)
    keeper = find_keeper(options.file, options.place) if options.write else None
    before = read_result(options.old) if options.old is not None else None
    address = options.upstream
    if address is not None and address.startswith(("http://", "https://")):
        address = f"{options.wire or Wire.CHAT}={address}"
    settings = measured_settings(options.file, address, None, options.model, options.key_env)
    run = _Run(settings, options)
    interrupted = False
    try:
        asyncio.run(run.measure())
    except (KeyboardInterrupt, asyncio.CancelledError):  # Ctrl-C, SIGTERM
        interrupted = True
    except UpstreamError as error:
        click.echo(f"mustcall: not measurable: {error.message}; start it, or correct its address", err=True)
        sys.exit(_NOT_MEASURED)
    prober = run.prober
    if prober is None or not prober.request_budget.requests:
        why = "stopped before anything was measured" if interrupted else _TOO_DEAR.format(options.max_usd)
        click.echo(f"mustcall: {why}", err=True)
        sys.exit(INTERRUPTED if interrupted else _NOT_MEASURED)
    code = _finish(prober.result, options, before, interrupted=interrupted)
    _keep(prober, settings, keeper)
    sys.exit(code)


def _found(file: object, ports: tuple[int, ...], *, ask: bool, yes: bool) -> tuple[str | None, str]:
    """Return the upstream where none is named, and the name of the one that was chosen among several.

    None stands for what the configuration says, else it is one that runs here.
    """
    configured = configured_upstreams(file if isinstance(file, Path) else None)
    if configured is None:
        return (_offered(ports, yes=yes) if file is None else None), ""
    path, names = configured
    if len(names) > 1:
        return None, _chosen(path, names) if ask and sys.stdin.isatty() else ""
    if file is None:
        tell(f"using {next(iter(names))} of {path}", err=True)
    return None, ""


def _chosen(path: Path, names: Sequence[str]) -> str:
    """Let somebody choose one of the configured upstreams."""
    click.echo(f"{path} has several upstreams:", err=True)
    for number, name in enumerate(names, 1):
        click.echo(f"  {number}  {name}", err=True)
    return names[click.prompt("Which one?", type=click.IntRange(1, len(names)), default=1, err=True) - 1]


def _offered(ports: tuple[int, ...], *, yes: bool) -> str:
    """Return the upstream that somebody chose, or the first server that runs here."""
    offers = find_offers(ports)
    if sys.stdin.isatty() and not yes:
        return choose_offer(offers).address
    running = next((offer for offer in offers if offer.is_running), None)
    if running is None:
        click.echo(f"mustcall: not measurable: {_NOBODY}", err=True)
        sys.exit(_NOT_MEASURED)
    click.echo(f"using {running.shown}", err=True)
    return running.address


class _Run:
    """One probe from the command line."""

    def __init__(self, settings: Settings, options: _Options) -> None:
        self._settings = settings
        self._options = options
        self.prober: Prober | None = None

    async def measure(self) -> None:
        """Find the upstream, announce, and measure; raise `UpstreamError` for one that is not there."""
        async with self._subject() as subject:
            options, wire = self._options, subject.endpoint.wire
            cells = cells_for(wire, options.level, options.client, options.only)
            plan = plan_probe(cells, wire, options.level, subject.price, client=options.client, max_usd=options.max_usd)
            self._announce(plan, subject)
            self._end_on_sigterm()
            prober = self.prober = Prober(subject, plan)
            from mustcall.cli.measuring.probe_screen import live_matrix  # noqa: PLC0415  `--help` needs no rich

            with live_matrix(plan, prober.request_budget) as show:
                async with contextlib.aclosing(prober.run()) as changes:
                    async for cell in changes:
                        show(cell)

    @staticmethod
    def _end_on_sigterm() -> None:
        """Let SIGTERM cancel the measurement. SIGINT cannot stand for it: shells ignore it for what `&` starts."""
        task = asyncio.current_task()
        assert task is not None  # it is called in a coroutine
        with contextlib.suppress(NotImplementedError):  # Windows has no such signal
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)

    @contextlib.asynccontextmanager
    async def _subject(self) -> AsyncGenerator[Subject]:
        options = self._options
        transport, clock = SchemeTransport(), SystemClock()
        try:
            endpoint, name = pick_endpoint(
                self._settings, options.model, read_key(options.key_env), chosen=options.chosen
            )
            endpoint = _dressed(endpoint, options)
            listing = await ask_models(endpoint, transport, seconds=REACH_SECONDS)
            model = name or only_model(endpoint, listing.models or ())
            budget = self._settings.operator.budget
            profile = resolve(
                model, endpoint.base_url, endpoint.wire, upstream=endpoint.name, server=endpoint.server
            ).profile
            provider = provider_at(endpoint.base_url)
            yield Subject(
                endpoint=endpoint,
                model=model,
                transport=transport,
                clock=clock,
                price=Prices(budget.prices if budget is not None else ()).of(model, endpoint.base_url)
                or (_FREE if is_here(endpoint) else None),
                off=dict(profile.reasoning_off_fields),
                limit_field="max_completion_tokens" if provider and provider.name == "openai" else "max_tokens",
            )
        finally:
            await transport.close()

    def _announce(self, plan: ProbePlan, subject: Subject) -> None:
        endpoint = subject.endpoint
        what = f"{subject.model} at {endpoint.name} ({endpoint.base_url}), {endpoint.wire} wire"
        tell(f"probing {what}" + (f", for {plan.client}" if plan.client else ""), err=True)
        tell(f"planned: {plan.words}", err=True)
        if plan.uncapped_usd is not None and not plan.most_usd:
            raise ConfigError(f"--max-usd 0 allows no request: all of it may cost ${plan.uncapped_usd:.4f}; raise it")
        if self._options.yes or plan.most_usd == 0 or is_here(endpoint):
            return
        if plan.most_usd is None:
            asked = "the price of the model is not known, so --max-usd cannot be kept"
        else:
            asked = f"it may cost up to ${plan.most_usd:.4f}"
        if sys.stdin.isatty():
            if not click.confirm(f"{asked}. Start?"):
                click.echo("nothing was sent", err=True)
                sys.exit(INTERRUPTED)
        elif plan.most_usd is None:
            raise ConfigError(f"{asked}; set the price in [[price]], or say --yes")


def _dressed(endpoint: Endpoint, options: _Options) -> Endpoint:
    """Return the endpoint on the wire to measure, with the patience of a probe and no retries of its own."""
    wire = Wire(options.wire) if options.wire else NEEDS[options.client].wire if options.client else endpoint.wire
    timeouts = Timeouts(connect=REACH_SECONDS, read=options.timeout, idle=options.timeout)
    return msgspec.structs.replace(endpoint, wire=wire, timeouts=timeouts)


def is_here(endpoint: Endpoint) -> bool:
    """Tell whether it runs on this machine, where nobody pays."""
    host = endpoint.base_url.partition("://")[2].partition("/")[0].rpartition("@")[2]
    return host.startswith(("127.", "localhost", "[::1]")) or "://" not in endpoint.base_url


def _keep(prober: Prober, settings: Settings, keeper: Keeper | None) -> None:
    """Print what the profile changes, and write it where it is wanted."""
    result = prober.result
    profile = profile_of(result)
    if not profile.facts:
        click.echo("no fact was settled" + ("; nothing was written" if keeper else ""), err=True)
        return
    endpoint = prober.endpoint
    for line in compare_plans(profile, endpoint, settings.operator).lines():
        tell(line)
    if keeper is not None:
        click.echo(keeper.keep(profile, result.encode()), err=True)
    else:
        click.echo("--write puts this into mustcall.toml", err=True)


def _finish(result: ProbeResult, options: _Options, before: ProbeResult | None, *, interrupted: bool) -> int:
    """Print and write what was found; return the exit code."""
    from mustcall.cli.measuring.probe_screen import print_drift, print_matrix  # noqa: PLC0415  `--help` needs no rich

    print_matrix(result)
    drift: list[Drift] = []
    if before is not None:
        drift = compare(before, result)
        print_drift(before, drift)
    for file, text in (
        (options.data, result.encode),
        (options.page, lambda: write_page(result, drift if before is not None else None).encode()),
        (options.badge, lambda: write_badge(result).encode()),
        (options.profile, profile_of(result).encode),
    ):
        if file is not None:
            with written(file) as part:
                part.write_bytes(text())
            click.echo(f"wrote {file}", err=True)
    if interrupted:
        return INTERRUPTED
    if not has_answers(result):
        click.echo("mustcall: not measurable: nothing was answered", err=True)
        return _NOT_MEASURED
    return _BROKEN if broken(result) or any(each.required and each.is_worse for each in drift) else 0
