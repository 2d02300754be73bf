"""Serves the page: a table of routes, the lock before each, and errors as JSON.

It is an ASGI application of its own beside the API: its requests are no turns, take no slot of theirs and stand in no
log. It reads the ledger, or the last turns in memory where there is none.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from time import time
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from mustcall.core.errors import (
    BodyTooLarge,
    GatewayBusy,
    InvalidRequest,
    MustcallError,
    Unauthorized,
    UnknownRoute,
    UnknownTurn,
    WrongMethod,
)
from mustcall.engine.spending.budget_account import Metering
from mustcall.gateway.config.budget_settings import SessionBy, session_of
from mustcall.gateway.config.settings import Settings
from mustcall.gateway.connections.hosts import allowed_hosts, check_host
from mustcall.gateway.connections.receiving import headers_of
from mustcall.gateway.openapi.document import written as openapi
from mustcall.gateway.replies import Header, Receive, Scope, Send
from mustcall.gateway.service import Service
from mustcall.gateway.state.conversation_state import tenant_of_key
from mustcall.gateway.state.recent_turns import Ring
from mustcall.gateway.state.trace_keeper import TraceKeeper
from mustcall.gateway.ui.copying import copies
from mustcall.gateway.ui.files import HEADERS, PageFile, read_files
from mustcall.gateway.ui.lock import LONGEST_VISIT, Lock, Visitor, check_site, read_cookie, write_cookie
from mustcall.gateway.ui.overview import breakers_of, budget_of, learnt_of, rates_of, repairs_of
from mustcall.gateway.ui.replaying import TIMES, announced, replayed
from mustcall.gateway.ui.shown import summary, whole
from mustcall.ledger import Ledger, TurnFilter, TurnTrace
from mustcall.telemetry.logs import log_of

__all__ = ["Inside", "Page"]

_log = log_of("mustcall.gateway.ui")

_ROOT = "/ui"
_API = "/ui/api/"
_STATIC = "/ui/static/"
#: The description of the API, and the page that shows it.
_OPENAPI = "/openapi.json"
_DOCS = "/docs"
#: The largest body that is read, the most turns of a page of the list, and the most that wait for news at once.
_MOST_BODY = 64 * 1024
_MOST_TURNS = 200
_MOST_WAITING = 32
#: Seconds that a list is held until there is something new, and between two looks.
_HOLD = 2.0
_LOOK = 0.4
_FILTERS = tuple(name for name in TurnFilter.__struct_fields__ if name != "or_session")


class Inside(NamedTuple):
    """What the page may see of a gateway."""

    settings: Settings
    service: Service
    keeper: TraceKeeper | None
    ring: Ring
    metering: Metering | None
    under_way: int

    @property
    def turns(self) -> Ledger | Ring:
        """Where turns are kept."""
        return self.keeper.ledger if self.keeper is not None and self.keeper.is_open else self.ring


class _Asked(NamedTuple):
    """One request of the page."""

    inside: Inside
    lock: Lock
    visitor: Visitor
    headers: Mapping[str, str]
    query: Mapping[str, str]
    #: What stands in the path where its route has a `*`.
    name: str
    body: Mapping[str, Any]
    scheme: str


class _Said(NamedTuple):
    """An answer as JSON; a visitor who is new to get a cookie."""

    body: Any
    visitor: Visitor | None = None


class _Route(NamedTuple):
    method: str
    path: str
    answer: Callable[["Page", _Asked], Awaitable[_Said]]
    #: Whether it answers those who gave no key.
    public: bool = False


class Page:
    """The page of one gateway."""

    def __init__(self, inside: Callable[[], Inside]) -> None:
        self._inside = inside
        self._files: dict[str, PageFile] | None = None
        self._lock: tuple[tuple[object, ...], Lock] | None = None
        self._waiting = 0
        self._replaying = False

    @staticmethod
    def takes(scope: Scope) -> bool:
        """Tell whether a request is for the page: its paths, the API's description, the root for a browser."""
        path: str = scope["path"]
        if path.startswith(_ROOT):
            return path == _ROOT or path[3] == "/"
        if path in (_OPENAPI, _DOCS):
            return True
        return path == "/" and scope["method"] == "GET" and b"text/html" in dict(scope["headers"]).get(b"accept", b"")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            await self._serve(scope, receive, send)
        except MustcallError as error:
            info = error.info()
            headers = [(b"allow", error.allowed.encode())] if isinstance(error, WrongMethod) else []
            said = {"error": {"code": info.code, "message": info.message}}
            await _send_json(send, scope, info.status, said, headers)
        except Exception:  # noqa: BLE001  whatever it is, the page gets an error it can show
            _log.exception("the page failed")
            await _send_json(send, scope, 500, {"error": {"code": "internal_error", "message": "the page failed"}})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        inside, headers, path = self._inside(), headers_of(scope), scope["path"]
        hosts = allowed_hosts(inside.settings)
        if hosts is not None:
            check_host(headers.get("host"), hosts)
        if path == _OPENAPI:
            _check_read(scope)
            await _send(send, scope, 200, openapi(), [(b"content-type", b"application/json")])
            return
        if not inside.settings.server.ui:
            raise UnknownRoute("the page is switched off (`ui` in [server])")
        if path in ("/", "/ui/"):
            await _send(send, scope, 302, b"", [(b"location", _ROOT.encode())])
            return
        if not path.startswith(_API):
            _check_read(scope)
            await self._send_file(scope, send, path, headers)
            return
        check_site(headers)
        route, name = _find(scope["method"], path)
        lock = await self._current_lock(inside.settings)
        visitor = lock.visitor(read_cookie(headers), time())
        if not route.public and not visitor.admitted:
            raise Unauthorized(lock.refusal or "the page wants a key")
        body: Mapping[str, Any] = {}
        if route.method == "POST":
            lock.check_token(visitor, headers.get("x-csrf-token"))
            body = await _read_json(receive)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        asked = _Asked(inside, lock, visitor, headers, query, name, body, scope["scheme"])
        said = await route.answer(self, asked)
        cookies: list[Header] = []
        if said.visitor is not None:
            cookies.append((b"set-cookie", write_cookie(headers, said.visitor, scope["scheme"]).encode()))
        await _send_json(send, scope, 200, said.body, cookies)

    async def _send_file(self, scope: Scope, send: Send, path: str, headers: Mapping[str, str]) -> None:
        if self._files is None:
            self._files = await asyncio.to_thread(read_files)
        # Whatever stands behind /ui is a view of the one page.
        view = "docs.html" if path == _DOCS else "index.html"
        name = path.removeprefix(_STATIC) if path.startswith(_STATIC) else view
        file = self._files.get(name)
        if file is None:
            raise UnknownRoute(f"the page has no file {name[:100]!r}")
        own = [(b"content-type", file.type), (b"etag", file.tag), (b"cache-control", b"no-cache")]
        if headers.get("if-none-match", "").encode("latin-1") == file.tag:
            await _send(send, scope, 304, b"", own)
        else:
            await _send(send, scope, 200, file.body, own)

    async def _current_lock(self, settings: Settings) -> Lock:
        """Return the lock for the keys in force; making one takes a while."""
        made_for = (settings.client_keys, settings.server.host)
        if self._lock is None or self._lock[0] != made_for:
            self._lock = (made_for, await asyncio.to_thread(Lock, settings))
        return self._lock[1]

    # What the routes answer.

    async def session(self, asked: _Asked) -> _Said:
        """Tell a visitor where it stands, and the token for what changes something."""
        return _session(asked, asked.visitor)

    async def login(self, asked: _Asked) -> _Said:
        """Exchange a key for a cookie."""
        key = asked.body.get("key")
        if not isinstance(key, str) or not key:
            raise InvalidRequest("`key` must be a text", param="key")
        return _session(asked, asked.lock.admit(key, time()))

    async def logout(self, asked: _Asked) -> _Said:
        """Take the cookie back."""
        return _session(asked, asked.lock.leave(time()))

    async def turns(self, asked: _Asked) -> _Said:
        """Return a page of the list; with `have`, the first page once it is another one, or after a while."""
        query, kept = asked.query, asked.inside.turns
        given = {name: query[name] for name in _FILTERS if name in query}
        named = _session_named(given.get("session", ""), asked)
        wanted = TurnFilter(**{**given, "or_session": named, "tenant": asked.visitor.tenant or given.get("tenant", "")})
        most = min(_MOST_TURNS, _number(query, "limit", 50))
        if "before" in query:
            at, _, last = query["before"].partition("_")
            found = await kept.turns(wanted, before=_real(at), before_id=last, most=most)
            return _Said(_listed(found, most, asked.inside))
        loop = asyncio.get_running_loop()
        until = loop.time() + (_HOLD if "have" in query and self._waiting < _MOST_WAITING else 0.0)
        self._waiting += 1
        try:
            while True:
                found = await kept.turns(wanted, most=most)
                if _mark(found) != query.get("have") or loop.time() >= until:
                    return _Said(_listed(found, most, asked.inside))
                await asyncio.sleep(_LOOK)
        finally:
            self._waiting -= 1

    async def turn(self, asked: _Asked) -> _Said:
        """Return one turn with all that is kept of it."""
        found = await _turn(asked)
        shown = await asyncio.to_thread(whole, found)
        url = f"{asked.scheme}://{asked.headers.get('host', '127.0.0.1')}"
        shown["replay"] = _announced(found, asked.inside)
        shown["copies"] = await asyncio.to_thread(copies, found, url, key=asked.lock.asks_for_key)
        return _Said(shown)

    async def replay(self, asked: _Asked) -> _Said:
        """Send a kept request again. One at a time: it costs money, and the upstream's time."""
        times = asked.body.get("times")
        if times not in TIMES:
            raise InvalidRequest(f"`times` must be one of {', '.join(map(str, TIMES))}", param="times")
        found = await _turn(asked)
        if self._replaying:
            raise GatewayBusy("a replay is running already; try again when it has ended")
        self._replaying = True
        try:
            return _Said(await replayed(found, times, asked.inside.settings, asked.inside.service))
        finally:
            self._replaying = False

    async def overview(self, asked: _Asked) -> _Said:
        """Return the start page's numbers."""
        inside, tenant = asked.inside, asked.visitor.tenant
        hours = _real(asked.query.get("hours", "24"))
        sums = await inside.turns.sum_turns(since=time() - hours * 3600 if hours else 0.0, tenant=tenant)
        models = rates_of(sums)
        return _Said(
            {
                "models": models,
                "more_models": sums.models - len(models),
                "repairs": repairs_of(sums),
                "learnt": learnt_of(inside.service.learnt, tenant),
                "breakers": await breakers_of(inside.metering, inside.keeper),
                # Accounts go by digests that nobody can trace back to one of several keys.
                "budget": await budget_of(inside.metering, inside.keeper, sessions=not tenant),
                "running": inside.under_way,
                "limit": inside.settings.server.max_concurrency,
            }
        )


