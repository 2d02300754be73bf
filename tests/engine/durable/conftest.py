"""One suite for both stores: every test that asks for `place` runs on a file and on a real PostgreSQL."""

from collections.abc import Generator
from pathlib import Path

import pytest

from support.postgres import place_for


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """Where a new ledger can be made."""
    with place_for(request.param, tmp_path) as given:
        yield given
