"""The ledger in one SQLite file: one writer thread that commits in groups, readers beside it.

WAL and `synchronous=FULL`: what was committed survives a power cut. All writes of this process go through one
connection, so nothing waits for a lock except for another process; writes that come while a commit is under way share
the next one. A failed program is undone alone, a failed commit fails every program in it.
"""

import asyncio
import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from mustcall.core.errors import (
    LedgerBroken,
    LedgerError,
    LedgerFull,
    LedgerReadOnly,
    LedgerUnavailable,
)
from mustcall.ledger.stores import statements as sql
from mustcall.ledger.stores.migrations import missing
from mustcall.ledger.stores.program import AskMany, AskRows, LedgerStatement, Program, Rows
from mustcall.ledger.stores.securing import secured
from mustcall.ledger.stores.store import Maker

__all__ = ["SqliteStore"]

T = TypeVar("T")

#: The most programs that share one commit.
_GROUP = 512
_READERS = 2
#: Seconds another process may hold the file before this one gives up.
_BUSY = 10.0
_CLOSE_SECONDS = 10.0

#: Seconds between two attempts to switch a file's journal: SQLite does not wait there.
_AGAIN = 0.005
_JOURNAL = "PRAGMA journal_mode=WAL"
_SETTINGS = (
    "PRAGMA synchronous=FULL",
    "PRAGMA fullfsync=ON",  # macOS: an fsync that reaches the disk
    "PRAGMA checkpoint_fullfsync=ON",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA journal_size_limit=67108864",
)

#: What SQLite says when a file cannot grow.
_NO_ROOM = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_IOERR_FSYNC,
        sqlite3.SQLITE_IOERR_TRUNCATE,
        sqlite3.SQLITE_IOERR_SHMSIZE,
    }
)


class _Job:
    """A program on its way to the writer, and the loop that waits for it."""

    __slots__ = ("begun", "error", "future", "loop", "make", "value")

    def __init__(self, make: Callable[[bool], Program[Any]], loop: asyncio.AbstractEventLoop) -> None:
        self.make = make
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.begun = False
        self.value: Any = None
        self.error: BaseException | None = None


