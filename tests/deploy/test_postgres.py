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


def test_a_lent_database_comes_back_empty() -> None:
    """Whatever a test made in it is gone, and whoever still asks it is sent away; the next test gets the same one."""
    server = postgres_server()
    with server.lend_database() as url:
        left = psycopg.connect(url, autocommit=True)
        left.execute("CREATE TABLE a (x int)")
        left.execute('CREATE SCHEMA "it\'s"')
        left.execute('CREATE TABLE "it\'s".b (x int)')
        left.execute("SELECT pg_advisory_lock(1)")
    with pytest.raises(psycopg.OperationalError):
        left.execute("SELECT 1")
    left.close()
    with server.lend_database() as again, psycopg.connect(again) as connection:
        assert again == url
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname !~ '^pg_|^information_schema'")
        assert tables.fetchone() == (0,)
        assert connection.execute("SELECT pg_try_advisory_lock(1)").fetchone() == (True,)
        connection.execute("CREATE TABLE a (x int)")
