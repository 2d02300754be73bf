"""Connections that came at once are accepted in batches, and each is served like any other."""

import asyncio
import contextlib
import socket
import threading

import msgspec
import pytest

from mustcall.core.limits import DEFAULTS
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.connections import accepting
from mustcall.gateway.connections.accepting import Acceptor
from mustcall.testing.gateway import RunningGateway

REQUEST = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


class Counted(asyncio.Protocol):
    """A connection that a test counts."""

    def __init__(self, made: list["Counted"], wanted: int, done: asyncio.Future[None]) -> None:
        self.made, self.wanted, self.done = made, wanted, done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it, and close it."""
        self.made.append(self)
        transport.close()
        if len(self.made) == self.wanted:
            self.done.set_result(None)


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """What was accepted in batches; the event loop has no time to accept by itself."""
    taken: list[socket.socket] = []
    really = accepting.open_accepted

    async def noted(loop: asyncio.AbstractEventLoop, make: accepting.Factory, accepted: socket.socket) -> None:
        taken.append(accepted)
        await really(loop, make, accepted)

    monkeypatch.setattr(accepting, "WAITED", 0.0)
    monkeypatch.setattr(accepting, "open_accepted", noted)
    return taken


async def test_all_that_wait_are_taken() -> None:
    """One look takes everything: 64 in a step, and the rest in the steps after it."""
    loop = asyncio.get_running_loop()
    made, done = list[Counted](), loop.create_future()
    with contextlib.ExitStack() as kept:
        listener = kept.enter_context(socket.create_server(("127.0.0.1", 0), backlog=256))
        for _ in range(150):
            kept.enter_context(socket.create_connection(listener.getsockname()))
        Acceptor(listener).look(loop, lambda: Counted(made, 150, done))
        await done
        assert len(made) == 150
        with pytest.raises(BlockingIOError):
            listener.accept()


async def test_a_server_that_has_stopped() -> None:
    """A look that comes after the socket was closed finds nobody, and says nothing."""
    loop = asyncio.get_running_loop()
    problems = list[object]()
    loop.set_exception_handler(lambda _loop, context: problems.append(context))
    listener = socket.create_server(("127.0.0.1", 0))
    made, done = list[Counted](), loop.create_future()
    Acceptor(listener).look(loop, lambda: Counted(made, 1, done))
    listener.close()
    later = loop.create_future()
    loop.call_later(accepting.WAITED * 2, later.set_result, None)
    await later
    assert not made
    assert not problems


def _answers(connection: socket.socket) -> bytes:
    connection.settimeout(180)
    with contextlib.suppress(ConnectionResetError):
        return connection.recv(65_536).split(b" ")[1]
    return b""


def test_every_one_of_a_storm_is_answered(batches: list[socket.socket]) -> None:
    """Connections that waited before the gateway began are accepted in batches, and all of them are answered."""
    with contextlib.ExitStack() as kept:
        gateway = RunningGateway(settings=settings_from_flags("chat=http://127.0.0.1:9/v1"))
        host, _, port = gateway.url.removeprefix("http://").partition(":")
        connections = [kept.enter_context(socket.create_connection((host, int(port)))) for _ in range(100)]
        for connection in connections:
            connection.sendall(REQUEST)
        with gateway:
            assert {_answers(connection) for connection in connections} == {b"200"}
    assert len(batches) > 10


def test_limits_hold_in_a_batch(batches: list[socket.socket]) -> None:
    """Rule 68: no more connections are served than may be open, however they were accepted."""
    limits = msgspec.structs.replace(DEFAULTS, connections=20, connections_per_address=20)
    settings = msgspec.structs.replace(settings_from_flags("chat=http://127.0.0.1:9/v1"), limits=limits)
    with contextlib.ExitStack() as kept:
        gateway = RunningGateway(settings=settings)
        host, _, port = gateway.url.removeprefix("http://").partition(":")
        connections = [kept.enter_context(socket.create_connection((host, int(port)))) for _ in range(50)]
        for connection in connections:
            connection.sendall(REQUEST)
        with gateway:
            answered = [_answers(connection) for connection in connections]
    assert answered.count(b"200") == 20
    assert set(answered) <= {b"200", b"503", b""}
    assert len(batches) > 10


def test_connections_that_come_with_the_stop_do_not_hold_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is accepted in the step in which the server stops is closed as well: nobody waits for it."""
    taken = threading.Event()

    async def late(loop: asyncio.AbstractEventLoop, make: accepting.Factory, accepted: socket.socket) -> None:
        taken.set()
        while listener.fileno() >= 0:  # noqa: ASYNC110  a socket tells nobody
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # the connections that were open have been told
        await really(loop, make, accepted)

    really = accepting.open_accepted
    monkeypatch.setattr(accepting, "WAITED", 0.0)
    monkeypatch.setattr(accepting, "open_accepted", late)
    with contextlib.ExitStack() as kept:
        gateway = RunningGateway(settings=settings_from_flags("chat=http://127.0.0.1:9/v1"), shutdown_grace=600.0)
        listener = gateway._listener
        connections = [kept.enter_context(socket.create_connection(listener.getsockname())) for _ in range(50)]
        with gateway:
            assert taken.wait(60)
        for connection in connections:
            connection.settimeout(180)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""
