"""`mustcall dialects`: the catalogue for people, for programs and for the docs."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from mustcall.cli import main
from mustcall.cli.inspecting.dialects import command
from mustcall.dialects import DIALECTS, parse

PAGE = Path(__file__).parents[2] / "docs" / "dialects.md"


def test_list() -> None:
    """Every dialect is listed with an example."""
    output = CliRunner().invoke(command).stdout
    for dialect in DIALECTS:
        assert f"{dialect.name}  [{dialect.family}, {dialect.standing}]" in output


def test_examples_are_calls() -> None:
    """Each printed example is read as a call by the dialect it stands for."""
    rows = json.loads(CliRunner().invoke(command, ["--json"]).stdout)
    assert [row["name"] for row in rows] == [dialect.name for dialect in DIALECTS]
    for row in rows:
        if row["name"] != "python_line":
            parsed = parse([row["example"]], loose=True)
            if [call.dialect for call in parsed.calls] != [row["name"]]:  # another dialect has the same form
                parsed = parse([row["example"]], dialects=[row["name"]], loose=True)
            assert [(call.name, call.dialect) for call in parsed.calls] == [("get_weather", row["name"])]


def test_one() -> None:
    """One dialect can be shown."""
    output = CliRunner().invoke(command, ["lmstudio"]).stdout
    assert "[TOOL_REQUEST]" in output
    assert "hermes" not in output


@pytest.mark.parametrize(
    ("name", "fix"),
    [("esperanto", "; `mustcall dialects` lists the known ones"), ("hermess", "; did you mean 'hermes'?")],
)
def test_an_unknown_one_is_a_mistake(capsys: pytest.CaptureFixture[str], name: str, fix: str) -> None:
    """A name that is no dialect ends with exit code 2, as every mistake in a command does, and one line."""
    with pytest.raises(SystemExit) as ended:
        main(["dialects", name])
    assert ended.value.code == 2
    assert capsys.readouterr() == ("", f"mustcall: unknown dialect {name!r}{fix}\n")


def test_the_page_is_up_to_date() -> None:
    """The reference page says what the catalogue says; `mustcall dialects --markdown` writes it."""
    assert PAGE.read_text(encoding="utf-8") == CliRunner().invoke(command, ["--markdown"]).stdout
