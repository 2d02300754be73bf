"""PostgreSQL for the tests: from the wheel, or an installed one, also as root."""

import tempfile
from pathlib import Path

import psycopg
import pytest

from support.postgres import PostgresServer, postgres_server


def test_an_installed_server_is_used_where_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """`MUSTCALL_TEST_POSTGRES` names its programs; root starts it as another user."""
    monkeypatch.setenv("MUSTCALL_TEST_POSTGRES", str(postgres_server().programs))
    server = PostgresServer(Path(tempfile.mkdtemp(prefix="mustcall-pg-")))
    try:
        with psycopg.connect(server.new_database()) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        server.remove()


def test_a_wrong_folder_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder without the server's programs is refused with the one that would do."""
    monkeypatch.setenv("MUSTCALL_TEST_POSTGRES", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no initdb there; name the folder of the server's programs"):
        PostgresServer(tmp_path)
