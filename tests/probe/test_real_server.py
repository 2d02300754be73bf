"""The probe against llama.cpp's own server, bare and through a gateway: what the server can carry holds on every wire.

Which cells those are is read from the bare matrix. The server's answers are kept (`support.served`), so that the cells
are measured on what a real model said without running it.
"""

import asyncio
from collections.abc import Generator
from pathlib import Path

import pytest

from mustcall.core.origin import Wire
from mustcall.probe import CELLS, CellVerdict, Level, Owner, ProbeResult
from mustcall.testing import FakeClock, RunningGateway
from mustcall.upstream.schemes import SchemeTransport
from support.embedded import NAME
from support.probing import measure
from support.relaying import Relay
from support.sdk_reading import Taken, TakingTransport, read_by_sdk
from support.served import KeptServer

#: The answers are many: a file of their own.
FILE = Path(__file__).parent / "server_answers.jsonl"
#: A gateway asks again where a call was cut: nothing is learnt of the server then.
_OPEN = {"cut"}
#: What is left to the model, by the table of cells.
_MODELS = {cell.id for cell in CELLS if cell.duty is Owner.MODEL}


@pytest.fixture(scope="module")
def relay() -> Generator[Relay]:
    """The 135M on llama.cpp's server with what it has answered before; it is started only when asked anew."""
    kept = KeptServer(file=FILE)
    try:
        with Relay(kept, completes=True) as running:
            yield running
    finally:
        kept.close()


async def probed(base_url: str, wire: Wire) -> tuple[ProbeResult, list[Taken]]:
    """Return what a quick probe finds on a wire, and the answers it got."""
    transport = TakingTransport(SchemeTransport())
    try:
        result = await measure(transport, wire, base_url=base_url, model=NAME, level=Level.QUICK)
        return result, transport.taken
    finally:
        await transport.close()
        await asyncio.sleep(0)


@pytest.mark.parametrize("wire", list(Wire))
async def test_the_gateway_holds_what_the_server_carries(relay: Relay, wire: Wire) -> None:
    """Every cell that the bare server holds on its chat wire holds through the gateway on the caller's.

    What a cell leaves to the model may fail by the model's fault alone: each wire is other words to a small model.
    """
    bare, _ = await probed(relay.base_url, Wire.CHAT)
    with RunningGateway(f"chat={relay.base_url}", clock=FakeClock()) as gateway:
        through, answers = await probed(gateway.base_url, wire)
    carried = {cell.id for cell in bare.cells if cell.verdict is CellVerdict.HELD} - _OPEN
    lost = {
        cell.id: (cell.verdict, cell.owner, cell.note)
        for cell in through.cells
        if cell.id in carried and cell.verdict is not CellVerdict.HELD
        if not (cell.owner is Owner.MODEL and cell.id in _MODELS)
    }
    assert lost == {}
    assert len(carried) > len(_MODELS & carried)
    for answer in answers:
        if answer.complete:
            read_by_sdk(answer)


async def test_what_the_server_ignores_is_held_by_the_gateway(relay: Relay) -> None:
    """A forced call: ignored by the bare server, whose template has no tools, and held through the gateway."""
    bare, _ = await probed(relay.base_url, Wire.CHAT)
    with RunningGateway(f"chat={relay.base_url}", clock=FakeClock()) as gateway:
        through, _ = await probed(gateway.base_url, Wire.CHAT)
    forced = ("required", "required+stream", "named")
    assert {cell.verdict for cell in bare.cells if cell.id in forced} == {CellVerdict.IGNORED}
    assert {cell.verdict for cell in through.cells if cell.id in forced} == {CellVerdict.HELD}
