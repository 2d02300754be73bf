"""The file under stress: many clients, two processes, no room, no right to write, no warning before the end."""

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mustcall.core.errors import LedgerBroken, LedgerUnavailable
from mustcall.ledger import Ledger, NewEvent, open_ledger

#: Writes one event after the other under its own run and prints each when it is on the disk.
WRITER = """
import asyncio, os, resource, sys
from mustcall.core.errors import LedgerError
from mustcall.ledger import NewEvent, open_ledger

async def main(path, run, count, room, user):
    if user:
        os.setuid(user)
    try:
        async with open_ledger(path) as ledger:
            await ledger.start_run(run, b"", owner=run, lease=600)
            if room:
                resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
            for number in range(count):
                await ledger.append(run, 1, [NewEvent(step=str(number), kind="e", data=b"x" * 1000)])
                print(number, flush=True)
    except LedgerError as error:
        print(type(error).__name__, error, flush=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

asyncio.run(main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])))
"""


def writer(path: Path, run: str, count: int, *, room: int = 0, user: int = 0) -> "subprocess.Popen[str]":
    """Start a process that writes."""
    arguments = [sys.executable, "-c", WRITER, str(path), run, str(count), str(room), str(user)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)  # noqa: S603  our own script


async def steps(ledger: Ledger, run: str) -> list[int]:
    """Return the numbers written under a run."""
    return [int(event.step) for event in await ledger.events(run)]


async def test_sixty_four_clients(tmp_path: Path) -> None:
    """64 clients write and read at once: nobody is told that the database is locked, nothing is lost."""
    async with open_ledger(tmp_path / "l.db", limit=60.0) as ledger:

        async def client(number: int) -> None:
            await ledger.start_run(f"r{number}", b"", owner="o", lease=60)
            for step in range(10):
                await ledger.append(f"r{number}", 1, [NewEvent(step=str(step), kind="e", data=b"x")])
                assert len(await ledger.events(f"r{number}")) == step + 1

        await asyncio.gather(*map(client, range(64)))
        rows = (await ledger.check()).rows
        assert (rows["run"], rows["event"]) == (64, 640)


async def test_two_processes(tmp_path: Path) -> None:
    """Two processes write one file, and a third reads it: nothing is locked, nothing lost."""
    path = tmp_path / "l.db"
    async with open_ledger(path) as ledger:
        processes = [writer(path, name, 150) for name in ("a", "b")]
        while any(process.poll() is None for process in processes):
            await ledger.runs()
            await asyncio.sleep(0.01)
        said = [process.communicate()[0].split() for process in processes]
        assert said == [[str(number) for number in range(150)]] * 2
        assert await steps(ledger, "a") == await steps(ledger, "b") == list(range(150))


async def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """SIGKILL in the middle of writing: what was said to be written is there, and the file is sound."""
    path = tmp_path / "l.db"
    for run in ("a", "b", "c"):
        process = writer(path, run, 100_000)
        assert process.stdout is not None
        seen = [int(process.stdout.readline()) for _ in range(40)]
        process.send_signal(signal.SIGKILL)
        seen += [int(line) for line in process.stdout.read().split()]
        process.wait()
        process.stdout.close()
        async with open_ledger(path) as ledger:
            written = await steps(ledger, run)
            assert written[: len(seen)] == seen
            assert len(written) <= len(seen) + 1
            assert (await ledger.check()).problems == ()


async def test_no_room(tmp_path: Path) -> None:
    """A file that may not grow is a typed error; what was written before is there, and more can be written later."""
    path = tmp_path / "l.db"
    async with open_ledger(path):
        pass
    out, _ = writer(path, "a", 10_000, room=400_000).communicate()
    *acknowledged, problem = out.splitlines()
    assert problem.startswith("LedgerFull no room to write the ledger at")
    assert len(acknowledged) > 10
    async with open_ledger(path) as ledger:
        assert await steps(ledger, "a") == list(range(len(acknowledged)))
        assert (await ledger.check()).problems == ()
        await ledger.append("a", 1, [NewEvent(step="-1", kind="e", data=b"")])


@pytest.mark.skipif(sys.platform == "win32", reason="users are another thing there")
async def test_no_right_to_write() -> None:
    """A file that this user may only read is a typed error at the start, not at the first write."""
    folder = Path(tempfile.mkdtemp())
    try:
        path = folder / "l.db"
        async with open_ledger(path):
            pass
        path.chmod(0o444)
        folder.chmod(0o555)  # noqa: ASYNC240  nothing else runs
        nobody = 65534 if os.geteuid() == 0 else 0
        if nobody:
            os.chown(path, nobody, -1)
        out, _ = writer(path, "a", 1, user=nobody).communicate()
        assert out.startswith("LedgerReadOnly the ledger may not be written at")
    finally:
        folder.chmod(0o700)  # noqa: ASYNC240  as above
        shutil.rmtree(folder)


