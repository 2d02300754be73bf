"""What a connection may do before any key is known, over raw sockets."""

import asyncio
import errno
import logging
import re
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from unittest.mock import Mock

import httpx
import msgspec
import openai
import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from mustcall.core.errors import ForeignOrigin
from mustcall.core.limits import DEFAULTS, GatewayLimits
from mustcall.gateway.app import Gateway
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.connections import connection_limits
from mustcall.gateway.connections.connection_limits import Front, FrontProtocol, RareLog
from mustcall.gateway.connections.hosts import allowed_hosts, check_host
from mustcall.gateway.process.server import server_config
from mustcall.testing import Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway

BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n" % len(BODY)


@contextmanager
def _gateway(**limits: object) -> Generator[tuple[str, int]]:
    with ScriptedUpstream(default=Turn(Say("ok"))) as upstream:
        settings = settings_from_flags(f"chat={upstream.base_url}")
        settings = msgspec.structs.replace(settings, limits=msgspec.structs.replace(DEFAULTS, **limits))
        with RunningGateway(settings=settings) as gateway:
            host, _, port = gateway.url.removeprefix("http://").partition(":")
            yield host, int(port)


def test_idle_connections_are_closed_by_clients_first() -> None:
    """A connection that both ends give up at the same time ends under a request: ours are kept for longer."""
    settings = settings_from_flags("chat=http://127.0.0.1:9/v1")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = server_config(Gateway(settings), settings.server, listener).timeout_keep_alive
    theirs = httpx.Limits().keepalive_expiry, openai.DEFAULT_CONNECTION_LIMITS.keepalive_expiry
    assert all(seconds is not None and ours > max(seconds, 60) for seconds in theirs)


def _status(connection: socket.socket) -> int:
    """Return the status of the next answer, 0 if the connection is closed without one."""
    connection.settimeout(180)
    answer = b""
    try:
        while b"\r\n" not in answer:
            piece = connection.recv(65_536)
            if not piece:
                return 0
            answer += piece
    except ConnectionError:
        return 0
    return int(answer.split(b" ", 2)[1])


def _ask(place: tuple[str, int], request: bytes) -> int:
    with socket.create_connection(place) as connection:
        with suppress(ConnectionError):  # refused while it was being sent
            connection.sendall(request)
        return _status(connection)


def test_heads_are_bounded() -> None:
    """Too many headers, too many bytes of them, and one that is too long are 431, each; usual heads pass."""
    with _gateway() as place:
        assert _ask(place, HEAD + b"x: y\r\n" * 100 + b"\r\n" + BODY) == 200
        assert _ask(place, HEAD + b"x: y\r\n" * 200 + b"\r\n" + BODY) == 431
        assert _ask(place, HEAD + b"x: %b\r\n\r\n" % (b"y" * 70_000) + BODY) == 431
        assert _ask(place, HEAD + b"x: %b\r\n" % (b"y" * 30_000) * 3 + b"\r\n" + BODY) == 431
        assert _ask(place, HEAD + b"x: " + b"y" * 300_000) == 431
        assert _ask(place, b"GET /" + b"y" * 70_000 + b" HTTP/1.1\r\n\r\n") == 431
        assert _ask(place, HEAD + b"x: %b\r\n\r\n" % (b"y" * 60_000) + BODY) == 200


def _after_one(place: tuple[str, int], more: bytes) -> list[int]:
    """Return the statuses of the answers to a request and what comes behind it in the same bytes."""
    with socket.create_connection(place) as connection:
        with suppress(ConnectionError):
            connection.sendall(HEAD + b"\r\n" + BODY + more)
        connection.settimeout(180)
        said = b""
        with suppress(ConnectionError):
            while piece := connection.recv(65_536):
                said += piece
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", said)]


def test_headers_are_counted_wherever_a_head_begins() -> None:
    """Too many behind a whole request, behind a body in chunks, or behind a long body end the connection."""
    more = b"x: y\r\n" * 200
    with _gateway(head_seconds=60.0) as place:
        assert 200 not in _after_one(place, b"GET / HTTP/1.1\r\n" + more)[1:]
        assert 200 not in _after_one(place, b"GET / HTTP/1.1\r\n" + more * 100)[1:]
        chunked = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n"
        chunked += b"%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)
        assert _ask(place, chunked + b"x: y\r\n" * 100 + b"\r\n") == 200
        assert _ask(place, chunked + more + b"\r\n") == 431
        assert _ask(place, chunked + more) == 431


