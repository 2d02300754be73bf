"""Lines from a person."""

import io
import sys
from pathlib import Path

import pytest

from mustcall.cli.asking.prompt import LineReader, state_folder


def test_where_things_are_remembered() -> None:
    """The state folder is the user's own, unless it is named."""
    assert state_folder({"MUSTCALL_STATE": "/x"}) == Path("/x")
    assert state_folder({"XDG_STATE_HOME": "/s"}) == Path("/s/mustcall")
    assert state_folder({}) == Path.home() / ".local" / "state" / "mustcall"


def test_lines_from_a_pipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a terminal lines are read as they are, nothing is remembered, and the end is None."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\r\n\nlast"))
    reader = LineReader("> ", folder=tmp_path / "state")
    assert [reader.read(), reader.read(), reader.read(), reader.read()] == ["one", "", "last", None]
    assert not (tmp_path / "state").exists()
