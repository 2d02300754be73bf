"""Draw the results for a terminal: a table that is also Markdown, totals, and what changed between two runs."""

from collections.abc import Sequence

from clientmatrix.adapters import CLIENTS
from clientmatrix.cases import CASES, Case
from clientmatrix.scoring import ARMS, Arm, Cell, End

_SIGNS = {
    End.DONE: "+",
    End.LEAKED: "m",
    End.STOPPED: "s",
    End.ERROR: "e",
    End.STORM: "r",
    End.HUNG: "h",
    End.BROKEN: "!",
}
#: What the sign of a cell means.
MEANINGS = {
    "+": "right",
    "s": "stopped without the answer",
    "m": "answer with call markup",
    "e": "error",
    "r": "killed while it repeated a request",
    "h": "killed at the limit",
    "c": "too many upstream calls",
    "u": "wrong token count",
    "!": "not run",
    ".": "not in this case",
}
LEGEND = (
    "Three signs a cell: without gateway, through it on the client's own wire, through it on another wire upstream. "
) + "; ".join(f"{sign} {meaning}" for sign, meaning in MEANINGS.items())

#: Cases whose upstream calls are told, and how.
COUNTED = {
    "persistent": "under a persistent fault",
    "unavailable": "for the client's requests, the upstream being unavailable",
}

Key = tuple[str, str, Arm]


def sign(case: Case, cell: Cell | None) -> str:
    """One character for a cell."""
    if cell is None:
        return "."
    if cell.right:
        return "+"
    if case.goal in {"bounded", "single"} and cell.end in {End.STOPPED, End.ERROR, End.DONE}:
        return "c"
    if case.goal == "figure" and cell.end is End.DONE:
        return "u"
    return _SIGNS[cell.end]


def find_clients(cells: Sequence[Cell]) -> list[str]:
    """The clients that have results, in the table's order."""
    seen = {cell.client for cell in cells}
    return [client.name for client in CLIENTS if client.name in seen]


def find_cases(cells: Sequence[Cell]) -> list[Case]:
    """The cases that have results, in the table's order."""
    seen = {cell.case for cell in cells}
    return [case for case in CASES if case.name in seen]


def index(cells: Sequence[Cell]) -> dict[Key, Cell]:
    """The cells by client, case and arm; a later result stands for an earlier one."""
    return {(cell.client, cell.case, cell.arm): cell for cell in cells}


def draw_text(cells: Sequence[Cell]) -> str:
    """The table for a terminal; also valid Markdown."""
    found, clients = index(cells), find_clients(cells)
    rows = [
        ["case", *clients],
        *([case.name, *(_signs(case, c, found) for c in clients)] for case in find_cases(cells)),
        ["right", *(" ".join(_count(cells, c, arm) for arm in ARMS) for c in clients)],
    ]
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    lines = ["| " + " | ".join(v.ljust(w) for v, w in zip(row, widths, strict=True)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]])


def _signs(case: Case, client: str, found: dict[Key, Cell]) -> str:
    return "".join(sign(case, found.get((client, case.name, arm))) for arm in ARMS)


def _count(cells: Sequence[Cell], client: str, arm: Arm) -> str:
    mine = [cell for key, cell in index(cells).items() if key[0] == client and key[2] == arm]
    return f"{sum(cell.right for cell in mine)}/{len(mine)}"


def draw_summary(cells: Sequence[Cell]) -> str:
    """Totals of each arm, upstream calls under a persistent fault, and who tried to leave loopback."""
    last = index(cells)
    lines: list[str] = []
    for arm in ARMS:
        mine = [cell for key, cell in last.items() if key[2] == arm]
        lines.append(f"{arm}: {sum(cell.right for cell in mine)} of {len(mine)} right")
    worse = find_worse(cells)
    lines.append(f"worse than without the gateway: {len(worse)}" + "".join(f"\n  {row}" for row in worse))
    for name, told in COUNTED.items():
        counted = [(client, [last.get((client, name, arm)) for arm in ARMS]) for client in find_clients(cells)]
        lines.append(f"upstream calls {told} (direct, same, cross):")
        lines += [f"  {client}: {', '.join(map(_calls, counts))}" for client, counts in counted if any(counts)]
    hosts = sorted({f"{cell.client}: {host}" for cell in last.values() for host in cell.outside})
    lines.append("tried to leave loopback, refused: " + ("; ".join(hosts) or "nobody"))
    return "\n".join(lines)


def find_worse(cells: Sequence[Cell]) -> list[str]:
    """The cells that are right without the gateway and not through it."""
    last = index(cells)
    return [
        f"{client} {case} {arm}"
        for (client, case, arm), cell in last.items()
        if arm != "direct" and not cell.right and (bare := last.get((client, case, "direct"))) and bare.right
    ]


def _calls(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    return str(cell.calls) if cell.asked is None else f"{cell.calls} for {cell.asked}"


def draw_changes(before: Sequence[Cell], after: Sequence[Cell]) -> str:
    """What changed between two runs, over the cells that both have: totals of each arm, then the cells lost."""
    old, new = index(before), index(after)
    both = [key for key in new if key in old]
    lines: list[str] = []
    for arm in ARMS:
        mine = [key for key in both if key[2] == arm]
        counts = [sum(cells[key].right for key in mine) for cells in (old, new)]
        lines.append(f"{arm}: {counts[0]} of {len(mine)} right before, {counts[1]} now")
    lost = [" ".join(key) for key in both if old[key].right and not new[key].right]
    lines.append(f"right before and not now: {len(lost)}" + "".join(f"\n  {row}" for row in lost))
    return "\n".join(lines)
