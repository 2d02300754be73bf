"""Made-up runs of the benchmark, for tests of what is computed and shown from them."""

from mustcall.bench.report.results import (
    BenchConditions,
    BenchResults,
    BenchSample,
    FlowingCall,
    Kind,
    Leak,
    LongArgument,
    Measured,
    ServerFigures,
    StartFigures,
    Streams,
    TimeTaken,
)
from mustcall.bench.workloads import WORKLOADS

__all__ = ["circumstances", "flowing", "knows_every_flag", "knows_no_flag", "measured", "run_of", "sample", "whole_run"]

circumstances = BenchConditions(
    date="2026-11-15 12:00 UTC",
    version="0.1.0",
    cores=2,
    python="3.11.7",
    load=(0.5, 0.4, 0.3),
    libraries={"aiohttp": "3"},
)


def knows_no_flag(_flag: str) -> bool:
    """A `serve` without the flag."""
    return False


def knows_every_flag(_flag: str) -> bool:
    """A `serve` with the flag."""
    return True


def sample(cpu_ms: float, rate: float = 1000.0, p50: float = 1.0, p99: float = 2.0) -> BenchSample:
    """One round."""
    return BenchSample(
        rate=rate, cpu_ms=cpu_ms, upstream_cpu_ms=0.02, generator_cpu_ms=0.03, p50=p50, p99=p99, reads=1.0
    )


def measured(
    contender: str,
    kind: Kind,
    *cpu_ms: float,
    workload: str = "call",
    concurrency: int = 32,
    problem: str | None = None,
) -> Measured:
    """A contender's rounds, by their CPU."""
    return Measured(
        workload=workload,
        concurrency=concurrency,
        contender=contender,
        kind=kind,
        caller="chat",
        upstream="chat",
        samples=tuple(sample(one, 1000 / one) for one in cpu_ms),
        problem=problem,
    )


def run_of(*cells: Measured) -> BenchResults:
    """A run with these figures."""
    names = {cell.workload for cell in cells}
    return BenchResults(
        circumstances=circumstances,
        workloads=tuple(load for load in WORKLOADS if load.name in names),
        measured=cells,
    )


def flowing(kind: Kind, *, record: bool, first: float, silence: float = 0.1, signs: int = 0) -> FlowingCall:
    """A call at 50 tokens per second, three times alike."""
    return FlowingCall(
        kind=kind,
        record=record,
        size=600,
        first_seconds=(first,) * 3,
        last_seconds=(0.001,) * 3,
        silence_seconds=(silence,) * 3,
        signs=(signs,) * 3,
    )


def whole_run() -> BenchResults:
    """A run that has everything a run can have."""
    cells = (
        measured("direct chat", "direct", 0.01, 0.01),
        measured("floor chat", "floor", 0.2, 0.4),
        measured("chat -> chat", "same-wire", 0.3, 0.6),
        measured("messages -> chat", "translating", 0.5, 1.0),
        measured("chat -> chat, protocol off", "variant", 0.25, 0.5),
        measured("litellm", "peer", 30.0, 60.0),
        measured("forge <b>", "peer", problem="status 500: <script>"),
        measured("floor chat", "floor", 1.0, workload="stream"),
        measured("chat -> chat", "same-wire", 1.5, workload="stream"),
    )
    run = run_of(*cells)
    taken = (TimeTaken(seconds=1.0, cpu_seconds=0.5),)
    return BenchResults(
        circumstances=run.circumstances,
        workloads=run.workloads,
        measured=run.measured,
        servers=(
            ServerFigures(name="gateway chat", start_seconds=0.9, memory_mb=60.0),
            ServerFigures(name="litellm", start_seconds=None, memory_mb=333.0),
        ),
        start=StartFigures(help=taken, first_answer=taken),
        arguments=(
            LongArgument(
                name="native", size=100_000, events=25_000, cpu_seconds=(0.3, 0.2, 0.4), floor_cpu_seconds=(0.05,)
            ),
        ),
        flows=(
            flowing("floor", record=False, first=0.001),
            flowing("same-wire", record=False, first=3.6, silence=2.0, signs=2),
            flowing("same-wire", record=True, first=0.002),
        ),
        streams=Streams(streams=500, seconds=60.0, before_mb=50.0, peak_mb=150.0, after_mb=60.0),
        leak=Leak(marks=((10_000, 60.0), (50_000, 61.0), (100_000, 70.0))),
    )
