"""One GET over a connection to an address that was decided before: no name is looked up here, no proxy is asked.

For what must not go anywhere else than was checked. It follows nothing and keeps no connection. Bodies come in pieces,
uncompressed, with a word for every byte that was read, so that whoever reads can stop in time.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from mustcall.core.errors import UpstreamGarbage, UpstreamTimeout, UpstreamUnavailable
from mustcall.upstream.http1.answer import AnswerPhase
from mustcall.upstream.http1.connection import Connection
from mustcall.upstream.http1.dialling import Dialler, DialTarget, Resolver
from mustcall.upstream.http1.inflating import inflated
from mustcall.upstream.http1.request import read_url, write_head
from mustcall.upstream.seam import UpstreamCall

__all__ = ["Count", "PinnedReply", "get_pinned"]

#: What is sent of us. Answers are asked for uncompressed; those that come compressed all the same are read.
_HEADERS = {"User-Agent": "mustcall", "Accept": "text/*, application/json, */*;q=0.1", "Accept-Encoding": "identity"}


Count = Callable[[int], Awaitable[None]]
"""Is told of the bytes that came; what it raises ends the reading."""


class _Fixed(Resolver):
    """The addresses of a host, known for good."""

    __slots__ = ("_fixed",)

    def __init__(self, loop: asyncio.AbstractEventLoop, host: str, port: int, addresses: Sequence[str]) -> None:
        super().__init__(loop, host, port)
        self._fixed = [_numeric(address, port) for address in addresses]

    async def addresses(self) -> Sequence[tuple[int, int, int, str, object]]:
        return self._fixed


def _numeric(address: str, port: int) -> tuple[int, int, int, str, object]:
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    family, kind, protocol, name, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=flags)[0]
    return (family, kind, protocol, name, where)


class PinnedReply:
    """An answer whose body has not been read yet."""

    def __init__(self, connection: Connection, seconds: float, count: Count) -> None:
        self._connection = connection
        self._seconds = seconds
        self._count = count
        self.status = connection.status
        self.headers: Mapping[str, str] = connection.headers

    def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the body uncompressed; raise `UpstreamGarbage` for one that is compressed more than once.

        Each layer can make a thousandth of what it reads, or a thousandfold: two of them hold the process up.
        """
        coding = self.headers.get("content-encoding", "")
        if "," in coding:
            raise UpstreamGarbage("the answer is compressed more than once")
        return inflated(self._pieces(), coding)

    async def _pieces(self) -> AsyncGenerator[bytes]:
        connection = self._connection
        while True:
            if connection.pieces:
                piece = connection.take()
                await self._count(len(piece))
                yield piece
            elif connection.phase is AnswerPhase.DONE:
                return
            elif connection.phase is AnswerPhase.BROKEN:
                raise _failure(connection)
            else:
                await connection.wait(self._seconds)


@asynccontextmanager
async def get_pinned(
    url: str, addresses: Sequence[str], *, seconds: float, count: Count
) -> AsyncGenerator[PinnedReply]:
    """Get a URL from one of these addresses; raise an `UpstreamError`. `count` is told of every byte of a body.

    `seconds` are for each wait; who wants a limit for the whole sets one around this.
    """
    to = read_url(url)
    head = write_head(UpstreamCall(url=url, headers=_HEADERS, body=None, method="GET"), to)
    loop = asyncio.get_running_loop()
    fixed = _Fixed(loop, to.host, to.port, addresses)
    try:
        async with asyncio.timeout(seconds):
            target = DialTarget(to.host, to.port, to.tls)
            connection = await Dialler(loop).dial(target, fixed, lambda: Connection(loop, _gone))
    except TimeoutError:
        raise UpstreamTimeout(f"no connection to {to.host} within {seconds:g} s") from None
    except (OSError, ValueError) as error:  # a name that TLS cannot say is a ValueError
        raise UpstreamUnavailable(f"cannot connect to {to.host}: {type(error).__name__}") from None
    try:
        if not connection.begin(head, b"", bodiless=False):
            raise _failure(connection)
        await connection.wait(seconds)
        if not connection.begun:
            raise _failure(connection)
        yield PinnedReply(connection, seconds, count)
    finally:
        connection.abort()


def _gone(connection: Connection) -> None:
    """Take note of nothing: the connection is used once."""


def _failure(connection: Connection) -> UpstreamUnavailable | UpstreamTimeout:
    if isinstance(connection.error, TimeoutError):
        return UpstreamTimeout("the answer did not come in time")
    return UpstreamUnavailable("the answer ended before it was complete, or is not HTTP")
