"""The probe against llama.cpp's own server, bare and through a gateway: what the server can carry holds on every wire.

Which cells those are is read from the bare matrix. The server's answers are kept (`support.served`), so that the cells
are measured on what a real model said without running it.
"""

import asyncio
from collections.abc import Generator
from pathlib import Path

import pytest

from mustcall.core.origin import Wire
from mustcall.probe import CellVerdict, Level, Owner, ProbeResult
from mustcall.testing import FakeClock, RunningGateway
from mustcall.upstream.schemes import SchemeTransport
from support.embedded import NAME
from support.probing import measure
from support.relaying import Relay
from support.served import KeptServer

#: The answers are many: a file of their own.
FILE = Path(__file__).parent / "server_answers.jsonl"
_FINE = (CellVerdict.HELD, CellVerdict.UNMEASURED)


@pytest.fixture(scope="module")
def relay() -> Generator[Relay]:
    """The 135M on llama.cpp's server with what it has answered before; it is started only when asked anew."""
    kept = KeptServer(file=FILE)
    try:
        with Relay(kept, completes=True) as running:
            yield running
    finally:
        kept.close()


async def probed(base_url: str, wire: Wire, model: str) -> ProbeResult:
    """Return what a quick probe finds on a wire."""
    transport = SchemeTransport()
    try:
        return await measure(transport, wire, base_url=base_url, model=model, level=Level.QUICK)
    finally:
        await transport.close()
        await asyncio.sleep(0)


def verdicts(result: ProbeResult) -> dict[str, CellVerdict]:
    """Return the verdict of each cell."""
    return {cell.id: cell.verdict for cell in result.cells}


@pytest.mark.parametrize("wire", list(Wire))
async def test_the_gateway_holds_what_the_server_carries(relay: Relay, wire: Wire) -> None:
    """Every cell that the bare server holds on its chat wire holds through the gateway on the caller's."""
    bare = verdicts(await probed(relay.base_url, Wire.CHAT, NAME))
    with RunningGateway(f"chat={relay.base_url}", clock=FakeClock()) as gateway:
        result = await probed(gateway.base_url, wire, NAME)
    through = verdicts(result)
    assert CellVerdict.HELD in bare.values()
    carried = {cell for cell, verdict in bare.items() if verdict is CellVerdict.HELD} & set(through)
    assert {cell: through[cell] for cell in carried if through[cell] is not CellVerdict.HELD} == {}
    # Whatever else a client cannot do without holds as well, or the model is told to have failed.
    failed = {cell.id: cell.owner for cell in result.cells if cell.required and cell.verdict not in _FINE}
    assert set(failed.values()) <= {Owner.MODEL}
