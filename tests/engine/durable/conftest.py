"""One suite for both stores: every test that asks for `place` runs on a file and on a real PostgreSQL."""

from pathlib import Path

import pytest

from support.postgres import postgres_server


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new ledger can be made."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    return postgres_server().new_database()
