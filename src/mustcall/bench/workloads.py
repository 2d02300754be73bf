"""What is asked: the workloads, how they are called in the tables, and how much of them a run makes."""

import msgspec

from mustcall.bench.bodies import DELTAS, WIRES
from mustcall.bench.exchanges import Wire
from mustcall.bench.report.results import Workload
from mustcall.bench.sessions import Growth

__all__ = ["ALL_PAIRS", "PAIRS", "WORKLOADS", "BenchPlan"]

_EVENTS = len(DELTAS)

WORKLOADS = (
    Workload(
        name="session",
        title="agents at work: conversations that grow from 5 to 300 kB in 60 requests, every one different",
        reply="call",
        concurrencies=(8, 64),
        requests=60,
        tools=4,
        growth=Growth(requests=60, tools=4),
        judged=True,
    ),
    Workload(
        name="session-streamed",
        title="the same, streamed: 200 deltas in writes of 10",
        reply="groups",
        concurrencies=(8,),
        requests=60,
        events=_EVENTS,
        tools=4,
        growth=Growth(requests=60, tools=4),
    ),
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
    Workload(
        name="different",
        title="not streamed: no two requests are equal, one tool call back",
        reply="call",
        concurrencies=(32,),
        requests=512,
        different=True,
    ),
    Workload(
        name="connects",
        title="a connection of its own for each request, as many at once",
        reply="text",
        concurrencies=(256,),
        requests=1024,
        fresh=True,
    ),
    Workload(
        name="storm",
        title="256 new connections at once while others are busy; latencies from the connect to the first byte",
        reply="text",
        concurrencies=(32,),
        requests=256,
        storm=256,
    ),
    Workload(
        name="held",
        title="streamed: 200 deltas, every tenth turn a forced call of 2 kB that is held until it is complete",
        reply="groups",
        concurrencies=(32,),
        requests=64,
        events=_EVENTS,
        held=True,
    ),
)

#: Which wires call which upstream wire, in the order of the table.
PAIRS: dict[Wire, tuple[Wire, ...]] = {"chat": ("chat", "messages", "responses"), "messages": ("messages", "chat")}
ALL_PAIRS: dict[Wire, tuple[Wire, ...]] = {wire: (wire, *(one for one in WIRES if one != wire)) for wire in WIRES}


class BenchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How much to measure: the share of each workload's requests, concurrency at most, rounds, and which workloads."""

    share: float = 1.0
    concurrency: int = 256
    rounds: int = 5
    workloads: tuple[Workload, ...] = WORKLOADS

    @classmethod
    def quick(cls) -> "BenchPlan":
        """Return the plan of a short run: four workloads, at most at 32."""
        chosen = tuple(one for one in WORKLOADS if one.name in ("session", "whole", "call", "stream"))
        return cls(share=0.15, concurrency=32, workloads=chosen)
