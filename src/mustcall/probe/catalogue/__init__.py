"""Every cell, in the order of the report, and which of them a wire, a level and a client have."""

from collections.abc import Iterable

from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.core.text.nearest import nearest
from mustcall.probe.catalogue import choice, history, limits, schemas, watching
from mustcall.probe.clients import NEEDS
from mustcall.probe.values import Cell, CellGroup, Client, Level

__all__ = ["CELLS", "cells_for", "markdown"]

_ORDER = {group: number for number, group in enumerate(CellGroup)}

CELLS: tuple[Cell, ...] = tuple(
    sorted(
        (*choice.CELLS, *schemas.CELLS, *history.CELLS, *limits.CELLS, *watching.CELLS),
        key=lambda cell: _ORDER[cell.group],
    )
)


def cells_for(wire: Wire, level: Level, client: Client | None = None, only: Iterable[str] = ()) -> tuple[Cell, ...]:
    """Return the cells of a run. One that the wire cannot carry is not among them.

    `only` names cells or guarantees; none stands for all. Raise `ConfigError` for a name that there is not.
    """
    needed = None if client is None else NEEDS[client].guarantees
    names = frozenset(only)
    known = {cell.id for cell in CELLS} | {cell.guarantee for cell in CELLS}
    for name in names - known:
        meant = nearest(name, known) or next((cell.guarantee for cell in CELLS if cell.fact == name), None)
        asked = f"did you mean {meant!r}? " if meant else ""
        raise ConfigError(f"there is no cell {name!r}; {asked}`mustcall probe --help` names the guarantees")
    return tuple(
        cell
        for cell in CELLS
        if wire in cell.wires
        and (cell.tries.at(level))
        and (needed is None or cell.guarantee in needed)
        and (not names or cell.id in names or cell.guarantee in names)
    )


def markdown() -> str:
    """Return the table for the docs."""
    lines = ["| cell | what is sent | what must be seen | wires | tries | settles |", "|---|---|---|---|---|---|"]
    for cell in CELLS:
        wires = "all" if len(cell.wires) == len(Wire) else ", ".join(wire for wire in Wire if wire in cell.wires)
        tries = "every exchange" if cell.watch else f"{cell.tries.quick} / {cell.tries.default} / {cell.tries.deep}"
        star = " \\*" if cell.required else ""
        fact = f"`{cell.fact}`" if cell.fact else ""
        lines.append(f"| `{cell.id}`{star} | {cell.asks} | {cell.wants} | {wires} | {tries} | {fact} |")
    return "\n".join(lines) + "\n"
