"""Measure what the tests notice: change one expression of a package at a time and see whether a test fails.

`python tools/mutate.py policy wire --sample 25` changes 25 expressions of each package, chosen by `--seed`, runs the
tests of each changed module until one fails, and prints the share of changes that were noticed with its 95% interval.
`--save FILE` keeps the verdicts, and `--again FILE` measures the same changes on other tests.

The tests run on a temporary copy of the repository: an interrupted run leaves nothing changed. A module's own tests
(`tests/<package>/test_<module>*.py`) run first, then those of its package, then the folders of `--also`. A change that
nobody could notice (an equal program) counts as survived: compare two figures, do not read one alone.
"""

import argparse
import ast
import json
import math
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from copies import SOURCES, Copies, Run, swapped

ROOT = Path(__file__).resolve().parent.parent

#: Longer strings, and those with spaces, are sentences: tests should not repeat them.
_WORD = 24

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}


@dataclass(frozen=True)
class Mutant:
    """One expression of one file, written differently."""

    path: str
    """Relative to the package folder `src/mustcall`."""
    line: int
    column: int
    code: str
    """The line the expression begins in: finds it again in a file that has changed elsewhere."""
    old: str
    new: str

    @property
    def package(self) -> str:
        """Return the package it belongs to."""
        return self.path.split("/", 1)[0]

    def told(self) -> str:
        """Return one line about it."""
        return f"{self.path}:{self.line}:{self.column}: {_short(self.old)} -> {_short(self.new)}"


@dataclass(frozen=True)
class Verdict:
    """What the tests said about a mutant."""

    mutant: Mutant
    outcome: str
    """`killed`, `timeout` or `survived`."""
    seconds: float

    @property
    def noticed(self) -> bool:
        """Return whether a test failed or never ended."""
        return self.outcome != "survived"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def changes(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yield what could stand in a node's place."""
    match node:
        case ast.Compare(left, [op], right) if type(op) in _COMPARED:
            yield ast.Compare(left, [_COMPARED[type(op)]()], right)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
            yield values[0]
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.BinOp(left, op, right) if type(op) in _COMPUTED:
            yield ast.BinOp(left, _COMPUTED[type(op)](), right)
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() as value):
            yield ast.Constant(value + 1)
        case ast.Constant(str() as value) if value and len(value) <= _WORD and " " not in value:
            yield ast.Constant(value[:-1])
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield ast.Return(ast.Constant(None))
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()
        case _:
            return


def _fields(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the children of a node that decide something: not what documents, annotates, exports or words an error."""
    match node:
        case ast.arg():
            return
        case ast.AnnAssign():
            kept: list[ast.AST | None] = [node.value]
        case ast.Assign(targets=[ast.Name("__all__")]) | ast.Expr(ast.Constant(str())) | ast.Raise():
            return
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            kept = [*node.args.defaults, *node.args.kw_defaults, *node.body]
        case ast.ClassDef():
            kept = [*node.keywords, *node.body]
        case ast.JoinedStr():  # its pieces have no place of their own before Python 3.12
            return
        case ast.MatchValue() | ast.MatchMapping():  # a pattern's constant: replaced by patterns only
            return
        case _:
            kept = list(ast.iter_child_nodes(node))
    yield from (child for child in kept if child is not None)


def mutants(path: Path, root: Path) -> list[Mutant]:
    """Return every change of a file, in the order of the file."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    encoded = [line.encode() for line in lines]
    name = path.relative_to(root).as_posix()
    found: list[Mutant] = []

    def segment(node: ast.expr | ast.stmt) -> str:
        last = node.end_lineno or node.lineno
        span = b"".join(encoded[node.lineno - 1 : last])
        return span[node.col_offset : len(span) - len(encoded[last - 1]) + (node.end_col_offset or 0)].decode()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.expr | ast.stmt):
            for other in changes(node):
                new = ast.unparse(ast.fix_missing_locations(other))
                new = f"({new})" if isinstance(other, ast.expr) and not isinstance(other, ast.Constant) else new
                line = lines[node.lineno - 1].rstrip("\n")
                found.append(Mutant(name, node.lineno, node.col_offset, line, segment(node), new))
        for child in _fields(node):
            visit(child)

    visit(ast.parse(text))
    return found


def changed(text: str, mutant: Mutant) -> str:
    """Return a file's text with the mutant in it; `LookupError` where the file no longer has the expression."""
    lines = text.splitlines(keepends=True)
    places = [number for number, line in enumerate(lines) if line.rstrip("\n") == mutant.code]
    if not places:
        raise LookupError(mutant.told())
    number = min(places, key=lambda place: abs(place + 1 - mutant.line))
    head = "".join(lines[:number])
    rest = "".join(lines[number:]).encode()
    old = mutant.old.encode()
    if rest[mutant.column : mutant.column + len(old)] != old:
        raise LookupError(mutant.told())
    return head + (rest[: mutant.column] + mutant.new.encode() + rest[mutant.column + len(old) :]).decode()


def chosen(package: str, count: int, seed: int) -> list[Mutant]:
    """Return a sample of a package's changes: the same for the same sources and seed."""
    root = ROOT / SOURCES
    everything = [mutant for path in sorted((root / package).rglob("*.py")) for mutant in mutants(path, root)]
    return random.Random(f"{seed}:{package}").sample(everything, min(count, len(everything)))  # noqa: S311  (a sample is no secret)


