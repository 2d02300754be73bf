"""Which ledger is meant: a path, a URL, or the default file in the user's state directory."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from mustcall.core.errors import ConfigError
from mustcall.ledger.encrypting import read_cipher
from mustcall.ledger.ledger import LIMIT, Ledger
from mustcall.ledger.stores.postgres import PostgresStore
from mustcall.ledger.stores.sqlite import SqliteStore
from mustcall.ledger.values import ContentsKept

__all__ = [
    "OFF",
    "default_contents",
    "default_place",
    "differing",
    "named_place",
    "open_ledger",
    "read_contents",
    "shown_place",
]

#: The word for no ledger at all.
OFF = "off"
_POSTGRES = ("postgresql://", "postgres://")
#: SQLite's word for a database that only one connection sees, and that ends with it.
_MEMORY = ":memory:"
#: A misspelt URL and libpq's other form of an address: no file is to be made of the password in it.
_ALMOST_URL = re.compile(r"postgres(?:ql)?:|(?:.*\s)?(?:host|user|password|dbname)\s*=", re.IGNORECASE | re.DOTALL)


def differing(names: Iterable[str]) -> str:
    """Return the words for variables that mean the same setting and differ; their values may hold passwords."""
    return f"{' and '.join(names)} mean the same setting and differ; unset one of them"


def named_place(env: Mapping[str, str]) -> str | None:
    """Return where MUSTCALL_LEDGER says the ledger is, MUSTCALL_LEDGER_PLACE for long; None where both are empty."""
    said = {name: env[name] for name in ("MUSTCALL_LEDGER", "MUSTCALL_LEDGER_PLACE") if env.get(name)}
    if len(set(said.values())) > 1:
        raise ConfigError(differing(said))
    return next(iter(said.values()), None)


def default_place(environment: Mapping[str, str] | None = None) -> str:
    """Return where the ledger is if nobody says: MUSTCALL_LEDGER, DATABASE_URL, else a file in the state directory."""
    env = os.environ if environment is None else environment
    named = named_place(env)
    if named is not None:
        return named
    shared = env.get("DATABASE_URL") or ""
    if shared.startswith(_POSTGRES):
        return shared
    state = env.get("XDG_STATE_HOME") or ""
    base = Path(state) if state.startswith("/") else Path(env.get("HOME") or Path.home()) / ".local" / "state"
    return str(base / "mustcall" / "ledger.db")


def shown_place(place: str) -> str:
    """Return a place as it may be shown: an address without user, password and options."""
    return open_ledger(place).store.place


def default_contents(environment: Mapping[str, str] | None = None) -> ContentsKept:
    """Return what is kept of what was said if nobody says: MUSTCALL_LEDGER_CONTENTS, else everything."""
    env = os.environ if environment is None else environment
    return read_contents(env.get("MUSTCALL_LEDGER_CONTENTS") or ContentsKept.FULL, "MUSTCALL_LEDGER_CONTENTS")


def read_contents(word: str, name: str = "contents") -> ContentsKept:
    """Return which contents a word means; raise `ConfigError` for another one."""
    try:
        return ContentsKept(word)
    except ValueError:
        raise ConfigError(f"{name} must be one of {', '.join(ContentsKept)}, got {word!r}") from None


def open_ledger(
    place: str | Path | None = None, *, contents: ContentsKept | None = None, limit: float = LIMIT, make: bool = True
) -> Ledger:
    """Return the ledger at a path or a `postgresql://` URL; it is opened by `async with` or `open()`.

    Without `contents` it is MUSTCALL_LEDGER_CONTENTS, else everything. `make` says whether a file may be made. Stored
    responses are encrypted with MUSTCALL_LEDGER_KEY, if there is one.
    """
    where = str(place) if place is not None else default_place()
    contents = default_contents() if contents is None else contents
    cipher = read_cipher()
    if where.startswith(_POSTGRES):
        return Ledger(PostgresStore(where), contents=contents, limit=limit, cipher=cipher)
    path = where.removeprefix("sqlite:///") if where.startswith("sqlite:///") else where
    if "://" in path:
        scheme = path.partition("://")[0]
        raise ConfigError(f"a ledger is a file or a postgresql:// URL, not {scheme}://")
    if path == _MEMORY:
        raise ConfigError(
            "a ledger in memory keeps nothing; give the path of a file, such as one in a temporary folder"
        )
    if _ALMOST_URL.match(path):
        raise ConfigError(
            "a ledger is a file or a postgresql:// URL; this is neither (it is not shown: keys may be in it)"
        )
    if not path or path == OFF:
        raise ConfigError("no ledger is named: give a path or a postgresql:// URL")
    return Ledger(SqliteStore(Path(path).expanduser(), make=make), contents=contents, limit=limit, cipher=cipher)
