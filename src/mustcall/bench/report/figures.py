"""Medians and ratios out of a run, and whether the goals are met. Pure: the same run gives the same lines."""

import math
from collections.abc import Iterator
from statistics import median

import msgspec

from mustcall.bench.report.results import BenchResults, BenchSample, Kind, Measured

__all__ = ["GOALS", "PEER_GOALS", "FigureRow", "Goal", "GoalVerdict", "peer_ratios", "rows_of", "verdicts"]


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """The most that one kind of contender may cost: CPU as a multiple of the floor's, and per streamed event."""

    times_floor: float
    #: CPU ms per request that is good enough whatever the floor takes.
    cpu_ms: float
    event_us: float


GOALS: dict[Kind, Goal] = {
    "same-wire": Goal(times_floor=1.5, cpu_ms=0.5, event_us=25.0),
    "translating": Goal(times_floor=2.0, cpu_ms=0.0, event_us=50.0),
}
#: How many times our CPU per request a peer must take, by how its name begins.
PEER_GOALS = {"litellm": 20.0, "forge": 10.0, "tensorzero": 1.0}
#: CPU seconds of the gateway for a call with an argument of so many characters.
ARGUMENT_GOALS = {100_000: 0.5, 1_000_000: 5.0}
#: Milliseconds from the connect to the first byte for 99 of 100 connections that came at once.
STORM_GOAL = 250.0
#: Seconds behind the upstream's first argument byte, where the model has a record of valid calls.
FLOW_GOAL = 1.0
#: Seconds a client goes without a byte while a call is held: a keep-alive comes every two.
SILENCE_GOAL = 3.0
FIRST_ANSWER_GOAL = 1.5
HELP_GOAL = 0.3
STREAM_GOAL_MB = 4.0
#: Growth between the first mark and the last that is no leak: an allocator's own breathing.
LEAK_GOAL_MB = 4.0


class FigureRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a table: medians, and ratios to the floor of the same upstream wire (None for floor and direct)."""

    measured: Measured
    rate: float
    cpu_ms: float
    p50_ms: float
    event_us: float | None
    of_floor: float | None
    times_floor: float | None
    times_before: float | None
    added_p50_ms: float | None
    added_p99_ms: float | None
    reads: float
    upstream_cpu_ms: float
    generator_cpu_ms: float


class GoalVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One goal: whether it is met, and the sentence that says by how much."""

    met: bool
    text: str


def _rate(sample: BenchSample) -> float:
    return sample.rate


def _cpu(sample: BenchSample) -> float:
    return sample.cpu_ms


def _p50(sample: BenchSample) -> float:
    return sample.p50


def _p99(sample: BenchSample) -> float:
    return sample.p99


def rows_of(run: BenchResults) -> list[FigureRow]:
    """Return the lines of all tables, in the order they were measured."""
    return [_row(run, one) for one in run.measured]


def _row(run: BenchResults, one: Measured) -> FigureRow:
    group = {other.kind: other for other in reversed(run.group(one))}
    floor, direct = group.get("floor"), group.get("direct")
    before = next((other for other in run.group(one) if (other.kind, other.caller) == ("before", one.caller)), None)
    events = next((load.events for load in run.workloads if load.name == one.workload), 0)
    compared = floor is not None and one.kind not in ("direct", "floor")
    cpu = one.middle(_cpu)
    return FigureRow(
        measured=one,
        rate=one.middle(_rate),
        cpu_ms=cpu,
        p50_ms=one.middle(_p50),
        event_us=cpu * 1000 / events if events else None,
        of_floor=one.ratio(floor, _rate) if compared and floor else None,
        times_floor=one.ratio(floor, _cpu) if compared and floor else None,
        times_before=one.ratio(before, _cpu) if before and one.kind in GOALS else None,
        added_p50_ms=one.middle(_p50) - direct.middle(_p50) if direct and one is not direct else None,
        added_p99_ms=one.middle(_p99) - direct.middle(_p99) if direct and one is not direct else None,
        reads=one.middle(lambda sample: sample.reads),
        upstream_cpu_ms=one.middle(lambda sample: sample.upstream_cpu_ms),
        generator_cpu_ms=one.middle(lambda sample: sample.generator_cpu_ms),
    )


