"""Who may see the page: everybody on a loopback address without keys, else those who gave a key the gateway accepts.

A key is exchanged for a cookie that says until when it holds and whose it is, signed with what only the accepted keys
give. So all workers and replicas accept it, a key that is taken away takes its cookies with it, and the key itself is
in no cookie. Who only reads needs the cookie; who changes something needs a token beside it that other sites cannot
read, and requests of other sites are refused whatever they carry.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

import msgspec

from mustcall.core.errors import ForeignOrigin, Unauthorized
from mustcall.gateway.config.settings import Settings
from mustcall.gateway.connections.hosts import is_local
from mustcall.gateway.state.conversation_state import tenant_of_key

__all__ = ["LONGEST_VISIT", "Lock", "Visitor", "check_site", "cookie_name", "read_cookie", "write_cookie"]

#: Seconds after which a key has to be given again.
LONGEST_VISIT = 12 * 3600
#: In place of a tenant in the cookie of somebody who gave no key.
_NOBODY = "-"
_NOT_REACHABLE = (
    "the page is served on loopback addresses only, unless the gateway asks for keys: set MUSTCALL_CLIENT_KEYS, or "
    "listen on 127.0.0.1"
)


class Visitor(msgspec.Struct, frozen=True):
    """Who looks at the page. `admitted`: may see turns; `tenant`: whose, empty for all."""

    cookie: str
    admitted: bool
    tenant: str = ""
    #: Whether the cookie has to be sent: there was none, or none that holds.
    new: bool = False


class Lock:
    """The lock of one configuration."""

    def __init__(self, settings: Settings) -> None:
        self.keys = settings.client_keys
        self.asks_for_key = bool(self.keys)
        self._open = not self.keys and is_local(settings.server.host)
        # Costly on purpose: who has a cookie must not find a weak key by trying.
        joined = "\0".join(sorted(self.keys)).encode("utf-8", "surrogateescape")
        self._secret = hashlib.scrypt(joined, salt=b"mustcall ui", n=2**14, r=8, p=1) if self.keys else b""

    @property
    def refusal(self) -> str | None:
        """Why nobody can be let in, None where somebody can."""
        return None if self._open or self.asks_for_key else _NOT_REACHABLE

    def visitor(self, cookie: str | None, now: float) -> Visitor:
        """Return who sent a cookie; somebody new where it does not hold."""
        tenant = None if cookie is None else self._read(cookie, now)
        if cookie is None or tenant is None:
            return Visitor(self._write(_NOBODY, now), self._open, new=True)
        if not self.asks_for_key:
            return Visitor(cookie, self._open)
        own = tenant if len(self.keys) > 1 else ""
        return Visitor(cookie, tenant != _NOBODY, own if tenant != _NOBODY else "")

    def admit(self, key: str, now: float) -> Visitor:
        """Return the visitor that a key makes; raise `Unauthorized` for a wrong one."""
        given = key.encode("utf-8", "surrogateescape")
        matches = [hmac.compare_digest(given, accepted.encode("utf-8", "surrogateescape")) for accepted in self.keys]
        if not any(matches):
            raise Unauthorized("the key is not one this gateway accepts")
        tenant = tenant_of_key(key)
        return Visitor(self._write(tenant, now), admitted=True, tenant=tenant if len(self.keys) > 1 else "", new=True)

    def leave(self, now: float) -> Visitor:
        """Return a visitor who gave no key."""
        return Visitor(self._write(_NOBODY, now), self._open, new=True)

    def token(self, visitor: Visitor) -> str:
        """Return the token that this visitor sends with whatever changes something."""
        return self._sign(f"token {visitor.cookie}")

    def check_token(self, visitor: Visitor, token: str | None) -> None:
        """Raise `ForeignOrigin` unless the token is this visitor's."""
        if token is None or not hmac.compare_digest(token.encode(), self.token(visitor).encode()):
            raise ForeignOrigin("the token of this page (x-csrf-token) is missing or has expired; reload the page")

    def _write(self, tenant: str, now: float) -> str:
        said = f"{int(now) + LONGEST_VISIT}.{secrets.token_urlsafe(18)}.{tenant}"
        return f"{said}.{self._sign(said)}"

    def _read(self, cookie: str, now: float) -> str | None:
        """Return the tenant of a cookie, None if it does not hold."""
        said, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign(said).encode()):
            return None
        until, _, rest = said.partition(".")
        return rest.rpartition(".")[2] if until.isdecimal() and int(until) > now else None

    def _sign(self, said: str) -> str:
        return hmac.digest(self._secret, said.encode("utf-8", "surrogateescape"), "sha256").hex()


def cookie_name(host: str) -> str:
    """Return the name of the cookie: browsers share cookies between the ports of a host, gateways do not."""
    port = host.rpartition(":")[2]
    return f"mustcall_ui_{port}" if port.isdecimal() else "mustcall_ui"


def read_cookie(headers: Mapping[str, str]) -> str | None:
    """Return the page's cookie of a request."""
    try:
        sent = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return None
    found = sent.get(cookie_name(headers.get("host", "")))
    return None if found is None else found.value


def write_cookie(headers: Mapping[str, str], visitor: Visitor, scheme: str) -> str:
    """Return the header that gives a browser the cookie; a page that came by https keeps it to https."""
    secure = scheme == "https" or headers.get("origin", headers.get("referer", "")).startswith("https:")
    name = cookie_name(headers.get("host", ""))
    said = f"{name}={visitor.cookie}; Path=/ui; Max-Age={LONGEST_VISIT}; HttpOnly; SameSite=Strict"
    return f"{said}; Secure" if secure else said


def check_site(headers: Mapping[str, str]) -> None:
    """Raise `ForeignOrigin` for a request that a page of another site made."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    own = headers.get("host", "").lower()
    if (origin is not None and _netloc(origin) != own) or site not in (None, "same-origin", "none"):
        raise ForeignOrigin(f"the page answers to itself only, not to {(origin or site or '')[:200]!r}")


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None
