"""Draw the results: a table for the terminal, the same as Markdown, and an HTML page."""

import html
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
LEGEND = (
    "Three signs a cell: without gateway, through it on the client's own wire, through it on another wire upstream. "
    "+ right; s stopped without the answer; m answer with call markup; e error; r killed while it repeated a request; "
    "h killed at the limit; c too many upstream calls; u wrong token count; ! not run; . not in this case"
)

#: Cases whose upstream calls are told, and how.
_COUNTED = {
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
    worse = [
        f"{client} {case} {arm}"
        for (client, case, arm), cell in last.items()
        if arm != "direct" and not cell.right and (bare := last.get((client, case, "direct"))) and bare.right
    ]
    lines.append(f"worse than without the gateway: {len(worse)}" + "".join(f"\n  {row}" for row in worse))
    for name, told in _COUNTED.items():
        counted = [(client, [last.get((client, name, arm)) for arm in ARMS]) for client in find_clients(cells)]
        lines.append(f"upstream calls {told} (direct, same, cross):")
        lines += [f"  {client}: {', '.join(map(_calls, counts))}" for client, counts in counted if any(counts)]
    hosts = sorted({f"{cell.client}: {host}" for cell in last.values() for host in cell.outside})
    lines.append("tried to leave loopback, refused: " + ("; ".join(hosts) or "nobody"))
    return "\n".join(lines)


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


_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem; color: #1c2430; background: #fff }
table { border-collapse: collapse } th, td { border: 1px solid #d5dae1; padding: 3px 7px; text-align: left }
thead th { position: sticky; top: 0; background: #f4f6f8; vertical-align: bottom } td.cell { white-space: nowrap }
td.cell b { display: inline-block; width: 1.4em; text-align: center; border-radius: 3px; cursor: help }
.good { background: #c9ecd0 } .bad { background: #f7cfcb } .none { color: #9aa3af }
pre { background: #f4f6f8; padding: .6rem; white-space: pre-wrap; overflow-wrap: anywhere }
@media (prefers-color-scheme: dark) { body { background: #14181d; color: #dbe1e8 }
thead th, pre { background: #1e242b } th, td { border-color: #343c46 } .good { background: #1f5130 }
.bad { background: #6d2a26 } }
"""


def draw_page(cells: Sequence[Cell], title: str) -> str:
    """A page that needs nothing else: the table with a tooltip on each sign, and what went wrong below."""
    found, clients = index(cells), find_clients(cells)
    versions = {cell.client: cell.version for cell in cells}
    heads = "".join(f"<th>{html.escape(c)}<br><small>{html.escape(versions[c])}</small></th>" for c in clients)
    rows = "".join(
        f'<tr><th title="{html.escape(case.says, quote=True)}">{case.name}</th>'
        + "".join(
            f'<td class="cell">{"".join(_mark(case, found.get((c, case.name, arm))) for arm in ARMS)}</td>'
            for c in clients
        )
        + "</tr>"
        for case in find_cases(cells)
    )
    faults = "".join(
        f"<details><summary>{c.client} {c.case} {c.arm}: {c.end.value}, {c.calls} upstream calls"
        f"</summary><pre>{html.escape(c.tail)}</pre></details>"
        for c in found.values()
        if not c.right and c.arm != "direct"
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style><h1>{html.escape(title)}</h1>"
        f"<p>{html.escape(LEGEND)}</p><table><thead><tr><th>case</th>{heads}</tr></thead><tbody>{rows}</tbody></table>"
        f"<h2>Summary</h2><pre>{html.escape(draw_summary(cells))}</pre>"
        f"<h2>Wrong through the gateway</h2>{faults}</html>\n"
    )


def _mark(case: Case, cell: Cell | None) -> str:
    if cell is None:
        return '<b class="none">·</b>'
    about = f"{cell.arm}, upstream {cell.wire}: {cell.end.value}, {cell.calls} upstream calls, {cell.seconds} s"
    shade = "good" if cell.right else "bad"
    return f'<b class="{shade}" title="{html.escape(about, quote=True)}">{sign(case, cell)}</b>'
