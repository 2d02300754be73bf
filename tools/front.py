"""Writes the measured and counted parts of README.md and docs/index.md: figures of docs/eval.md, number of dialects.

`python tools/pages.py` calls this. Do not edit the text between the marks.
"""

import re
from pathlib import Path

from mustcall.dialects import DIALECTS

__all__ = ["FORMATS", "figures", "index", "readme"]

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
    """Return the summary of the measured runs of docs/eval.md."""
    measured = page.partition("## Measured")[2]
    heading, rows = _rows(measured)
    model = heading.partition(" (sha256")[0]
    (day,) = re.findall(r"\b20\d\d-\d\d-\d\d\b", measured)
    (suite,) = re.findall(r"`bfcl-eval` [\d.]+\d", measured)
    counts = [(int(made), int(asked)) for made, asked in re.findall(r"\| (\d+) of (\d+) \|", measured)]
    made, asked = sum(one for one, _ in counts), sum(one for _, one in counts)
    lines = [
        f"Correct answers on a public benchmark (BFCL, {suite}), whole sets, {day}: {model},",
        "on llama.cpp's own server. In brackets: 95 % intervals. *bare*: without mustcall. *plain*: a simple parser",
        "for the text of the bare replies. *bare* has no calls, because the model writes them as text: wrong in every",
        "set but irrelevance, where no call is always right. The gain over *plain* is on irrelevance (fewer wrong",
        "calls); in the other sets *plain* lies within the interval.",
        "",
        "| set | questions | bare | plain | through mustcall |",
        "|---|--:|--:|--:|--:|",
        *(f"| {name} | {number} | {bare} | {plain} | **{right}** |" for name, number, bare, plain, right in rows),
        "",
        "If the request demanded a call (`required`, or one tool by name; all three protocols), the caller got",
        f"a valid one in **{made} of {asked}** turns.",
    ]
    return "\n".join(lines) + "\n"


def _current(path: Path) -> str:
    """Return a page with current figures and counts."""
    page = path.read_text(encoding="utf-8")
    told = figures((_ROOT / "docs" / "eval.md").read_text(encoding="utf-8"))
    page = _REGION.sub(lambda _: f"<!-- generated: figures -->\n{told}<!-- end -->\n", page)
    return FORMATS.sub(f"<!-- formats -->{len(DIALECTS)}<!-- end -->", page)


def readme() -> str:
    """Return README.md with current figures."""
    return _current(_ROOT / "README.md")


def index() -> str:
    """Return docs/index.md with current figures."""
    return _current(_ROOT / "docs" / "index.md")
