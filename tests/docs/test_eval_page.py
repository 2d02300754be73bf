"""docs/eval.md says what `mustcall eval` does: its options, its suites and sets, its columns."""

import re
from pathlib import Path

import click

from mustcall.cli.measuring.eval import command
from mustcall.evals.bfcl.entries import SETS
from mustcall.evals.loading import SUITES
from mustcall.evals.questions import AskedCall
from mustcall.evals.report.summary import Column
from mustcall.evals.suites import read_ids
from support.bfcl import read_set

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "eval.md").read_text(encoding="utf-8")
MEASURED = PAGE.partition("## Measured")[2]


def options(name: str) -> set[str]:
    """The options of a subcommand."""
    found = command.commands[name]
    return {option for parameter in found.params if isinstance(parameter, click.Option) for option in parameter.opts}


def test_every_option_is_documented() -> None:
    """Each option has a row, and no row is about an option that is not there; the suites have the same ones."""
    told = set(re.findall(r"^\| `(--[a-z-]+)", PAGE, re.MULTILINE))
    assert told == options("bfcl") - {"--config"}
    assert options("bfcl") == options("builtin")
    assert options("score") < options("bfcl")


def test_every_suite_and_set_is_documented() -> None:
    """Each suite has a row with its sets, and the numbers are those of the data."""
    for name in SUITES:
        assert f"\n| `{name}` | " in PAGE
    for name in SETS:
        assert f"`{name}` {len(read_set(name))}" in PAGE
    for demand in AskedCall:
        assert f"`{demand}`" in PAGE


def test_every_column_is_documented() -> None:
    """Each column of the tables is explained."""
    for column in Column:
        assert f"\n| `{column}` | " in PAGE


def test_the_commands_are_commands() -> None:
    """Rule 150: the commands that repeat the published figures are commands: each option in them exists."""
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL):
        lines = [line for line in block.replace("\\\n", " ").splitlines() if "mustcall eval " in line]
        for line in lines:
            words = line.partition("#")[0].split()
            assert set(re.findall(r"--[a-z-]+", line.partition("#")[0])) <= options(words[2])


def test_the_figures_say_how_they_were_measured() -> None:
    """Rule 149: the release carries its figures with date, suite, server version, model file hash and intervals."""
    assert re.search(r"\b20\d\d-\d\d-\d\d\b", MEASURED)
    assert re.search(r"`bfcl-eval` \d+(\.\d+)+", MEASURED)
    assert re.search(r"`xllamacpp` \d+(\.\d+)+", MEASURED)
    assert len(re.findall(r"sha256 `[0-9a-f]{8}…`", MEASURED)) == 2
    rows = re.findall(r"^\| (?:simple_python|multiple|live_simple|irrelevance)\b.*$", MEASURED, re.MULTILINE)
    assert len(rows) == 8
    for row in rows:
        _, bare, _, mustcall = (cell.strip() for cell in row.strip("|").split("|")[1:])
        assert re.fullmatch(r"\d+ % \(\d+\u2013\d+\)", bare)
        assert re.fullmatch(r"\d+ % \(\d+\u2013\d+\)", mustcall)


def _listed_questions() -> dict[str, int]:
    """How many questions of each set the list of the first measurement has; each of them is one of the data."""
    ids = read_ids((ROOT / "benchmarks" / "field-questions.txt").read_text(encoding="utf-8"))
    counts: dict[str, int] = {}
    for id_ in ids:
        name = id_.rpartition("_")[0]
        assert id_ in {entry.id for entry in read_set(name)}
        counts[name] = counts.get(name, 0) + 1
    assert len(set(ids)) == len(ids) == 177
    return counts


def test_the_readmes_figures_are_those_of_the_page() -> None:
    """Rule 150: the shares and intervals in README.md are those of the run's table, and the calls add up."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (simple_python|multiple|live_simple|irrelevance)\b[^|]*\| (.*) \|$", MEASURED, re.MULTILINE)
    whole_sets, listed = rows[:4], rows[4:]
    assert {name for name, _ in whole_sets} == {name for name, _ in listed} == set(_listed_questions())
    assert {name: int(cells.partition(" ")[0]) for name, cells in listed} == _listed_questions()
    for name, cells in whole_sets:
        (told,) = re.findall(rf"^\| {name}\b[^|]*\| (.*) \|$", readme, re.MULTILINE)
        assert told.replace("**", "") == cells
    calls = re.search(r"got\sa valid one in \*\*(\d+) of (\d+)\*\* turns", readme)
    assert calls is not None
    counts = [(int(made), int(asked)) for made, asked in re.findall(r"\| (\d+) of (\d+) \|", MEASURED)]
    assert (sum(made for made, _ in counts), sum(asked for _, asked in counts)) == (int(calls[1]), int(calls[2]))
