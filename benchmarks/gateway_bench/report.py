"""Tables, verdicts and JSON out of what was measured."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import msgspec

from gateway_bench.bodies import DELTAS
from gateway_bench.cases import Kind, Measured, Plan, Sample, Workload
from gateway_bench.processes import Server

__all__ = ["GOALS", "as_json", "render"]

#: The least share of the floor's throughput, by kind of contender.
GOALS: dict[Kind, float] = {"same-wire": 0.70, "translating": 0.50}

#: The least share of an earlier version's throughput.
BEFORE_GOAL = 0.85

_LIBRARIES = ("aiohttp", "uvicorn", "httptools", "uvloop", "msgspec")


class Row(msgspec.Struct, kw_only=True):
    """One line of the table. Ratios are to the floor of the same upstream wire; None for the floor and direct."""

    workload: str
    concurrency: int
    contender: str
    kind: Kind
    requests_per_second: float
    cpu_ms: float
    throughput_ratio: float | None
    before_ratio: float | None
    cpu_ratio: float | None
    added_p50_ms: float
    added_p99_ms: float
    reads_per_reply: float
    upstream_cpu_ms: float
    generator_cpu_ms: float
    judged: bool


def _rate(sample: Sample) -> float:
    return sample.rate


def _cpu(sample: Sample) -> float:
    return sample.cpu_ms


def rows_of(results: list[Measured]) -> list[Row]:
    """Return the table's lines in the order they were measured."""
    rows: list[Row] = []
    for measured in results:
        cell = measured.cell
        row = {
            other.cell.contender.kind: other
            for other in results
            if other.cell.workload is cell.workload
            and other.cell.concurrency == cell.concurrency
            and other.cell.contender.upstream == cell.contender.upstream
        }
        floor, direct = row["floor"], row["direct"]
        compared = cell.contender.kind in GOALS
        rows.append(
            Row(
                workload=cell.workload.name,
                concurrency=cell.concurrency,
                contender=cell.contender.name,
                kind=cell.contender.kind,
                requests_per_second=measured.middle(_rate),
                cpu_ms=measured.middle(_cpu),
                throughput_ratio=measured.ratio(floor, _rate) if compared else None,
                before_ratio=_before(measured, row.get("before")),
                cpu_ratio=measured.ratio(floor, _cpu) if compared else None,
                added_p50_ms=measured.middle(lambda sample: sample.p50) - direct.middle(lambda sample: sample.p50),
                added_p99_ms=measured.middle(lambda sample: sample.p99) - direct.middle(lambda sample: sample.p99),
                reads_per_reply=measured.middle(lambda sample: sample.reads),
                upstream_cpu_ms=measured.middle(lambda sample: sample.upstream_cpu_ms),
                generator_cpu_ms=measured.middle(lambda sample: sample.generator_cpu_ms),
                judged=cell.workload.judged,
            )
        )
    return rows


def _before(measured: Measured, earlier: Measured | None) -> float | None:
    """Return a same-wire gateway's throughput as a share of the earlier version's."""
    comparable = earlier is not None and measured.cell.contender.kind == "same-wire"
    return measured.ratio(earlier, _rate) if comparable and earlier is not None else None


def render(results: list[Measured], servers: list[Server], plan: Plan) -> str:
    """Return the whole report as Markdown."""
    rows = rows_of(results)
    blocks = [_machine(results)]
    blocks += [_table(workload, rows) for workload in plan.workloads]
    blocks.append("\n".join([*_verdicts(rows), *_against_before(rows), *_per_event(rows)]))
    started = ", ".join(f"{server.name} {server.start_seconds:.2f} s / {server.memory_mb:.0f} MB" for server in servers)
    blocks.append(f"start / memory at the end: {started}")
    return "\n\n".join(blocks)


def _machine(results: list[Measured]) -> str:
    libraries = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    load = "/".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"{libraries}; load average {load}; medians of {len(results[0].samples)} rounds"
    )


