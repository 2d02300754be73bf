"""Proxies come from the environment, and nothing else does."""

import subprocess
import sys
from pathlib import Path

import pytest

from mustcall.core.errors import MustcallError, UpstreamGarbage, UpstreamTimeout, UpstreamUnavailable
from mustcall.upstream.http import HttpTransport, proxy_for
from mustcall.upstream.seam import UpstreamCall
from support.loopback import BRIEF_IDLE, BRIEF_READ, OK, PATIENT, call_to, failure_of, listening, read_all, stream_all
from support.ports import closed_port


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy"])
async def test_proxy_of_the_environment(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """An http upstream is asked for through the proxy, by its whole address."""
    async with listening(OK) as proxy:
        monkeypatch.setenv(variable, proxy.url)
        assert await read_all(transport, call_to("http://upstream.invalid:81/v1")) == (200, b"ok")
        head = proxy.requests[0].decode()
    assert head.startswith("POST http://upstream.invalid:81/v1/sekret-path?token=sekret-query HTTP/1.1\r\n")
    assert "host: upstream.invalid:81\r\n" in head.lower()
    assert "authorization: Bearer sekret-key\r\n" in head


async def test_proxy_with_a_password(transport: HttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy's own credentials go to the proxy, beside the upstream's key."""
    async with listening(OK) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://user:pw@127.0.0.1:{proxy.port}")
        await read_all(transport, call_to("http://upstream.invalid/v1"))
        head = proxy.requests[0].decode()
    assert "proxy-authorization: basic dxnlcjpwdw==\r\n" in head.lower()
    assert "authorization: Bearer sekret-key\r\n" in head


@pytest.mark.parametrize("bypass", ["127.0.0.1", "localhost,127.0.0.1", "*"])
async def test_no_proxy_is_respected(transport: HttpTransport, monkeypatch: pytest.MonkeyPatch, bypass: str) -> None:
    """Hosts the environment excepts are asked directly."""
    async with listening() as proxy, listening(OK) as upstream:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", bypass)
        assert await read_all(transport, call_to(upstream.url)) == (200, b"ok")
        assert proxy.connections == []
        assert upstream.requests[0].startswith(b"POST /sekret-path?")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://a.example/v1", "http://plain:1"),
        ("https://a.example/v1", "http://secure:2"),
        ("http://in.house/v1", None),
        ("http://deep.in.house/v1", None),
        ("http://notin.house.example/v1", "http://plain:1"),
        ("https://in.house:8443/v1", None),
        ("nowhere", None),
    ],
)
def test_proxy_for(monkeypatch: pytest.MonkeyPatch, url: str, expected: str | None) -> None:
    """The table of the environment: one proxy by scheme, none for excepted hosts and what is below them."""
    monkeypatch.setenv("HTTP_PROXY", "http://plain:1")
    monkeypatch.setenv("HTTPS_PROXY", "http://secure:2")
    monkeypatch.setenv("NO_PROXY", "in.house")
    assert proxy_for(url) == expected


def test_one_proxy_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ALL_PROXY` holds for what no other variable names a proxy for."""
    monkeypatch.setenv("ALL_PROXY", "all:3")
    monkeypatch.setenv("HTTPS_PROXY", "http://secure:2")
    monkeypatch.setenv("NO_PROXY", "in.house")
    assert proxy_for("http://a.example/v1") == "http://all:3"
    assert proxy_for("https://a.example/v1") == "http://secure:2"
    assert proxy_for("http://in.house/v1") is None


async def test_a_proxy_of_another_kind_is_named(transport: HttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that does not speak HTTP is refused with its kind and the fix, and without its password."""
    monkeypatch.setenv("ALL_PROXY", "socks5h://user:pw-sekret@127.0.0.1:1")
    error = await failure_of(transport, call_to("http://upstream.invalid/v1"))
    assert type(error) is UpstreamUnavailable
    assert error.message == (
        "the environment names a socks5h proxy for upstream.invalid, and only http and https proxies can be used: "
        "set HTTP_PROXY and HTTPS_PROXY to one, or NO_PROXY to the host"
    )


@pytest.mark.parametrize("address", ["http://user:p[ss@127.0.0.1:8080", "http://user:sekret@proxy:99999", "https://"])
async def test_an_address_that_cannot_be_read(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """It is one error of ours with the fix, without a word of the address."""
    monkeypatch.setenv("HTTP_PROXY", address)
    error = await failure_of(transport, call_to("http://upstream.invalid/v1"))
    assert type(error) is UpstreamUnavailable
    assert error.message.startswith("the environment names a proxy for upstream.invalid whose address cannot be read: ")
    assert "p[ss" not in error.message
    assert "sekret" not in error.message


def test_no_proxy_with_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception for one port of a host holds for that port only."""
    monkeypatch.setenv("HTTP_PROXY", "http://plain:1")
    monkeypatch.setenv("NO_PROXY", "in.house:9000")
    assert proxy_for("http://in.house:9001/v1") == "http://plain:1"
    assert proxy_for("http://in.house:9000/v1") is None


async def test_proxy_without_a_scheme(transport: HttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """`HTTP_PROXY=host:port`, which every other client takes, works."""
    async with listening(OK) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"127.0.0.1:{proxy.port}")
        assert await read_all(transport, call_to("http://upstream.invalid/v1")) == (200, b"ok")


async def test_unreachable_proxy_is_named(transport: HttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads the error learns that it is the proxy, and not the proxy's password."""
    port = closed_port()
    monkeypatch.setenv("HTTP_PROXY", f"http://user:pw-sekret@127.0.0.1:{port}")
    error = await failure_of(transport, call_to("http://upstream.invalid/v1"))
    assert type(error) is UpstreamUnavailable
    assert "pw-sekret" not in error.message
    assert "proxy" in error.message


async def test_netrc_is_ignored(transport: HttpTransport, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A password file in the home directory adds no key to a call that has none."""
    netrc = tmp_path / ".netrc"
    netrc.write_text("default login user password netrc-sekret\nmachine 127.0.0.1 login user password netrc-sekret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(netrc))
    async with listening(OK) as upstream:
        await read_all(transport, UpstreamCall(url=upstream.url, headers={}, body=b"{}", timeouts=PATIENT))
        assert b"authorization" not in upstream.requests[0].lower()


def test_the_gateway_needs_no_aiohttp() -> None:
    """Only the scripted upstream of tests and demos is made with it."""
    program = "import sys, mustcall.gateway.process.server; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=180).returncode == 0  # noqa: S603  our own words


async def test_large_bodies_through_a_proxy(transport: HttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large bodies pass through a proxy both ways, whole and in pieces."""
    body = bytes(range(256)) * 8000
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    async with listening(answer, answer) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert await read_all(transport, call_to("http://upstream.invalid/v1", body=body)) == (200, body)
        assert await stream_all(transport, call_to("http://upstream.invalid/v1", body=b"small")) == body
        assert proxy.requests[0].endswith(body)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 9\r\n\r\nab", UpstreamUnavailable),
        (b"\r\n", UpstreamUnavailable),
        (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", UpstreamGarbage),
    ],
    ids=["half a body", "hangs up", "no HTTP"],
)
async def test_broken_answers_through_a_proxy(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch, answer: bytes, kind: type[MustcallError], stream: bool
) -> None:
    """Failures behind a proxy are the same errors of ours, about the same upstream."""
    async with listening(answer) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        error = await failure_of(transport, call_to("http://upstream.invalid:81/v1"), stream=stream)
    assert type(error) is kind
    assert "upstream.invalid:81" in error.message


async def test_timeouts_through_a_proxy(transport: HttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """The times for an answer to begin and to go on hold behind a proxy, too."""
    async with listening(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf") as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        stopped = await failure_of(transport, call_to("http://upstream.invalid/v1", timeouts=BRIEF_IDLE))
        silent = await failure_of(transport, call_to("http://upstream.invalid/v1", timeouts=BRIEF_READ))
    assert (type(stopped), type(silent)) == (UpstreamTimeout, UpstreamTimeout)
    assert "nothing for 0.1 s" in stopped.message
    assert "did not answer in time" in silent.message
