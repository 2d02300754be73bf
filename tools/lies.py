"""Prints what a probe finds of each lying server, alone and behind a gateway: every cell, in this process.

`python tools/lies.py [NAME…]`. It exits with 1 where the probe alone names another lie, another owner, or more.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.probe import CellVerdict, Level, Prober, ProbeResult, Subject, cells_for, plan_probe
from mustcall.testing import FakeClock, RunningGateway
from mustcall.testing.probed import LIES, Lie, LyingServer
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.schemes import SchemeTransport
from mustcall.upstream.seam import Transport

FINE = (CellVerdict.HELD, CellVerdict.UNMEASURED)


async def measure(transport: Transport, lie: Lie, base_url: str) -> ProbeResult:
    """Probe a server at a base URL with the default set."""
    endpoint = Endpoint(name="probed", wire=lie.wire, base_url=base_url, api_key="key")
    plan = plan_probe(cells_for(lie.wire, Level.DEFAULT), lie.wire, Level.DEFAULT, None)
    prober = Prober(Subject(endpoint=endpoint, model="honest", transport=transport, clock=FakeClock()), plan)
    async for _ in prober.run():
        pass
    return prober.result


async def behind_gateway(lie: Lie, base_url: str) -> ProbeResult:
    """Probe a gateway over HTTP."""
    transport = SchemeTransport()
    try:
        return await measure(transport, lie, base_url)
    finally:
        await transport.close()


def broken(result: ProbeResult) -> dict[str, str]:
    """Return the guarantees that do not hold, with their owners."""
    return {cell.guarantee: str(cell.owner) for cell in result.cells if cell.verdict not in FINE}


def main(names: list[str]) -> int:
    """Print a line for each lie; return the exit code."""
    wrong = 0
    for lie in LIES:
        if names and lie.name not in names:
            continue
        alone = broken(asyncio.run(measure(LyingServer(lie), lie, "http://probed.invalid/v1")))
        named = frozenset(alone) == lie.all_broken and set(alone.values()) == {lie.owner}
        wrong += not named
        with tempfile.TemporaryDirectory() as folder:
            kept = LedgerSettings(place=str(Path(folder) / "l.db"))
            settings = settings_from_flags(f"up:{lie.wire}=http://probed.invalid/v1", ledger=kept)
            with RunningGateway(settings=settings, transport=LyingServer(lie), clock=FakeClock()) as gateway:
                behind = broken(asyncio.run(behind_gateway(lie, gateway.base_url)))
        found = f"{lie.breaks} ({lie.owner})" if named else f"WRONG {alone}"
        print(f"{lie.name:<36} {found:<32} behind the gateway: {', '.join(sorted(behind)) or 'mended'}")
    print(f"{len(LIES) if not names else len(names)} lies, {wrong} named wrongly")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
