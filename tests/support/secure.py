"""A TLS server on loopback, with a certificate that only tests trust."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

CERTIFICATE = Path(__file__).parent / "tls"


class Secure:
    """A TLS server and what its clients told it."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.names: list[str | None] = []
        self.protocols: list[str | None] = []
        self.left = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer each request of a connection with its body."""
        self.connections += 1
        self.protocols.append(writer.get_extra_info("ssl_object").selected_alpn_protocol())
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                body = await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
                if b"cut me" in body:
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
                    break
                if b"close me" in body:
                    writer.write(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
                    break
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            self.left.set()
            writer.close()


@asynccontextmanager
async def secure() -> AsyncGenerator[Secure]:
    """Listen for the length of a test."""
    upstream = Secure()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE / "cert.pem", CERTIFICATE / "key.pem")
    context.set_alpn_protocols(["h2", "http/1.1"])

    def note(_object: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        upstream.names.append(name)

    context.sni_callback = note
    server = await asyncio.start_server(upstream.answer, "127.0.0.1", 0, ssl=context)
    upstream.port = server.sockets[0].getsockname()[1]
    with closing(server):
        yield upstream
