"""The table of cells: every row can be sent on its wires, says what it settles, and holds nothing of a user."""

import os

import msgspec
import pytest

from mustcall.core.origin import Wire
from mustcall.probe.catalogue import CELLS, cells_for, markdown
from mustcall.probe.clients import NEEDS
from mustcall.probe.facts import RULES
from mustcall.probe.planning import body_of
from mustcall.probe.values import Cell, CellGroup, Client, Level
from mustcall.wire.registry import codec_for

SCRIPTED = [(cell, wire) for cell in CELLS if cell.script for wire in sorted(cell.wires)]


def bodies(cell: Cell, wire: Wire, number: int) -> list[bytes]:
    """Return the bodies of the first batch of a try."""
    assert cell.script is not None
    return [msgspec.json.encode(body_of(send, wire, "model")) for send in next(cell.script(number))]


@pytest.mark.parametrize(("cell", "wire"), SCRIPTED, ids=[f"{cell.id}-{wire}" for cell, wire in SCRIPTED])
def test_every_cell_is_a_legal_request_of_its_wire(cell: Cell, wire: Wire) -> None:
    """What our own codec reads as a request, but for the cell that is malformed on purpose; and each try is its own."""
    for number in range(4):
        for body in bodies(cell, wire, number):
            if cell.id != "error.shape":
                request = codec_for(wire).decode_request(body)
                assert request.model == "model"
                assert request.messages
    assert bodies(cell, wire, 0) == bodies(cell, wire, 0)
    assert bodies(cell, wire, 0) != bodies(cell, wire, 1)


def test_the_table_is_sound() -> None:
    """Ids are unique; a fact is one that is settled; a cell sends or watches; tries grow with the level."""
    assert len({cell.id for cell in CELLS}) == len(CELLS)
    for cell in CELLS:
        assert (cell.script is None) != (cell.watch is None), cell.id
        assert not cell.fact or cell.fact in RULES, cell.id
        assert cell.tries.quick <= cell.tries.default <= cell.tries.deep, cell.id
        if cell.required and cell.script and cell.sends == 1 and cell.id != "context":
            assert cell.tries.deep in (12, 73), cell.id
    assert {cell.group for cell in CELLS} == set(CellGroup)
    assert {cell.fact for cell in CELLS if cell.fact} >= {"forced", "named", "parallel", "schema_output"}


def test_a_cell_that_a_wire_cannot_carry_is_absent() -> None:
    """Not unmeasured: absent."""
    found = {wire: {cell.id for cell in cells_for(wire, Level.DEEP)} for wire in Wire}
    assert "stop" not in found[Wire.RESPONSES]
    assert "stop" in found[Wire.CHAT] & found[Wire.MESSAGES]
    assert {"previous_response", "stored_response"} <= found[Wire.RESPONSES] - found[Wire.CHAT] - found[Wire.MESSAGES]
    assert "count_tokens" in found[Wire.MESSAGES] - found[Wire.CHAT] - found[Wire.RESPONSES]
    assert "result.image" not in found[Wire.CHAT]


def test_every_choice_is_measured_in_all_four_ways() -> None:
    """auto, none, required and named, with and without reasoning, whole and streamed."""
    ids = {cell.id for cell in cells_for(Wire.CHAT, Level.DEFAULT)}
    for choice in ("auto", "none", "required", "named"):
        assert {choice, f"{choice}+stream", f"{choice}+reasoning", f"{choice}+reasoning+stream"} <= ids


@pytest.mark.parametrize("client", Client)
def test_what_a_client_needs_is_measured_on_its_wire(client: Client) -> None:
    """Every guarantee that a client is said to need exists, and those its wire can carry are chosen."""
    needs = NEEDS[client]
    assert needs.guarantees <= {cell.guarantee for cell in CELLS}
    chosen = cells_for(needs.wire, Level.DEEP, client)
    assert {cell.guarantee for cell in chosen} == {
        cell.guarantee for cell in CELLS if cell.guarantee in needs.guarantees and needs.wire in cell.wires
    }


def test_no_request_holds_anything_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bodies are the same whoever runs it, wherever."""
    before = [bodies(cell, wire, 3) for cell, wire in SCRIPTED]
    for name in list(os.environ):
        if name not in ("PATH", "HOME"):
            monkeypatch.setenv(name, "secret-of-the-user")
    monkeypatch.chdir("/")
    assert [bodies(cell, wire, 3) for cell, wire in SCRIPTED] == before
    assert not any(b"secret-of-the-user" in body for each in before for body in each)


def test_the_docs_have_a_row_for_each_cell() -> None:
    """The table is printed from the cells."""
    assert all(f"| `{cell.id}`" in markdown() for cell in CELLS)