_ROUTES = (
    _Route("GET", "session", Page.session, public=True),
    _Route("POST", "login", Page.login, public=True),
    _Route("POST", "logout", Page.logout, public=True),
    _Route("GET", "overview", Page.overview),
    _Route("GET", "turns", Page.turns),
    _Route("GET", "turns/*", Page.turn),
    _Route("POST", "turns/*/replay", Page.replay),
)


def _check_read(scope: Scope) -> None:
    """Raise `WrongMethod` for anything but a read."""
    if scope["method"] not in ("GET", "HEAD"):
        raise WrongMethod(f"{scope['path']} takes GET, not {scope['method']}", allowed="GET")


def _find(method: str, path: str) -> tuple[_Route, str]:
    """Return the route of a request and what its path names; raise `UnknownRoute` or `WrongMethod`."""
    parts = path.removeprefix(_API).split("/")
    allowed: list[str] = []
    for route in _ROUTES:
        pattern = route.path.split("/")
        if len(pattern) == len(parts) and all(one in ("*", part) for one, part in zip(pattern, parts, strict=True)):
            if route.method == method:
                return route, next((part for one, part in zip(pattern, parts, strict=True) if one == "*"), "")
            allowed.append(route.method)
    if allowed:
        raise WrongMethod(f"{path} takes {', '.join(allowed)}, not {method}", allowed=", ".join(allowed))
    raise UnknownRoute(f"the page has nothing at {path[:100]!r}")


