"""The address of a database: what of it may be shown, and what its driver says of it without its secrets.

An address is shown as host, port and database where it can be read in one way only, else not at all: libpq takes `#`
and `?` before an `@` for parts of a password, RFC 3986 does not.
"""

import re
from urllib.parse import unquote

__all__ = ["HIDDEN", "UNREADABLE", "plain_words", "shown_address"]

#: What is shown of an address that cannot be read in one way only.
HIDDEN = "postgresql://…"

#: What is said of an address that the driver cannot read.
UNREADABLE = (
    "the URL cannot be read: write special characters of user and password as %23 (#), %2F (/), %3F (?), %40 (@), "
    "%25 (%), and check the port and the options"
)

_HOST = r"(?:[A-Za-z0-9._~-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
_URL = re.compile(
    r"(?P<scheme>postgres(?:ql)?://)"
    r"(?:(?P<user>(?:[A-Za-z0-9._~!$&'*+,;=:()-]|%[0-9A-Fa-f]{2})*)@)?"
    rf"(?P<place>{_HOST}(?:,{_HOST})*(?:/[A-Za-z0-9._~-]*)?)"
    r"(?:\?(?P<options>[^@#\s]*))?"
)

#: Why a connection failed, by what libpq and the server say. Their own words quote user, database and options.
_FAILURES = (
    (re.compile(r"authentication failed"), "the user or the password is refused"),
    (re.compile(r"no password supplied|password required"), "the server wants a password"),
    (re.compile(r'role ".*" does not exist'), "the user does not exist"),
    (re.compile(r'database ".*" does not exist'), "the database does not exist"),
    (re.compile(r"no pg_hba\.conf entry|pg_hba\.conf rejects"), "pg_hba.conf does not admit this user and host"),
    (re.compile(r"too many (?:clients|connections)|remaining connection slots"), "the server has no connection left"),
    (re.compile(r"starting up|recovery mode"), "the server is starting"),
    (re.compile(r"shutting down|terminating connection"), "the server is shutting down"),
    (re.compile(r"[Cc]onnection refused"), "connection refused"),
    (re.compile(r"translate host name|resolve host|[Nn]ame or service|nodename"), "the host name is not found"),
    (re.compile(r"unreachable|No route to host"), "the host is not reachable"),
    (re.compile(r"timeout|timed out"), "no answer in time"),
    (re.compile(r"No such file"), "no server listens on that socket"),
    (re.compile(r"closed the connection|connection is (?:lost|closed)|reset by peer"), "the connection was lost"),
    (re.compile(r"\binvalid\b"), UNREADABLE),
    (re.compile(r"SSL|certificate"), "TLS failed; check sslmode and the certificates"),
)


def shown_address(url: str) -> str:
    """Return an address without user, password and options; `HIDDEN` where these cannot be told apart for sure."""
    found = _URL.fullmatch(url)
    return HIDDEN if found is None else found["scheme"] + found["place"]


def plain_words(error: Exception, url: str) -> str:
    """Return what a driver's error says, in one line without a part of the address that is not shown.

    The server's words about a statement stay, with the secret parts masked. Words about the connection are replaced.
    """
    sqlstate: str | None = getattr(error, "sqlstate", None)
    if sqlstate is None:
        said = str(error)
        return next((words for sign, words in _FAILURES if sign.search(said)), type(error).__name__)
    name = f"{type(error).__name__} ({sqlstate})"
    found = _URL.fullmatch(url)
    diagnosis = getattr(error, "diag", None)
    said: str | None = getattr(diagnosis, "message_primary", None)
    if found is None or not said:
        return name
    for part in re.split(r"[:&=]", f"{found['user'] or ''}&{found['options'] or ''}"):
        for secret in {part, unquote(part)} - {""}:
            said = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "…", said)
    return f"{name}: {said.splitlines()[0]}"
