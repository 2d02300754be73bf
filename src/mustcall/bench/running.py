"""One run of the benchmark from end to end: who is started, in which variants, and which sections are measured."""

import asyncio
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from mustcall.bench.bodies import Wire
from mustcall.bench.cases import Contender, measure
from mustcall.bench.peers import Peer, find_peer
from mustcall.bench.processes import Fleet, Server, Variant, serve_knows
from mustcall.bench.report.results import BenchConditions, BenchResults, Kind, Measured, ServerFigures
from mustcall.bench.sections import hold_streams, measure_arguments, measure_flows, measure_start, watch_memory
from mustcall.bench.system import check_system
from mustcall.bench.workloads import ALL_PAIRS, PAIRS, BenchPlan
from mustcall.core.errors import ConfigError

__all__ = ["BenchOptions", "circumstances", "run_bench", "run_memory", "settings_variant"]

_UNCHECKED = '[contract]\nprotocol = "off"\n'
_LEDGER_FLAG = "--ledger"
_LIBRARIES = ("aiohttp", "uvicorn", "httptools", "uvloop", "msgspec")

Tell = Callable[[str], None]


class BenchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a run measures."""

    plan: BenchPlan
    pairs: Mapping[Wire, tuple[Wire, ...]] = msgspec.field(default_factory=lambda: PAIRS)
    #: Gateways with other settings, measured on the same wire beside the one as it is.
    variants: tuple[Variant, ...] = ()
    #: Settings of the gateway itself.
    settings: Variant = Variant()
    before: Path | None = None
    #: How often everything is started anew, the rounds measured each time. Two processes of one checkout differ by up
    #: to a quarter (where their objects lie in memory, and which hashes they got), which no number of rounds evens out.
    processes: int = 1
    peers: tuple[Peer, ...] = ()
    upstream_port: int | None = None
    #: How often `start` is measured; 0 leaves it out.
    starts: int = 3
    #: Characters of the long arguments; none leaves them out.
    arguments: tuple[int, ...] = (100_000, 1_000_000)
    #: Characters of the call at 50 tokens per second, 4 to a token; 0 leaves it out.
    flow: int = 600


def settings_variant(name: str = "", *, protocol: str = "on", ledger: str = "off") -> Variant:
    """Return the settings of a gateway; raise `ConfigError` where `serve` has no ledger to turn on."""
    known = serve_knows(_LEDGER_FLAG)
    if ledger != "off" and not known:
        raise ConfigError("--ledger: this version's `mustcall serve` has no --ledger; leave it out")
    return Variant(
        name=name,
        settings=_UNCHECKED if protocol == "off" else "",
        flags=(_LEDGER_FLAG, ledger) if known else (),
    )


def circumstances(own_version: str) -> BenchConditions:
    """Return where and when we are."""
    return BenchConditions(
        date=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        version=own_version,
        cores=os.cpu_count() or 1,
        python=platform.python_version(),
        load=os.getloadavg(),
        libraries=dict(_versions()),
    )


def _versions() -> Iterator[tuple[str, str]]:
    for name in _LIBRARIES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue


def run_bench(options: BenchOptions, own_version: str, tell: Tell) -> BenchResults:
    """Measure; raise `WrongAnswer` if a contender that we start answers wrongly, `ConfigError` if there is no peer.

    What is measured once, and the memory at the end, is that of the first processes.
    """
    check_system()
    told = circumstances(own_version)
    run, whole = _run_once(options, told, tell)
    again = msgspec.structs.replace(options, starts=0, arguments=(), flow=0)
    for number in range(1, options.processes if whole else 1):
        tell(f"processes {number + 1} of {options.processes}")
        try:
            more, whole = _run_once(again, told, tell)
        except KeyboardInterrupt:
            tell(f"stopped: these are the figures of {number} of {options.processes} times that all were started")
            break
        run = msgspec.structs.replace(run, measured=_pooled(run.measured, more.measured))
        if not whole:
            break
    return run


def _pooled(first: Sequence[Measured], more: Sequence[Measured]) -> tuple[Measured, ...]:
    """Return what was measured with the samples of other processes behind the first ones."""
    return tuple(
        msgspec.structs.replace(one, samples=one.samples + other.samples, problem=one.problem or other.problem)
        for one, other in zip(first, more, strict=True)
    )


def _run_once(options: BenchOptions, told: BenchConditions, tell: Tell) -> tuple[BenchResults, bool]:
    """Start everything, measure, and return the results and whether they are whole."""
    with Fleet() as fleet:
        upstream = fleet.start_upstream(options.upstream_port)
        peers = [(peer, find_peer(peer)) for peer in options.peers]
        start = measure_start(fleet, upstream, options.starts) if options.starts else None
        groups = list(_groups(fleet, upstream, options, peers))
        for _, server in peers:
            fleet.attach(server)
        fleet.start_generator()
        measured, whole = measure(fleet, upstream, groups, options.plan, tell)
        run = BenchResults(circumstances=told, workloads=options.plan.workloads, measured=measured, start=start)
        if not whole:
            return run, False
        try:
            return _with_sections(run, fleet, upstream, groups[0], options), True
        except KeyboardInterrupt:
            tell("stopped: long arguments, memory and the call at 50 tokens a second are left out")
            return run, False


def _with_sections(
    run: BenchResults, fleet: Fleet, upstream: Server, group: list[Contender], options: BenchOptions
) -> BenchResults:
    """Return the run with what is measured once, behind its rounds."""
    servers = tuple(
        ServerFigures(name=one.name, start_seconds=one.start_seconds, memory_mb=one.memory_mb) for one in fleet.servers
    )
    gateway = next(one.server for one in group if one.kind == "same-wire")
    floor = next(one.server for one in group if one.kind == "floor")
    rounds = min(3, options.plan.rounds)
    arguments = measure_arguments(gateway, floor, options.arguments, rounds)
    flowing: list[tuple[Kind, Server]] = [
        (one.kind, one.server)
        for one in group
        if one.kind in ("floor", "before", "same-wire") and one.caller == one.upstream
    ]
    flows = measure_flows(upstream, flowing, options.flow, rounds) if options.flow else ()
    return msgspec.structs.replace(run, servers=servers, arguments=arguments, flows=flows)


def _groups(
    fleet: Fleet, upstream: Server, options: BenchOptions, peers: list[tuple[Peer, Server]]
) -> Iterator[list[Contender]]:
    """Start the servers and yield the contenders, grouped by the wire they call."""
    floor = fleet.start_floor(upstream)
    for wire, callers in options.pairs.items():
        gateway = fleet.start_gateway(upstream, wire, options.settings)
        group = [
            Contender(kind="direct", caller=wire, upstream=wire, server=upstream),
            Contender(kind="floor", caller=wire, upstream=wire, server=floor),
        ]
        if options.before is not None:
            source = options.before / "src"
            kept = (
                options.settings if serve_knows(_LEDGER_FLAG, source) else Variant(settings=options.settings.settings)
            )
            earlier = fleet.start_gateway(upstream, wire, kept, source)
            # Asked on every wire that the gateway is asked on: a process that also translates runs its own wire slower.
            group += [Contender(kind="before", caller=one, upstream=wire, server=earlier) for one in callers]
        for caller in callers:
            kind = "same-wire" if caller == wire else "translating"
            group.append(Contender(kind=kind, caller=caller, upstream=wire, server=gateway))
        for variant in options.variants:
            server = fleet.start_gateway(upstream, wire, variant)
            shown = callers if options.pairs is ALL_PAIRS else (wire,)
            group += [
                Contender(kind="variant", caller=caller, upstream=wire, server=server, label=variant.name)
                for caller in shown
            ]
        if wire == "chat":
            group += [
                Contender(kind="peer", caller="chat", upstream="chat", server=server, label=peer.name, model=peer.model)
                for peer, server in peers
            ]
        yield group


def run_memory(
    own_version: str, tell: Tell, *, streams: int, seconds: float, requests: int, settings: Variant
) -> BenchResults:
    """Measure memory alone: many open streams in one gateway, many requests in another."""
    check_system()
    told = circumstances(own_version)
    held = leak = None
    with Fleet() as fleet:
        upstream = fleet.start_upstream()
        if streams:
            gateway = fleet.start_gateway(upstream, "chat", settings)
            tell(f"holding {streams} streams open for {seconds:g} s")
            held = asyncio.run(hold_streams(gateway, streams, seconds))
        if requests:
            gateway = fleet.start_gateway(upstream, "chat", settings)
            fleet.start_generator()
            leak = watch_memory(fleet, gateway, upstream, requests, tell)
    return BenchResults(circumstances=told, streams=held, leak=leak)
