"""Pieces of the pages that reports are written as: a page that fetches nothing, bars with their intervals, tables."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib import resources

from mustcall.evals.report.statistics import Share
from mustcall.evals.report.wording import interval, of, percent

__all__ = ["bar", "document", "table"]


def document(title: str, parts: Iterable[str], *, more: str = "") -> str:
    """Return a whole page: light and dark, wide and narrow, no script, no fetch. `more` is added to the style sheet."""
    style = resources.files("mustcall.evals").joinpath("data", "report.css").read_text(encoding="utf-8")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>{style}{more}</style></head><body><main>",
            *parts,
            "</main></body></html>",
            "",
        ]
    )


def bar(name: str, kind: str, what: str, share: Share) -> str:
    """Draw one share with its name and its value; lengths are percentages, so that it fits any width.

    `kind` is its colour in the style sheet, `what` the beginning of its label.
    """
    low, high = f"{share.low * 100:.2f}%", f"{share.high * 100:.2f}%"
    label = escape(f"{what}, {name}: {of(share)}, {percent(share.rate)}, 95 % interval {interval(share)}")
    return (
        f'<div class="bar"><span>{escape(name)}</span>'
        f'<svg role="img" aria-label="{label}"><title>{label}</title>'
        '<rect class="track" width="100%" height="100%" rx="4"/>'
        f'<rect class="fill {kind}" width="{share.rate * 100:.2f}%" height="100%" rx="4"/>'
        f'<line class="whisker" x1="{low}" x2="{high}" y1="50%" y2="50%"/>'
        f'<line class="whisker" x1="{low}" x2="{low}" y1="30%" y2="70%"/>'
        f'<line class="whisker" x1="{high}" x2="{high}" y1="30%" y2="70%"/></svg>'
        f'<span class="value"><b>{percent(share.rate)}</b> <span class="faint">{of(share)}</span></span></div>'
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Write a table: the first column is text, the others are numbers; a row of one cell names the rows below it."""
    yield (
        '<div class="scroll"><table><tr>'
        + "".join(
            f"<th>{escape(head)}</th>" if place == 0 else f'<th class="n">{escape(head)}</th>'
            for place, head in enumerate(heads)
        )
        + "</tr>"
    )
    for row in rows:
        if len(row) == 1:
            yield f'<tr><td class="group" colspan="{len(heads)}">{escape(row[0])}</td></tr>'
            continue
        cells = "".join(f'<td class="n">{escape(value)}</td>' for value in row[1:])
        yield f"<tr><td>{escape(row[0])}</td>{cells}</tr>"
    yield "</table></div>"
