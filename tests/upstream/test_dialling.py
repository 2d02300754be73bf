"""Opening connections: names, several addresses, dead ones among them."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pytest

from mustcall.core.errors import UpstreamTimeout, UpstreamUnavailable
from mustcall.upstream.http import HttpTransport
from mustcall.upstream.http1 import dialling
from mustcall.upstream.http1.dialling import Resolver, interleaved
from support.loopback import BRIEF_CONNECT, OK, call_to, failure_of, full_backlog, listening, read_all
from support.ports import closed_port

Found = tuple[int, int, int, str, Any]
Names = Callable[[Sequence[Found]], list[str]]


def at(port: int) -> Found:
    """An address on loopback as a resolver returns it."""
    return (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """Lets every name have the given addresses; returns the list of names that were asked for."""

    def arrange(found: Sequence[Found]) -> list[str]:
        asked: list[str] = []

        async def answer(_self: Resolver, host: str, _port: int) -> Sequence[Found]:
            asked.append(host)
            await asyncio.sleep(0)
            if not found:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            return found

        monkeypatch.setattr(Resolver, "_look_up", answer)
        return asked

    return arrange


async def test_refused_address_is_passed_over(transport: HttpTransport, names: Names) -> None:
    """Where the first address refuses, the second is used at once."""
    async with listening(OK) as upstream:
        names([at(closed_port()), at(upstream.port)])
        assert await read_all(transport, call_to("http://two.example")) == (200, b"ok")
        assert b"Host: two.example\r\n" in upstream.requests[0]


async def test_dead_address_is_not_waited_for(
    transport: HttpTransport, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the first address does not answer, the second is tried long before the first has timed out."""
    monkeypatch.setattr(dialling, "_STAGGER", 0.01)
    with full_backlog() as dead:
        async with listening(OK) as upstream:
            names([at(dead), at(upstream.port)])
            assert await read_all(transport, call_to("http://two.example")) == (200, b"ok")
            assert len(upstream.connections) == 1


async def test_no_address_works(transport: HttpTransport, names: Names) -> None:
    """Where none answers it is unavailable, and the next call asks for the addresses again."""
    asked = names([at(closed_port()), at(closed_port(1))])
    for _ in range(2):
        error = await failure_of(transport, call_to("http://two.example"))
        assert type(error) is UpstreamUnavailable
        assert "cannot connect to the upstream two.example" in error.message
    assert asked == ["two.example"] * 2


async def test_dead_addresses_time_out(transport: HttpTransport, names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none says anything, the time to connect holds for all of them together, and no attempt is left over."""
    monkeypatch.setattr(dialling, "_STAGGER", 0.01)
    with full_backlog() as dead:
        names([at(dead)] * 3)
        before = asyncio.all_tasks()
        call = call_to("http://three.example", timeouts=BRIEF_CONNECT)
        assert type(await failure_of(transport, call)) is UpstreamTimeout
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() <= before


async def test_name_is_asked_for_once(transport: HttpTransport, names: Names) -> None:
    """Many calls at once, and those that follow, ask for a name one time."""
    async with listening(*[OK] * 30) as upstream:
        asked = names([at(upstream.port)])
        calls = [read_all(transport, call_to("http://one.example")) for _ in range(20)]
        assert await asyncio.gather(*calls) == [(200, b"ok")] * 20
        assert asked == ["one.example"]


async def test_impatient_caller_does_not_spoil_it_for_others(transport: HttpTransport, names: Names) -> None:
    """A call that is cancelled while a name is looked up leaves the answer to those who wait for it, too."""
    async with listening(OK) as upstream:
        asked = names([at(upstream.port)])
        first = asyncio.create_task(transport.send(call_to("http://one.example")))
        second = asyncio.create_task(read_all(transport, call_to("http://one.example")))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == (200, b"ok")
        assert asked == ["one.example"]


async def test_unknown_name(transport: HttpTransport, names: Names) -> None:
    """A name without an address is unavailable, in the resolver's words; nobody is left with an unread error."""
    names([])
    errors = await asyncio.gather(*[failure_of(transport, call_to("http://none.example")) for _ in range(3)])
    assert all("none.example: Name or service not known" in error.message for error in errors)


def test_families_take_turns() -> None:
    """Addresses of the preferred family come first, and the other's between them."""
    six = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", (f"::{n}", 80, 0, 0)) for n in (1, 2, 3)]
    four = [at(1), at(2)]
    assert interleaved([*six, *four]) == [six[0], four[0], six[1], four[1], six[2]]


async def test_ipv6(transport: HttpTransport) -> None:
    """An IPv6 address in a URL is dialled as it is, and named in brackets."""
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        writer.close()

    with closing(await asyncio.start_server(answer, "::1", 0)) as server:
        port = server.sockets[0].getsockname()[1]
        assert await read_all(transport, call_to(f"http://[::1]:{port}", body=b"")) == (200, b"ok")
    assert f"Host: [::1]:{port}\r\n".encode() in heard[0]
