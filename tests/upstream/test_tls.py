"""TLS on loopback, with a certificate that only these tests trust."""

import asyncio
import socket
import ssl
from contextlib import closing

import pytest
from msgspec.structs import replace

from mustcall.core.errors import UpstreamUnavailable
from mustcall.upstream.http import HttpTransport
from mustcall.upstream.http1.dialling import Resolver
from support.loopback import (
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


@pytest.fixture
def _trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE / "cert.pem"))


@pytest.mark.usefixtures("_trusted")
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_exchange(transport: HttpTransport, host: str) -> None:
    """A trusted server is asked, over one connection, in HTTP/1.1, by its name."""
    async with secure() as upstream:
        url = f"https://{host}:{upstream.port}"
        assert await read_all(transport, call_to(url)) == (200, b'{"say":"sekret-body"}')
        assert await stream_all(transport, call_to(url)) == b'{"say":"sekret-body"}'
        assert upstream.connections == 1
        assert upstream.protocols == ["http/1.1"]
        assert upstream.names == ["localhost" if host == "localhost" else None]
        await transport.close()
        await within_reason(upstream.left)


@pytest.mark.usefixtures("_trusted")
async def test_large_bodies(transport: HttpTransport) -> None:
    """Bodies beyond every buffer are the same there and back."""
    body = b"".join(b"%08d" % number for number in range(600_000))
    async with secure() as upstream:
        assert await read_all(transport, call_to(f"https://localhost:{upstream.port}", body=body)) == (200, body)
        await transport.close()
        await within_reason(upstream.left)


async def test_untrusted_certificate(transport: HttpTransport) -> None:
    """A server that nobody vouches for is not talked to."""
    async with secure() as upstream:
        error = await failure_of(transport, call_to(f"https://localhost:{upstream.port}"))
        assert type(error) is UpstreamUnavailable
        assert f"cannot connect to the upstream localhost:{upstream.port}" in error.message
        assert "CERTIFICATE_VERIFY_FAILED" in error.message
        assert upstream.connections == 0


@pytest.mark.usefixtures("_trusted")
async def test_certificate_of_another(transport: HttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate for another host is none."""
    async with secure() as upstream:

        async def found(*_: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
            await asyncio.sleep(0)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", upstream.port))]

        monkeypatch.setattr(Resolver, "_look_up", found)
        error = await failure_of(transport, call_to("https://other.example"))
        assert type(error) is UpstreamUnavailable
        assert "not valid for 'other.example'" in error.message
        assert upstream.connections == 0


@pytest.mark.usefixtures("_trusted")
async def test_end_of_the_connection(transport: HttpTransport) -> None:
    """A cut is a typed failure, an announced end is not; neither connection is used again."""
    async with secure() as upstream:
        url = f"https://localhost:{upstream.port}"
        error = await failure_of(transport, call_to(url, body=b"cut me"))
        assert type(error) is UpstreamUnavailable
        assert "closed the connection before its answer was complete" in error.message
        assert await read_all(transport, call_to(url, body=b"close me")) == (200, b"until the end")
        assert upstream.connections == 2


@pytest.mark.usefixtures("_trusted")
async def test_silent_handshake(transport: HttpTransport) -> None:
    """A server that never shakes hands is given up in the time to connect, and its socket closed."""
    accepted, left = asyncio.Event(), asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set()
        try:
            await reader.read()
        finally:
            left.set()
            writer.close()

    with closing(await asyncio.start_server(say_nothing, "127.0.0.1", 0)) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        words = await failure_after(
            transport, accepted, lambda connect: call_to(url, timeouts=replace(PATIENT, connect=connect))
        )
        assert words.endswith(" within the time")
        await within_reason(left)


async def test_plain_http_where_tls_is_served(transport: HttpTransport) -> None:
    """An http URL of a TLS server fails in our words."""
    async with secure() as upstream:
        error = await failure_of(transport, call_to(f"http://localhost:{upstream.port}"))
        assert error.code in {"upstream_unavailable", "upstream_garbage"}


async def test_no_context_without_tls(transport: HttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain upstreams cost no reading of certificates."""

    def refuse() -> ssl.SSLContext:
        raise AssertionError

    monkeypatch.setattr(ssl, "create_default_context", refuse)
    async with listening(OK) as upstream:
        assert await read_all(transport, call_to(upstream.url)) == (200, b"ok")
