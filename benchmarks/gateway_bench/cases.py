"""What is measured: workloads, contenders, and the rounds in which they take turns.

Contenders of one upstream wire run right after each other, in an order that rotates with the round, and ratios are
taken within the round: what else the machine does meanwhile then weighs on all of them alike.
"""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Literal

import msgspec

from gateway_bench.bodies import PATHS, Reply, Wire, request_body
from gateway_bench.check import Broken, Expected, fetch
from gateway_bench.load import Order, Report
from gateway_bench.processes import Fleet, Server

__all__ = ["WORKLOADS", "Cell", "Contender", "Kind", "Plan", "Workload", "measure"]

Kind = Literal["direct", "floor", "before", "same-wire", "translating"]

_HEADERS: dict[Wire, dict[str, str]] = {
    "chat": {"authorization": "Bearer sk-bench-0123456789abcdef"},
    "messages": {"x-api-key": "sk-ant-bench-0123456789", "anthropic-version": "2023-06-01"},
    "responses": {"authorization": "Bearer sk-bench-0123456789abcdef"},
}
_RUN_TIMEOUT = 60.0


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of traffic, the concurrencies it is measured at, and how many requests make a run."""

    name: str
    title: str
    reply: Reply
    concurrencies: tuple[int, ...]
    requests: int
    tools: int = 1
    #: Whether the goals are judged on it: not where the upstream's pace decides the throughput.
    judged: bool = False

    def requests_at(self, concurrency: int, share: float) -> int:
        """Return the requests of a run: at least one per connection, and the same number for each of them."""
        return concurrency * max(1, round(self.requests * share / concurrency))


WORKLOADS = (
    Workload(
        name="whole",
        title="not streamed: 1 kB reply, text",
        reply="text",
        concurrencies=(1, 32, 256),
        requests=512,
        judged=True,
    ),
    Workload(
        name="stream",
        title="streamed: 200 deltas as fast as they can be read (writes of 10 events, back to back)",
        reply="groups",
        concurrencies=(1, 32, 256),
        requests=64,
        judged=True,
    ),
    Workload(
        name="paced",
        title="streamed: 200 deltas as they come from a model (one event per write, 1 ms apart)",
        reply="paced",
        concurrencies=(4, 32),
        requests=8,
    ),
    Workload(name="burst", title="streamed: 200 deltas in one write", reply="burst", concurrencies=(32,), requests=64),
    Workload(
        name="call",
        title="not streamed: 1 kB reply, one tool call",
        reply="call",
        concurrencies=(32,),
        requests=256,
    ),
    Workload(
        name="agent",
        title="not streamed: 30 kB request with 20 tools, one tool call back",
        reply="call",
        concurrencies=(32,),
        requests=128,
        tools=20,
    ),
)


class Contender(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asked, on which wire, with which wire behind."""

    kind: Kind
    caller: Wire
    upstream: Wire
    server: Server

    @property
    def name(self) -> str:
        """The name in the table."""
        if self.kind in ("direct", "floor", "before"):
            return f"{self.kind} {self.upstream}"
        return f"{self.caller} -> {self.upstream}"


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One figure's place: a contender under a workload at a concurrency."""

    workload: Workload
    concurrency: int
    contender: Contender


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much to measure: the share of each workload's requests, concurrency and rounds at most, seconds in all."""

    share: float
    concurrency: int
    rounds: int
    budget: float
    workloads: tuple[Workload, ...] = WORKLOADS


class Sample(msgspec.Struct, kw_only=True):
    """One run of one cell."""

    rate: float
    cpu_ms: float
    upstream_cpu_ms: float
    generator_cpu_ms: float
    p50: float
    p99: float
    reads: float


class Measured(msgspec.Struct, kw_only=True):
    """All runs of a cell, one per round."""

    cell: Cell
    samples: list[Sample] = []

    def middle(self, figure: Callable[[Sample], float]) -> float:
        """Return the median of a figure over the rounds."""
        return median(figure(sample) for sample in self.samples)

    def ratio(self, to: "Measured", figure: Callable[[Sample], float]) -> float:
        """Return the median of a figure's ratio to another cell's in the same round."""
        pairs = zip(self.samples, to.samples, strict=True)
        return median(figure(mine) / figure(theirs) for mine, theirs in pairs)


