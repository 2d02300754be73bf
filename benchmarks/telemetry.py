"""What observing costs a healthy request: CPU of gateways with everything at its default, in parts, and all off.

    python benchmarks/telemetry.py [--rounds 15] [--requests 600] [--workload whole]

All gateways run side by side on one upstream. Each round asks every one of them, in another order each time; the ratio
of a round is to that round's gateway with all off, and the median of the rounds is what counts.
"""

import argparse
import random
from statistics import median

from mustcall.bench.cases import Contender, headers_of, order_for
from mustcall.bench.check import fetch
from mustcall.bench.processes import Fleet, Server, Variant
from mustcall.bench.workloads import WORKLOADS

_QUIET = 'log_level = "warning"'
_BLIND = 'metrics = "off"'


def _variants(folder: str) -> dict[str, Variant]:
    """Return the gateways by what they do."""
    made = {
        "all off": ((_QUIET, _BLIND), "off"),
        "metrics": ((_QUIET,), "off"),
        "log": ((_BLIND,), "off"),
        "metrics and log": ((), "off"),
        "ledger": ((_QUIET, _BLIND), f"{folder}/alone.db"),
        "everything by default": ((), f"{folder}/default.db"),
    }
    return {
        name: Variant(name=name, settings="\n".join(["[server]", *lines]), flags=("--ledger", ledger))
        for name, (lines, ledger) in made.items()
    }


def main(rounds: int, requests: int, concurrency: int, wanted: str) -> None:
    """Measure, and print a line for each gateway."""
    load = next(one for one in WORKLOADS if one.name == wanted)
    taken: dict[str, list[float]] = {}
    with Fleet() as fleet:
        upstream = fleet.start_upstream()
        fleet.start_generator()
        gateways: dict[str, Server] = {
            name: fleet.start_gateway(upstream, "chat", variant)
            for name, variant in _variants(str(fleet.folder)).items()
        }
        for number in range(rounds + 1):
            for name in random.sample(list(gateways), len(gateways)):
                server = gateways[name]
                contender = Contender(kind="same-wire", caller="chat", upstream="chat", server=server)
                expected = fetch(
                    (server.host, server.port),
                    contender.path,
                    headers_of("chat"),
                    contender.body(load),
                    wire="chat",
                    reply=load.reply,
                )
                order = order_for(
                    contender, load, expected, concurrency=concurrency, requests=requests, upstream=upstream
                )
                report = fleet.carry_out(order)
                if number:  # the first round warms up
                    taken.setdefault(name, []).append(report.cpu[0] / requests * 1e6)
    off = taken["all off"]
    print(f"{load.name} at {concurrency}, {rounds} rounds of {requests} requests: CPU of the gateway for one request")
    for name, each in taken.items():
        ratio = median(one / other for one, other in zip(each, off, strict=True))
        print(f"{name:<24}{median(each):>9.1f} µs  {ratio:>7.3f} of all off")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--workload", default="whole")
    asked = parser.parse_args()
    main(asked.rounds, asked.requests, asked.concurrency, asked.workload)
