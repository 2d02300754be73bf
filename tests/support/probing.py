"""A probe in one process, for tests: against a transport or an address, without waiting."""

from collections.abc import Iterable
from functools import cache

import msgspec

from mustcall.core.origin import Wire
from mustcall.probe import Cell, CellVerdict, Level, ProbePlan, Prober, ProbeResult, Subject, cells_for, plan_probe
from mustcall.probe.values import CellTries
from mustcall.testing import FakeClock
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.seam import Transport

__all__ = ["broken_in", "measure", "plan_for"]

#: Verdicts that say nothing against a server.
_FINE = (CellVerdict.HELD, CellVerdict.UNMEASURED)


async def measure(
    transport: Transport,
    wire: Wire,
    *,
    base_url: str = "http://probed.invalid/v1",
    model: str = "honest",
    level: Level = Level.DEFAULT,
    only: Iterable[str] = (),
    tries: int | None = None,
) -> ProbeResult:
    """Return what a probe of all cells, or of these guarantees, finds.

    `tries`: no cell is tried more often. A server that always answers alike is known after a few.
    """
    endpoint = Endpoint(name="probed", wire=wire, base_url=base_url, api_key="key")
    subject = Subject(endpoint=endpoint, model=model, transport=transport, clock=FakeClock())
    prober = Prober(subject, plan_for(wire, level, frozenset(only), tries))
    async for _ in prober.run():
        pass
    result = prober.result
    assert not result.partial
    return result


@cache  # writing the first request of each cell to weigh it takes as long as sending it
def plan_for(
    wire: Wire, level: Level = Level.DEFAULT, only: frozenset[str] = frozenset(), tries: int | None = None
) -> ProbePlan:
    """Return the plan of a probe of all cells, or of these guarantees; one plan serves any number of probes."""
    cells: tuple[Cell, ...] = cells_for(wire, level)
    if tries is not None:
        cells = tuple(_tried(cell, tries) for cell in cells)
    if only:
        cells = tuple(cell for cell in cells if cell.guarantee in only)
    return plan_probe(cells, wire, level, None)


def _tried(cell: Cell, most: int) -> Cell:
    tries = CellTries(*(min(count, most) for count in (cell.tries.quick, cell.tries.default, cell.tries.deep)))
    return msgspec.structs.replace(cell, tries=tries)


def broken_in(result: ProbeResult) -> dict[str, set[tuple[str, str]]]:
    """Return the guarantees that do not hold, each with the verdicts and owners of its cells."""
    found: dict[str, set[tuple[str, str]]] = {}
    for cell in result.cells:
        if cell.verdict not in _FINE:
            found.setdefault(cell.guarantee, set()).add((str(cell.verdict), str(cell.owner)))
    return found
