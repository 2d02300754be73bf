"""What is asked: the workloads, how they are called in the tables, and how much of them a run makes."""

import msgspec

from mustcall.bench.bodies import DELTAS, WIRES, Wire
from mustcall.bench.results import Workload

__all__ = ["ALL_PAIRS", "PAIRS", "WORKLOADS", "Plan"]

_EVENTS = len(DELTAS)

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
        name="call",
        title="not streamed: 1 kB reply, one tool call",
        reply="call",
        concurrencies=(1, 32, 256),
        requests=512,
        judged=True,
    ),
    Workload(
        name="agent",
        title="not streamed: 30 kB request with 20 tools, one tool call back",
        reply="call",
        concurrencies=(1, 32, 256),
        requests=512,
        tools=20,
        judged=True,
    ),
    Workload(
        name="stream",
        title="streamed: 200 deltas as fast as they can be read (writes of 10 events, back to back)",
        reply="groups",
        concurrencies=(1, 32, 256),
        requests=64,
        events=_EVENTS,
        judged=True,
    ),
    Workload(
        name="paced",
        title="streamed: 200 deltas as they come from a model (one event per write, 1 ms apart)",
        reply="paced",
        concurrencies=(4, 32),
        requests=8,
        events=_EVENTS,
    ),
    Workload(
        name="burst",
        title="streamed: 200 deltas in one write",
        reply="burst",
        concurrencies=(32,),
        requests=64,
        events=_EVENTS,
    ),
)

#: Which wires call which upstream wire, in the order of the table.
PAIRS: dict[Wire, tuple[Wire, ...]] = {"chat": ("chat", "messages", "responses"), "messages": ("messages", "chat")}
ALL_PAIRS: dict[Wire, tuple[Wire, ...]] = {wire: (wire, *(one for one in WIRES if one != wire)) for wire in WIRES}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much to measure: the share of each workload's requests, concurrency at most, rounds, and which workloads."""

    share: float = 1.0
    concurrency: int = 256
    rounds: int = 5
    workloads: tuple[Workload, ...] = WORKLOADS

    @classmethod
    def quick(cls) -> "Plan":
        """Return the plan of a short run: three workloads, at 1 and 32."""
        chosen = tuple(one for one in WORKLOADS if one.name in ("whole", "call", "stream"))
        return cls(share=0.25, concurrency=32, workloads=chosen)
