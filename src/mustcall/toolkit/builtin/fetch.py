"""`fetch`: reads a page from the net, from the places that somebody listed and from nowhere else.

Nothing may be fetched unless its prefix is on the list, and nothing from an address that is not public (rule 99). A
name is looked up once, all of its addresses are checked, and the connection goes to one of those; every redirect is
another place, checked like the first. Time, bytes and hosts have caps, the latter two for a whole session. Which URLs
can be read and which addresses are public is decided in `policy.limits.egress`.
"""

import asyncio
import re
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Annotated, Final, Self, TypeVar
from urllib.parse import urljoin

import msgspec

from mustcall.core.errors import ConfigError, ToolError, ToolRefused, UpstreamError
from mustcall.engine.spending.metering import Egress
from mustcall.engine.tooling.definition import FunctionTool, ToolContext
from mustcall.engine.tooling.functions import tool
from mustcall.engine.tooling.threads import in_thread
from mustcall.policy.limits.egress import Denied, EgressTarget, is_public, permit, read_network, read_place, read_prefix
from mustcall.toolkit.builtin.pages import is_text, page_text
from mustcall.upstream.http1.pinned import PinnedReply, get_pinned

__all__ = ["FetchLimits", "FetchedSoFar", "Fetcher", "Resolve", "fetch_tool", "look_up"]

_T = TypeVar("_T")

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MEBIBYTE: Final = 1024 * 1024
_MOST_SESSIONS: Final = 10_000
#: A media type that is nothing else: other words of a server are not for an error line (rule 110).
_MEDIA: Final = re.compile(r"[\w.+-]{1,20}/[\w.+-]{1,60}", re.ASCII)

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host's name, as numbers; raises `OSError`."""


class FetchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The caps of one page. What is longer is cut, what takes longer fails."""

    seconds: float = 15.0
    page_bytes: int = _MEBIBYTE // 2
    redirects: int = 4


class FetchedSoFar:
    """An `Egress` of its own: what was fetched, and may still be. A host that was used stays allowed."""

    def __init__(self, *, most_bytes: int = 4 * _MEBIBYTE, most_hosts: int = 8, session: str = "") -> None:
        self.session = session
        self.most_bytes = most_bytes
        self.most_hosts = most_hosts
        self.hosts: set[str] = set()
        #: Bytes as they came or as they are read, whichever are more; a last read may go over the cap.
        self.spent = 0

    async def visit(self, host: str) -> int:
        """Count a host and return the bytes that are left; raise `ToolRefused` where a cap is reached."""
        if host not in self.hosts and len(self.hosts) >= self.most_hosts:
            raise ToolRefused(f"this session has used its {self.most_hosts} hosts")
        if self.spent >= self.most_bytes:
            raise ToolRefused(f"this session has fetched its {self.most_bytes} bytes")
        self.hosts.add(host)
        return self.most_bytes - self.spent

    async def charge(self, size: int) -> None:
        """Count bytes; raise `ToolRefused` once the cap is reached."""
        self.spent += size
        if self.spent >= self.most_bytes:
            raise ToolRefused(f"this session has fetched its {self.most_bytes} bytes")


async def look_up(host: str, port: int) -> Sequence[str]:
    """Ask the system for a host's addresses, in a thread that nobody waits for when the time is over."""
    found = await in_thread(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Fetcher:
    """Fetches pages.

    `allow` are prefixes `[scheme://]host[:port][/path]`, with `*.host` for all below one and `*` for any. `private` are
    networks that are reached although they are not public, such as `127.0.0.1/32`; none by default. `fetched` counts
    what is fetched outside of any session; each session has a count of its own with the same caps.
    """

    def __init__(
        self,
        allow: Iterable[str] = (),
        *,
        fetched: FetchedSoFar | None = None,
        limits: FetchLimits | None = None,
        private: Iterable[str] = (),
        resolve: Resolve = look_up,
    ) -> None:
        self._allow = [_read("allow", entry, read_prefix) for entry in allow]
        self._private = [_read("private", entry, read_network) for entry in private]
        self.fetched = fetched or FetchedSoFar()
        self._sessions: OrderedDict[str, FetchedSoFar] = OrderedDict()
        self.limits = limits or FetchLimits()
        self._resolve = resolve

    async def get(self, url: str, session: Egress | None = None) -> str:
        """Return the text of a page; raise `ToolRefused` for what may not be fetched and `ToolError` for a failure.

        A `session` that bounds what its tools fetch is asked and told besides the count that is kept of it here.
        """
        bounds = (self.fetched,) if session is None else (self.fetched_by(session.session), session)
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await self._follow(read_place(url), bounds)
        except Denied as denied:
            raise ToolRefused(str(denied)) from None
        except TimeoutError:
            raise ToolError(f"the page did not come within {self.limits.seconds:g} s") from None
        except UpstreamError as error:
            raise ToolError(error.message) from None

    def fetched_by(self, session: str) -> FetchedSoFar:
        """Return the count of one session. Of very many, those unused the longest are forgotten."""
        own = self.fetched
        fresh = FetchedSoFar(most_bytes=own.most_bytes, most_hosts=own.most_hosts, session=session)
        counted = self._sessions.setdefault(session, fresh)
        self._sessions.move_to_end(session)
        if len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return counted

    async def _follow(self, place: EgressTarget, bounds: Sequence[Egress]) -> str:
        """Return the text of a page, wherever it has moved to."""
        for _ in range(self.limits.redirects + 1):
            addresses = await self._admit(place)
            meter = await _Meter.begun(place.host, bounds, self.limits.page_bytes)
            async with get_pinned(place.url, addresses, seconds=self.limits.seconds, count=meter.came) as reply:
                if reply.status not in _REDIRECTS or "location" not in reply.headers:
                    return await self._text(place, reply, meter)
                place = _moved(place, reply.headers["location"])
        raise Denied(f"the page moved more than {self.limits.redirects} times")

    async def _admit(self, place: EgressTarget) -> Sequence[str]:
        """Return the addresses a place may be reached at; raise `Denied`."""
        permit(place, self._allow)
        if place.address is not None:
            addresses: Sequence[str] = (place.host,)
        else:
            try:
                addresses = await self._resolve(place.host, place.port)
            except (OSError, UnicodeError):
                raise ToolError(f"the host {place.host} has no address") from None
        if not addresses:
            raise ToolError(f"the host {place.host} has no address")
        if not all(is_public(address, self._private) for address in addresses):
            raise Denied(f"{place.host} is at an address that is not public")
        return addresses

    async def _text(self, place: EgressTarget, reply: PinnedReply, meter: "_Meter") -> str:
        if reply.status >= 300 or reply.status == 204:
            raise ToolError(f"{place.host} answered with status {reply.status}")
        kind = reply.headers.get("content-type", "")
        if not is_text(kind):
            said = kind.partition(";")[0].strip()
            raise ToolError(f"what is there is not text but {said if _MEDIA.fullmatch(said) else 'of an unknown type'}")
        body, whole = await _body(reply, meter)
        text: str = await in_thread(lambda: page_text(body, kind))  # a hostile page takes a second
        return text if whole else f"{text}\n[cut: the page has more than {len(body)} bytes]"


class _Enough(Exception):
    """A cap is reached."""


class _Meter:
    """Counts the bytes of one page, as they came and as they are read, whichever are more."""

    def __init__(self, bounds: Sequence[Egress], room: int) -> None:
        self._bounds = bounds
        self.room = room
        self._came = 0
        self._read = 0
        self._spent = False

    @classmethod
    async def begun(cls, host: str, bounds: Sequence[Egress], most: int) -> Self:
        """Begin a page of a host; raise `ToolRefused` where a cap is reached."""
        left = [await bound.visit(host) for bound in bounds]
        return cls(bounds, min(most, *(each for each in left if each is not None)))

    async def came(self, count: int) -> None:
        """Count bytes on the wire; raise `_Enough` if there were too many before: they may give nothing to read."""
        enough = self._spent or self._came > self.room
        await self._spend(self._came + count, self._read)
        if enough:
            raise _Enough

    async def read(self, count: int) -> None:
        """Count bytes after decompression; raise `_Enough`."""
        await self._spend(self._came, self._read + count)
        if self._read > self.room:
            raise _Enough

    async def _spend(self, came: int, read: int) -> None:
        more = max(came, read) - max(self._came, self._read)
        self._came, self._read = came, read
        for bound in self._bounds if more else ():
            try:
                await bound.charge(more)
            except ToolRefused:  # what has come is read, and no more
                self._spent = True


async def _body(reply: PinnedReply, meter: _Meter) -> tuple[bytes, bool]:
    """Return the beginning of a body, and whether it is all of it."""
    body = bytearray()
    try:
        async with aclosing(reply.chunks()) as chunks:
            async for piece in chunks:
                body += piece
                await meter.read(len(piece))
    except _Enough:
        return bytes(body[: meter.room]), False
    return bytes(body), True


def fetch_tool(fetcher: Fetcher) -> FunctionTool:
    """Return the tool `fetch` over a fetcher."""

    @tool(name="fetch", timeout=fetcher.limits.seconds + 5.0, side_effect=False, idempotent=True)
    async def fetch(
        url: Annotated[str, "The page's address, such as https://example.org/page."], context: ToolContext
    ) -> str:
        """Read a web page."""
        return await fetcher.get(url, context.egress)

    return fetch


def _moved(place: EgressTarget, location: str) -> EgressTarget:
    """Return the place a page has moved to."""
    try:
        to = read_place(urljoin(place.url, location))
    except ValueError:
        raise Denied("the page has moved to what is no URL") from None
    if place.scheme == "https" and to.scheme == "http":
        raise Denied("the page has moved to where it is not protected")
    return to


def _read(name: str, entry: str, reader: Callable[[str], _T]) -> _T:
    try:
        return reader(entry)
    except Denied as denied:
        raise ConfigError(f"{name} {entry!r} of fetch cannot be used: {denied}") from None