async def _turn(asked: _Asked) -> TurnTrace:
    """Return the turn that a path names, if this visitor may see it."""
    found = await asked.inside.turns.get_turn(asked.name.replace("\0", ""))
    if found is None or asked.visitor.tenant not in ("", found.tenant):
        raise UnknownTurn(f"there is no turn {asked.name[:100]!r}; it may have expired")
    return found


def _announced(turn: TurnTrace, inside: Inside) -> dict[int, str] | None:
    """Return what replays of a turn take; None for one that cannot be sent again."""
    try:
        return announced(turn, inside.settings, inside.service)
    except MustcallError:
        return None


def _session(asked: _Asked, visitor: Visitor) -> _Said:
    keeper, lock = asked.inside.keeper, asked.lock
    kept = keeper is not None and keeper.is_open
    said = {
        "admitted": visitor.admitted,
        "asks_for_key": lock.asks_for_key,
        "refusal": lock.refusal,
        "token": lock.token(visitor),
        "ledger": kept,
        "contents": str(keeper.ledger.contents) if kept and keeper is not None else "none",
        "seconds": LONGEST_VISIT,
    }
    return _Said(said, visitor if visitor.new else None)


def _session_named(name: str, asked: _Asked) -> str:
    """Return the digest of a session by the name that its caller gave it; of callers with keys of their own, none."""
    settings, tenant = asked.inside.settings, asked.visitor.tenant
    if not name or settings.session_by is SessionBy.KEY:
        return ""
    # A visitor sees the turns of one key: its own, or the only one.
    key = next((key for key in settings.client_keys if tenant in ("", tenant_of_key(key))), None)
    return session_of(name.strip(), key, settings.session_by) or ""


