"""What the gateway costs: against direct upstream calls, and against a bare pass-through on the same libraries.

    python benchmarks/gateway.py [--quick] [--json FILE] [--all-pairs] [--before CHECKOUT]

Everything runs on loopback in processes of its own: scripted upstream, floor, gateway (`mustcall serve`), load
generator. Exits with 0 whatever the figures are; with 1 if an answer was wrong. README.md explains the table.
"""

import argparse
import sys
from pathlib import Path

from gateway_bench.bodies import WIRES, Wire
from gateway_bench.cases import WORKLOADS, Contender, Plan, measure
from gateway_bench.check import Broken
from gateway_bench.processes import Fleet, Server
from gateway_bench.report import as_json, render

#: Which wires call which upstream wire, in the order of the table.
_PAIRS: dict[Wire, tuple[Wire, ...]] = {"chat": ("chat", "messages", "responses"), "messages": ("messages", "chat")}
_ALL_PAIRS: dict[Wire, tuple[Wire, ...]] = {wire: (wire, *(one for one in WIRES if one != wire)) for wire in WIRES}

_FULL = Plan(share=1.0, concurrency=256, rounds=7, budget=200)
_QUICK = Plan(
    share=0.25,
    concurrency=32,
    rounds=5,
    budget=28,
    workloads=tuple(workload for workload in WORKLOADS if workload.name in ("whole", "stream")),
)


def _contenders(
    fleet: Fleet, upstream: Server, pairs: dict[Wire, tuple[Wire, ...]], before: Path | None
) -> list[list[Contender]]:
    """Start the servers and return the contenders, grouped by the wire they call."""
    floor = fleet.start_floor(upstream)
    groups: list[list[Contender]] = []
    for wire, callers in pairs.items():
        gateway = fleet.start_gateway(upstream, wire)
        groups.append(
            [
                Contender(kind="direct", caller=wire, upstream=wire, server=upstream),
                Contender(kind="floor", caller=wire, upstream=wire, server=floor),
                *_earlier(fleet, upstream, wire, before),
                *(
                    Contender(
                        kind="same-wire" if caller == wire else "translating",
                        caller=caller,
                        upstream=wire,
                        server=gateway,
                    )
                    for caller in callers
                ),
            ]
        )
    return groups


def _earlier(fleet: Fleet, upstream: Server, wire: Wire, before: Path | None) -> list[Contender]:
    if before is None:
        return []
    return [
        Contender(kind="before", caller=wire, upstream=wire, server=fleet.start_gateway(upstream, wire, before / "src"))
    ]


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description="Measure what the gateway costs.")
    parser.add_argument("--quick", action="store_true", help="less than 40 s: whole and stream, at 1 and 32")
    parser.add_argument("--all-pairs", action="store_true", help="all nine wire pairs (takes its own time)")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="compare with the gateway of another checkout")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every figure as JSON")
    options = parser.parse_args()
    plan = _QUICK if options.quick else _FULL
    try:
        with Fleet() as fleet:
            upstream = fleet.start_upstream()
            groups = _contenders(fleet, upstream, _ALL_PAIRS if options.all_pairs else _PAIRS, options.before)
            fleet.start_generator()
            results = measure(fleet, upstream, groups, plan, _tell)
            print(render(results, fleet.servers, plan))
            if options.json is not None:
                options.json.write_bytes(as_json(results, fleet.servers))
    except Broken as error:
        _tell(f"broken: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
