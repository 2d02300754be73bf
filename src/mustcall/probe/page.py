"""Writes a probe as one HTML page that needs nothing else, and as a badge: no script, no fetch, light and dark."""

import re
from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources

import msgspec

from mustcall.evals.report.html import document, table
from mustcall.evals.report.statistics import share_of
from mustcall.evals.report.wording import interval, seconds
from mustcall.probe.catalogue import CELLS
from mustcall.probe.comparing import Drift
from mustcall.probe.facts import facts_of
from mustcall.probe.results import CellResult, ProbeResult, broken
from mustcall.probe.values import CellGroup, CellVerdict
from mustcall.probe.wording import MARKS, MEANINGS, OWNERS, headline, of

__all__ = ["write_badge", "write_page"]

_STYLE = resources.files("mustcall.probe").joinpath("probe.css")

#: The columns of the matrix of choices: what is added to the name of the guarantee.
_COLUMNS = (
    ("", "whole"),
    ("+stream", "streamed"),
    ("+reasoning", "reasoning"),
    ("+reasoning+stream", "reasoning, streamed"),
)
_CHOICES = ("auto", "none", "required", "named")
_ASKS = {cell.id: (cell.asks, cell.wants) for cell in CELLS}


def write_page(result: ProbeResult, drift: Sequence[Drift] | None = None) -> str:
    """Return the report."""
    return document(
        f"{result.model}: {headline(result)}",
        [
            *_opening(result),
            *_matrix(result),
            *_groups(result),
            *_settled(result),
            *(_changes(drift) if drift is not None else ()),
            *_method(result),
        ],
        more=_STYLE.read_text(encoding="utf-8"),
    )


def _opening(result: ProbeResult) -> Iterator[str]:
    failed = broken(result)
    names = ", ".join(dict.fromkeys(cell.guarantee for cell in failed))
    title = f"{result.model} breaks {names}" if failed else f"{result.model} holds what is required"
    client = f", for {escape(result.client)}" if result.client else ""
    yield f"<h1>{escape(title)}</h1>"
    yield (
        f'<p class="faint">{escape(result.base_url)}, {result.wire} wire{client}, {escape(result.started)}, '
        f"{result.level}, mustcall {escape(result.mustcall)}</p>"
    )
    yield f"<p>{escape(headline(msgspec.structs.replace(result, partial='')))}</p>"
    if result.partial:
        yield f'<p class="warn">{escape(result.partial)}</p>'
    yield '<p class="key">'
    for verdict in CellVerdict:
        yield f'<span style="--swatch: var(--{verdict})">{MARKS[verdict]} {verdict}: {escape(MEANINGS[verdict])}</span>'
    yield "</p>"


def _matrix(result: ProbeResult) -> Iterator[str]:
    """Write the tool choices as the matrix they are."""
    cells = {cell.id: cell for cell in result.cells}
    columns = [(end, name) for end, name in _COLUMNS if any(row + end in cells for row in _CHOICES)]
    rows = [row for row in _CHOICES if any(row + end in cells for end, _ in columns)]
    if not rows:
        return
    heads = "".join(f"<th>{name}</th>" for _, name in columns)
    yield f'<h2>Tool choice</h2><div class="scroll"><table class="matrix"><tr><th></th>{heads}</tr>'
    for row in rows:
        tiles = "".join(_tile(cells.get(row + end)) for end, _ in columns)
        yield f"<tr><th>{row}</th>{tiles}</tr>"
    yield "</table></div>"


def _tile(cell: CellResult | None) -> str:
    if cell is None:
        return '<td class="unmeasured"></td>'
    owner = f", {cell.owner}" if cell.owner else ""
    return (
        f'<td class="{cell.verdict}" title="{escape(cell.note)}">'
        f'<span class="v">{MARKS[cell.verdict]} {cell.verdict}</span>'
        f"<small>{of(cell)}{owner}</small></td>"
    )


def _groups(result: ProbeResult) -> Iterator[str]:
    for group in CellGroup:
        cells = [cell for cell in result.cells if cell.group is group]
        if not cells:
            continue
        title = str(group).capitalize() + (", cell by cell" if group is CellGroup.CHOICE else "")
        yield f'<h2>{title}</h2><table class="cells-table">'
        yield '<tr><th>cell</th><th>verdict</th><th class="n">held</th><th>rate, 95 %</th><th>owner</th></tr>'
        for cell in cells:
            asks, wants = _ASKS.get(cell.id, ("", ""))
            star = ' <span class="faint">required</span>' if cell.required else ""
            note = f'<div class="note {cell.verdict}">{_coded(cell.note)}</div>' if cell.note else ""
            yield (
                f"<tr><td><code>{escape(cell.id)}</code>{star}"
                f'<div class="asks">{_coded(asks)} → {_coded(wants)}</div>{note}</td>'
                f'<td class="v {cell.verdict}">{MARKS[cell.verdict]} {cell.verdict}</td><td class="n">{of(cell)}</td>'
                f'<td class="{cell.verdict}">{_range(cell)}</td><td>{cell.owner or ""}</td></tr>'
            )
        yield "</table>"