def peer_ratios(run: BenchResults) -> list[tuple[Measured, float]]:
    """Return each peer's cell with how many times the CPU of our gateway, same wire, it took."""
    found: list[tuple[Measured, float]] = []
    for one in run.measured:
        ours = next((other for other in run.group(one) if other.kind == "same-wire"), None)
        if one.kind == "peer" and one.samples and ours is not None:
            found.append((one, one.ratio(ours, _cpu)))
    return found


def verdicts(run: BenchResults) -> list[GoalVerdict]:
    """Return a line per goal that the run has figures for."""
    return [
        *_cost(run),
        *_events(run),
        *_storms(run),
        *_before(run),
        *_peers(run),
        *_arguments(run),
        *_flows(run),
        *_start(run),
        *_memory(run),
    ]


def _cost(run: BenchResults) -> Iterator[GoalVerdict]:
    """Judge CPU per request against the floor, by the weakest pair of each kind."""
    judged = {load.name for load in run.workloads if load.judged and not load.events}
    rows = [row for row in rows_of(run) if row.times_floor is not None and not math.isnan(row.cpu_ms)]
    for kind, goal in GOALS.items():
        for workload, concurrency in dict.fromkeys((one.workload, one.concurrency) for one in run.measured):
            mine = [
                row
                for row in rows
                if (row.measured.kind, row.measured.workload, row.measured.concurrency) == (kind, workload, concurrency)
            ]
            if workload not in judged or not mine:
                continue
            worst = max(mine, key=lambda row: row.times_floor or 0.0)
            times = worst.times_floor or 0.0
            allowed = f"goal {goal.times_floor:g}x" + (f" or {goal.cpu_ms:g} ms" if goal.cpu_ms else "")
            yield GoalVerdict(
                met=times <= goal.times_floor or worst.cpu_ms <= goal.cpu_ms,
                text=f"{kind:<11} {workload:<6} at {concurrency:>3}: {times:.2f}x the floor's CPU, "
                f"{worst.cpu_ms:.3f} ms "
                f"({allowed}; weakest: {worst.measured.contender})",
            )


def _events(run: BenchResults) -> Iterator[GoalVerdict]:
    """Judge CPU per streamed event: all of it where events come in groups, what is above the floor one by one."""
    for row in rows_of(run):
        one = row.measured
        goal = GOALS.get(one.kind)
        if goal is None or row.event_us is None or one.workload not in ("stream", "paced") or not one.samples:
            continue
        if one.workload == "stream":
            cost, words = row.event_us, "CPU per streamed event"
        else:
            floor = next((other for other in run.group(one) if other.kind == "floor"), None)
            if floor is None:
                continue
            floor_us = floor.middle(_cpu) * row.event_us / row.cpu_ms
            cost, words = row.event_us - floor_us, f"CPU per paced event above the floor's {floor_us:.0f} us"
        yield GoalVerdict(
            met=cost <= goal.event_us,
            text=f"{one.contender} at {one.concurrency}: {cost:.1f} us {words} (goal {goal.event_us:.0f})",
        )


def _storms(run: BenchResults) -> Iterator[GoalVerdict]:
    """Judge how long new connections wait that come at once, beside the others of the same run."""
    sizes = {load.name: load.storm for load in run.workloads if load.storm}
    for one in run.measured:
        if one.workload not in sizes or one.kind not in GOALS or not one.samples:
            continue
        others = [
            f"{other.kind} {other.middle(_p99):.0f}"
            for other in run.group(one)
            if (other.kind in ("direct", "floor") or (other.kind, other.caller) == ("before", one.caller))
            and other.samples
        ]
        p99 = one.middle(_p99)
        yield GoalVerdict(
            met=p99 <= STORM_GOAL,
            text=f"{one.contender}, {sizes[one.workload]} new connections at once, {one.concurrency} busy: p99 "
            f"{p99:.0f} ms to the first byte (goal {STORM_GOAL:.0f}; {', '.join(others) or 'nobody else measured'})",
        )


