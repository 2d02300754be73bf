"""Model servers on this machine: who is found at a port, who is not, and that all ports are asked at once."""

import asyncio
from collections.abc import AsyncGenerator

import msgspec
import pytest

from mustcall.testing import RunningGateway, ScriptedUpstream
from mustcall.upstream.discovering import FoundServer, discover, proxied, servers_at
from mustcall.upstream.http import HttpTransport
from mustcall.upstream.providers import PROVIDERS, Provider
from support.loopback import PROXY_VARIABLES, listening
from support.ports import closed_port

#: Longer than any machine needs; a test that waits for it has failed.
LONG = 60.0


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy."""
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
async def transport() -> AsyncGenerator[HttpTransport]:
    """A transport of the test's own loop."""
    made = HttpTransport()
    yield made
    await made.close()


def at(port: int, name: str = "ollama") -> Provider:
    """A provider at another port than its own."""
    return msgspec.structs.replace(PROVIDERS[name], base_url=f"http://127.0.0.1:{port}/v1")


def answer(body: str, status: str = "200 OK", headers: str = "") -> bytes:
    """An answer of HTTP."""
    return f"HTTP/1.1 {status}\r\n{headers}content-length: {len(body)}\r\n\r\n{body}".encode()


def listed(*owners: str) -> bytes:
    """A list with a model for each owner."""
    models = [{"id": f"m{number}", "owned_by": owner} for number, owner in enumerate(owners)]
    return answer(msgspec.json.encode({"data": models}).decode())


async def test_who_lists_models_is_found(transport: HttpTransport) -> None:
    """A server that lists models is found with them, in the order asked; a closed port is not; no key is sent."""
    with ScriptedUpstream(models=["a", "b"]) as one, ScriptedUpstream(models=[]) as two:
        providers = [at(one.port), at(closed_port(), "vllm"), at(two.port, "lmstudio")]
        found = await discover(transport, providers, seconds=LONG)
        assert found == (
            FoundServer(provider=providers[0], models=("a", "b")),
            FoundServer(provider=providers[2]),
        )
        for asked in (*one.requests, *two.requests):
            assert {"authorization", "x-api-key"}.isdisjoint(asked.headers)


@pytest.mark.parametrize(
    "said",
    [
        answer("<html>It works!</html>"),
        answer('{"data": "nothing"}'),
        answer('{"data": [{"name": "m"}]}'),
        answer("[" * 100_000),
        answer("{}", "404 Not Found"),
        answer("oops", "500 Internal Server Error"),
        answer('{"data": []}', headers="x-mustcall-request-id: req_1\r\n"),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"",
    ],
    ids=["page", "other json", "other list", "deep", "no route", "broken", "ourselves", "other protocol", "hangs up"],
)
async def test_who_is_no_model_server(said: bytes, transport: HttpTransport) -> None:
    """Whatever else listens at a port is left alone, and nothing is raised."""
    async with listening(said) as listener:
        assert await discover(transport, [at(listener.port)], seconds=LONG) == ()
        assert len(listener.requests) == 1


async def test_who_wants_a_key_is_found(transport: HttpTransport) -> None:
    """A server that asks for a key is one, with models nobody knows."""
    async with listening(answer("{}", "401 Unauthorized")) as listener:
        provider = at(listener.port, "vllm")
        assert await discover(transport, [provider], seconds=LONG) == (FoundServer(provider=provider, wants_key=True),)


@pytest.mark.parametrize(
    ("owner", "name"), [("vllm", "vllm"), ("sglang", "sglang"), ("llamacpp", "llamacpp"), ("library", "ollama")]
)
async def test_servers_say_who_they_are(owner: str, name: str, transport: HttpTransport) -> None:
    """What a server calls itself is believed over its port; its address is where it was found."""
    async with listening(listed("someone", owner)) as listener:
        (found,) = await discover(transport, [at(listener.port, "lmstudio")], seconds=LONG)
    assert (found.provider.name, found.provider.base_url) == (name, f"http://127.0.0.1:{listener.port}/v1")


async def test_silence_is_given_up(transport: HttpTransport) -> None:
    """A port that accepts and says nothing is nobody, after its time."""
    async with listening() as listener:
        assert await discover(transport, [at(listener.port)], seconds=0.05) == ()


async def test_all_are_asked_at_once(transport: HttpTransport) -> None:
    """Each of three servers answers only when all three were asked."""
    everybody = asyncio.Barrier(3)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await everybody.wait()
        writer.write(listed("me"))
        await writer.drain()
        writer.close()

    servers = [await asyncio.start_server(serve, "127.0.0.1", 0) for _ in range(3)]
    try:
        ports = [server.sockets[0].getsockname()[1] for server in servers]
        found = await discover(transport, servers_at(ports), seconds=LONG)
        assert [server.provider.base_url for server in found] == [f"http://127.0.0.1:{port}/v1" for port in ports]
        assert [server.provider.name for server in found] == ["server"] * 3
    finally:
        for server in servers:
            server.close()


async def test_a_gateway_is_no_upstream_of_itself(transport: HttpTransport) -> None:
    """A mustcall that runs already is not offered as an upstream."""
    with ScriptedUpstream() as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        port = int(gateway.url.rpartition(":")[2])
        assert await discover(transport, servers_at([port]), seconds=LONG) == ()


async def test_a_proxy_is_not_asked(transport: HttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where calls to this machine would leave it through a proxy, nothing is sent."""
    assert not proxied()
    async with listening(listed("vllm"), listed("vllm")) as listener:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{listener.port}")
        assert proxied()
        assert await discover(transport, servers_at([closed_port(), listener.port]), seconds=LONG) == ()
        assert listener.requests == []


def test_the_usual_ports() -> None:
    """A port is who is usual there, any other is some server."""
    assert [provider.name for provider in servers_at([11434, 8000, 8080, 30000, 1234, 4000, 5001])] == [
        "ollama",
        "vllm",
        "llamacpp",
        "sglang",
        "lmstudio",
        "litellm",
        "server",
    ]
