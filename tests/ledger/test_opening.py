"""Which ledger is meant."""

import asyncio
from pathlib import Path

import pytest

from mustcall import Agent
from mustcall.core.errors import ConfigError, LedgerUnavailable
from mustcall.gateway.config.settings import load_settings
from mustcall.ledger import ContentsKept, default_place, open_ledger
from mustcall.testing import ScriptedModel


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"HOME": "/home/ann"}, "/home/ann/.local/state/mustcall/ledger.db"),
        ({"HOME": "/home/ann", "XDG_STATE_HOME": "/state"}, "/state/mustcall/ledger.db"),
        ({"HOME": "/home/ann", "XDG_STATE_HOME": "relative"}, "/home/ann/.local/state/mustcall/ledger.db"),
        ({"HOME": "/h", "DATABASE_URL": "postgresql://db/x"}, "postgresql://db/x"),
        ({"HOME": "/h", "DATABASE_URL": "mysql://db/x"}, "/h/.local/state/mustcall/ledger.db"),
        ({"HOME": "/h", "DATABASE_URL": "postgresql://db/x", "MUSTCALL_LEDGER": "/a.db"}, "/a.db"),
    ],
)
def test_default_place(environment: dict[str, str], place: str) -> None:
    """The environment says where, else the state directory."""
    assert default_place(environment) == place


def test_a_place_chooses_its_store(tmp_path: Path) -> None:
    """A URL is PostgreSQL, without its secrets in what is shown; everything else is a file."""
    assert open_ledger("postgresql://me:secret@db:5432/x?sslmode=require").store.place == "postgresql://db:5432/x"
    assert open_ledger(tmp_path / "a.db").store.place == str(tmp_path / "a.db")
    assert open_ledger(f"sqlite:///{tmp_path}/b.db").store.place == f"{tmp_path}/b.db"


@pytest.mark.parametrize("place", ["redis://x", "", "off"])
def test_a_place_that_is_none(place: str) -> None:
    """What is neither a file nor PostgreSQL is refused with what would do."""
    with pytest.raises(ConfigError, match="postgresql://"):
        open_ledger(place)


@pytest.mark.parametrize("place", [":memory:", "sqlite:///:memory:", Path(":memory:")])
def test_a_ledger_in_memory_is_refused(place: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection would have a database of its own, so nothing would be durable; no file of that name is made."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="a ledger in memory keeps nothing; give the path of a file"):
        open_ledger(place)
    with pytest.raises(ConfigError, match="a ledger in memory"):
        Agent(ScriptedModel(["x"]), ledger=place).run_sync("x", run_id="r")
    with pytest.raises(ConfigError, match="a ledger in memory"):
        load_settings(None, upstream_flags=("chat=http://127.0.0.1:9",), ledger=str(place), environment={})
    assert list(tmp_path.iterdir()) == []


async def test_an_unopened_ledger_says_so(place: str) -> None:
    """Nothing hangs on a ledger that was not opened, or is closed."""
    ledger = open_ledger(place)
    with pytest.raises(LedgerUnavailable, match="not open"):
        await ledger.get_run("r")
    async with ledger:
        await ledger.open()
        assert await ledger.get_run("r") is None
    with pytest.raises(LedgerUnavailable, match="not open"):
        await ledger.queue_run("r", b"")
    await ledger.close()


def test_what_is_kept_of_what_was_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents, workers and commands keep what the environment says, else everything; a caller's own word stands."""
    assert open_ledger(tmp_path / "a.db").contents is ContentsKept.FULL
    monkeypatch.setenv("MUSTCALL_LEDGER_CONTENTS", "none")
    assert open_ledger(tmp_path / "a.db").contents is ContentsKept.NONE
    assert open_ledger(tmp_path / "a.db", contents=ContentsKept.FULL).contents is ContentsKept.FULL
    monkeypatch.setenv("MUSTCALL_LEDGER_CONTENTS", "some")
    with pytest.raises(ConfigError, match="MUSTCALL_LEDGER_CONTENTS must be one of full, redacted, none, got 'some'"):
        open_ledger(tmp_path / "a.db")


def test_a_file_that_is_to_be_there(tmp_path: Path) -> None:
    """Who only looks makes no file."""
    with pytest.raises(LedgerUnavailable, match=r"there is no ledger at .*typo\.db"):
        asyncio.run(open_ledger(tmp_path / "typo.db", make=False).open())
    assert list(tmp_path.iterdir()) == []