def _read_by(kind: type[FrontProtocol], *reads: bytes) -> tuple[FrontProtocol, Mock]:
    """Have a connection read bytes, each time within one step of the loop; return it and its transport."""
    config = uvicorn.Config(_nothing, http=kind, lifespan="off", log_config=None)
    config.load()
    loop = asyncio.new_event_loop()
    try:
        connection = kind(config=config, server_state=ServerState(), app_state={}, _loop=loop)
        transport = Mock(spec=asyncio.Transport)
        transport.get_extra_info.return_value = None
        transport.is_closing.return_value = False

        async def read() -> None:
            connection.connection_made(transport)
            for data in reads:
                connection.data_received(data)

        loop.run_until_complete(read())
    finally:
        loop.close()
    return connection, transport


def test_one_step_of_the_loop_reads_a_bounded_number_of_headers() -> None:
    """However many headers come at once, they are counted after each slice and the rest is not looked at."""
    connection, transport = _read_by(Front(DEFAULTS).protocol(), b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 60_000)
    assert len(connection.headers) <= 65_536 // 4
    assert b" 431 " in transport.write.call_args.args[0]
    transport.close.assert_called_once()


@pytest.mark.parametrize("size", [1_000, 65_536, 70_000, 300_000])
def test_a_body_that_comes_with_its_head_is_taken_in_one_piece(size: int) -> None:
    """Two pieces would be joined, which copies a large body twice."""
    pieces: list[int] = []

    class Counting(Front(DEFAULTS).protocol()):  # pyrefly: ignore[invalid-inheritance]
        def on_body(self, body: bytes) -> None:
            pieces.append(len(body))
            super().on_body(body)

    head = b"POST /v1/x HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer k\r\ncontent-length: %d\r\n\r\n" % size
    _, transport = _read_by(Counting, head + b"x" * size)
    assert pieces == [size]
    transport.pause_reading.assert_not_called()


