"""What a run of the benchmark found, as values that go to a file and come back from it. No figure is judged here."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec

from mustcall.bench.bodies import Reply
from mustcall.bench.exchanges import Wire
from mustcall.bench.sessions import Growth
from mustcall.core.errors import ConfigError

__all__ = [
    "BenchConditions",
    "BenchResults",
    "BenchSample",
    "FlowingCall",
    "Kind",
    "Leak",
    "LongArgument",
    "Measured",
    "ServerFigures",
    "StartFigures",
    "Streams",
    "TimeTaken",
    "Workload",
    "read_run",
    "write_run",
]

#: What a contender is. `same-wire` and `translating` are the gateway as it is; `variant` has other settings.
Kind = Literal["direct", "floor", "before", "same-wire", "translating", "variant", "peer"]


#: Requests of a connection in one run, at least.
_EACH = 4


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of traffic, the concurrencies it is measured at, and how many requests make a run."""

    name: str
    title: str
    reply: Reply
    concurrencies: tuple[int, ...]
    requests: int
    tools: int = 1
    #: Streamed events of one reply; 0 where it is not streamed.
    events: int = 0
    #: Whether throughput and CPU are judged on it: not where the upstream's pace decides.
    judged: bool = False
    #: What is asked instead of one body again and again: conversations that grow, one for each connection.
    growth: Growth | None = None
    #: Whether no two bodies are equal, each request has a connection of its own, or every tenth turn is held back.
    different: bool = False
    fresh: bool = False
    held: bool = False
    #: New connections that come at once while the usual ones are busy; `requests` and latencies are theirs alone.
    storm: int = 0

    def requests_at(self, concurrency: int, share: float) -> int:
        """Return the requests of a run: the same number on each connection, and a few at least.

        All connections send their first request at once; that moment alone says little about a steady load.
        """
        if self.growth is not None:
            return concurrency * self.growth_at(share).requests
        if self.storm:
            return self.storm * max(1, round(self.requests * share / self.storm))
        return concurrency * max(_EACH, round(self.requests * share / concurrency))

    def growth_at(self, share: float) -> Growth:
        """Return how conversations grow in a run of this share: in fewer steps, to the same size."""
        assert self.growth is not None
        return msgspec.structs.replace(self.growth, requests=max(4, round(self.growth.requests * min(1.0, share))))


class BenchSample(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one contender: answers per second, CPU ms per request, latencies in ms, reads per answer."""

    rate: float
    cpu_ms: float
    upstream_cpu_ms: float
    generator_cpu_ms: float
    p50: float
    p99: float
    reads: float


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of one contender under one workload at one concurrency, one per round; or why there are none."""

    workload: str
    concurrency: int
    contender: str
    kind: Kind
    caller: Wire
    upstream: Wire
    samples: tuple[BenchSample, ...] = ()
    problem: str | None = None

    @property
    def place(self) -> tuple[str, int, str]:
        """Where the figure stands, the same in every run."""
        return self.workload, self.concurrency, self.contender

    def middle(self, figure: Callable[[BenchSample], float]) -> float:
        """Return the median of a figure over the rounds."""
        return median(figure(sample) for sample in self.samples) if self.samples else math.nan

    def ratio(self, to: "Measured", figure: Callable[[BenchSample], float]) -> float:
        """Return the median of a figure's ratio to another contender's in the same round."""
        pairs = list(zip(self.samples, to.samples, strict=False))
        return median(figure(mine) / figure(theirs) for mine, theirs in pairs) if pairs else math.nan


class ServerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A process that took part: seconds until it answered (None where others started it), memory at the end."""

    name: str
    start_seconds: float | None
    memory_mb: float


class TimeTaken(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds on the clock, and seconds of CPU: other work on the machine lengthens only the first."""

    seconds: float
    cpu_seconds: float


class StartFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What commands take from their start: `--help` to its end, `serve` to its first answered turn."""

    help: tuple[TimeTaken, ...]
    first_answer: tuple[TimeTaken, ...]


class LongArgument(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call with one long argument, streamed in small deltas: CPU seconds of the gateway and of the floor."""

    name: str
    size: int
    events: int
    cpu_seconds: tuple[float, ...]
    floor_cpu_seconds: tuple[float, ...]


class FlowingCall(msgspec.Struct, frozen=True, kw_only=True):
    """A native call streamed at 50 tokens per second, with or without a record of valid calls of its model before it.

    Seconds from the upstream's first argument byte to the client's, from its last to the client's, and the longest
    time without a byte; keep-alives before the first argument byte.
    """

    kind: Kind
    record: bool
    size: int
    first_seconds: tuple[float, ...]
    last_seconds: tuple[float, ...]
    silence_seconds: tuple[float, ...]
    signs: tuple[int, ...]


class Streams(msgspec.Struct, frozen=True, kw_only=True):
    """Streams held open at once: resident memory of the gateway before, at its highest, and after the last one."""

    streams: int
    seconds: float
    before_mb: float
    peak_mb: float
    after_mb: float

    @property
    def each_mb(self) -> float:
        """What one more open stream takes."""
        return (self.peak_mb - self.before_mb) / self.streams


class Leak(msgspec.Struct, frozen=True, kw_only=True):
    """Resident memory of the gateway after so many requests: (requests, MB), in the order they were reached."""

    marks: tuple[tuple[int, float], ...]

    @property
    def growth_mb(self) -> float:
        """What was added from the first mark to the last."""
        return self.marks[-1][1] - self.marks[0][1]


class BenchConditions(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when it was measured, with which versions."""

    date: str
    version: str
    cores: int
    python: str
    load: tuple[float, ...]
    libraries: dict[str, str]


class BenchResults(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run; sections that were not asked for are empty."""

    circumstances: BenchConditions
    workloads: tuple[Workload, ...] = ()
    measured: tuple[Measured, ...] = ()
    servers: tuple[ServerFigures, ...] = ()
    start: StartFigures | None = None
    arguments: tuple[LongArgument, ...] = ()
    flows: tuple[FlowingCall, ...] = ()
    streams: Streams | None = None
    leak: Leak | None = None

    @property
    def rounds(self) -> int:
        """How often each figure was taken."""
        return max((len(one.samples) for one in self.measured), default=0)

    def group(self, one: Measured) -> Sequence[Measured]:
        """Return who ran right after each other with it: same workload, concurrency and upstream wire."""
        return [
            other
            for other in self.measured
            if (other.workload, other.concurrency, other.upstream) == (one.workload, one.concurrency, one.upstream)
        ]


def write_run(run: BenchResults, file: Path) -> None:
    """Write everything that was measured as JSON."""
    file.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1))


def read_run(file: Path) -> BenchResults:
    """Read what `write_run` wrote; raise `ConfigError`."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=BenchResults)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"{file} is not a run that `mustcall bench --json` wrote: {error}") from None