def tests_of(path: str, also: list[str], tests: Path) -> list[str]:
    """Return the tests to run for a module, nearest first, relative to the repository."""
    module = Path(path)
    package = module.parts[0]
    folder = tests / package
    own = [*folder.rglob(f"test_{module.stem.strip('_')}*.py")]
    mirror = tests / module.parent
    near = [*mirror.glob("test_*.py")] if module.parent.name != package else []
    others = [path for place in (folder, *(tests / name for name in also)) for path in sorted(place.rglob("test_*.py"))]
    ordered = dict.fromkeys([*sorted(own), *sorted(near), *others])
    return [path.relative_to(tests.parent).as_posix() for path in ordered]


def wilson(hits: int, total: int) -> tuple[float, float]:
    """Return the 95% interval of a share."""
    if not total:
        return 0.0, 1.0
    z = 1.96
    share = hits / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return max(0.0, middle - half), min(1.0, middle + half)


def check(copies: Copies, package: str, also: list[str], limit: float) -> None:
    """Leave the program if a package's tests fail on what nobody changed: they would call everything killed."""
    with copies.place() as place:
        outcome = _outcome(copies.run(place, tests_of(f"{package}/__init__.py", also, place / "tests"), limit))
    if outcome != "survived":
        raise SystemExit(f"the tests of {package} do not pass within {limit:g} s on unchanged sources: {outcome}")


def judge(copies: Copies, mutant: Mutant, also: list[str], limit: float) -> Verdict:
    """Run a mutant's tests in a free copy and return what they said."""
    with copies.place() as place:
        target = place / SOURCES / mutant.path
        with swapped(target, changed(target.read_text(encoding="utf-8"), mutant)):
            began = time.monotonic()
            outcome = _outcome(copies.run(place, tests_of(mutant.path, also, place / "tests"), limit))
            return Verdict(mutant, outcome, round(time.monotonic() - began, 1))


def _outcome(run: Run) -> str:
    """Return what a run says about a mutant; a limit stands for a mutant that loops."""
    if run.status is None:
        return "timeout"
    if run.status == 0:
        return "survived"
    unusable = run.status == 4 and "ImportError while loading conftest" in run.output
    if run.status not in (1, 2) and not unusable:  # 2: the module could not be imported by a test; 4: by a conftest.py
        raise RuntimeError(f"pytest ended with status {run.status}:\n{run.output[-2000:]}")
    return "killed"


def report(verdicts: list[Verdict]) -> str:
    """Return the kill rate of each package, and the survivors."""
    lines: list[str] = []
    for package in sorted({verdict.mutant.package for verdict in verdicts}):
        mine = [verdict for verdict in verdicts if verdict.mutant.package == package]
        killed = sum(verdict.noticed for verdict in mine)
        low, high = wilson(killed, len(mine))
        lines.append(
            f"{package}: {killed} of {len(mine)} killed ({killed / len(mine):.0%}, 95% {low:.0%} to {high:.0%})"
        )
        lines += [f"  survived: {verdict.mutant.told()}" for verdict in mine if not verdict.noticed]
    return "\n".join(lines)


def load(path: Path) -> list[Mutant]:
    """Return the mutants of an earlier run."""
    return [Mutant(**kept["mutant"]) for kept in json.loads(path.read_text(encoding="utf-8"))]


def save(path: Path, verdicts: list[Verdict]) -> None:
    """Keep the verdicts for a later `--again`."""
    path.write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Measure, print, and return 0: a rate is a figure and not a verdict."""
    asked = argparse.ArgumentParser(description="Measure the share of changed expressions that the tests notice.")
    asked.add_argument("packages", nargs="*", default=["policy", "dialects", "wire"], help="packages of src/mustcall")
    asked.add_argument("--sample", type=int, default=25, help="changes for each package (default 25)")
    asked.add_argument("--seed", type=int, default=1, help="which sample (default 1)")
    asked.add_argument("--also", action="append", default=[], metavar="FOLDER", help="more tests, such as rules")
    asked.add_argument("--limit", type=float, default=300, help="seconds for one change (default 300)")
    asked.add_argument("--jobs", type=int, default=1, help="runs at the same time (default 1)")
    asked.add_argument("--save", type=Path, metavar="FILE", help="keep the verdicts here")
    asked.add_argument("--again", type=Path, metavar="FILE", help="measure the changes of this file again")
    asked.add_argument("--list", action="store_true", help="print the changes and run nothing")
    given = asked.parse_args()
    sample = (
        load(given.again)
        if given.again
        else [mutant for package in given.packages for mutant in chosen(package, given.sample, given.seed)]
    )
    if given.list:
        print("\n".join(mutant.told() for mutant in sample))
        return 0
    verdicts: list[Verdict] = []
    with Copies(ROOT, given.jobs) as copies:
        for package in sorted({mutant.package for mutant in sample}):
            check(copies, package, given.also, given.limit)
        for verdict in copies.each(lambda mutant: judge(copies, mutant, given.also, given.limit), sample):
            verdicts.append(verdict)
            print(f"{verdict.outcome:9}{verdict.seconds:7.1f} s  {verdict.mutant.told()}", flush=True)
            if given.save:
                save(given.save, verdicts)
    print(report(verdicts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
