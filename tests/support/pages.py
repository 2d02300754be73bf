"""A small web on loopback for the tests of `fetch`: pages by their paths, and how often anybody came."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

from mustcall.toolkit.builtin.fetch import FetchedSoFar, Fetcher, FetchLimits, Resolve

__all__ = ["Site", "fetcher", "page", "serving", "to_loopback"]

#: Pieces of an answer; a number among them is a pause of so many seconds, and None goes on for ever with the last one.
Answer = Sequence[bytes | float | None]


def page(body: bytes, kind: str = "text/plain", status: str = "200 OK", **headers: str) -> list[bytes | float | None]:
    """A whole answer."""
    lines = {"content-type": kind, "content-length": str(len(body)), **headers}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
    return [f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body]


class Site:
    """A server that answers by the path, and counts its connections and requests."""

    def __init__(self, pages: Mapping[str, Answer], host: str) -> None:
        self.pages = pages
        self.host = host
        self.port = 0
        self.connections = 0
        self.heads: list[str] = []

    @property
    def url(self) -> str:
        """The address without a path."""
        return f"http://{self.host}:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.heads.append(head)
            path = head.split(" ")[1].partition("?")[0]
            answer = self.pages.get(path, page(b"nothing here", status="404 Not Found"))
            last = b""
            for piece in answer:
                while piece is None:
                    writer.write(last)
                    await writer.drain()
                if isinstance(piece, bytes):
                    last = piece
                    writer.write(piece)
                    await writer.drain()
                else:
                    await asyncio.sleep(piece)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(
    pages: Mapping[str, Answer], host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncGenerator[Site]:
    """Serve pages for the length of a test."""
    site = Site(pages, host)
    server = await asyncio.start_server(site.serve, host, 0, ssl=tls)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()


def to_loopback(*answers: Sequence[str]) -> tuple[Resolve, list[str]]:
    """A resolver that gives these answers in turn, the last one for ever; and the names it was asked for."""
    asked: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        del port
        asked.append(host)
        return answers[min(len(asked), len(answers)) - 1]

    return resolve, asked


def fetcher(
    *allow: str,
    private: Sequence[str] = (),
    resolve: Resolve | None = None,
    fetched: FetchedSoFar | None = None,
    limits: FetchLimits | None = None,
) -> Fetcher:
    """A fetcher that looks nothing up on the net: names are at 127.0.0.1 unless said otherwise."""
    look = resolve or to_loopback(("127.0.0.1",))[0]
    return Fetcher(allow, private=private, resolve=look, fetched=fetched, limits=limits)
