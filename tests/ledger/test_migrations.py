"""Tables: the first form opens with the last version, a newer one is refused, many may open at once."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import psycopg
import pytest

from mustcall.core.errors import LedgerMismatch
from mustcall.ledger import open_ledger
from mustcall.ledger.stores import migrations
from mustcall.ledger.stores.migrations import MIGRATIONS, TABLES, Migration

#: The checksums of the steps that have been released. A step is never changed; a new one is added here.
RELEASED = {
    "0001_journal": "a5e670108b73f5b4",
    "0002_responses": "e43fd48bbd982614",
    "0003_turns": "365dc09b58b55b4c",
    "0004_shared": "02c8c70f53bd9d64",
    "0005_holders": "f61a31918083aab8",
    "0006_tallies": "dd46e811b60ecf6e",
    "0007_learnt_by_tenant": "9d7da78e3fee7a75",
    "0008_attempt_contents": "dcde0e27553976c5",
    "0009_turn_facts": "0f0d7b0b3210f7dc",
    "0010_transport_retries": "51a271b2cbf7d729",
    "0011_measured": "c3f5f49ea97b2511",
}


def execute(place: str, statement: str) -> Sequence[Sequence[Any]]:
    """Run one statement past the ledger."""
    if place.startswith("postgresql"):
        with psycopg.connect(place, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []
    with closing(sqlite3.connect(place, isolation_level=None)) as connection:
        return connection.execute(statement).fetchall()


def test_released_steps_never_change() -> None:
    """A database out there was made by these very statements."""
    assert {step.name: step.checksum for step in MIGRATIONS} == RELEASED


async def test_the_first_form_opens_with_the_last(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger made by the first step alone is brought up to date, and what it held is there."""
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", MIGRATIONS[:1])
        async with open_ledger(place) as first:
            await first.start_run("r", b"data", owner="a", lease=30)
    assert [row[0] for row in execute(place, "SELECT name FROM mustcall_migration")] == ["0001_journal"]
    for _ in range(2):
        async with open_ledger(place) as last:
            run = await last.get_run("r")
            assert run is not None
            assert (run.data, run.fence) == (b"data", 1)
            assert set((await last.check()).rows) == set(TABLES)
    applied = execute(place, "SELECT name, checksum FROM mustcall_migration ORDER BY number")
    assert [tuple(row) for row in applied] == [(step.name, step.checksum) for step in MIGRATIONS]


async def test_a_step_that_fails_leaves_nothing(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are applied together or not at all."""
    broken = Migration("0002_broken", ("CREATE TABLE mustcall_half (a TEXT)", "CREATE TABLE mustcall_run (a TEXT)"))
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", (MIGRATIONS[0], broken))
        with pytest.raises(Exception, match="already exists"):
            await open_ledger(place).open()
    async with open_ledger(place) as ledger:
        assert (await ledger.check()).problems == ()


async def test_a_newer_ledger_is_refused(place: str) -> None:
    """An older version does not touch what it does not know."""
    async with open_ledger(place):
        pass
    number = len(MIGRATIONS) + 1
    execute(place, f"INSERT INTO mustcall_migration VALUES ({number}, '9999_future', 'x', 0)")  # noqa: S608
    with pytest.raises(LedgerMismatch, match=r"newer than this version of mustcall .*9999_future.*upgrade"):
        await open_ledger(place).open()


async def test_a_ledger_of_another_build_is_refused(place: str) -> None:
    """A step with another checksum, or another name, is not ours."""
    async with open_ledger(place):
        pass
    execute(place, "UPDATE mustcall_migration SET checksum = 'other' WHERE number = 2")
    with pytest.raises(LedgerMismatch, match="another form of the step 0002_responses"):
        await open_ledger(place).open()
    execute(place, "UPDATE mustcall_migration SET name = 'else' WHERE number = 2")
    with pytest.raises(LedgerMismatch, match="'else' where this version has '0002_responses'"):
        await open_ledger(place).open()


async def test_many_may_open_a_new_ledger_at_once(place: str) -> None:
    """Replicas that start together make the tables once."""
    ledgers = [open_ledger(place, limit=60.0) for _ in range(6)]
    await asyncio.gather(*(ledger.open() for ledger in ledgers))
    for number, ledger in enumerate(ledgers):
        await ledger.queue_run(f"r{number}", b"")
    assert len(await ledgers[0].runs()) == 6
    await asyncio.gather(*(ledger.close() for ledger in ledgers))
