"""The probe against our own gateway: it holds what its upstream can carry, and mends what a lying one breaks."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from mustcall.core.origin import Wire
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.probe import CellVerdict, ProbeResult
from mustcall.testing import FakeClock, RunningGateway
from mustcall.testing.probed import LIES, Lie, LyingServer, find_lie
from mustcall.upstream.schemes import SchemeTransport
from support.probing import broken_in, measure
from support.sdk_reading import TakingTransport, read_by_sdk

#: Cells that are not held through a gateway, and why.
_NOT_HELD = {
    # The gateway takes reasoning state that its upstream refuses out and asks again, so that a client gets its answer.
    "reasoning.altered",
}
#: Cells that tell nothing of a gateway: it has no rate limit, and asks again where a call was cut.
_OPEN = {"retry_after", "cut"}


async def probed(
    tmp_path: Path, caller: Wire, upstream: Wire, lie: Lie | None = None, *, only: Iterable[str] = ()
) -> ProbeResult:
    """Return what a probe of all cells, or of these guarantees, finds through a gateway in front of a server.

    Every answer that the probe gets is also parsed by the official SDK of its wire, in strict validation.
    """
    settings = settings_from_flags(
        f"up:{upstream}=http://probed.invalid/v1", ledger=LedgerSettings(place=str(tmp_path / "l.db"))
    )
    transport = TakingTransport(SchemeTransport())
    with RunningGateway(settings=settings, transport=LyingServer(lie), clock=FakeClock()) as gateway:
        try:
            result = await measure(transport, caller, base_url=gateway.base_url, only=only)
        finally:
            await transport.close()
            await asyncio.sleep(0)
    for taken in transport.taken:
        if taken.complete:
            read_by_sdk(taken)
    return result


@pytest.mark.parametrize("upstream", list(Wire))
@pytest.mark.parametrize("caller", list(Wire))
async def test_the_gateway_holds_what_its_upstream_can_carry(tmp_path: Path, caller: Wire, upstream: Wire) -> None:
    """On every pair of wires, in front of an honest server that keeps the providers' strict rules."""
    result = await probed(tmp_path, caller, upstream)
    assert set(broken_in(result)) <= _NOT_HELD
    assert {cell.id for cell in result.cells if cell.verdict is CellVerdict.UNMEASURED} <= _OPEN


#: Lies that no gateway can mend, each with what is still broken behind it: the answer itself is missing or wrong, or it
#: is a typed error where the upstream cannot do what is asked.
_STILL_BROKEN: dict[str, set[str]] = {
    "never_calls_alone": {"auto", "parallel.on", "tools.1", "tools.32", "tools.128"},
    "never_parallel": {"parallel.on"},
    "crashes_on_union": {"schema.union"},
    "ignores_format": {"format", "format+tools"},
    "ignores_format_with_tools": {"format+tools"},
    "refuses_format_with_tools": {"format+tools"},
    "counts_nothing": {"usage"},
    "counts_too_little": {"usage"},
    "cuts_prompts": {"context"},
    "loses_results": {"result.round_trip"},
    "refuses_images": {"result.image"},
    "loses_reasoning": {"reasoning.shown"},
    "takes_any_signature": set(),
    "forgets_previous_response": {"previous_response"},
    "stores_nothing": {"stored_response"},
    "counts_one_token": {"count_tokens"},
    "refuses_128_tools": {"tools.128"},
    "crashes_with_32_tools": {"tools.32", "tools.128"},
    "garbles_unicode": {"unicode"},
}


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.name)
async def test_the_gateway_mends_what_can_be_mended(tmp_path: Path, lie: Lie) -> None:
    """A lie that the gateway can see through holds behind it. `tools/lies.py` does the same with every cell."""
    broken = _STILL_BROKEN.get(lie.name, set())
    result = await probed(tmp_path, lie.wire, lie.wire, lie, only=lie.all_broken | broken)
    assert set(broken_in(result)) - _NOT_HELD <= broken


def test_most_lies_are_mended() -> None:
    """Every lie about the tool choice, about ids, names and finish reasons that leaves a usable reply is mended."""
    mended = {lie.name for lie in LIES} - set(_STILL_BROKEN)
    assert len(mended) >= 37
    assert {"ignores_required", "ignores_named", "calls_under_none", "drops_strict", "repeats_ids"} <= mended
    assert all(find_lie(name) for name in _STILL_BROKEN)
