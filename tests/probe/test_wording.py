"""What a probe found, in one line."""

import pytest

from mustcall.core.origin import Wire
from mustcall.probe.results import CellResult, ProbeResult, ProbeSpending
from mustcall.probe.values import CellGroup, CellVerdict, Level
from mustcall.probe.wording import headline

HELD, IGNORED, UNMEASURED = CellVerdict.HELD, CellVerdict.IGNORED, CellVerdict.UNMEASURED


def found(*verdicts: CellVerdict, required: bool = True) -> ProbeResult:
    """A result with cells of these verdicts."""
    group = next(iter(CellGroup))
    return ProbeResult(
        upstream="up",
        base_url="http://127.0.0.1:9/v1",
        wire=Wire.CHAT,
        model="m",
        level=Level.QUICK,
        started="2026-11-17T09:00:00+00:00",
        spent=ProbeSpending(requests=9, seconds=2.0),
        cells=tuple(
            CellResult(id=str(number), guarantee="g", group=group, required=required, verdict=verdict)
            for number, verdict in enumerate(verdicts)
        ),
    )


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ([HELD] * 3, "3 required cells hold"),
        ([HELD] * 3 + [IGNORED, CellVerdict.FLAKY], "3 required cells hold, 2 do not"),
        ([HELD] * 3 + [IGNORED] * 3 + [UNMEASURED] * 6, "3 required cells hold, 3 do not, 6 were not measured"),
        ([HELD, IGNORED, UNMEASURED], "1 required cell holds, 1 does not, 1 was not measured"),
        ([UNMEASURED] * 2, "0 required cells hold, 2 were not measured"),
    ],
)
def test_the_headline_counts_every_required_cell(verdicts: list[CellVerdict], said: str) -> None:
    """What was not measured is told too; what there is none of is left out."""
    assert headline(found(*verdicts)) == f"{said}; 9 requests in 2 s"


def test_a_run_without_required_cells_claims_nothing_of_them() -> None:
    """Cells that nobody requires are not counted as required ones."""
    assert headline(found(HELD, IGNORED, required=False)) == "no required cell was asked for; 9 requests in 2 s"