class _Bench:
    """The state of one benchmark run."""

    def __init__(self, fleet: Fleet, upstream: Server, plan: Plan) -> None:
        self._fleet = fleet
        self._upstream = upstream
        self._plan = plan
        self._expected: dict[tuple[str, str, Wire], Expected] = {}

    def check(self, cell: Cell) -> None:
        """Ask the contender once and keep what a correct answer looks like; raise `Broken`."""
        contender, workload = cell.contender, cell.workload
        wire = contender.caller
        key = (workload.name, contender.name, wire)
        if key in self._expected:
            return
        body = request_body(wire, workload.reply, workload.tools)
        try:
            self._expected[key] = fetch(
                contender.server.port, PATHS[wire], _headers(wire), body, wire=wire, reply=workload.reply
            )
        except Broken as error:
            raise Broken(f"{contender.name}, {workload.name}: {error}") from None

    def sample(self, cell: Cell) -> Sample:
        """Make one run."""
        requests = cell.workload.requests_at(cell.concurrency, self._plan.share)
        contender, workload = cell.contender, cell.workload
        wire = contender.caller
        expected = self._expected[workload.name, contender.name, wire]
        # A translated stream joins deltas that arrive together, so its size varies; its text was checked once.
        fixed = contender.caller is contender.upstream or workload.reply in ("text", "call")
        order = Order(
            port=contender.server.port,
            path=PATHS[wire],
            headers={"host": "127.0.0.1"} | _headers(wire),
            body=request_body(wire, workload.reply, workload.tools).decode(),
            warm_up=request_body(wire, "text").decode(),
            concurrency=cell.concurrency,
            requests=requests,
            length=expected.length if fixed else None,
            ending=expected.ending,
            pids=[contender.server.pid, self._upstream.pid],
            timeout=_RUN_TIMEOUT,
        )
        try:
            report = self._fleet.carry_out(order)
        except Broken as error:
            raise Broken(f"{contender.name}, {workload.name} at {cell.concurrency}: {error}") from None
        return _sample(report, requests)


def _sample(report: Report, requests: int) -> Sample:
    per_request = 1000 / requests
    return Sample(
        rate=requests / report.seconds,
        cpu_ms=report.cpu[0] * per_request,
        upstream_cpu_ms=report.cpu[1] * per_request,
        generator_cpu_ms=report.own_cpu * per_request,
        p50=report.p50,
        p99=report.p99,
        reads=report.reads,
    )


def _headers(wire: Wire) -> dict[str, str]:
    common = {"content-type": "application/json", "accept": "application/json", "user-agent": "bench/1.0"}
    return common | _HEADERS[wire]


def measure(
    fleet: Fleet, upstream: Server, groups: Sequence[Sequence[Contender]], plan: Plan, tell: Callable[[str], None]
) -> list[Measured]:
    """Measure every cell in rounds until the plan's rounds or its time are used up."""
    began = time.perf_counter()
    bench = _Bench(fleet, upstream, plan)
    rows = [
        [Measured(cell=Cell(workload=workload, concurrency=concurrency, contender=one)) for one in group]
        for workload in plan.workloads
        for concurrency in workload.concurrencies
        if concurrency <= plan.concurrency
        for group in groups
    ]
    for row in rows:
        for measured in row:
            bench.check(measured.cell)
    tell("every contender answers correctly")
    for number in range(plan.rounds):
        started = time.perf_counter()
        for row in rows:
            turn = number % len(row)
            for measured in [*row[turn:], *row[:turn]]:
                measured.samples.append(bench.sample(measured.cell))
        took = time.perf_counter() - started
        used = time.perf_counter() - began
        tell(f"round {number + 1} of {plan.rounds}: {took:.0f} s, {used:.0f} s in all")
        if used + took > plan.budget:
            break
    return [measured for row in rows for measured in row]
