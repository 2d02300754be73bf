"""One suite for both stores: every test that asks for `ledger` or `place` runs on a file and on a real PostgreSQL."""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from mustcall.ledger import Ledger, open_ledger
from support.postgres import place_for


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """Where a new ledger can be made."""
    with place_for(request.param, tmp_path) as given:
        yield given


@pytest.fixture
async def ledger(place: str) -> AsyncGenerator[Ledger]:
    """An open, empty ledger. How long its operations take is no matter: on a busy machine 200 at once take seconds."""
    async with open_ledger(place, limit=60.0) as opened:
        yield opened
