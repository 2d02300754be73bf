"""The ledger in PostgreSQL, for many replicas: a small pool of connections on the running loop.

A write whose connection broke is tried again on another one, and its program is told so: what it finds already
written may be its own. A database that does not answer is left alone for a moment, so that requests in the meantime
are not kept waiting. psycopg is imported when a ledger is opened and not before.
"""

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from mustcall.core.errors import ConfigError, LedgerError, LedgerFull, LedgerMismatch, LedgerReadOnly, LedgerUnavailable
from mustcall.ledger.stores import statements as sql
from mustcall.ledger.stores.address import UNREADABLE, plain_words, shown_address
from mustcall.ledger.stores.migrations import missing
from mustcall.ledger.stores.program import AskMany, AskRows, LedgerStatement, Program, Rows
from mustcall.ledger.stores.store import Maker

if TYPE_CHECKING:
    from psycopg import AsyncConnection, AsyncCursor
    from psycopg_pool import AsyncConnectionPool

__all__ = ["PostgresStore"]

T = TypeVar("T")

_POOL_SIZE = 8
_CONNECT_SECONDS = 5
_OPEN_SECONDS = 10.0
_CLOSE_SECONDS = 5.0
#: Seconds a statement may take where nobody said otherwise.
_STATEMENT_SECONDS = 30.0
#: Seconds between two looks at a database that did not answer; nobody else asks it meanwhile.
_PROBE = 0.5
#: The advisory lock under which tables are made: an arbitrary number of ours.
_LOCK = int.from_bytes(hashlib.sha256(b"mustcall ledger").digest()[:7], "big")


