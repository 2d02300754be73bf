"""Who is measured, and the rounds in which they take turns.

Contenders of one upstream wire run right after each other, in an order that rotates with the round, and ratios are
taken within the round: what else the machine does meanwhile then weighs on all of them alike.
"""

import time
from collections.abc import Callable, Sequence
from itertools import count

import msgspec

from mustcall.bench.bodies import PATHS, forced_request, named_request
from mustcall.bench.check import Expected, WrongAnswer, fetch
from mustcall.bench.exchanges import Wire
from mustcall.bench.load import NUMBERED, LoadOrder, Report, Talk
from mustcall.bench.processes import Fleet, Server
from mustcall.bench.report.results import BenchSample, Kind, Measured, Workload
from mustcall.bench.system import family
from mustcall.bench.workloads import BenchPlan

__all__ = ["Contender", "headers_of", "measure", "order_for"]

_HEADERS: dict[Wire, dict[str, str]] = {
    "chat": {"authorization": "Bearer sk-bench-0123456789abcdef"},
    "messages": {"x-api-key": "sk-ant-bench-0123456789", "anthropic-version": "2023-06-01"},
    "responses": {"authorization": "Bearer sk-bench-0123456789abcdef"},
}
_RUN_TIMEOUT = 120.0
#: Seconds that one run of a peer should take; slow ones are asked less often, but at least once per connection.
_PEER_SECONDS = 1.5
#: Makes the conversations of each run others than those of all runs before.
_seeds = count(1)
#: Where a peer's own model name has ours.
_MODEL = "{model}"


