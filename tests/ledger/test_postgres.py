"""PostgreSQL that crashes under load, that is away, that is made for something else."""

import asyncio
from typing import Any

import pytest

from mustcall.core.errors import LedgerMismatch, LedgerUnavailable
from mustcall.ledger import NewEvent, open_ledger
from mustcall.ledger.stores import statements as sql
from mustcall.ledger.stores.postgres import PostgresStore
from mustcall.ledger.stores.program import Program, Statement, ask
from support.postgres import postgres_server


async def test_a_crash_under_load_loses_nothing_and_doubles_nothing() -> None:
    """The server is stopped without a word while eight runs are written, and comes back: every event is there once.

    In between requests are told quickly that the ledger is away.
    """
    server = postgres_server()
    async with open_ledger(server.new_database(), limit=3.0) as ledger:
        down = asyncio.Event()
        written: dict[str, int] = {}
        stop = asyncio.Event()

        async def client(name: str) -> None:
            await ledger.start_run(name, b"", owner=name, lease=600)
            again = False
            while not stop.is_set():
                step = written.setdefault(name, 0)
                try:
                    await ledger.append(name, 1, [NewEvent(step=str(step), kind="e", data=b"x")], again=again)
                except LedgerUnavailable:
                    down.set()
                    again = True
                    await asyncio.sleep(0.05)
                else:
                    again = False
                    written[name] = step + 1

        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(client(f"r{number}"))
            while sum(written.values()) < 80:  # noqa: ASYNC110  clients tell nobody
                await asyncio.sleep(0.01)
            await asyncio.to_thread(server.crash)
            await down.wait()
            before = dict(written)
            await asyncio.to_thread(server.start)
            while any(written[name] < before[name] + 3 for name in before):  # noqa: ASYNC110  as above
                await asyncio.sleep(0.01)
            stop.set()
        for name, count in written.items():
            steps = [int(event.step) for event in await ledger.events(name)]
            assert steps[:count] == list(range(count))
            assert len(steps) <= count + 1


async def test_a_server_that_is_not_there() -> None:
    """The start says where it looked, without the password."""
    ledger = open_ledger("postgresql://me:hunter2@/x?host=/tmp/no-such-folder-for-a-socket")
    with pytest.raises(LedgerUnavailable) as caught:
        await ledger.open()
    assert "hunter2" not in caught.value.message
    with pytest.raises(LedgerUnavailable, match="not open"):
        await ledger.get_run("r")


async def test_a_database_in_another_encoding_is_refused() -> None:
    """Only UTF8 holds every text."""
    with pytest.raises(LedgerMismatch, match="encoded in SQL_ASCII, the ledger needs UTF8"):
        await open_ledger(postgres_server().new_database("SQL_ASCII")).open()


async def test_a_statement_that_takes_too_long_is_no_absence() -> None:
    """A long operation may take its time, and one that is given up does not keep others from the database."""

    def sleep() -> Program[None]:
        yield from ask(Statement("SELECT 1", "SET LOCAL statement_timeout = '50ms'"))
        yield from ask(Statement("SELECT 1", "SELECT pg_sleep(5)"))

    store = PostgresStore(postgres_server().new_database())
    await store.open()
    try:
        shown = Statement("SELECT 1", "SHOW statement_timeout")
        assert await store.read(lambda _: ask(shown), limit=600) == [("10min",)]
        assert await store.read(lambda _: ask(shown), limit=5) == [("30s",)]
        with pytest.raises(LedgerUnavailable, match="canceling statement"):
            await store.read(lambda _: sleep(), limit=5)
        assert await store.read(lambda _: ask(sql.NOW), limit=5)
    finally:
        await store.close()


async def test_a_database_that_is_away_is_asked_by_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first request waits for a database that does not answer; it is used again as soon as it is back."""
    back = asyncio.Event()
    look = PostgresStore._look

    async def late(self: PostgresStore, pool: Any) -> None:
        await back.wait()
        await look(self, pool)

    monkeypatch.setattr(PostgresStore, "_look", late)
    store = PostgresStore(postgres_server().new_database())
    await store.open()
    try:
        with pytest.raises(LedgerUnavailable, match="in time"):
            await store.read(lambda _: ask(Statement("SELECT 1", "SELECT pg_sleep(5)")), limit=0.1)
        for _ in range(4):
            with pytest.raises(LedgerUnavailable, match="a moment ago"):
                await store.read(lambda _: ask(sql.NOW), limit=5)
            await asyncio.sleep(0.2)
        back.set()
        while True:
            await asyncio.sleep(0.05)
            try:
                assert await store.read(lambda _: ask(sql.NOW), limit=5)
                break
            except LedgerUnavailable:
                continue
    finally:
        await store.close()
