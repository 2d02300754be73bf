"""What commands print in a terminal of eighty columns: no line is longer, and none is broken inside a word.

Data that is shown as it is (examples of text formats, the JSON of bodies) is not broken: it can be copied.
"""

import io
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from mustcall.cli import cli
from mustcall.cli.measuring.bench_screen import print_run
from mustcall.cli.wrapping import fold
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.ledger import ContentsKept
from mustcall.testing import Call, RunningGateway, Say, ScriptedUpstream, Turn
from support.benching import whole_run
from support.compared import leave_all
from support.http import post

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}
ASKED: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Oslo?"}],
    "tools": [TOOL],
    "tool_choice": "required",
}
CONFIG = """
[[upstream]]
use = "chat=http://127.0.0.1:9/v1"
[[upstream]]
use = "ollama:a-model-with-a-long-name"
"""
COMMANDS = [
    ("models", "list"),
    ("dialects",),
    ("config", "check"),
    ("doctor", "--timeout", "0.5"),
    ("explain", "body.json"),
    ("profiles", "list", "--ledger", "l.db"),
    ("turns", "list", "--ledger", "l.db"),
    ("turns", "show", "TURN", "--ledger", "l.db"),
    ("replay", "TURN", "--ledger", "l.db", "--to", "URL", "--times", "2"),
]


def lines_of(*arguments: str) -> list[str]:
    """What a command prints in a terminal of eighty columns, without colours."""
    told = CliRunner().invoke(cli, arguments, env={"COLUMNS": "80", "FORCE_COLOR": "1"})
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", told.stdout).splitlines()


def _is_data(command: str, line: str) -> bool:
    """Whether a line is an example of a format, or JSON of a body: what changes stands behind a sign."""
    if command == "dialects":
        return line.startswith("    ")
    return command == "explain" and re.match(r'\s*(?:[-+] )?\s*(?:[\w.]+: )?[\[{"]', line) is not None


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_fit_eighty_columns(command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line that has a blank to break at fits; what is indented by four blanks in `dialects` is an example."""
    leave_all("what is printed is looked at, not what is sent")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "body.json").write_bytes(msgspec.json.encode(ASKED))
    (tmp_path / "mustcall.toml").write_text(CONFIG)
    talk, missed = Turn(Say("No.")), Turn(Say('<tool_call>{"name": "wether", "arguments": {"town": 5}}</tool_call>'))
    with ScriptedUpstream([talk, missed, talk, missed, Turn(Call("weather", {}))], default=talk) as upstream:
        settings = settings_from_flags(f"chat={upstream.base_url}")
        ledger = LedgerSettings(place=str(tmp_path / "l.db"), contents=ContentsKept.FULL)
        with RunningGateway(settings=msgspec.structs.replace(settings, ledger=ledger)) as gateway:
            turn = post(gateway.url + "/v1/chat/completions", ASKED).headers["x-mustcall-trace"]
        words = {"TURN": turn, "URL": f"chat={upstream.base_url}"}
        lines = lines_of(*(words.get(word, word) for word in command))
    assert len(lines) > 1
    for line in lines:
        if not _is_data(command[0], line):
            assert cell_len(line) <= 80 or " " not in line.strip(), line
    assert "…" not in "".join(lines) or command[:2] in (("explain", "body.json"), ("turns", "show"))


def test_bench_fits_eighty_columns() -> None:
    """Every table of a run fits, and no figure is cut."""
    file = io.StringIO()
    print_run(whole_run(), [], Console(file=file, width=80, force_terminal=True, color_system=None))
    lines = file.getvalue().splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert "…" not in file.getvalue()


@given(st.text(alphabet="ab \x1b[1m", max_size=60), st.integers(8, 40), st.integers(0, 30))
def test_folding_keeps_every_word(line: str, width: int, hang: int) -> None:
    """A folded line has the same words in the same order; it is longer than the width only where one word is."""
    line = line.replace("\x1b", "").strip()
    folded = fold(line, width, hang)
    assert folded.split() == line.split()
    for each in folded.split("\n"):
        assert len(each) <= width or len(each.split()) == 1
    assert fold(line, 0, hang) == line