def _coded(text: str) -> str:
    """Return text as HTML, what stands between backticks as code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def _range(cell: CellResult) -> str:
    """Draw the interval of a rate between 0 and 100 %, with the threshold at 95 %."""
    if not cell.measured:
        return ""
    share = share_of(cell.held, cell.measured)
    label = escape(f"{cell.held} of {cell.measured}, 95 % interval {interval(share)}")
    low, width = share.low * 100, max(1.0, (share.high - share.low) * 100)
    return (
        f'<svg role="img" viewBox="-4 0 108 14" preserveAspectRatio="none" aria-label="{label}"><title>{label}</title>'
        '<rect class="track" x="0" y="5" width="100" height="4" rx="2"/>'
        f'<rect class="range" x="{low:.1f}" y="2" width="{width:.1f}" height="10" rx="2"/>'
        f'<line class="limit" x1="95" x2="95" y1="0" y2="14"/>'
        f'<rect class="dot" x="{share.rate * 100 - 1.5:.1f}" y="0" width="3" height="14"/></svg>'
    )


def _settled(result: ProbeResult) -> Iterator[str]:
    facts = facts_of(result)
    if facts:
        yield '<h2>What it settles</h2><p class="faint">Facts of the profile, as --write puts them down.</p>'
        yield from table(
            ("fact", "value", "held"), [(fact.field, str(fact.value), f"{fact.held} of {fact.of}") for fact in facts]
        )


def _changes(drift: Sequence[Drift]) -> Iterator[str]:
    moved = [each for each in drift if each.drifted or each.changed]
    yield f"<h2>What changed</h2><p>{sum(each.drifted for each in drift)} of {len(drift)} cells drifted.</p>"
    if moved:
        rows = [
            (
                each.id,
                f"{each.before} → {each.now}",
                f"{each.lost} / {each.gained}",
                f"{each.p:.2g}" if each.drifted else "",
            )
            for each in moved
        ]
        yield from table(("cell", "verdict", "lost / gained", "p"), rows)


def _method(result: ProbeResult) -> Iterator[str]:
    spent = result.spent
    cost = "unknown" if spent.cost_usd is None else f"${spent.cost_usd:.4f}"
    yield (
        "<h2>How it was measured</h2><p>Each try has its own words, the same ones in every run. A cell is tried until "
        "Wilson's 95 % interval lies within one class (95 % and more holds, 5 % and less does not), or its tries are "
        "used up. Owners are found from the reply, by our own dialects, and by asking again whole and without "
        "reasoning.</p><dl>"
    )
    for owner, words in OWNERS.items():
        yield f"<dt>{owner}</dt><dd>{escape(words)}</dd>"
    yield "</dl>"
    yield (
        f'<p class="faint">{spent.requests} requests of at most {result.announced_requests} announced; '
        f"{spent.input_tokens:,} input and {spent.output_tokens:,} output tokens; cost {cost}; "
        f"{seconds(spent.seconds)}.</p>"
    )


#: Width of a letter in the badge, and the room beside the words.
_LETTER, _MARGIN = 6.6, 10


def write_badge(result: ProbeResult) -> str:
    """Return the badge: how many of the required cells hold."""
    required = [cell for cell in result.cells if cell.required and cell.verdict is not CellVerdict.UNMEASURED]
    failed = broken(result)
    left = "mustcall probe"
    right = f"{len(required) - len(failed)}/{len(required)} hold" if required else "not measured"
    colour = "#8b959d" if not required else "#0b7a6b" if not failed else "#b8402a"
    first, second = (len(words) * _LETTER + 2 * _MARGIN for words in (left, right))
    label = escape(f"{left}: {right}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{first + second:.0f}" height="20" role="img" '
        f'aria-label="{label}"><title>{label}</title>'
        f'<rect width="{first + second:.0f}" height="20" rx="3" fill="#3b4349"/>'
        f'<path d="M{first:.0f} 0h{second - 3:.0f}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-{second - 3:.0f}z" fill="{colour}"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{first / 2:.1f}" y="14">{left}</text><text x="{first + second / 2:.1f}" y="14">{right}</text>'
        "</g></svg>\n"
    )
