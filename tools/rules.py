"""Writes docs/rules.md: every rule in words, how far it is proved, and the tests that name it.

The words and the marks stand in docs/rules.toml. A test proves a rule by naming it in its docstring (`Rule 45: …`, or
`Rules 45, 46: …`). `--check` compares the page instead of writing it, and lists what is wrong with the marks.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from rulebook import ROOT, Rule, numbers, proofs, sections

__all__ = ["LAST", "MARKS", "PAGE", "Rule", "faults", "numbers", "page", "proofs", "sections"]

PAGE = ROOT / "docs" / "rules.md"
LAST = 150
MARKS = ("whole", "part", "not yet")
_HEAD = """\
# Rules and the tests that prove them

Made by `python tools/rules.py` from [rules.toml](rules.toml) and the tests' docstrings; a test keeps it true.

A rule is `whole` when each of its clauses is true and a test proves it. `part` and `not yet` have a reason beside them.
"""


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
