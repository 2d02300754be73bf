"""Proves the proofs: breaks the product on purpose, one rule at a time, and sees the test that names the rule fail.

`docs/breaks.toml` holds the breaks: for each a rule, a file of `src/mustcall` (or, for a rule about the tests, one of
`tests/support`), the text to find, the text to put in its place, a sentence, and the tests that must fail.
`python tools/breaks.py` carries them out on a temporary copy of the repository; `--rule 4` only those of a rule. A
break is *noticed* when each of its tests fails by an assertion. A test that passes, fails on unchanged sources as well,
cannot be collected or ends with another exception proves nothing.

`--save` keeps the results in `docs/breaks.json` and writes `docs/breaks.md`; `--page` only writes the page. `--check`
runs no test: it says which breaks no longer fit the sources or the tests' docstrings.
"""

import argparse
import datetime as dt
import hashlib
import json
import signal
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import rulebook
from copies import SOURCES, Copies, Run, swapped
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

ROOT = Path(__file__).resolve().parent.parent
_DATA = Path("docs") / "breaks.toml"
_SEEN = Path("docs") / "breaks.json"
_PAGE = Path("docs") / "breaks.md"
#: What the outcomes of a run mean for a break; the first that occurs decides.
_MEANINGS = {"failed": "noticed", "error": "error", "raised": "raised", "passed": "unnoticed", "skipped": "skipped"}
_HEAD = """\
# Proof by breaking

Made by `python tools/breaks.py --page` from [breaks.toml](breaks.toml) and the results of the last runs; a test keeps
it true. Each break is one deliberate mistake in the product. It is *noticed* when each named test, which names the rule
in its docstring, fails by an assertion. `make breaks` carries them out on a temporary copy and writes this page.
"""


