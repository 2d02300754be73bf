"""JSON of every command that prints data."""

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from mustcall.cli import cli
from mustcall.cli.printing import as_json

#: Commands that print no data: they talk, they serve, or what they print is read by another program as it is.
_NO_DATA = {
    "init": "writes a file",
    "serve": "serves",
    "chat": "talks",
    "worker": "works until it is stopped",
    "ledger export": "is lines of JSON already",
    "completion": "is a script for a shell",
}


def commands(command: click.Command = cli, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command that can be run, by its words."""
    if not isinstance(command, click.Group):
        yield " ".join(words), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, (*words, name))


def test_every_command_that_prints_data_prints_json() -> None:
    """Programs read what people read: a new command has `--json`, or says here why not."""
    without = {
        words
        for words, command in commands()
        if not any("--json" in option.opts for option in command.params if isinstance(option, click.Option))
    }
    assert without == set(_NO_DATA)


@given(st.recursive(st.none() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_is_the_same_value_without_what_steers_a_terminal(value: object) -> None:
    """Escapes change no value, and no character is left that a terminal acts upon."""
    written = as_json(value)
    assert json.loads(written) == value
    assert all(sign.isprintable() or sign not in "\x7f\x9b\u2028\u202e\u2066" for sign in written)
    assert not any(ord(sign) < 0x20 or 0x7F <= ord(sign) < 0xA0 for sign in written)


@pytest.mark.parametrize(
    ("words", "holds"),
    [
        (("models", "list"), "licence"),
        (("config", "check"), "settings"),
        (("ledger", "prune", "--all"), "turns"),
        (("ledger", "check"), "rows"),
        (("profiles", "forget", "--all"), "forgotten"),
    ],
)
def test_json_is_one_value(words: tuple[str, ...], holds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is one JSON value and nothing else."""
    monkeypatch.chdir(tmp_path)
    upstream = '[[upstream]]\nname = "a"\nwire = "chat"\nbase_url = "http://127.0.0.1:9"\n'
    (tmp_path / "mustcall.toml").write_text(upstream, encoding="utf-8")
    place = f"{tmp_path}/l.db"
    imported = CliRunner().invoke(cli, ["ledger", "import", "--json", "--ledger", place], input="")
    assert json.loads(imported.stdout) == {"rows": 0}
    more = () if words[0] in ("models", "config") else ("--ledger", place)
    told = CliRunner().invoke(cli, [*words, "--json", *more])
    assert told.exit_code == 0, told.output
    value = json.loads(told.stdout)
    assert holds in (value[0] if isinstance(value, list) else value)