class SqliteStore:
    """One file. It may be used from any loop, and by several processes at once."""

    kind = "sqlite"
    threaded = True

    def __init__(self, path: Path, *, make: bool = True) -> None:
        self._path = path
        self._make = make
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._guard = threading.Lock()

    @property
    def place(self) -> str:
        """The file's path."""
        return str(self._path)

    async def open(self) -> None:
        """Open the file, make it if it is not there, and bring its tables up to date."""
        if self._writer is not None:
            return
        connection = await asyncio.to_thread(self._open_for_writing)
        with self._guard:
            if self._writer is not None:  # somebody else opened it meanwhile
                connection.close()
                return
            self._writer = threading.Thread(target=self._work, args=(connection,), name="mustcall-ledger", daemon=True)
            self._writer.start()
            self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="mustcall-ledger-reader")

    async def close(self) -> None:
        """Write what is waiting, then close."""
        writer, readers = self._writer, self._readers
        if writer is None or readers is None:
            return
        self._writer = self._readers = None
        self._jobs.put(None)
        await asyncio.to_thread(writer.join, _CLOSE_SECONDS)
        await asyncio.to_thread(readers.shutdown)
        with self._guard:
            for connection in self._connections:
                connection.close()
            self._connections.clear()

    async def write(self, make: Maker[T], *, limit: float) -> T:
        """Run a program in the writer thread; return when its commit is on the disk."""
        if self._writer is None:
            raise LedgerUnavailable(f"the ledger at {self.place} is not open")
        job = _Job(make, asyncio.get_running_loop())
        self._jobs.put(job)
        return await self._wait(job.future, limit)

    async def read(self, make: Maker[T], *, limit: float) -> T:
        """Run a program on a connection of its own."""
        if self._readers is None:
            raise LedgerUnavailable(f"the ledger at {self.place} is not open")
        loop = asyncio.get_running_loop()
        return await self._wait(loop.run_in_executor(self._readers, self._read, make), limit)

    async def problems(self) -> list[str]:
        """Let SQLite check the whole file."""
        assert self._readers is not None, "the ledger is open"
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._readers, self._check)
        return [] if found == ["ok"] else found

    async def shrink(self) -> None:
        """Write the log back into the file and empty it."""
        assert self._readers is not None, "the ledger is open"
        await asyncio.get_running_loop().run_in_executor(self._readers, self._checkpoint)

    async def _wait(self, future: "asyncio.Future[T]", limit: float) -> T:
        try:
            async with asyncio.timeout(limit):
                return await future
        except TimeoutError:
            raise LedgerUnavailable(f"the ledger at {self.place} did not answer within {limit:g} s") from None

    # What follows runs in threads.

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
        try:
            _switch_journal(connection)
            for setting in _SETTINGS:
                connection.execute(setting)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_for_writing(self) -> sqlite3.Connection:
        if not self._make and not self._path.exists():
            raise LedgerUnavailable(
                f"there is no ledger at {self.place}; `mustcall serve` (without --demo) and durable runs make one"
            )
        try:
            with contextlib.ExitStack() as undo:
                with secured(self._path):
                    connection = self._connect()
                    undo.callback(connection.close)
                undo.pop_all()
        except OSError as error:
            raise LedgerUnavailable(f"cannot make the ledger at {self.place}: {error.strerror}") from None
        except sqlite3.Error as error:
            raise self._typed(error) from None
        try:
            self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Apply the steps that are missing, one process at a time. A ledger that is up to date is only read."""
        try:
            listed = "SELECT name FROM sqlite_master WHERE name = 'mustcall_migration'"
            if connection.execute(listed).fetchone() is not None:
                applied = connection.execute(sql.MIGRATIONS_LIST.sqlite).fetchall()
                if not missing(applied, self.place):
                    connection.execute("BEGIN IMMEDIATE")  # a file that cannot be written is found now
                    connection.execute("ROLLBACK")
                    return
            connection.execute("BEGIN EXCLUSIVE")
            try:
                connection.execute(sql.MIGRATIONS_MAKE.sqlite)
                applied = connection.execute(sql.MIGRATIONS_LIST.sqlite).fetchall()
                for number, step in enumerate(missing(applied, self.place), len(applied) + 1):
                    for statement in step.parsed():
                        connection.execute(statement.sqlite)
                    values = {"number": number, "name": step.name, "checksum": step.checksum}
                    connection.execute(sql.MIGRATION_NOTE.sqlite, values)
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise self._typed(error) from None

    def _work(self, connection: sqlite3.Connection) -> None:
        """Take jobs until told to stop: all that wait share one commit."""
        stopping = False
        while not stopping:
            job = self._jobs.get()
            if job is None:
                break
            jobs = [job]
            while len(jobs) < _GROUP:
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    break
                if job is None:
                    stopping = True
                    break
                jobs.append(job)
            self._commit(connection, [job for job in jobs if not job.future.cancelled()])
            _deliver(jobs)
        with contextlib.suppress(sqlite3.Error):
            connection.execute("PRAGMA optimize")
        connection.close()

    def _commit(self, connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        if not jobs:
            return
        try:
            connection.execute("BEGIN IMMEDIATE")
            for job in jobs:
                if not job.future.cancelled():  # its caller may have left while another process held the file
                    self._attempt(connection, job)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            problem = self._typed(error)
            for job in jobs:
                job.error = job.error or problem
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _attempt(self, connection: sqlite3.Connection, job: _Job) -> None:
        """Run one program inside the common transaction; undo it alone if it fails."""
        connection.execute("SAVEPOINT job")
        try:
            job.value = _run(connection, job.make(False))
        except sqlite3.Error as error:
            if not connection.in_transaction:
                raise  # SQLite gave up the whole transaction: the disk is full, or worse
            job.error = self._typed(error)
        except Exception as error:  # noqa: BLE001  the program's own: its caller gets it, the thread goes on
            job.error = error
        if job.error is not None:
            connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")

    def _read(self, make: Maker[T]) -> T:
        connection = self._reader()
        try:
            connection.execute("BEGIN")
            try:
                return _run(connection, make(False))
            finally:
                if connection.in_transaction:
                    connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._typed(error) from None

    def _reader(self) -> sqlite3.Connection:
        """Return this thread's connection."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            try:
                connection = self._connect()
                connection.execute("PRAGMA query_only=ON")
            except sqlite3.Error as error:
                raise self._typed(error) from None
            self._local.connection = connection
            with self._guard:
                self._connections.append(connection)
        return connection

    def _check(self) -> list[str]:
        try:
            return [row[0] for row in self._reader().execute("PRAGMA integrity_check")]
        except sqlite3.Error as error:
            return [str(error)]

    def _checkpoint(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._reader().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _typed(self, error: sqlite3.Error) -> LedgerError:
        """Return the error as one of ours, by SQLite's own code."""
        code: int = getattr(error, "sqlite_errorcode", 0) or 0
        said = f"{self.place}: {error}"
        if code in _NO_ROOM:
            return LedgerFull(f"no room to write the ledger at {said} (the disk is full, or the file may not grow)")
        match code & 0xFF:
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
                return LedgerReadOnly(f"the ledger may not be written at {said}")
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                return LedgerBroken(f"the file is damaged or is no ledger: {said}")
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return LedgerUnavailable(f"another process has held the ledger for over {_BUSY:g} s at {said}")
            case _:
                return LedgerUnavailable(f"the ledger failed at {said}")


def _switch_journal(connection: sqlite3.Connection) -> None:
    """Have the file keep a write-ahead log, as soon as no other connection is switching it, too.

    Of two that make a file at once, one is told at once that it is locked, whatever time it gave the connection.
    """
    until = time.monotonic() + 0.9 * _BUSY  # where it does wait, it has waited for longer
    while True:
        try:
            connection.execute(_JOURNAL)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(_AGAIN)
        else:
            return


def _run(connection: sqlite3.Connection, program: Program[T]) -> T:
    """Run a program on a connection."""
    try:
        asked = next(program)
        while True:
            asked = program.send([_answer(connection, one) for one in asked])
    except StopIteration as end:
        return end.value
    finally:
        program.close()


def _answer(connection: sqlite3.Connection, asked: LedgerStatement | AskMany | AskRows) -> Rows:
    if isinstance(asked, LedgerStatement):
        return connection.execute(asked.statement.sqlite, asked.values).fetchall()
    connection.executemany(asked.statement.sqlite, asked.rows)
    return []


def _deliver(jobs: list[_Job]) -> None:
    """Tell every loop about its jobs, each loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in jobs:
        loops.setdefault(job.loop, []).append(job)
    for loop, mine in loops.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, mine)


def _settle(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.value)
