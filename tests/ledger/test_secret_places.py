"""The address of a database is shown without user, password and options, however it is written."""

import logging
import re

import pytest

from mustcall.core.errors import ConfigError, LedgerError
from mustcall.ledger import open_ledger, shown_place
from mustcall.ledger.stores.postgres import PostgresStore
from support.postgres import postgres_server

#: Parts of an address that nobody may see.
SECRETS = ("sekret", "hidden", "anna", "tail")
#: Passwords that a URL must encode, and that people write as they are.
RAW = (
    "sek#ret",
    "sek?ret",
    "sek/ret",
    "sek%ret",
    "sek ret",
    "sek[ret",
    "sek]ret",
    "sek@ret",
    "sek:ret",
    "sek\tret",
    "12?x",
)
HIDDEN = "postgresql://…"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://anna:sekret@db:5432/x?sslmode=require", "postgresql://db:5432/x"),
        ("postgres://anna:sek%23ret@db.example/my_base-1", "postgres://db.example/my_base-1"),
        ("postgresql://anna:sekret@[::1]:5432/x", "postgresql://[::1]:5432/x"),
        ("postgresql://anna:sekret@one:1,two:2/x", "postgresql://one:1,two:2/x"),
        ("postgresql:///x?host=/tmp&password=sekret", "postgresql:///x"),
        ("postgresql://db", "postgresql://db"),
        ("postgresql://", "postgresql://"),
        *((f"postgresql://anna:{raw}@db/x", HIDDEN) for raw in RAW if raw != "sek:ret"),
        ("postgresql://db/x?password=a@tail", HIDDEN),
        ("postgresql://db/x#tail", HIDDEN),
        ("postgresql://db/x/tail", HIDDEN),
        ("postgresql://db:tail/x", HIDDEN),
    ],
)
def test_what_is_shown_of_an_address(url: str, shown: str) -> None:
    """Host, port and database, or no part at all where a URL can be read in two ways."""
    assert shown_place(url) == PostgresStore(url).place == shown


@pytest.mark.parametrize(
    "url",
    [
        *(f"postgresql://anna:{raw}tail@127.0.0.1:1/x" for raw in RAW),
        "postgresql://anna:sekret@[::1/hidden",
        "postgresql://anna:sekret@127.0.0.1:hidden/x",
        "postgresql://anna:sekret@127.0.0.1:99999/x",
        "postgresql://anna:sekret@127.0.0.1:1/x?sslmode=hidden",
        "postgresql://anna:sekret@127.0.0.1:1/x?hidden=1",
        "postgresql://anna:sekret@127.0.0.1:1/x?hidden",
        "postgresql://anna:sekret@127.0.0.1:1/x?connect_timeout=hidden",
        "postgresql://anna:sekret@/x?host=hidden.invalid",
        "postgresql://anna:sekret@" + "h" * 70 + ".invalid/x",
        "postgresql://anna:sekret@127.0.0.1:1/x?password=%zz",
        "postgresql://anna:sek%00ret@127.0.0.1:1/x",
    ],
)
async def test_a_url_that_does_not_connect(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is one typed error of one line that quotes no part of user, password and options; nothing else is logged."""
    with caplog.at_level(logging.DEBUG), pytest.raises(LedgerError) as caught:
        await open_ledger(url).open()
    said = caught.value.message + caplog.text
    assert not [secret for secret in (*SECRETS, *RAW, "sek") if secret in said]
    assert "\n" not in caught.value.message
    assert "postgresql://" in caught.value.message


async def test_a_wrong_user_and_database() -> None:
    """The server's words name the user; ours say what is refused without it."""
    server = postgres_server()
    host = server.new_database().rpartition("@")[2]
    with pytest.raises(LedgerError) as caught:
        await open_ledger(f"postgresql://anna:sekret@{host}").open()
    assert "anna" not in caught.value.message
    assert "user" in caught.value.message


async def test_the_pool_logs_no_part_of_an_address(caplog: pytest.LogCaptureFixture) -> None:
    """A connection that the pool cannot make again is told by the type of its error."""
    ledger = open_ledger(postgres_server().new_database())
    async with ledger:
        quoting = OSError('authentication failed for user "anna"')
        logging.getLogger("psycopg.pool").warning("error connecting in %r: %s", "pool-1", quoting)
    assert "error connecting in 'pool-1': OSError" in caplog.text
    assert "anna" not in caplog.text


@pytest.mark.parametrize(
    "place", ["postgresql:/anna:sekret@db/x", "Postgres:anna:sekret@db", "host=db password=sekret", "dbname = x"]
)
def test_what_is_almost_an_address_is_no_file(place: str) -> None:
    """A misspelt URL, or a connection string, is refused unseen rather than made into a file of that name."""
    with pytest.raises(ConfigError, match=re.escape("a file or a postgresql:// URL")) as caught:
        open_ledger(place)
    assert "sekret" not in caught.value.message
