"""A ledger's files are their owner's alone: made so, set so, or refused."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mustcall.core.errors import LedgerUnavailable
from mustcall.ledger import open_ledger
from mustcall.ledger.stores import sqlite


def modes(folder: Path) -> dict[str, int]:
    """The mode of every file."""
    return {file.name: file.lstat().st_mode & 0o777 for file in folder.iterdir()}


async def use(path: Path) -> dict[str, int]:
    """Open a ledger, write to it, and return the modes of its files while it is open."""
    async with open_ledger(path) as ledger:
        await ledger.start_run("r", b"said", owner="o", lease=60)
        return modes(path.parent)


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
async def test_a_new_ledger(tmp_path: Path, umask: int) -> None:
    """File, log and index are the owner's from the start, and so is a folder that is made for them."""
    old = os.umask(umask)
    try:
        assert await use(tmp_path / "new" / "l.db") == {"l.db": 0o600, "l.db-wal": 0o600, "l.db-shm": 0o600}
    finally:
        os.umask(old)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o644, 0o666, 0o604, 0o640])
async def test_one_that_others_could_read(tmp_path: Path, mode: int) -> None:
    """A file that is there with another mode is closed to others, its log and index included."""
    path = tmp_path / "l.db"
    path.touch(mode)
    path.chmod(mode)
    assert await use(path) == {"l.db": 0o600, "l.db-wal": 0o600, "l.db-shm": 0o600}


async def test_a_log_that_others_could_read(tmp_path: Path) -> None:
    """What a process that was killed left behind is closed to others as well."""
    path = tmp_path / "l.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("CREATE TABLE t (x)")
        for name in modes(tmp_path):
            (tmp_path / name).chmod(0o644)
        assert await use(path) == {"l.db": 0o600, "l.db-wal": 0o600, "l.db-shm": 0o600}


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("name", ["l.db", "l.db-wal", "l.db-shm", "l.db-journal"])
async def test_links_are_refused(tmp_path: Path, name: str, exists: bool) -> None:
    """No file is made or used through a link, dangling or not; what it points at stays as it is."""
    elsewhere = tmp_path / "elsewhere"
    folder = tmp_path / "state"
    folder.mkdir()
    if exists:
        elsewhere.write_bytes(b"")
        elsewhere.chmod(0o644)
    (folder / name).symlink_to(elsewhere)
    with pytest.raises(LedgerUnavailable, match="symbolic link"):
        await use(folder / "l.db")
    assert elsewhere.exists() is exists
    if exists:
        assert elsewhere.stat().st_mode & 0o777 == 0o644


async def test_a_folder_behind_a_link_is_a_folder(tmp_path: Path) -> None:
    """Only the end of the path is not followed: where a state directory lies is its owner's business."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "disk")
    assert set(await use(tmp_path / "state" / "l.db")) == {"l.db", "l.db-wal", "l.db-shm"}


async def test_what_is_no_file(tmp_path: Path) -> None:
    """A pipe is not opened, and not waited for."""
    os.mkfifo(tmp_path / "l.db")
    with pytest.raises(LedgerUnavailable, match="not an ordinary file"):
        await use(tmp_path / "l.db")


async def test_somebody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that another user put there, to read what is written into it, is refused."""
    (tmp_path / "l.db").touch(0o600)
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    os.chown(tmp_path / "l.db", os.getuid(), -1)
    with pytest.raises(LedgerUnavailable, match="belongs to another user"):
        await use(tmp_path / "l.db")


async def test_one_that_is_replaced_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever swaps the file between the look and the opening is found out, and nothing is written."""
    path = tmp_path / "l.db"
    connect = sqlite.SqliteStore._connect

    def swapped(store: sqlite.SqliteStore) -> sqlite3.Connection:
        (tmp_path / "other").write_bytes(b"")
        (tmp_path / "other").replace(path)
        return connect(store)

    monkeypatch.setattr(sqlite.SqliteStore, "_connect", swapped)
    with pytest.raises(LedgerUnavailable, match="replaced"):
        await use(path)
