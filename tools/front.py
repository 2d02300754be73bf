"""Writes the parts of README.md that are measured or counted: the figures of docs/eval.md, and the number of dialects.

`python tools/pages.py` calls this; what stands between the marks is never edited by hand.
"""

import re
from pathlib import Path

from mustcall.dialects import DIALECTS

__all__ = ["FORMATS", "figures", "readme"]

_ROOT = Path(__file__).resolve().parent.parent
_REGION = re.compile(r"<!-- generated: figures -->\n.*?<!-- end -->\n", re.DOTALL)
#: The number of text forms, wherever a page states it.
FORMATS = re.compile(r"<!-- formats -->\d+<!-- end -->")


def _rows(measured: str) -> tuple[str, list[list[str]]]:
    """Return the heading of the first table of whole sets, and its rows."""
    lines = measured.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|") and "whole sets" in line)
    rows: list[list[str]] = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return lines[start].strip("| ").split("|")[0].strip(), rows


def figures(page: str) -> str:
    """Return what README says of the measured runs of docs/eval.md."""
    measured = page.partition("## Measured")[2]
    heading, rows = _rows(measured)
    model = heading.partition(" (sha256")[0]
    (day,) = re.findall(r"\b20\d\d-\d\d-\d\d\b", measured)
    (suite,) = re.findall(r"`bfcl-eval` [\d.]+\d", measured)
    counts = [(int(made), int(asked)) for made, asked in re.findall(r"\| (\d+) of (\d+) \|", measured)]
    made, asked = sum(one for one, _ in counts), sum(one for _, one in counts)
    lines = [
        f"Right answers on a public benchmark (BFCL, {suite}), whole sets, on {day}: {model},",
        "on llama.cpp's own server. In brackets: 95 % intervals. *plain*: the calls that anybody could read in the",
        "bare replies' text.",
        "",
        "| set | questions | bare | plain | through mustcall |",
        "|---|--:|--:|--:|--:|",
        *(f"| {name} | {number} | {bare} | {plain} | **{right}** |" for name, number, bare, plain, right in rows),
        "",
        "A demanded call (`required`, or a tool by name, on all three wires) came and was valid in",
        f"**{made} of {asked}** turns.",
    ]
    return "\n".join(lines) + "\n"


def readme() -> str:
    """Return README.md with its figures written anew."""
    page = (_ROOT / "README.md").read_text(encoding="utf-8")
    told = figures((_ROOT / "docs" / "eval.md").read_text(encoding="utf-8"))
    page = _REGION.sub(lambda _: f"<!-- generated: figures -->\n{told}<!-- end -->\n", page)
    return FORMATS.sub(f"<!-- formats -->{len(DIALECTS)}<!-- end -->", page)
