"""The probe the other way round: our own gateway, on each wire, holds what its upstream can carry."""

from pathlib import Path

import msgspec
import pytest

from mustcall.core.origin import Wire
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.probe import Level, ProbeResult, Verdict
from mustcall.testing import RunningGateway
from mustcall.testing.probed import LyingUpstream, find_lie
from mustcall.upstream.schemes import SchemeTransport
from support.probing import measure

#: What stays open behind a gateway: a call that is cut is asked for in a shorter form, and nobody limits the rate.
OPEN = {"cut", "retry_after"}
#: What the gateway mends where a provider refuses it: state that nobody can read is left out, and a header says so.
MENDED = {"reasoning.altered"}
#: Responses has no stop sequences; the gateway says that it left them out.
NO_STOP = {"stop"}


async def through(tmp_path: Path, wire: Wire, upstream_wire: Wire, level: Level, lie: str = "") -> ProbeResult:
    """Measure a gateway with a ledger in front of an honest server, or of one with a lie."""
    with LyingUpstream(find_lie(lie) if lie else None) as upstream:
        settings = msgspec.structs.replace(
            settings_from_flags(f"up:{upstream_wire}={upstream.base_url}#honest"),
            ledger=LedgerSettings(place=str(tmp_path / "ledger.db")),
        )
        transport = SchemeTransport()
        with RunningGateway(settings=settings) as gateway:
            try:
                return await measure(transport, wire, base_url=gateway.base_url, level=level)
            finally:
                await transport.close()


def not_held(result: ProbeResult) -> dict[str, Verdict]:
    """Return the cells that do not hold."""
    return {cell.id: cell.verdict for cell in result.cells if cell.verdict is not Verdict.HELD}


@pytest.mark.parametrize("wire", Wire)
async def test_the_gateway_holds_every_cell_of_its_upstreams_wire(tmp_path: Path, wire: Wire) -> None:
    """All cells, as often as a default probe tries them."""
    result = await through(tmp_path, wire, wire, Level.DEFAULT)
    assert set(not_held(result)) <= OPEN | MENDED
    assert len(result.cells) > 50


@pytest.mark.parametrize("upstream_wire", Wire)
@pytest.mark.parametrize("wire", Wire)
async def test_the_gateway_holds_what_another_wire_can_carry(tmp_path: Path, wire: Wire, upstream_wire: Wire) -> None:
    """The quick set, for every pair of wires."""
    result = await through(tmp_path, wire, upstream_wire, Level.QUICK)
    assert set(not_held(result)) <= OPEN | MENDED | (NO_STOP if upstream_wire is Wire.RESPONSES else set())


@pytest.mark.parametrize("lie", ["ignores_required", "ignores_named", "calls_under_none"])
async def test_the_gateway_holds_what_its_upstream_does_not(tmp_path: Path, lie: str) -> None:
    """Bare these guarantees are broken; through the gateway they hold."""
    found = find_lie(lie)
    result = await through(tmp_path, found.wire, found.wire, Level.QUICK, lie)
    assert {cell.verdict for cell in result.cells if cell.guarantee == found.breaks} == {Verdict.HELD}
