"""What long conversations cost: CPU against the length of the history, and memory of many sessions at once.

    python benchmarks/sessions.py [--caller chat] [--upstream chat] [--sessions 1000] [--growing 5]

Slope: conversations grow to 1 MB in steps, one request after the other, on gateway and floor in turn. The CPU of each
request is fitted by a line over the bytes of its body; the slope is what a further kilobyte of history costs.

Memory: each session comes three times, up to 300 kB, so that it is remembered as a conversation; all say something
else. Resident memory of the gateway is read before them, after each fifty, and at the end.
"""

import argparse
import http.client
from statistics import linear_regression, median

import msgspec

from mustcall.bench.bodies import PATHS, WIRES, Wire
from mustcall.bench.cases import Contender, headers_of, order_for
from mustcall.bench.check import Expected
from mustcall.bench.load import cpu_seconds
from mustcall.bench.processes import Fleet, Server, Variant
from mustcall.bench.sessions import BenchSession, Growth
from mustcall.bench.workloads import WORKLOADS

#: Where a fit begins: below it the fixed cost of a request hides what the history adds.
_FROM = 10_000
_GROWTH = Growth(requests=80, first=5_000, last=1_000_000)
_REMEMBERED = Growth(requests=3)
_TOGETHER = 50
_MODEL = "bench-call"
_OFF = Variant(flags=("--ledger", "off"))


def _grow(server: Server, caller: Wire, seed: int) -> list[tuple[int, float]]:
    """Have one conversation; return the bytes and the CPU milliseconds of each of its requests."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    seen: list[tuple[int, float]] = []
    session = BenchSession(caller, _MODEL, msgspec.structs.replace(_GROWTH, seed=seed), 1, stream=False)
    for body in session.bodies():
        before = cpu_seconds(server.pid)
        connection.request("POST", PATHS[caller], body, headers_of(caller))
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
        seen.append((len(body), (cpu_seconds(server.pid) - before) * 1000))
    connection.close()
    return seen


def fit(runs: list[list[tuple[int, float]]]) -> tuple[float, float]:
    """Return milliseconds for each further kilobyte, and those of a request without history."""
    steps = [(median(size for size, _ in same), median(cpu for _, cpu in same)) for same in zip(*runs, strict=True)]
    kept = [(size / 1000, cpu) for size, cpu in steps if size >= _FROM]
    slope, start = linear_regression([size for size, _ in kept], [cpu for _, cpu in kept])
    return slope, start


def measure_slope(gateway: Server, floor: Server, caller: Wire, upstream: Wire, growing: int) -> None:
    """Print what history costs, on the gateway and on the floor."""
    taken: dict[str, list[list[tuple[int, float]]]] = {"floor": [], "gateway": []}
    # The floor passes on what it gets, so it is asked on the upstream's wire.
    asked: list[tuple[str, Server, Wire]] = [("floor", floor, upstream), ("gateway", gateway, caller)]
    for seed in range(growing + 1):
        for name, server, wire in asked:
            seen = _grow(server, wire, seed + 1)
            if seed:  # the first one warms both up
                taken[name].append(seen)
    (floor_slope, floor_start), (slope, start) = fit(taken["floor"]), fit(taken["gateway"])
    print(f"floor    {floor_start:.3f} ms + {floor_slope * 1000:.3f} us for each kB")
    print(
        f"gateway  {start:.3f} ms + {slope * 1000:.3f} us for each kB, {slope / floor_slope:.2f} of the floor's slope"
    )


def measure_memory(fleet: Fleet, gateway: Server, upstream: Server, caller: Wire, sessions: int) -> None:
    """Print what many conversations leave in memory."""
    load = next(one for one in WORKLOADS if one.name == "session")
    load = msgspec.structs.replace(load, growth=_REMEMBERED, requests=_REMEMBERED.requests)
    contender = Contender(kind="variant", caller=caller, upstream="chat", server=gateway)
    before = gateway.memory_mb
    peak = before
    for _ in range(0, sessions, _TOGETHER):
        count = _TOGETHER * _REMEMBERED.requests
        order = order_for(contender, load, Expected(0, "}"), concurrency=_TOGETHER, requests=count, upstream=upstream)
        fleet.carry_out(msgspec.structs.replace(order, length=None))
        peak = max(peak, gateway.memory_mb)
    print(f"memory   {before:.0f} MB before, {peak:.0f} MB at most, {gateway.memory_mb:.0f} MB after")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--caller", choices=WIRES, default="chat")
    parser.add_argument("--upstream", choices=WIRES, default="chat")
    parser.add_argument("--sessions", type=int, default=1000, help="how many are remembered; 0 leaves it out")
    parser.add_argument("--growing", type=int, default=5, help="how many grow to 1 MB; 0 leaves it out")
    given = parser.parse_args()
    with Fleet() as fleet:
        upstream = fleet.start_upstream()
        fleet.start_generator()
        gateway = fleet.start_gateway(upstream, given.upstream, _OFF)
        if given.growing:
            measure_slope(gateway, fleet.start_floor(upstream), given.caller, given.upstream, given.growing)
        if given.sessions:
            measure_memory(fleet, gateway, upstream, given.caller, given.sessions)


if __name__ == "__main__":
    main()
