"""`fetch`: reads a page from the net, from the places that somebody listed and from nowhere else.

Nothing may be fetched unless its prefix is on the list, and nothing from an address that is not public (rule 99). A
name is looked up once, all of its addresses are checked, and the connection goes to one of those; every redirect is
another place, checked like the first. Time, bytes and hosts have caps, the latter two for a whole session. Which URLs
can be read and which addresses are public is decided in `policy.egress`.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Final, TypeVar
from urllib.parse import urljoin

import msgspec

from mustcall.core.errors import ConfigError, ToolError, ToolRefused, UpstreamError
from mustcall.core.origin import JsonObject
from mustcall.engine.tooling.definition import FunctionTool, ToolSettings
from mustcall.engine.tooling.threads import in_thread
from mustcall.policy.egress import Denied, Place, is_public, permit, read_network, read_place, read_prefix
from mustcall.toolkit.pages import is_text, page_text
from mustcall.upstream.pinned import PinnedReply, get_pinned

__all__ = ["Egress", "FetchLimits", "Fetcher", "Resolve", "fetch_tool", "look_up"]

_T = TypeVar("_T")

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MEBIBYTE: Final = 1024 * 1024

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host's name, as numbers; raises `OSError`."""


class FetchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The caps of one page. What is longer is cut, what takes longer fails."""

    seconds: float = 15.0
    page_bytes: int = _MEBIBYTE // 2
    redirects: int = 4


class Egress:
    """What one session has fetched, and may still fetch. A host that was used stays allowed (rule 99)."""

    def __init__(self, *, most_bytes: int = 4 * _MEBIBYTE, most_hosts: int = 8) -> None:
        self.most_bytes = most_bytes
        self.most_hosts = most_hosts
        self.hosts: set[str] = set()
        #: Bytes on the wire and bytes after decompression, whichever are more; a last read may go over the cap.
        self.spent = 0

    def enter(self, host: str) -> None:
        """Count a host; raise `Denied` where a cap is reached."""
        if self.spent >= self.most_bytes:
            raise Denied(f"this session has fetched its {self.most_bytes} bytes")
        if host not in self.hosts and len(self.hosts) >= self.most_hosts:
            raise Denied(f"this session has used its {self.most_hosts} hosts")
        self.hosts.add(host)

    def spend(self, count: int) -> None:
        """Count bytes."""
        self.spent += count

    @property
    def left(self) -> int:
        """The bytes that may still be fetched."""
        return max(self.most_bytes - self.spent, 0)


async def look_up(host: str, port: int) -> Sequence[str]:
    """Ask the system for a host's addresses."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Fetcher:
    """Fetches pages.

    `allow` are prefixes `[scheme://]host[:port][/path]`, with `*.host` for all below one and `*` for any. `private` are
    networks that are reached although they are not public, such as `127.0.0.1/32`; none by default.
    """

    def __init__(
        self,
        allow: Iterable[str] = (),
        *,
        egress: Egress | None = None,
        limits: FetchLimits | None = None,
        private: Iterable[str] = (),
        resolve: Resolve = look_up,
    ) -> None:
        self._allow = [_read("allow", entry, read_prefix) for entry in allow]
        self._private = [_read("private", entry, read_network) for entry in private]
        self.egress = egress or Egress()
        self.limits = limits or FetchLimits()
        self._resolve = resolve

    async def get(self, url: str) -> str:
        """Return the text of a page; raise `ToolRefused` for what may not be fetched and `ToolError` for a failure."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await self._follow(read_place(url))
        except Denied as denied:
            raise ToolRefused(str(denied)) from None
        except TimeoutError:
            raise ToolError(f"the page did not come within {self.limits.seconds:g} s") from None
        except UpstreamError as error:
            raise ToolError(error.message) from None

    async def _follow(self, place: Place) -> str:
        """Return the text of a page, wherever it has moved to."""
        for _ in range(self.limits.redirects + 1):
            addresses = await self._admit(place)
            meter = _Meter(self.egress, self.limits.page_bytes)
            async with get_pinned(place.url, addresses, seconds=self.limits.seconds, count=meter.came) as reply:
                if reply.status not in _REDIRECTS or "location" not in reply.headers:
                    return await self._text(place, reply, meter)
                place = _moved(place, reply.headers["location"])
        raise Denied(f"the page moved more than {self.limits.redirects} times")

    async def _admit(self, place: Place) -> Sequence[str]:
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
        self.egress.enter(place.host)
        return addresses

    async def _text(self, place: Place, reply: PinnedReply, meter: "_Meter") -> str:
        if reply.status >= 300 or reply.status == 204:
            raise ToolError(f"{place.host} answered with status {reply.status}")
        kind = reply.headers.get("content-type", "")
        if not is_text(kind):
            raise ToolError(f"what is there is not text but {kind[:80]}")
        body, whole = await _body(reply, meter)
        text: str = await in_thread(lambda: page_text(body, kind))  # a hostile page takes a second
        return text if whole else f"{text}\n[cut: the page has more than {len(body)} bytes]"


class _Enough(Exception):
    """A cap is reached."""


class _Meter:
    """Counts the bytes of one page, as they came and as they are read, whichever are more."""

    def __init__(self, egress: Egress, most: int) -> None:
        self._egress = egress
        self.room = min(most, egress.left)
        self._came = 0
        self._read = 0

    def came(self, count: int) -> None:
        """Count bytes on the wire; raise `_Enough` if there were too many before: they may give nothing to read."""
        enough = self._came > self.room
        self._spend(self._came + count, self._read)
        if enough:
            raise _Enough

    def read(self, count: int) -> None:
        """Count bytes after decompression; raise `_Enough`."""
        self._spend(self._came, self._read + count)
        if self._read > self.room:
            raise _Enough

    def _spend(self, came: int, read: int) -> None:
        self._egress.spend(max(came, read) - max(self._came, self._read))
        self._came, self._read = came, read


async def _body(reply: PinnedReply, meter: _Meter) -> tuple[bytes, bool]:
    """Return the beginning of a body, and whether it is all of it."""
    body = bytearray()
    try:
        async with aclosing(reply.chunks()) as chunks:
            async for piece in chunks:
                body += piece
                meter.read(len(piece))
    except _Enough:
        return bytes(body[: meter.room]), False
    return bytes(body), True


def fetch_tool(fetcher: Fetcher) -> FunctionTool:
    """Return the tool `fetch` over a fetcher."""

    async def run(arguments: JsonObject) -> str:
        return await fetcher.get(arguments["url"])

    url = {"type": "string", "description": "The page's address, such as https://example.org/page."}
    return FunctionTool(
        "fetch",
        "Read a web page.",
        {"type": "object", "properties": {"url": url}, "required": ["url"], "additionalProperties": False},
        run,
        settings=ToolSettings(timeout=fetcher.limits.seconds + 5.0, side_effect=False, idempotent=True),
    )


def _moved(place: Place, location: str) -> Place:
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
