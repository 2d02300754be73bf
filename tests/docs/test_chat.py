"""docs/chat.md says what `mustcall chat` and `mustcall run` have: every option, command, tool, field and exit code."""

import re
from pathlib import Path

import click
import pytest

from mustcall.cli.asking.chat import command as chat
from mustcall.cli.asking.run import command as run
from mustcall.testing import ScriptedUpstream, demo_turn
from mustcall.toolkit.builtin.offer import RULES, VARIABLES, builtin_tools
from mustcall.toolkit.builtin.roots import roots_at
from mustcall.toolkit.builtin.search import Documents
from mustcall.toolkit.reports import ChangeReports

PAGE = (Path(__file__).parents[2] / "docs" / "chat.md").read_text(encoding="utf-8")


def options(command: click.Command) -> set[str]:
    """The options of a command by their longest names."""
    return {max(option.opts, key=len) for option in command.params if isinstance(option, click.Option)}


def test_every_option_is_documented() -> None:
    """The table of options is the one the commands have."""
    rows = dict(re.findall(r"^\| `(--[\w-]+)` \| (\w+) \|", PAGE, re.MULTILINE))
    assert {name for name, of in rows.items() if of == "both"} == options(chat)
    assert set(rows) == options(run)


def test_every_command_is_documented() -> None:
    """Each `/command` has its row, and there are no others."""
    source = (Path(__file__).parents[2] / "src" / "mustcall" / "cli" / "asking" / "chat.py").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(/\w+)` \|", PAGE, re.MULTILINE)) == set(
        re.findall(r'^ +"(/\w+)": \(', source, re.MULTILINE)
    )


def test_every_exit_code_is_documented() -> None:
    """The codes of `run --help` are the ones on the page."""
    assert run.help is not None
    shown = set(re.findall(r"\b(\d+) (?:answered|the|Ctrl)", run.help))
    assert set(re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)) == shown


def test_every_tool_and_variable_is_documented(tmp_path: Path) -> None:
    """Each built-in tool has its row, and the allowlist is the one in the code."""
    tools = builtin_tools(roots_at([tmp_path]), documents=Documents(tmp_path), reports=ChangeReports())
    for tool in tools:
        assert f"\n| `{tool.name}` |" in PAGE
    assert "`, `".join(VARIABLES) in PAGE
    assert {rule.tool for rule in RULES} == {tool.name for tool in tools}


def test_the_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The Python on the page runs as printed."""
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    with ScriptedUpstream(demo_turn) as upstream:
        exec(block.replace("http://127.0.0.1:8484", upstream.url), {})  # noqa: S102  our own page
    assert capsys.readouterr().out.startswith("list_directory ")
