"""Figures about models in the docs: each table has the command that repeats it, and the command is one (rule 150)."""

import importlib.util
import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mustcall.cli import cli
from mustcall.cli.measuring.eval import command
from mustcall.profiles.catalogue import load

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
#: What no run of a model comes to: lists that are made from other files.
GENERATED = {"breaks.md", "rules.md"}
FIGURE = re.compile(r"\b\d+ of \d+\b|\d ?%(?! interval)")
COMMAND = re.compile(r"```sh\n|`(python (benchmarks|tools)/|mustcall )")


def sections(page: Path) -> list[str]:
    """The parts of a page between its headings of the second level."""
    return re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_table_of_figures_has_its_command(page: Path) -> None:
    """Rule 150: a table with counts or shares stands beside a command that makes it."""
    if page.name in GENERATED:
        return
    for section in sections(page):
        told = re.sub(r"`[^`\n]*`", "", section)
        rows = [line for line in told.splitlines() if line.startswith("|") and FIGURE.search(line)]
        assert not rows or COMMAND.search(section), rows[0]


def test_facts_of_models_quote_no_figures() -> None:
    """Rule 150: how a fact was observed is said in words; figures are in the reports of their runs."""
    notes = [fact.note for entry in load() for fact in entry.facts.values() if fact.note]
    assert len(notes) > 50
    assert [note for note in notes if FIGURE.search(note)] == []


def script(name: str) -> ModuleType:
    """Import a script of benchmarks/."""
    spec = importlib.util.spec_from_file_location(f"measuring_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_embedded_models_figures_can_be_repeated() -> None:
    """Rule 150: the command parses, and asks as often as the table says."""
    page = (ROOT / "docs" / "decisions" / "embedded-model.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^python benchmarks/embedded\.py (.*)$", page, re.MULTILINE)
    options: Any = script("embedded").read_options(shlex.split(line))
    counts = [
        int(count) for count in re.findall(r"^\| (?:through|the model alone)[^|]*\| (\d+) \|", page, re.MULTILINE)
    ]
    assert [options.prompts, options.bare] == counts == [200, 50]


def test_the_evals_figures_can_be_repeated() -> None:
    """Rule 150: every command below the published figures parses, values and all."""
    measured = (ROOT / "docs" / "eval.md").read_text(encoding="utf-8").partition("## Measured")[2]
    lines = re.findall(r"^mustcall eval (.*)$", measured, re.MULTILINE)
    assert len(lines) == 5
    # click keeps the help option of the first context: it is made under the program's own, whose help has `-h`
    root = cli.make_context("mustcall", ["eval"])
    for line in lines:
        name, *arguments = shlex.split(line)
        with command.commands[name].make_context(name, arguments, parent=root) as context:
            assert context.params["llama"].startswith("qwen2.5-coder-")