def _table(workload: Workload, rows: list[Row]) -> str:
    lines = [
        f"### {workload.name} - {workload.title}",
        "",
        "| contender | at once | req/s | of floor | CPU ms | x floor | added p50 | p99, ms | reads | up / gen CPU |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        if row.workload != workload.name:
            continue
        share = "" if row.throughput_ratio is None else f"{row.throughput_ratio:.0%}"
        times = "" if row.cpu_ratio is None else f"{row.cpu_ratio:.2f}"
        added = row.concurrency == 1 and row.kind != "direct"
        p50, p99 = (f"{row.added_p50_ms:.2f}", f"{row.added_p99_ms:.2f}") if added else ("", "")
        lines.append(
            f"| {row.contender} | {row.concurrency} | {row.requests_per_second:,.0f} | {share} | {row.cpu_ms:.3f} "
            f"| {times} | {p50} | {p99} | {row.reads_per_reply:.0f} "
            f"| {row.upstream_cpu_ms:.2f} / {row.generator_cpu_ms:.2f} |"
        )
    return "\n".join(lines)


def _verdicts(rows: list[Row]) -> list[str]:
    """Return one line per goal: kind x workload x concurrency, by the weakest pair."""
    lines: list[str] = []
    judged = [row for row in rows if row.judged and row.throughput_ratio is not None and row.cpu_ratio is not None]
    for kind, goal in GOALS.items():
        for workload, concurrency in dict.fromkeys((row.workload, row.concurrency) for row in judged):
            mine = [row for row in judged if (row.kind, row.workload, row.concurrency) == (kind, workload, concurrency)]
            if not mine:
                continue
            worst = min(mine, key=lambda row: row.throughput_ratio or 0.0)
            share, times = worst.throughput_ratio or 0.0, max(row.cpu_ratio or 0.0 for row in mine)
            word = "met   " if share >= goal else "MISSED"
            lines.append(
                f"{word} {kind:<11} {workload:<6} at {concurrency:>3}: {share:.0%} of the floor's throughput "
                f"(goal {goal:.0%}; weakest: {worst.contender}); by CPU alone {1 / times:.0%}"
            )
    return lines


def _against_before(rows: list[Row]) -> list[str]:
    """Return one line per workload and concurrency: what is left of the earlier version's throughput."""
    lines: list[str] = []
    for row in rows:
        if row.before_ratio is not None:
            word = "met   " if row.before_ratio >= BEFORE_GOAL else "MISSED"
            lines.append(
                f"{word} {row.workload:<6} at {row.concurrency:>3}: {row.contender} has {row.before_ratio:.0%} of the "
                f"throughput before (goal {BEFORE_GOAL:.0%})"
            )
    return lines


def _per_event(rows: list[Row]) -> list[str]:
    """Return the CPU time of one streamed event, where events come one by one."""
    lines: list[str] = []
    for concurrency in dict.fromkeys(row.concurrency for row in rows if row.workload == "paced"):
        shown = [
            f"{row.contender} {row.cpu_ms * 1000 / len(DELTAS):.0f} us"
            for row in rows
            if (row.workload, row.concurrency) == ("paced", concurrency) and row.kind != "direct"
        ]
        lines.append(f"CPU per event, paced at {concurrency}: {', '.join(shown)}")
    return lines


def as_json(results: list[Measured], servers: list[Server]) -> bytes:
    """Return everything measured, for comparison with other runs."""
    report: dict[str, Any] = {
        "date": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()},
        "libraries": {name: version(name) for name in _LIBRARIES},
        "rounds": len(results[0].samples),
        "goals": GOALS,
        "rows": rows_of(results),
        "samples": [
            {
                "workload": measured.cell.workload.name,
                "concurrency": measured.cell.concurrency,
                "contender": measured.cell.contender.name,
                "rounds": measured.samples,
            }
            for measured in results
        ],
        "servers": {
            server.name: {"start_seconds": server.start_seconds, "memory_mb": server.memory_mb} for server in servers
        },
    }
    return msgspec.json.format(msgspec.json.encode(report), indent=1)