async def test_a_file_that_is_no_ledger(tmp_path: Path) -> None:
    """Another file is left as it is."""
    path = tmp_path / "notes.txt"
    path.write_bytes(b"these are my notes, not a database" * 100)
    with pytest.raises(LedgerBroken, match=r"no ledger: .*notes\.txt"):
        await open_ledger(path).open()
    assert path.read_bytes().startswith(b"these are my notes")


async def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """The place is named."""
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerUnavailable, match="cannot make the ledger at"):
        await open_ledger(tmp_path / "file" / "l.db").open()


async def test_a_file_that_another_process_holds_does_not_hang_a_request(tmp_path: Path) -> None:
    """A write that cannot be made in time is an error; the ledger goes on when the lock is gone."""
    path = tmp_path / "l.db"
    async with open_ledger(path, limit=0.2) as ledger:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(LedgerUnavailable, match=r"did not answer within 0\.2 s"):
                await ledger.queue_run("r", b"")
            assert await ledger.get_run("r") is None  # reading goes on
            other.execute("ROLLBACK")
        while await ledger.get_run("s") is None:
            try:
                await ledger.queue_run("s", b"")
            except LedgerUnavailable:
                continue


async def test_the_file_is_the_owners_only(tmp_path: Path) -> None:
    """What was said is nobody else's business."""
    async with open_ledger(tmp_path / "new" / "l.db") as ledger:
        await ledger.queue_run("r", b"")
        files = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "new").iterdir()}
        assert files == {"l.db": 0o600, "l.db-wal": 0o600, "l.db-shm": 0o600}


async def test_damage_is_found(tmp_path: Path) -> None:
    """A check reads the whole file."""
    path = tmp_path / "l.db"
    async with open_ledger(path) as ledger:
        await ledger.start_run("r", b"", owner="o", lease=60)
        for number in range(50):
            await ledger.append("r", 1, [NewEvent(step=str(number), kind="e", data=b"x" * 2000)])
        await ledger.prune()  # the log is written back into the file
    damaged = bytearray(path.read_bytes())
    for start in range(9 * 4096, len(damaged), 4096):
        damaged[start : start + 64] = b"\xff" * 64
    path.write_bytes(damaged)
    try:
        async with open_ledger(path) as ledger:
            assert (await ledger.check()).problems != ()
    except LedgerBroken as error:
        assert "damaged" in error.message  # noqa: PT017  either place may notice first


async def test_what_its_caller_gave_up_is_not_written(tmp_path: Path) -> None:
    """A write that waited for another process, and whose caller left meanwhile, is not carried out."""
    async with open_ledger(tmp_path / "l.db", limit=0.2) as ledger:
        with closing(sqlite3.connect(tmp_path / "l.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(LedgerUnavailable):
                await ledger.queue_run("left", b"")
            other.execute("ROLLBACK")
        await asyncio.sleep(0.2)
        while True:
            try:
                await ledger.queue_run("stays", b"")
                break
            except LedgerUnavailable:  # a slow machine
                continue
        assert [run.id for run in await ledger.runs()] == ["stays"]


class FakeTime:
    """A clock that only sleeping moves."""

    def __init__(self, waited: list[float]) -> None:
        self._waited = waited

    def monotonic(self) -> float:
        """Return what was slept."""
        return sum(self._waited)

    def sleep(self, seconds: float) -> None:
        """Return at once."""
        self._waited.append(seconds)


class _Locked(sqlite3.Connection):
    """A connection that is told a few times that another one is switching the journal."""

    left = 3

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if "journal_mode" in sql and _Locked.left:
            _Locked.left -= 1
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error
        return super().execute(sql, *parameters)


async def test_two_that_make_it_at_once_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite refuses one of two that switch the journal of a new file at once; the ledger opens nevertheless."""
    connect = sqlite3.connect
    monkeypatch.setattr(_Locked, "left", 3)
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: connect(*args, **kwargs, factory=_Locked))
    async with open_ledger(tmp_path / "l.db") as ledger:
        assert _Locked.left == 0
        assert not await ledger.store.problems()
    monkeypatch.undo()
    with closing(sqlite3.connect(tmp_path / "l.db")) as made:
        assert made.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_a_file_that_stays_locked_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not asked for ever."""
    connect, waited = sqlite3.connect, []
    monkeypatch.setattr(_Locked, "left", 10**9)
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: connect(*args, **kwargs, factory=_Locked))
    monkeypatch.setattr("mustcall.ledger.stores.sqlite.time", FakeTime(waited))
    with pytest.raises(LedgerUnavailable, match="another process has held the ledger"):
        await open_ledger(tmp_path / "l.db").open()
    assert 8 < sum(waited) < 10


async def test_two_that_open_it_at_once_open_it_once(tmp_path: Path) -> None:
    """One ledger has one writer, and closing it ends that."""
    before = set(threading.enumerate())
    ledger = open_ledger(tmp_path / "l.db")
    await asyncio.gather(*(ledger.open() for _ in range(4)))
    await ledger.close()
    left = [thread.name for thread in set(threading.enumerate()) - before]
    assert not [name for name in left if name.startswith("mustcall-ledger")]
