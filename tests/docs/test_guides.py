"""The guides and the first pages: every block runs, loads or parses as it stands, and the output is what they say.

Blocks behind `<!-- needs: … -->` need a model, or a package that the tests lack: tools/guides.py runs them.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from mustcall.cli import COMMANDS, cli
from mustcall.gateway.config.settings import load_settings, settings_from_flags
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.testing import ScriptedUpstream, demo_turn
from mustcall.testing.gateway import RunningGateway
from support.compared import leave_all

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs" / "guides").glob("*.md"), *(ROOT / "docs" / "start").glob("*.md")])
BLOCK = re.compile(
    r'(<!-- needs: [^>]+-->\n)?```(\w+)(?: title="([^"]+)")?\n(.*?)```\n(?:\n```text\n(.*?)```)?', re.DOTALL
)
KNOWN = {"python", "toml", "json", "yaml", "sh", "text", "js"}


def blocks(page: Path, *languages: str) -> Iterator[tuple[str, str, str | None]]:
    """The blocks of a page in these languages that need nothing special: title, code, what it prints."""
    for needs, language, title, code, printed in BLOCK.findall(page.read_text(encoding="utf-8")):
        assert language in KNOWN, language
        if language in languages and not needs:
            yield title, code, printed or None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_the_python_runs(
    page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A page is one program: its blocks run in order against a gateway, and print what stands below them."""
    found = list(blocks(page, "python"))
    if not found:
        return
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "guide"}
    with ScriptedUpstream(demo_turn) as upstream:
        leave_all("a page shows what comes of a request, not what is sent")
        ledger = LedgerSettings(place=f"{tmp_path}/ledger.db")
        settings = settings_from_flags(f"chat={upstream.base_url}", ledger=ledger)
        with ExitStack() as left, RunningGateway(settings=settings, keepalive=0.0) as gateway:
            for _, code, printed in found:
                exec(code.replace("http://127.0.0.1:8484", gateway.url), names)  # noqa: S102  our own page
                out = capsys.readouterr().out
                assert printed is None or out == printed, f"{page.name}: {out}"
                if hasattr(names.get("client"), "close"):
                    left.callback(names["client"].close)  # or its sockets are found unclosed some time later


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_the_files_load(page: Path, tmp_path: Path) -> None:
    """What stands on a page as mustcall.toml is one; the files of other programs can be read."""
    for title, code, _ in blocks(page, "toml", "json", "yaml"):
        if title == "mustcall.toml":
            file = tmp_path / "mustcall.toml"
            file.write_text(code, encoding="utf-8")
            keys = {"OPENROUTER_API_KEY": "k", "MUSTCALL_KEYS": "k"}
            assert load_settings(file, environment=keys).endpoints
        elif title.endswith(".toml"):
            assert tomllib.loads(code)
        elif title.endswith(".yaml"):
            assert yaml.safe_load(code)
        else:
            assert title
            assert json.loads(code)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_the_commands_parse(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every `mustcall` line names a command, and the command takes its options."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.gguf").touch()
    text = "".join(code for _, code, _ in blocks(page, "sh"))
    text += "".join(code for _, code, _ in blocks(page, "text") if code.startswith("mustcall "))
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        while words and re.match(r"[A-Z_]+=", words[0]):
            words.pop(0)
        if not words or words[0] != "mustcall" or "--help" in words or "<" in words:
            continue
        command: click.Command = cli
        rest = words[1:]
        while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
            found = command.get_command(click.Context(command), rest[0])
            assert found is not None, line
            command, rest = found, rest[1:]
        if command is not cli:
            made = command.make_context(" ".join(words), rest)
            made.close()


def test_commands_in_sentences_exist() -> None:
    """A command that a sentence names in backquotes is one."""
    for page in PAGES:
        for name in re.findall(r"`mustcall ([a-z]+)", page.read_text(encoding="utf-8")):
            assert name in COMMANDS, f"{page.name}: {name}"