class PostgresStore:
    """One database, used from one loop."""

    kind = "postgres"
    threaded = False

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool: AsyncConnectionPool[AsyncConnection[Sequence[Any]]] | None = None
        #: Looks whether a database that did not answer is back; None while it answers.
        self._probe: asyncio.Task[None] | None = None

    @property
    def place(self) -> str:
        """The database's address without user, password and options."""
        return shown_address(self._url)

    async def open(self) -> None:
        """Connect, check the encoding, and bring the tables up to date."""
        if self._pool is not None:
            return
        try:
            from psycopg import AsyncConnection, Error  # noqa: PLC0415  an extra, imported only if it is used
            from psycopg_pool import AsyncConnectionPool  # noqa: PLC0415  as above
        except ImportError:
            raise ConfigError(
                f"the ledger at {self.place} needs psycopg: pip install 'mustcall[postgres]', or use a file"
            ) from None
        logging.getLogger("psycopg.pool").addFilter(_hide_words)
        pool: AsyncConnectionPool[AsyncConnection[Sequence[Any]]] = AsyncConnectionPool(
            self._url,
            min_size=1,
            max_size=_POOL_SIZE,
            open=False,
            configure=_configure,
            kwargs={"autocommit": True, "connect_timeout": _CONNECT_SECONDS},
            reconnect_timeout=30.0,
        )
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                # By itself first: a pool would keep trying, and would not say what is wrong.
                connection = await AsyncConnection.connect(self._url, autocommit=True, connect_timeout=_CONNECT_SECONDS)
                async with connection:
                    await self._migrate(connection)
                await pool.open()
        except (Error, TimeoutError) as error:
            await pool.close(_CLOSE_SECONDS)
            raise self._typed(error) from None
        except (ValueError, OverflowError):  # a port or a host name that the socket library does not take
            await pool.close(_CLOSE_SECONDS)
            raise self._unreadable() from None
        except BaseException:
            await pool.close(_CLOSE_SECONDS)
            raise
        if self._pool is not None:  # somebody else opened it meanwhile
            await pool.close(_CLOSE_SECONDS)
            return
        self._pool = pool

    async def close(self) -> None:
        """Close every connection, within a time limit."""
        pool, self._pool = self._pool, None
        probe, self._probe = self._probe, None
        if probe is not None:
            probe.cancel()
        if pool is not None:
            await pool.close(_CLOSE_SECONDS)

    async def write(self, make: Maker[T], *, limit: float) -> T:
        """Run a program in one transaction; try again where a connection broke."""
        return await self._patiently(make, limit)

    async def read(self, make: Maker[T], *, limit: float) -> T:
        """Run a program that only reads."""
        return await self._patiently(make, limit)

    async def problems(self) -> list[str]:
        """PostgreSQL checks itself; only the answer counts here."""
        return []

    async def shrink(self) -> None:
        """PostgreSQL's own vacuum does this."""

    async def _patiently(self, make: Maker[T], limit: float) -> T:
        pool = self._pool
        if pool is None:
            raise LedgerUnavailable(f"the ledger at {self.place} is not open")
        if self._probe is not None:
            raise LedgerUnavailable(f"the ledger at {self.place} did not answer a moment ago")
        from psycopg import Error, OperationalError  # noqa: PLC0415  there by now

        lost = False
        try:
            async with asyncio.timeout(limit):
                for left in range(_POOL_SIZE, -1, -1):
                    try:
                        async with pool.connection() as connection:
                            return await _run(connection, make(lost), limit)
                    except OperationalError as error:
                        task = asyncio.current_task()
                        if task is not None and task.cancelling():  # which the driver told in its own words
                            raise asyncio.CancelledError from None
                        if not left or not _is_broken(error):
                            raise
                        lost = True  # other connections of the pool may be as dead as this one was
        except (Error, TimeoutError) as error:
            if self._probe is None and self._pool is pool and _is_away(error, limit):
                self._probe = asyncio.get_running_loop().create_task(self._look(pool))
            raise self._typed(error) from None
        raise AssertionError("the last try returns or raises")

    async def _look(self, pool: "AsyncConnectionPool[AsyncConnection[Sequence[Any]]]") -> None:
        """Ask the database for a sign of life until it gives one."""
        from psycopg import Error  # noqa: PLC0415  there by now

        while True:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS), pool.connection() as connection:
                    await connection.execute("SELECT 1")
            except (Error, TimeoutError, OSError):
                await asyncio.sleep(_PROBE)
            else:
                break
        self._probe = None

    async def _migrate(self, connection: "AsyncConnection[Sequence[Any]]") -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise LedgerMismatch(
                f"the database at {self.place} is encoded in {encoding}, the ledger needs UTF8: make "
                "one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
            )
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%(lock)s)", {"lock": _LOCK})
            await connection.execute(_text(sql.MIGRATIONS_MAKE.postgres))
            applied = await (await connection.execute(_text(sql.MIGRATIONS_LIST.postgres))).fetchall()
            pairs = [(str(name), str(checksum)) for name, checksum in applied]
            for number, step in enumerate(missing(pairs, self.place), len(pairs) + 1):
                for statement in step.parsed():
                    await connection.execute(_text(statement.postgres))
                values = {"number": number, "name": step.name, "checksum": step.checksum}
                await connection.execute(_text(sql.MIGRATION_NOTE.postgres), values)

    def _typed(self, error: Exception) -> LedgerError:
        """Return a database's error as one of ours."""
        from psycopg import InterfaceError, OperationalError, ProgrammingError, errors  # noqa: PLC0415  there by now
        from psycopg_pool import PoolTimeout  # noqa: PLC0415  as above

        if isinstance(error, TimeoutError | PoolTimeout):
            return LedgerUnavailable(f"the ledger at {self.place} did not answer in time")
        if isinstance(error, ProgrammingError) and error.sqlstate is None:
            return self._unreadable()
        said = f"{self.place}: {plain_words(error, self._url)}"
        if isinstance(error, errors.DiskFull):
            return LedgerFull(f"no room to write the ledger at {said}")
        if isinstance(error, errors.ReadOnlySqlTransaction | errors.InsufficientPrivilege):
            return LedgerReadOnly(f"the ledger may not be written at {said}")
        if isinstance(error, OperationalError | InterfaceError):
            return LedgerUnavailable(f"the ledger failed at {said}")
        return LedgerError(f"the ledger refused what it was asked at {said}")

    def _unreadable(self) -> LedgerError:
        return LedgerUnavailable(f"the ledger at {self.place} cannot be opened: {UNREADABLE}")