@dataclass(frozen=True)
class Break:
    """One deliberate mistake."""

    rule: int
    file: str
    """Relative to `src/mustcall`; what begins with `tests/` is relative to the repository."""
    find: str
    put: str
    broken: str
    """A sentence: what the broken product does."""
    tests: tuple[str, ...]
    """Ids, relative to the repository; `test_name[case]` chooses one case."""

    @property
    def path(self) -> Path:
        """Where the file is, relative to the repository."""
        return Path(self.file) if self.file.startswith("tests/") else SOURCES / self.file

    @property
    def key(self) -> str:
        """Name the break as it is written: a result belongs to this text and to no other."""
        return hashlib.sha256(repr((self.file, self.find, self.put, self.tests)).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Result:
    """What became of one break."""

    rule: int
    key: str
    outcome: str
    """`noticed`, `unnoticed`, `raised`, `error`, `skipped`, `timeout`, `fails anyway` or `stale`."""
    said: str = ""
    """The first line of what the test said."""
    seconds: float = 0.0
    date: str = ""
    cases: tuple[str, ...] = ()
    """The cases of the tests that failed."""


def read(root: Path) -> list[Break]:
    """Return the breaks of a repository."""
    data = tomllib.loads((root / _DATA).read_text(encoding="utf-8"))
    return [_break(entry) for entry in data.get("break", [])]


def _break(entry: dict[str, Any]) -> Break:
    find, put = (str(entry[key]).removesuffix("\n") for key in ("find", "put"))
    return Break(entry["rule"], entry["file"], find, put, " ".join(entry["broken"].split()), tuple(entry["tests"]))


def faults(root: Path, breaks: Iterable[Break], named: Mapping[int, list[tuple[str, str]]]) -> Iterator[str]:
    """Say which breaks do not fit: a text not found exactly once, a test that is not there or names another rule."""
    for one in breaks:
        path = root / one.path
        count = path.read_text(encoding="utf-8").count(one.find) if path.is_file() and one.find else 0
        if count != 1:
            yield f"rule {one.rule}: {one.file} has {one.find!r} {count} times instead of once"
        if one.find == one.put:
            yield f"rule {one.rule}: the break changes nothing"
        if not one.broken or not one.tests:
            yield f"rule {one.rule}: a break needs a sentence and a test"
        for test in one.tests:
            file, _, name = test.partition("::")
            if (file, name.partition("[")[0].rpartition("::")[2]) not in named.get(one.rule, []):
                yield f"rule {one.rule}: there is no test {test} that names the rule"


def carry_out(copies: Copies, one: Break, limit: float) -> Result:
    """Break a copy, run the tests of the break, mend the copy, and return what the tests noticed."""
    today = dt.datetime.now(dt.UTC).date().isoformat()
    began = time.monotonic()
    outcome, said, failed = "stale", "", list[str]()
    with copies.place() as place:
        target = place / one.path
        text = target.read_text(encoding="utf-8")
        if text.count(one.find) == 1:
            with swapped(target, text.replace(one.find, one.put)):
                for test in one.tests:
                    outcome, case, said = read_run(copies.run(place, [test], limit))
                    if outcome != "noticed":
                        break
                    failed.append(case)
    return Result(one.rule, one.key, outcome, said, round(time.monotonic() - began, 1), today, tuple(failed))


def read_run(run: Run) -> tuple[str, str, str]:
    """Return what a run says about a break, the case that says so, and the first line of what it said."""
    if run.status is None:
        return "timeout", "", ""
    by = {one.result: one for one in reversed(run.outcomes)}
    for result, outcome in _MEANINGS.items():
        if result in by:
            return outcome, by[result].test, by[result].said
    return "error", "", run.output.strip().splitlines()[-1] if run.output.strip() else f"status {run.status}"


def confirm(copies: Copies, results: list[Result], limit: float) -> list[Result]:
    """Run what failed on unchanged sources: a case that fails there, too, proves nothing."""
    cases = sorted({case for result in results if result.outcome == "noticed" for case in result.cases})
    if not cases:
        return results
    with copies.place() as place:
        run = copies.run(place, cases, limit * len(cases), stop=False)
    passed = {one.test for one in run.outcomes if one.result == "passed"}
    passed -= {one.test for one in run.outcomes if one.result == "error"}
    return [
        replace(result, outcome="fails anyway")
        if result.outcome == "noticed" and not passed.issuperset(result.cases)
        else result
        for result in results
    ]


def load_seen(root: Path) -> dict[str, Result]:
    """Return the results of earlier runs, by the key of their break."""
    path = root / _SEEN
    entries = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return {entry["key"]: Result(**entry | {"cases": tuple(entry["cases"])}) for entry in entries}


def save_seen(root: Path, breaks: list[Break], seen: Mapping[str, Result]) -> None:
    """Keep the results of the breaks there are; those of breaks that changed are forgotten."""
    kept = [asdict(seen[one.key]) for one in sorted(breaks, key=lambda one: one.rule) if one.key in seen]
    (root / _SEEN).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def page(breaks: list[Break], seen: Mapping[str, Result], words: Mapping[int, str]) -> str:
    """Return the page."""
    broken = {one.rule for one in breaks}
    noticed = broken - {one.rule for one in breaks if _outcome(one, seen) != "noticed"}
    lines = [
        _HEAD,
        f"Now: {len(breaks)} breaks of {len(broken)} rules; all breaks noticed: {len(noticed)} rules.",
        "",
        "| rule | what is broken | where | test that fails | last seen |",
        "|---|---|---|---|---|",
    ]
    for one in sorted(breaks, key=lambda one: one.rule):
        tests = "<br>".join(_link(test) for test in one.tests)
        result = seen.get(one.key)
        last = f"{result.outcome}, {result.date}" if result else "not run since it was written"
        title = words.get(one.rule, "").replace("|", "\\|")
        broken = one.broken.replace("|", "\\|")
        where = f"[{one.file}](../{one.path.as_posix()})"
        lines.append(f"| [{one.rule}](rules.md) {title} | {broken} | {where} | {tests} | {last} |")
    return "\n".join(lines) + "\n"


def _outcome(one: Break, seen: Mapping[str, Result]) -> str:
    return seen[one.key].outcome if one.key in seen else "not run"


def _link(test: str) -> str:
    file, _, name = test.partition("::")
    return f"[{file.removeprefix('tests/')}](../{file}): `{name}`".replace("|", "\\|")


def draw(root: Path) -> str:
    """Return the page of a repository as its files say."""
    words = {rule.number: rule.words for _, group in rulebook.sections() for rule in group}
    return page(read(root), load_seen(root), words)


def carry_out_all(root: Path, breaks: list[Break], jobs: int, limit: float) -> list[Result]:
    """Carry the breaks out and show on standard error how far it is."""
    results: list[Result] = []
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar, Copies(root, jobs) as copies:
        shown = bar.add_task("breaking", total=len(breaks))
        for result in copies.each(lambda one: carry_out(copies, one, limit), breaks):
            results.append(result)
            bar.update(shown, advance=1, description=f"rule {result.rule}: {result.outcome}")
            if not console.is_terminal:
                print(f"rule {result.rule}: {result.outcome} {result.said}".strip(), file=sys.stderr, flush=True)
        bar.update(shown, description="unchanged sources")
        return confirm(copies, results, limit)


def _table(results: list[Result], breaks: list[Break]) -> str:
    lines = [
        f"{result.rule:>4}  {result.outcome:12} {result.seconds:6.1f} s  {one.broken}\n{'':6}{', '.join(one.tests)}"
        + (f"\n{'':6}{result.said}" if result.outcome != "noticed" and result.said else "")
        for result, one in zip(results, breaks, strict=True)
    ]
    noticed = sum(result.outcome == "noticed" for result in results)
    count = len({result.rule for result in results})
    return "\n".join([*lines, f"{noticed} of {len(results)} breaks of {count} rules noticed"])


def main() -> int:
    """Carry out, print, and return 1 if a break went unnoticed or no longer fits."""
    for name in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C is ignored by what a shell starts in its background
        signal.signal(name, signal.default_int_handler)
    asked = argparse.ArgumentParser(description="Break the product on purpose and see the tests of the rules fail.")
    asked.add_argument("--rule", type=int, action="append", default=[], metavar="N", help="only this rule (repeatable)")
    asked.add_argument("--new", action="store_true", help="only what was not noticed as it is written now")
    asked.add_argument("--check", action="store_true", help="run nothing: do the breaks fit the sources and the tests?")
    asked.add_argument("--page", action="store_true", help="run nothing: write docs/breaks.md")
    asked.add_argument("--save", action="store_true", help="keep the results and write docs/breaks.md")
    asked.add_argument("--json", action="store_true", help="print the results as JSON")
    asked.add_argument("--limit", type=float, default=120, help="seconds for one test (default 120)")
    asked.add_argument("--jobs", type=int, default=1, help="breaks at the same time (default 1)")
    asked.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    given = asked.parse_args()
    root = given.root.resolve()
    everything = read(root)
    breaks = [one for one in everything if not given.rule or one.rule in given.rule]
    if given.new:
        seen = load_seen(root)
        breaks = [one for one in breaks if _outcome(one, seen) != "noticed"]
    if not breaks:
        print("no such break" if given.rule else "every break was noticed")
        return bool(given.rule)
    if given.page:
        (root / _PAGE).write_text(draw(root), encoding="utf-8")
        return 0
    if given.check:
        wrong = list(faults(root, breaks, rulebook.proofs(root)))
        print("\n".join(wrong) or f"{len(breaks)} breaks fit")
        return bool(wrong)
    try:
        results = carry_out_all(root, breaks, given.jobs, given.limit)
    except KeyboardInterrupt:
        print("interrupted: nothing is left behind", file=sys.stderr)
        return 130
    if given.save:
        save_seen(root, everything, load_seen(root) | {result.key: result for result in results})
        (root / _PAGE).write_text(draw(root), encoding="utf-8")
    print(json.dumps([asdict(result) for result in results], indent=1) if given.json else _table(results, breaks))
    return any(result.outcome != "noticed" for result in results)


if __name__ == "__main__":
    sys.exit(main())
