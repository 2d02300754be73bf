"""A proxy on the way to an upstream: where it is, what it is told, and the tunnel through it to an https upstream.

An http upstream is asked for through a proxy by its whole address; nothing is opened for it. For an https upstream the
proxy is asked to connect (`CONNECT`), and what comes after its head is the upstream's own TLS.
"""

import asyncio
import re
from typing import NamedTuple, cast

from mustcall.upstream.http1.answer import HEAD_LIMIT, Garbled, Hangup
from mustcall.upstream.http1.request import RequestTarget, UnusableUrl, read_url

__all__ = ["ProxyHop", "ProxyRefused", "ProxyUnreachable", "TunnelOpening", "read_proxy", "through"]

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: |\r|\n)")
_END = re.compile(rb"\r?\n\r?\n")
_OK = range(200, 300)
_INTERIM = range(100, 200)


class ProxyUnreachable(Exception):
    """There is no connection to the proxy; the text is the reason."""


class ProxyRefused(Exception):
    """The proxy will not connect to the upstream."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class ProxyHop(NamedTuple):
    """A proxy. `authorization` is the header line that opens it, with its end, or empty."""

    tls: bool
    host: str
    port: int
    authorization: str


def read_proxy(url: str) -> ProxyHop | None:
    """Take a proxy's address apart; None for what is no http(s) address."""
    try:
        to = read_url(url)
    except UnusableUrl:
        return None
    return ProxyHop(to.tls, to.host, to.port, f"Proxy-{to.authorization}" if to.authorization else "")


def through(hop: ProxyHop, to: RequestTarget) -> RequestTarget:
    """Return what a request is written with on its way through a proxy: inside a tunnel, as without one."""
    if to.tls:
        return to
    shown = to.host_line.removeprefix("Host: ").rstrip()
    return to._replace(target=f"http://{shown}{to.target}", proxy_line=hop.authorization)


class TunnelOpening(asyncio.Protocol):
    """Asks a proxy to connect. `opened` is done when it has, and raises `ProxyRefused`, `Garbled` or `Hangup`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, hop: ProxyHop, host: str, port: int) -> None:
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._request = f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{hop.authorization}\r\n".encode()
        self._head = b""
        self.opened: asyncio.Future[None] = loop.create_future()
        # Who waited may have left: then nobody is told how it ended.
        self.opened.add_done_callback(lambda done: done.cancelled() or done.exception())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        # uvloop's transports are transports in everything but their base class.
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """Read the head of the proxy's answer; what stands behind it is nobody's."""
        self._head += data
        while not self.opened.done():
            end = _END.search(self._head)
            if end is None:
                if len(self._head) > HEAD_LIMIT:
                    self._fail(Garbled(f"a proxy's head of more than {HEAD_LIMIT} bytes"))
                return
            status = _STATUS.match(self._head)
            rest = self._head[end.end() :]
            if status is None:
                self._fail(Garbled("the proxy's answer has no status line"))
            elif int(status[1]) in _INTERIM:
                self._head = rest
            elif int(status[1]) not in _OK:
                self._fail(ProxyRefused(int(status[1])))
            elif rest:
                self._fail(Garbled("bytes that nobody asked for came through the proxy"))
            else:
                self.opened.set_result(None)

    def eof_received(self) -> None:
        """The proxy sends no more."""
        self._fail(Hangup())

    def connection_lost(self, exc: Exception | None) -> None:
        """Take leave."""
        self._fail(exc or Hangup())

    def _fail(self, error: Exception) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
