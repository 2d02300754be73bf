"""One suite for both stores: every test that asks for `ledger` or `place` runs on a file and on a real PostgreSQL."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from mustcall.ledger import Ledger, open_ledger
from support.postgres import postgres_server


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new ledger can be made."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    return postgres_server().new_database()


@pytest.fixture
async def ledger(place: str) -> AsyncGenerator[Ledger]:
    """An open, empty ledger. How long its operations take is no matter: on a busy machine 200 at once take seconds."""
    async with open_ledger(place, limit=60.0) as opened:
        yield opened
