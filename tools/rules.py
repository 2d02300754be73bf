"""Writes docs/rules.md: every rule that a test names, and the tests that name it.

A test proves a rule by starting its docstring with `Rule 45: …` (or `Rules 45, 46: …`). `--check` compares instead.
"""

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "rules.md"
_NAMED = re.compile(r"\bRules? ((?:\d+(?:-\d+)?(?:, | and | to )?)+)")
_HEAD = """\
# Rules and the tests that prove them

Made by `python tools/rules.py` from the tests' docstrings; a test keeps it true. The numbers are those of the product's
requirements.

"""


def numbers(text: str) -> set[int]:
    """Return the rule numbers a docstring names; `12 to 15` and `12-15` are ranges."""
    found: set[int] = set()
    for match in _NAMED.finditer(text):
        for piece in re.split(r", | and ", match[1].strip(", ")):
            ends = [int(end) for end in re.findall(r"\d+", piece)]
            if ends:
                found |= set(range(ends[0], ends[-1] + 1))
    return found


def proofs() -> dict[int, list[str]]:
    """Return the tests that name each rule."""
    named: dict[int, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for number in numbers(ast.get_docstring(node) or ""):
                    named[number].append(f"`{path.relative_to(ROOT)}::{node.name}`")
    return named


def page() -> str:
    """Return the page."""
    named = proofs()
    lines = ["| rule | tests |", "|---|---|"]
    lines += [f"| {number} | {'<br>'.join(sorted(named[number]))} |" for number in sorted(named)]
    return _HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == page() else "docs/rules.md is old: run python tools/rules.py")
    PAGE.write_text(page(), encoding="utf-8")
