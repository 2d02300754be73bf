"""Writes the head of a request, and reads the URL it goes to. What would break the frame of HTTP is refused.

Where a request is framed (`content-length`, `transfer-encoding`, `connection`) is decided here and nowhere else: a call
that brings such a header is refused. A `host` of its own it may bring. Values leave as latin-1, which is how the
gateway reads its callers' headers, so that they arrive as they came; what has no latin-1 form leaves as UTF-8.
"""

import re
import string
from base64 import b64encode
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from mustcall.upstream.seam import UpstreamCall

__all__ = ["FRAMING", "RequestTarget", "UnusableUrl", "Unwritable", "read_url", "write_head"]

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HOST = re.compile(r"[0-9A-Za-z._~%:-]+")
_METHODS = frozenset({"GET", "HEAD", "POST"})
#: Methods that have no body unless one is given.
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
#: Headers that the transport writes itself.
FRAMING = frozenset(
    {"connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
_PORTS = {"http": 80, "https": 443}
_VISIBLE = string.ascii_letters + string.digits + string.punctuation

#: Names that are fit for a head and not the host's: those that most heads are made of. Any other is its sender's own
#: word and is looked at each time.
_FIT = frozenset(
    {
        *("accept", "accept-encoding", "anthropic-beta", "anthropic-version", "authorization", "content-type"),
        *("idempotency-key", "openai-beta", "openai-organization", "openai-project", "traceparent", "tracestate"),
        *("user-agent", "x-api-key", "x-request-id"),
    }
)


class UnusableUrl(ValueError):
    """A URL that no request can be sent to."""


class Unwritable(ValueError):
    """A request that cannot be written; the text says what of it, and never a value."""


class RequestTarget(NamedTuple):
    """A URL, as a request needs it. `host_line`, `authorization` and `proxy_line` are header lines with their ends."""

    tls: bool
    host: str
    port: int
    target: str
    host_line: str
    authorization: str
    proxy_line: str = ""


def read_url(url: str) -> RequestTarget:
    """Take a URL apart; raise `UnusableUrl` for what is none, or not http(s)."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port
        if not host.isascii():
            host = host.encode("idna").decode()
    except ValueError:
        raise UnusableUrl from None
    if parts.scheme not in _PORTS or not _HOST.fullmatch(host) or port == 0:
        raise UnusableUrl
    shown = f"[{host}]" if ":" in host else host
    if port is not None and port != _PORTS[parts.scheme]:
        shown = f"{shown}:{port}"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    authorization = ""
    if parts.username or parts.password:
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        authorization = f"Authorization: Basic {b64encode(pair.encode()).decode()}\r\n"
    return RequestTarget(
        tls=parts.scheme == "https",
        host=host,
        port=port or _PORTS[parts.scheme],
        target=quote(target, safe=_VISIBLE),
        host_line=f"Host: {shown}\r\n",
        authorization=authorization,
    )


def write_head(call: UpstreamCall, to: RequestTarget) -> bytes:
    """Return the head of a request, up to and with the empty line; raise `Unwritable` for one that has no form."""
    headers, method, body = call.headers, call.method, call.body
    host_line = to.host_line
    if not headers.keys() <= _FIT and _check_names(headers):
        host_line = ""
    if method not in _METHODS and not _TOKEN.fullmatch(method):
        raise Unwritable("its method is not a word")
    if to.authorization and any(name.lower() == "authorization" for name in headers):
        raise Unwritable("its URL holds a user, and its headers an authorization; take one of them away")
    length = ""
    if body is not None:
        length = f"Content-Length: {len(body)}\r\n"
    elif method not in _BODILESS:
        length = "Content-Length: 0\r\n"
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    # A line break within a value is one more than there are headers: one look at the whole finds it.
    count = len(headers)
    if lines.count("\n") != count or lines.count("\r") != count or "\0" in lines:
        raise Unwritable(f"the value of its header {_unfit(headers)} holds a line break or a NUL")
    head = f"{method} {to.target} HTTP/1.1\r\n{host_line}{to.authorization}{to.proxy_line}{lines}{length}\r\n"
    try:
        return head.encode("latin-1")
    except UnicodeEncodeError:
        first = f"{method} {to.target} HTTP/1.1\r\n{host_line}{to.authorization}{to.proxy_line}"
        return b"".join(
            [
                first.encode(),
                *[_encode(f"{name}: {value}\r\n") for name, value in headers.items()],
                f"{length}\r\n".encode(),
            ]
        )


def _check_names(headers: Mapping[str, str]) -> bool:
    """Raise `Unwritable` for a name that has no place in a head; return whether one of them is the host."""
    has_host = False
    for name in headers:
        lower = name.lower()
        if not _TOKEN.fullmatch(name):
            raise Unwritable("the name of one of its headers is not a word")
        if lower in FRAMING:
            raise Unwritable(f"its header {lower} is the transport's own; take it out of the upstream's headers")
        if lower == "host":
            has_host = True  # and is not among the fit, so that it is always found here
    return has_host


def _unfit(headers: Mapping[str, str]) -> str:
    """Return the name of the first header with a value that breaks the frame."""
    return next((name for name, value in headers.items() if set(value) & set("\r\n\0")), "")


def _encode(line: str) -> bytes:
    try:
        return line.encode("latin-1")
    except UnicodeEncodeError:
        return line.encode("utf-8", "replace")