class Contender(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asked, on which wire, with which wire behind. `model` is what a peer calls our models."""

    kind: Kind
    caller: Wire
    upstream: Wire
    server: Server
    label: str = ""
    model: str = _MODEL

    @property
    def name(self) -> str:
        """The name in the table."""
        match self.kind:
            case "direct" | "floor":
                return f"{self.kind} {self.upstream}"
            case "before":
                across = "" if self.caller == self.upstream else f"{self.caller} -> "
                return f"before {across}{self.upstream}"
            case "peer":
                return self.label
            case "same-wire" | "translating" | "variant":
                return f"{self.caller} -> {self.upstream}" + (f", {self.label}" if self.label else "")

    @property
    def path(self) -> str:
        """The path that is asked."""
        return self.server.base + PATHS[self.caller].removeprefix("/v1")

    def body(self, workload: Workload) -> bytes:
        """Return the request of a workload."""
        model, stream = self.model_for(workload), workload.events > 0
        if workload.different:
            return named_request(self.caller, model, workload.tools, stream=stream, ask=f"And what of {NUMBERED}?")
        return named_request(self.caller, model, workload.tools, stream=stream)

    def model_for(self, workload: Workload) -> str:
        """Return the name of the model that replies as a workload wants it."""
        return self.model.replace(_MODEL, f"bench-{workload.reply}")

    def held(self) -> bytes:
        """Return a request whose reply is held back until it is complete."""
        return forced_request(self.caller, self.model.replace(_MODEL, "bench-native-2000"))

    def talk(self, workload: Workload, share: float) -> Talk:
        """Return conversations that nobody has had before."""
        growth = msgspec.structs.replace(workload.growth_at(share), seed=next(_seeds))
        return Talk(wire=self.caller, model=self.model_for(workload), stream=workload.events > 0, growth=growth)

    def warm_up(self) -> bytes:
        """Return a short request that opens connections."""
        return named_request(self.caller, self.model.replace(_MODEL, "bench-text"), stream=False)


class _Cell:
    """One figure's place, what a correct answer looks like there, and what was measured so far."""

    def __init__(self, workload: Workload, concurrency: int, contender: Contender) -> None:
        self.workload = workload
        self.concurrency = concurrency
        self.contender = contender
        self.expected = Expected(0, "")
        self.share = 1.0
        self.samples: list[BenchSample] = []
        self.problem: str | None = None

    def measured(self, rounds: int) -> Measured:
        """Return the first rounds as a value."""
        return Measured(
            workload=self.workload.name,
            concurrency=self.concurrency,
            contender=self.contender.name,
            kind=self.contender.kind,
            caller=self.contender.caller,
            upstream=self.contender.upstream,
            samples=tuple(self.samples[:rounds]) if self.problem is None else (),
            problem=self.problem,
        )

    def fail(self, error: WrongAnswer) -> None:
        """Take note of a peer that cannot do it; what we start ourselves must be able to."""
        if self.contender.kind != "peer":
            where = f"{self.contender.name}, {self.workload.name} at {self.concurrency}"
            raise WrongAnswer(f"{where}: {error}") from None
        self.problem = str(error)


def headers_of(wire: Wire) -> dict[str, str]:
    """Return the headers of a caller on a wire."""
    common = {"content-type": "application/json", "accept": "application/json", "user-agent": "bench/1.0"}
    return common | _HEADERS[wire]


def order_for(
    contender: Contender,
    workload: Workload,
    expected: Expected,
    *,
    concurrency: int,
    requests: int,
    upstream: Server,
    share: float = 1.0,
) -> LoadOrder:
    """Return the order of one run."""
    # A translated stream joins deltas that arrive together, and peers write times and ids: their size varies.
    fixed = contender.kind != "peer" and (contender.caller == contender.upstream or not workload.events)
    fixed = fixed and not workload.held
    server = contender.server
    return LoadOrder(
        host=server.host,
        port=server.port,
        path=contender.path,
        headers={"host": server.host} | headers_of(contender.caller),
        body=contender.body(workload).decode(),
        warm_up=contender.warm_up().decode(),
        concurrency=concurrency,
        requests=requests,
        length=expected.length if fixed else None,
        ending=expected.ending if contender.kind != "peer" or workload.events else "",
        families=[family(server.pid), family(upstream.pid)],
        timeout=_RUN_TIMEOUT,
        talk=contender.talk(workload, share) if workload.growth is not None else None,
        tenth=contender.held().decode() if workload.held else None,
        fresh=workload.fresh,
        storm=workload.storm,
    )


class _Bench:
    """The state of one benchmark run."""

    def __init__(self, fleet: Fleet, upstream: Server, plan: BenchPlan) -> None:
        self._fleet = fleet
        self._upstream = upstream
        self._plan = plan
        self._known: dict[tuple[str, str], tuple[Expected, float]] = {}

    def check(self, cell: _Cell) -> None:
        """Ask the contender once and keep what a correct answer looks like; raise `WrongAnswer`."""
        contender, workload = cell.contender, cell.workload
        key = (workload.name, contender.name)
        try:
            if key not in self._known:
                self._known[key] = self._ask(contender, workload)
        except WrongAnswer as error:
            cell.fail(error)
            return
        cell.expected, seconds = self._known[key]
        if contender.kind == "peer":
            cell.share = min(1.0, _PEER_SECONDS / max(seconds * workload.requests * self._plan.share, 1e-9))

    def _ask(self, contender: Contender, workload: Workload) -> tuple[Expected, float]:
        """Ask twice, because a first answer loads and connects; return the second one's size and seconds."""
        address = (contender.server.host, contender.server.port)
        seconds, expected = 0.0, Expected(0, "")
        for _ in range(2):
            began = time.perf_counter()
            expected = fetch(
                address,
                contender.path,
                headers_of(contender.caller),
                contender.body(workload),
                wire=contender.caller,
                reply=workload.reply,
            )
            seconds = time.perf_counter() - began
        return expected, seconds

    def sample(self, cell: _Cell) -> None:
        """Make one run."""
        if cell.problem is not None:
            return
        share = self._plan.share * cell.share
        requests = cell.workload.requests_at(cell.concurrency, share)
        order = order_for(
            cell.contender,
            cell.workload,
            cell.expected,
            concurrency=cell.concurrency,
            requests=requests,
            upstream=self._upstream,
            share=share,
        )
        try:
            cell.samples.append(_sample(self._fleet.carry_out(order)))
        except WrongAnswer as error:
            cell.fail(error)


def _sample(report: Report) -> BenchSample:
    per_request = 1000 / report.answers
    return BenchSample(
        rate=report.answers / report.seconds,
        cpu_ms=report.cpu[0] * per_request,
        upstream_cpu_ms=report.cpu[1] * per_request,
        generator_cpu_ms=report.own_cpu * per_request,
        p50=report.p50,
        p99=report.p99,
        reads=report.reads,
    )


def measure(
    fleet: Fleet, upstream: Server, groups: Sequence[Sequence[Contender]], plan: BenchPlan, tell: Callable[[str], None]
) -> tuple[tuple[Measured, ...], bool]:
    """Measure every cell in rounds; return what was measured, and whether those were all rounds.

    Ctrl-C ends it with the rounds that are whole, and is raised where there is none. Raise `WrongAnswer` if a contender
    that we started answers wrongly.
    """
    began = time.perf_counter()
    bench = _Bench(fleet, upstream, plan)
    rows = [
        [_Cell(workload, concurrency, one) for one in group]
        for workload in plan.workloads
        for concurrency in workload.concurrencies
        if concurrency <= plan.concurrency
        for group in groups
        if group[0].upstream == "chat" or not workload.held  # the long call has one wire
    ]
    for row in rows:
        for cell in row:
            bench.check(cell)
    tell("every contender was asked once and its answers were read")
    done = 0
    try:
        while done < plan.rounds:
            for row in rows:
                turn = done % len(row)
                for cell in [*row[turn:], *row[:turn]]:
                    bench.sample(cell)
            done += 1
            tell(f"round {done} of {plan.rounds} done, {time.perf_counter() - began:.0f} s so far")
    except KeyboardInterrupt:
        if not done:
            raise
        tell(f"stopped: these are the figures of {done} of {plan.rounds} rounds, and no other section")
    return tuple(cell.measured(done) for row in rows for cell in row), done == plan.rounds
