"""Draw the results as an HTML page that needs nothing else: totals, the table, calls counted, and what went wrong."""

import html
from collections.abc import Iterable, Sequence

from clientmatrix.cases import Case
from clientmatrix.pages import COUNTED, MEANINGS, find_cases, find_clients, find_worse, index, sign
from clientmatrix.scoring import ARMS, Arm, Cell

_ARMS: dict[Arm, str] = {
    "direct": "without the gateway",
    "same": "through it, the client's own wire upstream",
    "cross": "through it, another wire upstream",
}

_STYLE = """
:root { --ink: #1c2430; --soft: #5d6875; --line: #d5dae1; --back: #fff; --head: #f4f6f8;
--good: #c9ecd0; --bad: #f7cfcb }
@media (prefers-color-scheme: dark) { :root { --ink: #dbe1e8; --soft: #98a3b0; --line: #343c46; --back: #14181d;
--head: #1e242b; --good: #1f5130; --bad: #6d2a26 } }
* { box-sizing: border-box }
body { font: 14px/1.45 system-ui, sans-serif; margin: 1.5rem; color: var(--ink); background: var(--back) }
h1 { font-size: 1.5rem; margin: 0 0 1rem } h2 { font-size: 1.15rem; margin: 1.6rem 0 .6rem }
.totals { display: flex; flex-wrap: wrap; gap: .8rem; margin: 0; padding: 0; list-style: none }
.totals li { border: 1px solid var(--line); border-radius: 6px; padding: .5rem .8rem; min-width: 12rem }
.totals b { display: block; font-size: 1.25rem } small { color: var(--soft); font-weight: normal }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; padding: 0; margin: .8rem 0; list-style: none }
.scroll { overflow-x: auto; width: fit-content; max-width: 100%; border: 1px solid var(--line); border-radius: 6px }
table { border-collapse: separate; border-spacing: 0; font-size: 13px }
th, td { border-bottom: 1px solid var(--line); padding: 3px 6px; text-align: left; vertical-align: middle }
thead th { background: var(--head); vertical-align: bottom; line-height: 1.25 }
th:first-child { position: sticky; left: 0; background: var(--head); border-right: 1px solid var(--line) }
th small { display: block } tr.group th { font-size: 12px; color: var(--soft); padding-top: .6rem }
td.cell { white-space: nowrap } .wide th small { white-space: nowrap }
b.sign { display: inline-block; width: 1.5em; margin-right: 2px; text-align: center; border-radius: 3px; cursor: help }
.good { background: var(--good) } .bad { background: var(--bad) } .none { color: var(--soft); font-weight: normal }
details { border-bottom: 1px solid var(--line); padding: .3rem 0 } summary { cursor: pointer }
pre { background: var(--head); padding: .6rem; white-space: pre-wrap; overflow-wrap: anywhere; font-size: 12px }
"""


def draw_page(cells: Sequence[Cell], title: str) -> str:
    """The page; arms and clients without results are left out."""
    found = index(cells)
    arms = [arm for arm in ARMS if any(key[2] == arm for key in found)]
    worse = find_worse(cells)
    wrong = "".join(map(_fault, (cell for cell in found.values() if not cell.right and cell.arm != "direct")))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style><h1>{html.escape(title)}</h1>"
        f'<ul class="totals">{"".join(_total(found.values(), arm) for arm in arms)}'
        f"<li><b>{len(worse)}</b><small>worse than without the gateway</small></li></ul>"
        f"<h2>Cases and clients</h2>{_key(arms)}{_table(cells, arms)}"
        f"{''.join(_counts(cells, arms, name, told) for name, told in COUNTED.items())}"
        f"<h2>Wrong through the gateway</h2>{wrong or '<p>None.</p>'}{_strays(cells)}</html>\n"
    )


def _total(cells: Iterable[Cell], arm: Arm) -> str:
    mine = [cell for cell in cells if cell.arm == arm]
    right = sum(cell.right for cell in mine)
    return f"<li><b>{right} of {len(mine)} right</b><small>{arm}: {html.escape(_ARMS[arm])}</small></li>"


def _key(arms: Sequence[Arm]) -> str:
    signs = [f'<li><b class="sign good">+</b> {MEANINGS["+"]}</li>']
    signs += [f'<li><b class="sign bad">{s}</b> {html.escape(m)}</li>' for s, m in MEANINGS.items() if s not in "+."]
    order = ", ".join(f"{html.escape(_ARMS[arm])} ({arm})" for arm in arms)
    return f"<p>From left to right in a cell: {order}.</p><ul class='key'>{''.join(signs)}</ul>"


def _table(cells: Sequence[Cell], arms: Sequence[Arm]) -> str:
    found, clients = index(cells), find_clients(cells)
    versions = {cell.client: cell.version for cell in cells}
    heads = "".join(f"<th>{html.escape(c)}<small>{html.escape(versions[c])}</small></th>" for c in clients)
    rows: list[str] = []
    group = ""
    for case in find_cases(cells):
        if case.group != group:
            group = case.group
            rows.append(f'<tr class="group"><th>{group}</th><td colspan="{len(clients)}"></td></tr>')
        marks = (_marks(case, [found.get((client, case.name, arm)) for arm in arms]) for client in clients)
        rows.append(
            f"<tr><th>{case.name}<small>{html.escape(case.says)}</small></th>"
            + "".join(f'<td class="cell">{mark}</td>' for mark in marks)
            + "</tr>"
        )
    return (
        f'<div class="scroll"><table class="wide"><thead><tr><th>case</th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _marks(case: Case, cells: Sequence[Cell | None]) -> str:
    return "".join(_mark(case, cell) for cell in cells) if any(cells) else ""


def _mark(case: Case, cell: Cell | None) -> str:
    if cell is None:
        return '<b class="sign none">·</b>'
    about = f"{cell.arm}, upstream {cell.wire}: {cell.end.value}, {cell.calls} upstream calls, {cell.seconds} s"
    shade = "good" if cell.right else "bad"
    return f'<b class="sign {shade}" title="{html.escape(about, quote=True)}">{sign(case, cell)}</b>'


def _counts(cells: Sequence[Cell], arms: Sequence[Arm], name: str, told: str) -> str:
    found = index(cells)
    rows = [(client, [found.get((client, name, arm)) for arm in arms]) for client in find_clients(cells)]
    lines = "".join(
        f"<tr><th>{html.escape(client)}</th>{''.join(f'<td>{_calls(cell)}</td>' for cell in counts)}</tr>"
        for client, counts in rows
        if any(counts)
    )
    heads = "".join(f"<th>{arm}</th>" for arm in arms)
    table = f"<table><thead><tr><th>client</th>{heads}</tr></thead><tbody>{lines}</tbody></table>"
    return f"<h2>Upstream calls {html.escape(told)}</h2><div class='scroll'>{table}</div>" if lines else ""


def _calls(cell: Cell | None) -> str:
    if cell is None:
        return "·"
    return str(cell.calls) if cell.asked is None else f"{cell.calls} <small>for {cell.asked} requests</small>"


def _fault(cell: Cell) -> str:
    return (
        f"<details><summary>{html.escape(cell.client)} {cell.case} {cell.arm}: {cell.end.value}, "
        f"{cell.calls} upstream calls</summary><pre>{html.escape(cell.tail)}</pre></details>"
    )


def _strays(cells: Sequence[Cell]) -> str:
    hosts = sorted({f"{cell.client}: {host}" for cell in index(cells).values() for host in cell.outside})
    told = html.escape("; ".join(hosts)) or "nobody"
    return f"<h2>Tried to leave loopback, refused</h2><p>{told}</p>"
