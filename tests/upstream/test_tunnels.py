"""https upstreams behind a proxy: a tunnel is asked for, and the upstream's own TLS goes through it."""

import asyncio
import contextlib
import gc
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing

import pytest
from msgspec.structs import replace

from mustcall.core.errors import MustcallError, UpstreamGarbage, UpstreamTimeout, UpstreamUnavailable
from mustcall.upstream.http import HttpTransport
from mustcall.upstream.http1.tunnel import ProxyHop, TunnelOpening
from support.loopback import (
    BRIEF_READ,
    OK,
    PATIENT,
    call_to,
    failure_after,
    failure_of,
    listening,
    read_all,
    stream_all,
    within_reason,
)
from support.secure import CERTIFICATE, secure


class Proxy:
    """A proxy that connects to whatever it is asked for, on loopback, and keeps the heads it read."""

    def __init__(self, answer: bytes) -> None:
        self.port = 0
        self.heads: list[str] = []
        self._answer = answer
        self._pipes: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Open a tunnel, and carry both ways until one side ends."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            host, _, port = head.split()[1].rpartition(":")
            far_reader, far_writer = await asyncio.open_connection(host.strip("[]"), int(port))
            for byte in self._answer:  # in the smallest pieces
                writer.write(bytes([byte]))
                await writer.drain()
            await asyncio.gather(_carry(reader, far_writer), _carry(far_reader, writer))
        finally:
            writer.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def proxying(
    *, tls: bool = False, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n"
) -> AsyncGenerator[Proxy]:
    """Listen for the length of a test."""
    proxy = Proxy(answer)
    context = None
    if tls:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(CERTIFICATE / "cert.pem", CERTIFICATE / "key.pem")
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, ssl=context)
    proxy.port = server.sockets[0].getsockname()[1]
    with closing(server):
        yield proxy


@pytest.fixture(autouse=True)
def _trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE / "cert.pem"))


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_an_exchange_through_a_tunnel(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """The proxy learns host, port and its own password, and nothing of the request; the connection is kept."""
    async with secure() as upstream, proxying(tls=scheme == "https") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"{scheme}://user:p%40w@localhost:{proxy.port}")
        url = f"https://localhost:{upstream.port}"
        assert await read_all(transport, call_to(url)) == (200, b'{"say":"sekret-body"}')
        assert await stream_all(transport, call_to(url)) == b'{"say":"sekret-body"}'
        large = bytes(range(256)) * 8000
        assert await read_all(transport, call_to(url, body=large)) == (200, large)
        where = f"localhost:{upstream.port}"
        assert proxy.heads == [
            f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\nProxy-Authorization: Basic dXNlcjpwQHc=\r\n\r\n"
        ]
        assert (upstream.connections, upstream.names, upstream.protocols) == (1, ["localhost"], ["http/1.1"])
        assert (transport.open_connections, transport.resting_connections) == (1, 1)
        await transport.close()
        await within_reason(upstream.left)


async def test_an_interim_answer_is_passed_over(transport: HttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy may say that it is at work before it says that it is done."""
    answer = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200\r\nvia: x\r\n\r\n"
    async with secure() as upstream, proxying(answer=answer) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        assert (await read_all(transport, call_to(f"https://localhost:{upstream.port}")))[0] == 200
        await transport.close()
        await within_reason(upstream.left)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", UpstreamUnavailable, "refused: HTTP 407"),
        (b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 2\r\n\r\nno", UpstreamUnavailable, "refused: HTTP 502"),
        (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", UpstreamGarbage, "no status line"),
        (b"HTTP/1.1 200 OK\r\n\r\nmore", UpstreamGarbage, "nobody asked for"),
        (b"\r\n", UpstreamUnavailable, "closed the connection"),
        (b"x" * 70_000, UpstreamGarbage, "head of more than"),
    ],
    ids=["password", "unreachable", "no HTTP", "bytes behind the head", "hangs up", "endless head"],
)
async def test_a_proxy_that_opens_no_tunnel(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch, answer: bytes, kind: type[MustcallError], words: str
) -> None:
    """Each way to fail is one error of ours that names the upstream, and no secret; no connection is left."""
    async with listening(answer) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:pw-sekret@127.0.0.1:{proxy.port}")
        error = await failure_of(transport, call_to("https://upstream.invalid:81/v1"))
        assert type(error) is kind
        assert words in error.message
        assert "upstream.invalid:81" in error.message
        assert "sekret" not in error.message
        assert transport.open_connections == 0
        await within_reason(proxy.left)


async def test_a_proxy_that_says_nothing(transport: HttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time for a connection runs while the tunnel is asked for."""
    async with listening() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        words = await failure_after(
            transport,
            proxy.asked,
            lambda connect: call_to("https://upstream.invalid:81/v1", timeouts=replace(PATIENT, connect=connect)),
        )
        assert words == "no connection to the upstream upstream.invalid:81 within the time"
        await within_reason(proxy.left)


async def test_an_upstream_behind_a_tunnel_is_verified(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate that nobody vouches for is the upstream's fault, not the proxy's."""
    monkeypatch.delenv("SSL_CERT_FILE")
    async with secure() as upstream, proxying() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        error = await failure_of(transport, call_to(f"https://localhost:{upstream.port}"))
        assert type(error) is UpstreamUnavailable
        assert f"cannot connect to the upstream localhost:{upstream.port}" in error.message
        assert "CERTIFICATE_VERIFY_FAILED" in error.message
        assert upstream.connections == 0


async def test_an_unreachable_proxy_is_named(transport: HttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads the error learns that it is the proxy."""
    async with listening() as gone:
        port = gone.port
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
    error = await failure_of(transport, call_to("https://upstream.invalid/v1"))
    assert error.message.startswith("cannot connect to the proxy for the upstream upstream.invalid: ")


async def test_addresses_in_brackets() -> None:
    """An IPv6 upstream is asked for in brackets."""
    opening = TunnelOpening(asyncio.get_running_loop(), ProxyHop(False, "p", 1, ""), "2001:db8::1", 443)
    written: list[bytes] = []

    class Sink(asyncio.Transport):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            written.append(bytes(data))

    opening.connection_made(Sink())
    assert written == [b"CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n\r\n"]
    opening.opened.cancel()


async def test_limits_hold_behind_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """One exchange at a time is one exchange at a time, whatever stands between."""
    transport = HttpTransport(connections=1)
    async with listening(OK, OK) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        first = await transport.send(call_to("http://upstream.invalid/v1"))
        error = await failure_of(transport, call_to("http://upstream.invalid/v1", timeouts=BRIEF_READ))
        assert type(error) is UpstreamTimeout
        assert await first.read() == b"ok"
        await first.close()
        assert (await read_all(transport, call_to("http://upstream.invalid/v1")))[0] == 200
        assert len(proxy.connections) == 1
    await transport.close()


async def test_a_reply_that_nobody_closed() -> None:
    """An answer that is dropped unread gives its connection and its turn back."""
    transport = HttpTransport(connections=1)
    half = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"
    async with listening(half, OK) as upstream:
        reply = await transport.send(call_to(upstream.url))
        assert reply.status == 200
        del reply
        gc.collect()
        await within_reason(upstream.left)
        assert (await read_all(transport, call_to(upstream.url)))[0] == 200
    await transport.close()
