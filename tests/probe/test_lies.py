"""The probe against servers with one lie each: it names the lie, its owner, and nothing else."""

import pytest

from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.probe import CellVerdict, Level
from mustcall.probe.catalogue import CELLS
from mustcall.probe.results import guarantees
from mustcall.probe.verdicts import THRESHOLD
from mustcall.testing.probed import LIES, Lie, LyingServer, LyingUpstream, find_lie
from mustcall.upstream.schemes import SchemeTransport
from support.compared import keep_own_count
from support.examples import PROFILE
from support.probing import broken_in, measure

#: The only cell that an honest server leaves open: it has no rate limit that could tell a wait.
_OPEN = {"retry_after"}


@pytest.mark.parametrize("wire", list(Wire))
async def test_an_honest_server_has_no_broken_cell(wire: Wire) -> None:
    """Rule 75: every cell the wire can carry is held, none is left unmeasured but the wait of a rate limit."""
    server = LyingServer()
    result = await measure(server, wire)
    assert broken_in(result) == {}
    assert {cell.id for cell in result.cells if cell.verdict is CellVerdict.UNMEASURED} == _OPEN
    assert result.spent.requests == len(server.requests) <= result.announced_requests


@pytest.mark.parametrize("wire", list(Wire))
async def test_a_deep_probe_of_an_honest_server_is_a_statement(wire: Wire) -> None:
    """73 tries of each required cell that can be tried as often put its interval above 95 %; nothing is left open.

    Under `ci` that is on one wire; on the others what no other level tries is tried.
    """
    server = LyingServer()
    whole = wire is Wire.CHAT or PROFILE == "deep"
    only = [] if whole else [cell.guarantee for cell in CELLS if cell.tries.deep and not cell.tries.default]
    result = await measure(server, wire, level=Level.DEEP, only=only)
    assert broken_in(result) == {}
    assert {cell.id for cell in result.cells if cell.verdict is CellVerdict.UNMEASURED} == (_OPEN if whole else set())
    assert {cell.id for cell in result.cells} >= {"arguments.8k"}
    if whole:
        assert {cell.id for cell in result.cells if cell.required and cell.low < THRESHOLD} == {"context"}
    assert result.spent.requests == len(server.requests) <= result.announced_requests


def test_there_are_enough_lies_and_each_has_a_name() -> None:
    """Fifty at least, every one findable, every wire lied on."""
    assert len(LIES) >= 50
    assert len({lie.name for lie in LIES}) == len(LIES)
    assert all(find_lie(lie.name) is lie for lie in LIES)
    assert {lie.wire for lie in LIES} == set(Wire)
    with pytest.raises(ConfigError, match="ignores_required"):
        find_lie("tells_the_truth")


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.name)
async def test_the_probe_names_the_lie_and_nothing_else(lie: Lie) -> None:
    """Rule 75: exactly the guarantees that the lie breaks are not held, and their owner is the liar."""
    result = await measure(LyingServer(lie), lie.wire, tries=1)
    broken = broken_in(result)
    assert set(broken) == lie.all_broken
    assert {owner for found in broken.values() for _, owner in found} == {lie.owner}
    if lie.verdict:
        assert {verdict for verdict, _ in broken[lie.breaks]} == {lie.verdict}


@pytest.mark.parametrize("name", ["ignores_required", "calls_under_none", "drops_strict"])
async def test_a_lie_now_and_then_is_flaky(name: str) -> None:
    """A server that lies in 30 % of its answers is flaky in 19 of 20 runs at least, never ignored and never broken."""
    lie = find_lie(name)
    verdicts: list[CellVerdict] = []
    for seed in range(20):
        result = await measure(LyingServer(lie, rate=0.3, seed=seed), lie.wire, only=[lie.breaks])
        (guarantee,) = guarantees(result)
        verdicts.append(guarantee.verdict)
    assert verdicts.count(CellVerdict.FLAKY) >= 19
    assert set(verdicts) <= {CellVerdict.FLAKY, CellVerdict.HELD}


@pytest.mark.parametrize(("name", "wire"), [(None, Wire.CHAT), ("ignores_required", Wire.CHAT)])
async def test_the_same_over_http(name: str | None, wire: Wire) -> None:
    """The server on a real socket is the same as the one in the process."""
    lie = None if name is None else find_lie(name)
    transport = SchemeTransport()
    with LyingUpstream(lie) as upstream:
        keep_own_count(upstream)
        try:
            result = await measure(transport, wire, base_url=upstream.base_url)
        finally:
            await transport.close()
        assert set(broken_in(result)) == (set() if lie is None else lie.all_broken)
        assert result.spent.requests == len(upstream.requests)
