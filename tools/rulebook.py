"""Reads docs/rules.toml, and the tests that name a rule in their docstring (`Rule 45: …`, or `Rules 45, 46: …`)."""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "docs" / "rules.toml"
_NAMED = re.compile(r"\bRules? ((?:\d+(?:-\d+)?(?:, | and | to )?)+)")


class Rule(NamedTuple):
    """One rule: its number, its words, how far it is proved, and why not wholly."""

    number: int
    words: str
    mark: str
    reason: str


def numbers(text: str) -> set[int]:
    """Return the rule numbers a docstring names; `12 to 15` and `12-15` are ranges."""
    found: set[int] = set()
    for match in _NAMED.finditer(text):
        for piece in re.split(r", | and ", match[1].strip(", ")):
            ends = [int(end) for end in re.findall(r"\d+", piece)]
            if ends:
                found |= set(range(ends[0], ends[-1] + 1))
    return found


@cache
def proofs(root: Path = ROOT) -> dict[int, list[tuple[str, str]]]:
    """Return the tests that name each rule, as file and function."""
    named: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for path in sorted((root / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if not _NAMED.search(text):
            continue
        for node in _collected(ast.parse(text).body):
            for number in numbers(ast.get_docstring(node) or ""):
                named[number].append((path.relative_to(root).as_posix(), node.name))
    return named


def _collected(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions that pytest collects: those of the module and of its classes."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from _collected(node.body)


def sections() -> list[tuple[str, list[Rule]]]:
    """Return the rules under the titles of their sections."""
    data = tomllib.loads(DATA.read_text(encoding="utf-8"))
    return [(section["title"], [_rule(entry) for entry in section["rule"]]) for section in data["section"]]


def _rule(entry: dict[str, Any]) -> Rule:
    words, reason = (" ".join(str(entry.get(key, "")).split()) for key in ("words", "reason"))
    return Rule(entry["number"], words, entry["mark"], reason)