def _listed(turns: list[TurnTrace], most: int, inside: Inside) -> dict[str, Any]:
    """Return turns with where the next page begins, and their mark."""
    last = turns[-1] if len(turns) == most else None
    return {
        "turns": [summary(turn) for turn in turns],
        "next": None if last is None else f"{last.at!r}_{last.id}",
        "mark": _mark(turns),
        "running": inside.under_way,
    }


def _mark(turns: list[TurnTrace]) -> str:
    """Return a text that is another one for other turns."""
    return hashlib.sha256("\n".join(turn.id for turn in turns).encode()).hexdigest()[:16]


def _number(query: Mapping[str, str], name: str, usual: int) -> int:
    given = query.get(name, "")
    return max(1, int(given)) if given.isdecimal() and len(given) < 9 else usual


def _real(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 <= value < 1e18:
        raise InvalidRequest(f"{text[:40]!r} is no time")
    return value


async def _read_json(receive: Receive) -> Mapping[str, Any]:
    """Read a small JSON object."""
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise InvalidRequest("the request was cut off")
        body += message.get("body", b"")
        if len(body) > _MOST_BODY:
            raise BodyTooLarge(f"the page sends at most {_MOST_BODY} bytes")
        if not message.get("more_body"):
            break
    try:
        return msgspec.json.decode(body or b"{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the body is no JSON object: {error}") from None


async def _send_json(send: Send, scope: Scope, status: int, said: Any, headers: list[Header] | None = None) -> None:
    own = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), *(headers or ())]
    await _send(send, scope, status, msgspec.json.encode(said), own)


async def _send(send: Send, scope: Scope, status: int, body: bytes, headers: list[Header]) -> None:
    sent = [*headers, *HEADERS, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
