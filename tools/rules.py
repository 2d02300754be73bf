"""Writes docs/rules.md: every rule in words, how far it is proved, and the tests that name it.

The words and the marks stand in docs/rules.toml. A test proves a rule by naming it in its docstring (`Rule 45: …`, or
`Rules 45, 46: …`). `--check` compares the page instead of writing it, and lists what is wrong with the marks.
"""

import ast
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "rules.md"
DATA = ROOT / "docs" / "rules.toml"
LAST = 150
MARKS = ("whole", "part", "not yet")
_NAMED = re.compile(r"\bRules? ((?:\d+(?:-\d+)?(?:, | and | to )?)+)")
_HEAD = """\
# Rules and the tests that prove them

Made by `python tools/rules.py` from [rules.toml](rules.toml) and the tests' docstrings; a test keeps it true.

A rule is `whole` when each of its clauses is true and a test proves it. `part` and `not yet` have a reason beside them.
"""


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


def proofs() -> dict[int, list[tuple[str, str]]]:
    """Return the tests that name each rule, as file and function."""
    named: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for number in numbers(ast.get_docstring(node) or ""):
                    named[number].append((path.relative_to(ROOT).as_posix(), node.name))
    return named


def sections() -> list[tuple[str, list[Rule]]]:
    """Return the rules under the titles of their sections."""
    data = tomllib.loads(DATA.read_text(encoding="utf-8"))
    return [(section["title"], [_rule(entry) for entry in section["rule"]]) for section in data["section"]]


def _rule(entry: dict[str, Any]) -> Rule:
    words, reason = (" ".join(str(entry.get(key, "")).split()) for key in ("words", "reason"))
    return Rule(entry["number"], words, entry["mark"], reason)


def faults(rules: list[Rule], named: Mapping[int, list[tuple[str, str]]]) -> Iterator[str]:
    """Say what is wrong: rules missing or twice, no words, no test, a mark that is none or lacks its reason."""
    if [rule.number for rule in rules] != list(range(1, LAST + 1)):
        yield f"the rules are not 1 to {LAST} in order"
    for number in sorted(set(named) - {rule.number for rule in rules}):
        yield f"rule {number}: a test names it, and there is no such rule"
    for rule in rules:
        if not rule.words:
            yield f"rule {rule.number}: no words"
        if rule.mark not in MARKS:
            yield f"rule {rule.number}: the mark {rule.mark!r} is none of {', '.join(MARKS)}"
        if (rule.mark == "whole") == bool(rule.reason):
            yield f"rule {rule.number}: {rule.mark!r} and the reason {rule.reason!r} do not go together"
        if rule.mark != "not yet" and not named.get(rule.number):
            yield f"rule {rule.number}: no test names it"
        if rule.mark == "not yet" and named.get(rule.number):
            yield f"rule {rule.number}: tests name it, so it is more than 'not yet'"


def page() -> str:
    """Return the page."""
    named, chapters = proofs(), sections()
    count = Counter(rule.mark for _, rules in chapters for rule in rules)
    lines = [_HEAD, "Now: " + ", ".join(f"{count[mark]} `{mark}`" for mark in MARKS) + "."]
    for title, rules in chapters:
        lines += ["", f"## {title}", "", "| rule | in words | mark | tests |", "|---|---|---|---|"]
        for rule in rules:
            mark = f"**{rule.mark}**: {rule.reason}" if rule.reason else rule.mark
            cells = (str(rule.number), _cell(rule.words), _cell(mark), _tests(named.get(rule.number, [])))
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Return text that stays inside its cell."""
    return text.replace("|", "\\|")


def _tests(tests: list[tuple[str, str]]) -> str:
    """Return the tests of a rule, file by file."""
    files: dict[str, list[str]] = defaultdict(list)
    for file, name in sorted(tests):
        files[file].append(f"`{name}`")
    return "<br>".join(
        f"[{file.removeprefix('tests/')}](../{file}): {', '.join(names)}" for file, names in files.items()
    )


if __name__ == "__main__":
    if "--check" in sys.argv:
        wrong = list(faults([rule for _, rules in sections() for rule in rules], proofs()))
        if PAGE.read_text(encoding="utf-8") != page():
            wrong.append("docs/rules.md is old: run python tools/rules.py")
        sys.exit("\n".join(wrong) or 0)
    PAGE.write_text(page(), encoding="utf-8")