def _before(run: BenchResults) -> Iterator[GoalVerdict]:
    for row in rows_of(run):
        if row.times_before is not None:
            one = row.measured
            yield GoalVerdict(
                met=row.times_before <= 1.05,
                text=f"{one.contender}, {one.workload} at {one.concurrency}: {row.times_before:.2f}x the CPU of the "
                "other checkout (goal 1.05x)",
            )


def _peers(run: BenchResults) -> Iterator[GoalVerdict]:
    for one, times in peer_ratios(run):
        goal = next((least for name, least in PEER_GOALS.items() if one.contender.lower().startswith(name)), 0.0)
        wanted = f" (goal: at least {goal:g}x)" if goal else ""
        yield GoalVerdict(
            met=times >= goal,
            text=f"{one.contender}, {one.workload} at {one.concurrency}: {times:.1f}x the CPU of the gateway{wanted}",
        )


def _arguments(run: BenchResults) -> Iterator[GoalVerdict]:
    for one in run.arguments:
        seconds, goal = median(one.cpu_seconds), ARGUMENT_GOALS.get(one.size, math.inf)
        wanted = f" (goal {goal:g} s)" if goal < math.inf else ""
        yield GoalVerdict(
            met=seconds <= goal,
            text=f"{one.name} argument of {one.size:,} characters, {one.events:,} events: {seconds:.2f} s CPU{wanted}, "
            f"{seconds * 1e6 / one.events:.1f} us per event; floor {median(one.floor_cpu_seconds):.2f} s",
        )


def _flows(run: BenchResults) -> Iterator[GoalVerdict]:
    for one in run.flows:
        first, silence = median(one.first_seconds), max(one.silence_seconds)
        judged = one.kind == "same-wire"
        if one.record:
            words, met = "with a record", not judged or first <= FLOW_GOAL
            goal = f" (goal {FLOW_GOAL:g} s)" if judged else ""
        else:
            words, met = "without a record", not judged or silence <= SILENCE_GOAL
            goal = ""
        silent = f" (goal {SILENCE_GOAL:g} s)" if judged and not one.record else ""
        name = {"same-wire": "gateway", "before": "other checkout"}.get(one.kind, one.kind)
        yield GoalVerdict(
            met=met,
            text=f"native call of {one.size:,} characters at 50 tokens/s, {name} {words}: first argument byte "
            f"{first:.3f} s after the upstream's{goal}, last {median(one.last_seconds):.3f} s; longest silence "
            f"{silence:.2f} s{silent}, {median(one.signs):.0f} keep-alives",
        )


def _start(run: BenchResults) -> Iterator[GoalVerdict]:
    if run.start is None:
        return
    for words, taken, goal in (
        ("`mustcall serve` answers its first turn", run.start.first_answer, FIRST_ANSWER_GOAL),
        ("`mustcall --help` is done", run.start.help, HELP_GOAL),
    ):
        seconds, cpu = median(one.seconds for one in taken), median(one.cpu_seconds for one in taken)
        yield GoalVerdict(
            met=seconds <= goal,
            text=f"{words} {seconds:.2f} s after its start, {cpu:.2f} s of them CPU (goal {goal:g} s)",
        )


def _memory(run: BenchResults) -> Iterator[GoalVerdict]:
    if run.streams is not None:
        held = run.streams
        yield GoalVerdict(
            met=held.each_mb < STREAM_GOAL_MB,
            text=f"{held.streams} streams open for {held.seconds:.0f} s: {held.each_mb:.3f} MB each (goal under "
            f"{STREAM_GOAL_MB:g}); {held.before_mb:.0f} MB before, {held.peak_mb:.0f} at most, "
            f"{held.after_mb:.0f} after",
        )
    if run.leak is not None:
        marks = ", ".join(f"{mb:.1f} MB after {count:,}" for count, mb in run.leak.marks)
        first, last = run.leak.marks[0][0], run.leak.marks[-1][0]
        each = run.leak.growth_mb * 1024 * 1024 / max(1, last - first)
        yield GoalVerdict(
            met=run.leak.growth_mb <= LEAK_GOAL_MB,
            text=f"memory over {last:,} requests: {marks}; {run.leak.growth_mb:+.1f} MB since the first mark (goal "
            f"{LEAK_GOAL_MB:g}), {each:.0f} bytes per request",
        )