def _hide_words(record: logging.LogRecord) -> bool:
    """Let the pool log what failed, and not in words of the driver, which quote the address."""
    if isinstance(record.args, tuple):
        record.args = tuple([_named(each) for each in record.args])
        record.exc_info = record.exc_text = None
    return True


def _named(each: object) -> object:
    """Return a driver's object by its type: its text has user and options."""
    return type(each).__name__ if isinstance(each, Exception) or type(each).__module__.startswith("psycopg") else each


async def _configure(connection: "AsyncConnection[Sequence[Any]]") -> None:
    """Let the server itself give up what nobody waits for any more."""
    await connection.execute(_text(f"SET statement_timeout = '{_STATEMENT_SECONDS:g}s'"))
    # Whoever freezes in the middle of a write must not keep others from its rows; a write takes milliseconds, and one
    # that was undone by this is tried again.
    await connection.execute("SET idle_in_transaction_session_timeout = '3s'")


async def _run(connection: "AsyncConnection[Sequence[Any]]", program: Program[T], limit: float) -> T:
    """Run a program in a transaction of its own."""
    try:
        async with connection.transaction():
            if limit > _STATEMENT_SECONDS:
                await connection.execute(_text(f"SET LOCAL statement_timeout = '{limit:g}s'"))
            try:
                asked = next(program)
                while True:
                    asked = program.send(await _answers(connection, asked))
            except StopIteration as end:
                return end.value
    finally:
        program.close()


async def _answers(
    connection: "AsyncConnection[Sequence[Any]]", asked: Sequence[LedgerStatement | AskMany | AskRows]
) -> list[Rows]:
    """Send a batch at once and return the rows of each statement."""
    if len(asked) == 1:
        return [await _rows(await _send(connection, asked[0]))]
    async with connection.pipeline():
        cursors = [await _send(connection, one) for one in asked]
    return [await _rows(cursor) for cursor in cursors]


async def _send(
    connection: "AsyncConnection[Sequence[Any]]", asked: LedgerStatement | AskMany | AskRows
) -> "AsyncCursor[Sequence[Any]]":
    statement = _text(asked.statement.postgres)
    if isinstance(asked, LedgerStatement):
        return await connection.execute(statement, asked.values)
    rows = asked.rows
    if isinstance(asked, AskRows):
        rows = [dict(zip(asked.columns, row, strict=True)) for row in asked.rows]
    return await connection.execute(statement, {"rows": msgspec.json.encode(rows).decode()})


async def _rows(cursor: "AsyncCursor[Sequence[Any]]") -> Rows:
    return [] if cursor.description is None else await cursor.fetchall()


def _text(statement: str) -> bytes:
    """Return a statement as psycopg takes text that is no literal of the program."""
    return statement.encode()


def _is_away(error: Exception, limit: float) -> bool:
    """Tell a database that does not answer from one that gave something up, or was asked for a great deal."""
    from psycopg import OperationalError  # noqa: PLC0415  there by now

    if isinstance(error, TimeoutError):
        return limit <= _STATEMENT_SECONDS
    return isinstance(error, OperationalError) and _is_broken(error)


def _is_broken(error: BaseException) -> bool:
    """Tell whether a connection, rather than a statement, failed."""
    from psycopg import errors  # noqa: PLC0415  there by now

    sqlstate: str | None = getattr(error, "sqlstate", None)
    return sqlstate is None or isinstance(
        error, errors.AdminShutdown | errors.CrashShutdown | errors.CannotConnectNow | errors.ConnectionFailure
    )
