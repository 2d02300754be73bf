"""docs/demo.md says what the demo does: its options, its prompts, its comparisons."""

import re
from pathlib import Path

import click

from mustcall.cli.measuring.demo import command
from mustcall.evals.prompts import Items, OneOf, Same, SameText, Words, load_prompts
from mustcall.evals.questions import AskedCall
from mustcall.evals.report.figures import Measure

PAGE = (Path(__file__).parents[2] / "docs" / "demo.md").read_text(encoding="utf-8")


def test_every_option_is_documented() -> None:
    """Each option has a row, and no row is about an option that is not there."""
    known = {name for option in command.params if isinstance(option, click.Option) for name in option.opts}
    told = set(re.findall(r"^\| `(--[a-z-]+)", PAGE, re.MULTILINE))
    assert told == known - {"--config"}


def test_every_comparison_is_documented() -> None:
    """Each way to compare an argument has a row."""
    for kind in (SameText, Same, OneOf, Words, Items):
        assert f"\n| `{kind.__struct_config__.tag}` | " in PAGE


def test_the_numbers_are_those_of_the_data() -> None:
    """Prompts, tools and demands are counted right."""
    prompts = load_prompts()
    tools = {tool.name for prompt in prompts for tool in prompt.tools}
    assert f"[The {len(prompts)} prompts]" in PAGE
    assert f"one to four of {len(tools)}" in PAGE
    told = re.search(r"In (\d+) the caller.*?in (\d+) to.*?in (\d+) to", PAGE, re.DOTALL)
    assert told is not None
    assert [int(told[place]) for place in (1, 2, 3)] == [
        sum(prompt.demand is demand for prompt in prompts) for demand in AskedCall
    ]


def test_every_measure_is_defined() -> None:
    """The three measures are defined under their own names."""
    for measure in Measure:
        assert f"- **{measure}** if " in PAGE
