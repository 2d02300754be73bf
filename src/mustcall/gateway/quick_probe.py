"""A quick probe for `gateway.measuring`: the quick set, then the cells that changed once more, within one budget."""

from collections.abc import Sequence

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.gateway.measuring import Change, Measurement, Task
from mustcall.probe import (
    Cell,
    CellVerdict,
    Level,
    Prober,
    ProbeResult,
    Subject,
    cells_for,
    compare,
    plan_probe,
    profile_of,
)
from mustcall.probe.facts import has_answers

__all__ = ["probe_quickly"]

_OPEN = CellVerdict.UNMEASURED


async def probe_quickly(task: Task) -> Measurement | None:
    """Measure the quick set; what differs from before is measured again before it counts. None if nothing answered."""
    wire = task.endpoint.wire
    first = await _run(task, cells_for(wire, Level.QUICK), Level.QUICK, task.max_requests, task.max_usd)
    if not has_answers(first):
        return None
    before = _read(task.before)
    requests, cost = first.spent.requests, first.spent.cost_usd or 0.0
    if before is None:
        return Measurement(profile=profile_of(first), report=first.encode(), requests=requests, cost_usd=cost)
    changed = {drift.id for drift in compare(before, first) if drift.changed and _OPEN not in (drift.before, drift.now)}
    if not changed or requests >= task.max_requests:
        return Measurement(profile=profile_of(first), report=before.encode(), requests=requests, cost_usd=cost)
    again = [cell for cell in cells_for(wire, Level.DEFAULT) if cell.id in changed]
    left = task.max_requests - requests, max(0.0, task.max_usd - cost)
    second = await _run(task, again, Level.DEFAULT, *left)
    measured = {cell.id: cell for cell in second.cells if cell.verdict is not _OPEN}
    joined = msgspec.structs.replace(
        first, cells=tuple(measured.get(cell.id, cell) for cell in first.cells), started=first.started
    )
    verdicts = {cell.id: cell.verdict for cell in before.cells}
    changes = tuple(
        Change(cell.id, str(verdicts[cell.id]), str(cell.verdict), verdicts[cell.id] is CellVerdict.HELD, cell.fact)
        for cell in measured.values()
        if cell.verdict is not verdicts[cell.id]
    )
    return Measurement(
        profile=profile_of(joined),
        # What did not change is compared with its first measurement, so that small steps add up.
        report=_renewed(before, joined, {change.cell for change in changes}).encode(),
        requests=requests + second.spent.requests,
        cost_usd=cost + (second.spent.cost_usd or 0.0),
        changes=changes,
    )


async def _run(task: Task, cells: Sequence[Cell], level: Level, requests: int, usd: float) -> ProbeResult:
    wire = task.endpoint.wire
    plan = plan_probe(cells, wire, level, task.price, max_usd=usd, max_requests=requests)
    subject = Subject(
        endpoint=task.endpoint, model=task.model, transport=task.transport, clock=task.clock, price=task.price
    )
    prober = Prober(subject, plan)
    async for _ in prober.run():
        pass
    return prober.result


def _renewed(before: ProbeResult, now: ProbeResult, changed: set[str]) -> ProbeResult:
    new = {cell.id: cell for cell in now.cells}
    return msgspec.structs.replace(
        before,
        started=now.started,
        cells=tuple(new[cell.id] if cell.id in changed else cell for cell in before.cells),
    )


def _read(report: bytes) -> ProbeResult | None:
    """Return an earlier report, None where there is none that this version reads."""
    try:
        return msgspec.json.decode(report, type=ProbeResult) if report else None
    except (msgspec.DecodeError, ConfigError):
        return None