def test_empty_lines_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of ends of heads is handed to the parser in few slices."""
    slices: list[int] = []
    take = HttpToolsProtocol.data_received

    def count(self: HttpToolsProtocol, data: bytes) -> None:
        slices.append(len(data))
        take(self, data)

    monkeypatch.setattr(connection_limits, "_take", count)
    _, transport = _read_by(Front(DEFAULTS).protocol(), b"\r\n\r\n" * 64_000)
    assert len(slices) <= 5
    assert b" 431 " in transport.write.call_args.args[0]


async def _nothing(scope: object, receive: object, send: object) -> None:
    """Serve nothing."""


def test_a_large_body_is_no_large_head() -> None:
    """Only what comes before the body counts, however it is cut."""
    body = BODY[:-1] + b" " * 200_000 + b"}"
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n" % len(body)
    with _gateway() as place:
        assert _ask(place, head + body) == 200
        with socket.create_connection(place) as connection:
            for _ in range(3):  # one after the other on one connection
                connection.sendall(head)
                connection.sendall(body)
                assert _status(connection) == 200
                connection.settimeout(0.2)
                try:
                    while connection.recv(65_536):
                        pass
                except TimeoutError:
                    pass


def test_half_sent_heads_and_bodies_end() -> None:
    """A head or body that does not come is answered and the connection closed; nothing at all as well."""
    with _gateway(head_seconds=0.2, body_seconds=0.2) as place:
        assert _ask(place, b"POST /v1/chat") == 408
        assert _ask(place, b"") == 408
        assert _ask(place, HEAD + b"\r\n") == 408
        assert _ask(place, HEAD + b"\r\n" + BODY[:5]) in (400, 408)  # whoever notices first
        assert _ask(place, HEAD + b"\r\n" + BODY) == 200


def test_connections_of_one_address_are_bounded() -> None:
    """One more is 503 and closed, and one that leaves makes room."""
    with _gateway(connections_per_address=3) as place:
        # The gateway was asked whether it answers; that connection may still be kept.
        held = [socket.create_connection(place) for _ in range(3)]
        assert _ask(place, HEAD + b"\r\n" + BODY) == 503
        for connection in held:
            connection.close()
        statuses = set[int]()
        for _ in range(200):
            statuses.add(_ask(place, HEAD + b"\r\n" + BODY))
            if 200 in statuses:
                break
        assert 200 in statuses


def test_half_sent_bodies_hold_no_slot() -> None:
    """A request is worked on when its body is there, so that others are served meanwhile."""
    with (
        ScriptedUpstream(default=Turn(Say("ok"))) as upstream,
        RunningGateway(f"chat={upstream.base_url}", max_concurrency=1) as gateway,
    ):
        host, _, port = gateway.url.removeprefix("http://").partition(":")
        place = (host, int(port))
        held = [socket.create_connection(place) for _ in range(5)]
        for connection in held:
            connection.sendall(HEAD + b"\r\n" + BODY[:5])
        assert _ask(place, HEAD + b"\r\n" + BODY) == 200
        for connection in held:
            connection.sendall(BODY[5:])
            assert _status(connection) == 200
            connection.close()


@pytest.mark.parametrize("host", [b"evil.example", b"evil.example:8484", b"127.0.0.1.evil.example", b"localhost.evil"])
@pytest.mark.parametrize("path", [b"/v1/models", b"/", b"/metrics"])
def test_foreign_hosts_are_refused(host: bytes, path: bytes) -> None:
    """A page that points its own name at this machine gets nothing."""
    with _gateway() as place:
        assert _ask(place, b"GET %b HTTP/1.1\r\nhost: %b\r\n\r\n" % (path, host)) == 403


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:8484", "127.1.2.3", "[::1]:8484", "[::1]"]
)
def test_loopback_names_are_answered(host: str) -> None:
    """A gateway on loopback answers to loopback's names, with any port."""
    allowed = allowed_hosts(settings_from_flags("chat=http://127.0.0.1:9/v1"))
    assert allowed is not None
    check_host(host, allowed)
    check_host(None, allowed)
    with pytest.raises(ForeignOrigin):
        check_host(f"{host}.example", allowed)


def test_other_addresses_answer_to_any_name_unless_names_are_listed() -> None:
    """Rule 120: a gateway for others has names that only its operator knows."""
    settings = settings_from_flags("chat=http://127.0.0.1:9/v1")
    server = msgspec.structs.replace(settings.server, host="0.0.0.0")  # noqa: S104
    assert allowed_hosts(msgspec.structs.replace(settings, server=server)) is None
    named = msgspec.structs.replace(settings, server=server, limits=GatewayLimits(hosts=("Gateway.example",)))
    allowed = allowed_hosts(named)
    assert allowed == {"gateway.example"}
    assert allowed_hosts(msgspec.structs.replace(settings, limits=GatewayLimits(hosts=("*",)))) is None


def test_refusals_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Rule 117: a thousand refusals of a kind are one line, and the next one says how many there were."""
    log = RareLog()
    with caplog.at_level(logging.WARNING, "mustcall.gateway"):
        for number in range(1_000):
            log.note("kind", "refused", number / 1_000)
        log.note("other", "refused, too", 1.0)
        log.note("kind", "refused", 12.0)
    assert [record.getMessage() for record in caplog.records] == [
        "refused",
        "refused, too",
        "refused (999 more since the last such line)",
    ]


def test_a_process_without_files_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Rule 68: connections that the loop closes for want of a file are in the log, one line in ten seconds."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    front = Front(DEFAULTS)
    with caplog.at_level(logging.WARNING, logger="mustcall.gateway"):
        front.sweep(100.0)
        assert not caplog.records
        monkeypatch.setattr("mustcall.gateway.connections.connection_limits.os.open", refuse)
        for second in range(12):
            front.sweep(100.0 + second)
    assert [record.getMessage()[:45] for record in caplog.records] == [
        "the process has as many files open as it may "
    ] * 2
