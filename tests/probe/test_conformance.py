"""The probe against our own gateway: it holds what its upstream can carry, and mends what a lying one breaks."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from mustcall.core.origin import Wire
from mustcall.engine.turns import OperatorSettings
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.probe import CellVerdict, ProbeResult, profile_of
from mustcall.profiles import MeasuredProfile
from mustcall.testing import FakeClock, RunningGateway
from mustcall.testing.probed import LIES, Lie, LyingServer, find_lie
from mustcall.testing.probed.unmended import UNMENDED
from mustcall.upstream.schemes import SchemeTransport
from support.probing import broken_in, measure
from support.sdk_reading import TakingTransport, read_once_by_sdk

#: Cells that are not held through a gateway, and why.
_NOT_HELD = {
    # The gateway takes reasoning state that its upstream refuses out and asks again, so that a client gets its answer.
    "reasoning.altered",
}
#: Cells that tell nothing of a gateway: it has no rate limit, and asks again where a call was cut.
_OPEN = {"retry_after", "cut"}
#: These servers always answer alike; what a gateway learns in the first try is used in the second.
_TRIES = 2
#: Cells that only watch need the exchanges of another, and a profile needs an answer.
_CARRIER = {"none"}


async def probed(
    tmp_path: Path,
    caller: Wire,
    upstream: Wire,
    lie: Lie | None = None,
    *,
    only: Iterable[str] = (),
    profile: MeasuredProfile | None = None,
) -> ProbeResult:
    """Return what a probe of all cells, or of these guarantees, finds through a gateway in front of a server.

    Every answer that the probe gets is also parsed by the official SDK of its wire, in strict validation; those that
    differ in ids and times alone, once.
    """
    overrides = () if profile is None else (profile.override(),)
    settings = settings_from_flags(
        f"up:{upstream}=http://probed.invalid/v1",
        operator=OperatorSettings(overrides=overrides),
        ledger=LedgerSettings(place=str(tmp_path / "l.db")),
    )
    transport = TakingTransport(SchemeTransport())
    with RunningGateway(settings=settings, transport=LyingServer(lie), clock=FakeClock()) as gateway:
        try:
            result = await measure(transport, caller, base_url=gateway.base_url, only=only, tries=_TRIES)
        finally:
            await transport.close()
            await asyncio.sleep(0)
    for taken in transport.taken:
        if taken.complete:
            read_once_by_sdk(taken)
    return result


@pytest.mark.parametrize("upstream", list(Wire))
@pytest.mark.parametrize("caller", list(Wire))
async def test_the_gateway_holds_what_its_upstream_can_carry(tmp_path: Path, caller: Wire, upstream: Wire) -> None:
    """On every pair of wires, in front of an honest server that keeps the providers' strict rules."""
    result = await probed(tmp_path, caller, upstream)
    assert set(broken_in(result)) <= _NOT_HELD
    assert {cell.id for cell in result.cells if cell.verdict is CellVerdict.UNMEASURED} <= _OPEN


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.name)
async def test_the_gateway_mends_what_can_be_mended(tmp_path: Path, lie: Lie) -> None:
    """A lie that the gateway can see through holds behind it. `tools/lies.py` does the same with every cell."""
    left = UNMENDED.get(lie.name)
    broken: frozenset[str] = frozenset() if left is None else left.broken
    result = await probed(tmp_path, lie.wire, lie.wire, lie, only=lie.all_broken | broken | _CARRIER)
    found = set(broken_in(result)) - _NOT_HELD
    assert found <= broken
    assert found == broken or (left is not None and left.by_chance)


@pytest.mark.parametrize("name", [name for name, left in UNMENDED.items() if left.measured])
async def test_what_was_measured_is_mended(tmp_path: Path, name: str) -> None:
    """A lie that no exchange gives away holds once the profile of a probe is used."""
    lie = find_lie(name)
    profile = profile_of(await measure(LyingServer(lie), lie.wire, only=UNMENDED[name].broken | _CARRIER))
    result = await probed(tmp_path, lie.wire, lie.wire, lie, only=UNMENDED[name].broken, profile=profile)
    assert broken_in(result) == {}


def test_what_is_left_has_a_reason() -> None:
    """Every row is a lie there is and says why; every lie about the tool choice, ids and finish reasons is mended."""
    assert all(find_lie(name) and left.why for name, left in UNMENDED.items())
    mended = {lie.name for lie in LIES} - set(UNMENDED)
    assert len(mended) == 47
    assert {"ignores_required", "ignores_named", "calls_under_none", "drops_strict", "repeats_ids"} <= mended
    assert {"ignores_stop", "finishes_with_calls", "crashes_streaming_tools", "refuses_two_results"} <= mended
