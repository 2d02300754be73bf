"""The HTTP transport on real loopback connections: reuse, limits, typed failures, proxies, cancellation."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, closing

import pytest
from msgspec.structs import replace

from mustcall.core.errors import MustcallError, UpstreamGarbage, UpstreamTimeout, UpstreamUnavailable
from mustcall.core.limits import GatewayLimits
from mustcall.testing import Answer, Cut, Delayed, Raw, RawStream, Reset, ScriptedUpstream
from mustcall.upstream.http import HttpTransport
from mustcall.upstream.http1.connection import Connection
from mustcall.upstream.http1.dialling import DialTarget
from mustcall.upstream.http1.pool import Pool, PooledOrigin
from mustcall.upstream.seam import Timeouts, UpstreamCall, UpstreamReply
from support.instant import run, stall
from support.loopback import (
    BRIEF_CONNECT,
    BRIEF_IDLE,
    OK,
    PATIENT,
    Listener,
    call_to,
    failure_after,
    failure_of,
    full_backlog,
    listening,
    read_all,
    stream_all,
    within_reason,
)
from support.ports import closed_port
from support.serving import serving


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_connection_is_used_again(transport: HttpTransport, chunked: bool, stream: bool) -> None:
    """Two answers that were read to their end came over one connection."""
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" if chunked else OK
    async with listening(answer, answer) as upstream:
        for _ in range(2):
            if stream:
                assert await stream_all(transport, call_to(upstream.url)) == b"ok"
            else:
                assert await read_all(transport, call_to(upstream.url)) == (200, b"ok")
        assert [len(requests) for requests in upstream.connections] == [2]


@pytest.mark.parametrize("pieces", [0, 1])
async def test_unread_answer_closes_its_connection(transport: HttpTransport, pieces: int) -> None:
    """An answer that is given up is cut off, so that the upstream stops; the next one gets its own connection."""
    unfinished = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nbeginning"
    async with listening(unfinished, OK) as upstream:
        reply = await transport.send(call_to(upstream.url))
        async with aclosing(reply.chunks()) as chunks:
            for _ in range(pieces):
                assert await anext(chunks) == b"beginning"
        await reply.close()
        await within_reason(upstream.left)
        assert await read_all(transport, call_to(upstream.url)) == (200, b"ok")
        assert [len(requests) for requests in upstream.connections] == [1, 1]


async def test_connection_the_upstream_closed_is_not_used(transport: HttpTransport) -> None:
    """An answer that announces the end of its connection is followed by a new one."""
    last = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"
    async with listening(last, OK) as upstream:
        for _ in range(2):
            assert await read_all(transport, call_to(upstream.url)) == (200, b"ok")
        assert len(upstream.connections) == 2


async def test_request_arrives_as_given(transport: HttpTransport) -> None:
    """The method, the target, the headers and the body are the call's, and nothing is added but what HTTP needs."""
    async with listening(OK) as upstream:
        await read_all(transport, call_to(upstream.url))
        head, _, body = upstream.requests[0].partition(b"\r\n\r\n")
    first, *headers = head.decode().split("\r\n")
    assert first == "POST /sekret-path?token=sekret-query HTTP/1.1"
    assert {name.lower(): value for name, _, value in (line.partition(": ") for line in headers)} == {
        "host": f"127.0.0.1:{upstream.port}",
        "authorization": "Bearer sekret-key",
        "content-type": "application/json",
        "content-length": str(len(body)),
    }
    assert body == b'{"say":"sekret-body"}'


async def test_get_without_a_body(transport: HttpTransport) -> None:
    """A call without a body is one."""
    async with listening(OK) as upstream:
        await read_all(transport, UpstreamCall(url=f"{upstream.url}/models", headers={}, body=None, method="GET"))
        assert upstream.requests[0].startswith(b"GET /models HTTP/1.1\r\n")
        assert b"content-length" not in upstream.requests[0].lower()


@pytest.mark.parametrize("size", [512 * 1024, 512 * 1024 + 1, 5_000_000])
async def test_large_bodies_arrive_whole(transport: HttpTransport, size: int) -> None:
    """On both sides of the size at which a body is sent in pieces: declared, whole, with the same headers."""
    async with listening(OK, OK) as upstream:
        upstream_call = call_to(upstream.url, body=b"x" * size)
        assert await read_all(transport, upstream_call) == (200, b"ok")
        assert await read_all(transport, call_to(upstream.url, body=b"small")) == (200, b"ok")
        (large, _, body), (small, _, _) = (request.partition(b"\r\n\r\n") for request in upstream.requests)
        assert body == b"x" * size
        assert large.replace(b"Content-Length: %d" % size, b"Content-Length: 5") == small


async def test_large_answers_arrive_whole(transport: HttpTransport) -> None:
    """An answer much larger than any buffer is the same to the last byte, read whole or in pieces."""
    body = b"".join(b"%08d" % number for number in range(400_000))
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    async with listening(answer, answer) as upstream:
        assert await read_all(transport, call_to(upstream.url)) == (200, body)
        assert await stream_all(transport, call_to(upstream.url)) == body


async def test_answer_over_the_limit() -> None:
    """More than may be held is refused while it arrives, and its connection is closed; up to the limit is served."""
    transport = HttpTransport(limits=GatewayLimits(reply_bytes=1000))
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n"
    async with listening(head + b"x" * 1001) as upstream:  # the rest never comes: only the limit can end this
        error = await failure_of(transport, call_to(upstream.url))
        assert isinstance(error, UpstreamGarbage)
        assert "1000" in error.message
        await within_reason(upstream.left)
    async with listening(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n" + b"x" * 1000) as upstream:
        assert await read_all(transport, call_to(upstream.url)) == (200, b"x" * 1000)
    await transport.close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(transport: HttpTransport, status: int) -> None:
    """A key is never carried to where an answer points."""
    async with listening(OK) as elsewhere:
        answer = b"HTTP/1.1 %d Moved\r\nlocation: %b/x\r\ncontent-length: 0\r\n\r\n" % (status, elsewhere.url.encode())
        async with listening(answer) as upstream:
            reply = await transport.send(call_to(upstream.url))
            assert (reply.status, reply.headers["location"]) == (status, f"{elsewhere.url}/x")
            await reply.close()
        assert elsewhere.connections == []


async def test_cookies_are_not_kept(transport: HttpTransport) -> None:
    """What an upstream sets for one caller is not sent for the next."""
    answer = b"HTTP/1.1 200 OK\r\nset-cookie: session=1; path=/\r\ncontent-length: 2\r\n\r\nok"
    async with listening(answer, OK) as upstream:
        for _ in range(2):
            await read_all(transport, call_to(upstream.url))
        assert b"session" not in upstream.requests[1]


async def test_header_names_are_lower_case(transport: HttpTransport) -> None:
    """Replies keep what the seam promises of their headers."""
    async with listening(b"HTTP/1.1 429 Busy\r\nRetry-After: 3\r\nX-Odd: A\r\nContent-Length: 0\r\n\r\n") as upstream:
        reply = await transport.send(call_to(upstream.url))
        await reply.close()
    assert (reply.status, dict(reply.headers)) == (429, {"retry-after": "3", "x-odd": "A", "content-length": "0"})


FAULTS: dict[str, tuple[bytes, type[MustcallError], str]] = {
    "hangs up": (b"\r\n", UpstreamUnavailable, "closed the connection"),
    "half a body": (
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 9\r\n\r\nab",
        UpstreamUnavailable,
        "closed the connection",
    ),
    "half a chunk": (
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
        UpstreamUnavailable,
        "closed the connection",
    ),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", UpstreamGarbage, "did not answer in HTTP"),
    "odd length": (b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n", UpstreamGarbage, "did not answer in HTTP"),
    "odd header": (b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n", UpstreamGarbage, "did not answer in HTTP"),
    "endless header": (
        b"HTTP/1.1 200 OK\r\nx: %b\r\n\r\n" % (b"y" * 100_000),
        UpstreamGarbage,
        "did not answer in HTTP",
    ),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_broken_answers_are_typed(transport: HttpTransport, fault: str, stream: bool) -> None:
    """Each way of not answering is one of our errors, which names the host and port and no more of the call."""
    answer, kind, words = FAULTS[fault]
    async with listening(answer) as upstream:
        error = await failure_of(transport, call_to(upstream.url), stream=stream)
    assert type(error) is kind
    assert words in error.message
    assert f"127.0.0.1:{upstream.port}" in error.message


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("head", "after"), [(False, 0), (True, 0), (True, 40)])
@pytest.mark.parametrize("fault", [Cut, Reset])
async def test_broken_connections_are_typed(
    transport: HttpTransport, fault: type[Cut] | type[Reset], head: bool, after: int, stream: bool
) -> None:
    """Closed or reset, before the answer, after its headers or in its body: unavailable, and worth another try."""
    answer: Answer = fault(RawStream([b"x" * 100]), after=after, head=head)
    with ScriptedUpstream(lambda _: answer) as upstream:
        call = UpstreamCall(
            url=f"{upstream.base_url}/chat/completions?token=sekret-query",
            headers={"authorization": "Bearer sekret-key"},
            body=b"{}",
            timeouts=PATIENT,
        )
        error = await failure_of(transport, call, stream=stream)
        assert type(error) is UpstreamUnavailable
        assert error.retryable
        assert f"127.0.0.1:{upstream.port}" in error.message
        await upstream.await_connections(0)


async def test_nobody_listens(transport: HttpTransport) -> None:
    """No server: unavailable, naming where none was, and why in the system's own words."""
    port = closed_port()
    error = await failure_of(transport, call_to(f"http://127.0.0.1:{port}"))
    assert type(error) is UpstreamUnavailable
    assert error.message == f"cannot connect to the upstream 127.0.0.1:{port}: Connection refused"


async def test_unknown_host(transport: HttpTransport) -> None:
    """A name that nobody knows: unavailable, with the resolver's words."""
    with pytest.raises(socket.gaierror) as refused:
        socket.getaddrinfo("nowhere.invalid", 80)
    error = await failure_of(transport, call_to("http://nowhere.invalid"))
    assert type(error) is UpstreamUnavailable
    assert f"nowhere.invalid: {refused.value.strerror}" in error.message


async def test_no_tls_where_tls_was_expected(transport: HttpTransport) -> None:
    """An https URL of a server that speaks plain HTTP: unavailable, naming the host."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    with closing(server):
        port = server.sockets[0].getsockname()[1]
        error = await failure_of(transport, call_to(f"https://127.0.0.1:{port}"))
    assert type(error) is UpstreamUnavailable
    assert f"127.0.0.1:{port}" in error.message


@pytest.mark.parametrize("url", ["nowhere", "http://", "ftp://127.0.0.1:9"])
async def test_unusable_urls(transport: HttpTransport, url: str) -> None:
    """An address that is none is a typed error, too."""
    assert type(await failure_of(transport, call_to(url))) is UpstreamUnavailable


@pytest.mark.parametrize("url", ["http://[::1", "http://127.0.0.1:99999", "http://127.0.0.1:http"])
async def test_urls_that_cannot_be_split(transport: HttpTransport, url: str) -> None:
    """A host or port that cannot even be read is a typed error as well."""
    assert type(await failure_of(transport, call_to(url))) is UpstreamUnavailable


@pytest.mark.parametrize("value", ["line\nbreak", "nul\x00", "line\r\nx-injected: 1"])
async def test_forbidden_header_values(transport: HttpTransport, value: str) -> None:
    """A header value that would break the request's frame is never sent, and not repeated in the error."""
    async with listening(OK) as upstream:
        call = UpstreamCall(url=upstream.url, headers={"x-api-key": f"sekret-key{value}"}, body=b"", timeouts=PATIENT)
        error = await failure_of(transport, call)
        assert f"127.0.0.1:{upstream.port}" in error.message
        assert upstream.requests == []


async def test_connect_timeout(transport: HttpTransport) -> None:
    """A connection that is not accepted in time is a timeout that says how long was waited."""
    with full_backlog() as port:
        error = await failure_of(transport, call_to(f"http://127.0.0.1:{port}", timeouts=BRIEF_CONNECT))
    assert type(error) is UpstreamTimeout
    assert error.message == f"no connection to the upstream 127.0.0.1:{port} within 0.1 s"


async def test_read_timeout(transport: HttpTransport) -> None:
    """A request that is not answered in time is a timeout, and its connection is closed."""
    async with listening() as upstream:
        words = await failure_after(
            transport, upstream.asked, lambda read: call_to(upstream.url, timeouts=replace(PATIENT, read=read))
        )
        assert words == f"the upstream 127.0.0.1:{upstream.port} did not answer in time"
        await within_reason(upstream.left)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("sent", [b"", b"half"])
async def test_idle_timeout(transport: HttpTransport, sent: bytes, stream: bool) -> None:
    """An answer that stops coming, at its beginning or later, is a timeout, and its connection is closed."""
    async with listening(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n" + sent) as upstream:
        error = await failure_of(transport, call_to(upstream.url, timeouts=BRIEF_IDLE), stream=stream)
        assert type(error) is UpstreamTimeout
        assert "nothing for 0.1 s" in error.message
        await within_reason(upstream.left)


async def test_slow_reader_is_not_timed_out(transport: HttpTransport) -> None:
    """The idle time runs while the upstream is waited for, not while a piece is being used."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n"
    async with serving() as server:
        sending = asyncio.create_task(
            transport.send(
                UpstreamCall(
                    url=f"{server.url}/v1/chat/completions",
                    headers={},
                    body=b"{}",
                    timeouts=BRIEF_IDLE,
                )
            )
        )
        served = await server.accept()
        await served.heard()
        await served.say(head + b"first")
        reply = await sending
        chunks = reply.chunks()
        assert await anext(chunks) == b"first"
        await served.say(b"second")  # it is in the reader's socket when this returns
        await asyncio.sleep(0.25)
        assert b"".join([piece async for piece in chunks]) == b"second"
        await reply.close()


async def test_idle_time_begins_with_the_answer(transport: HttpTransport) -> None:
    """A model may think for longer than the idle time before it begins: until then the read timeout counts."""
    with ScriptedUpstream(lambda _: Delayed(Raw(200, b"late"), 0.05)) as upstream:
        call = UpstreamCall(
            url=f"{upstream.base_url}/chat/completions",
            headers={},
            body=b"{}",
            timeouts=Timeouts(connect=180, read=180, idle=0.01),
        )
        assert await read_all(transport, call) == (200, b"late")


async def test_cancelled_send_closes_the_connection(transport: HttpTransport) -> None:
    """Rule 116: nobody waits for the answer any more, so the upstream is told."""
    async with listening() as upstream:
        task = asyncio.create_task(transport.send(call_to(upstream.url)))
        await within_reason(upstream.asked)
        assert not upstream.left.is_set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await within_reason(upstream.left)


@asynccontextmanager
async def cancelled_while_reading(
    transport: HttpTransport, sent: bytes
) -> AsyncGenerator[tuple[UpstreamReply, Listener]]:
    """An answer, half sent, whose reader has just been cancelled."""
    begun = asyncio.Event()

    async def read(reply: UpstreamReply) -> None:
        async with aclosing(reply.chunks()) as chunks:
            begun.set()
            async for _ in chunks:
                pass

    async with listening(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n" + sent) as upstream:
        reply = await transport.send(call_to(upstream.url))
        task = asyncio.create_task(read(reply))
        await begun.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        try:
            yield reply, upstream
        finally:
            await reply.close()


@pytest.mark.parametrize("sent", [b"", b"half"])
async def test_cancelled_and_closed_read_closes_the_connection(transport: HttpTransport, sent: bytes) -> None:
    """Rule 116: the same in the middle of an answer, with the `close` that every user of a reply owes it."""
    async with cancelled_while_reading(transport, sent) as (reply, upstream):
        await reply.close()
        await within_reason(upstream.left)
        assert upstream.left.is_set()


async def test_cancelled_read_closes_the_connection(transport: HttpTransport) -> None:
    """As the module promises: cancelling alone closes the connection."""
    async with cancelled_while_reading(transport, b"half") as (_, upstream):
        await within_reason(upstream.left)
        assert upstream.left.is_set()


async def test_close_ends_open_connections() -> None:
    """Closing the transport closes what it kept alive."""
    transport = HttpTransport()
    async with listening(OK) as upstream:
        await read_all(transport, call_to(upstream.url))
        assert not upstream.left.is_set()
        await transport.close()
        await within_reason(upstream.left)


async def test_connections_can_be_limited() -> None:
    """With room for one connection a second request waits until the first is given up."""
    transport = HttpTransport(connections=1)
    async with listening(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", OK) as upstream:
        first = await transport.send(call_to(upstream.url))
        second = asyncio.create_task(read_all(transport, call_to(upstream.url)))
        await asyncio.sleep(0.01)
        assert len(upstream.requests) == 1
        await first.close()
        assert await second == (200, b"ok")
        assert len(upstream.requests) == 2
        await transport.close()


@pytest.mark.parametrize(("stopped", "left"), [(0.0, 99.0), (8.5, 90.5), (60.0, 100.0)])
def test_time_in_which_the_process_was_stopped_is_not_taken_from_the_answer(
    monkeypatch: pytest.MonkeyPatch, stopped: float, left: float
) -> None:
    """A request on a connection that was opened all the same is not given up as soon as it is sent."""
    call = call_to("http://127.0.0.1:1", timeouts=Timeouts(connect=10, read=100))

    async def dial(pool: Pool, _: PooledOrigin) -> Connection:
        await enter(pool)
        return Connection(asyncio.get_running_loop(), lambda _: None)

    async def enter(_: object) -> None:
        if stopped:
            stall(stopped)
        await asyncio.sleep(1)

    async def main() -> float:
        transport = HttpTransport()
        origin = transport._pool.origin(DialTarget("127.0.0.1", 1, tls=False))
        monkeypatch.setattr(Pool, "dial", dial)
        return (await transport._dial(origin, call, 100.0))[1]

    assert run(main) == pytest.approx(left, abs=0.002)


@pytest.mark.parametrize(("stopped", "left"), [(0.0, 99.0), (98.5, 0.5), (160.0, 100.0)])
def test_time_in_which_the_process_was_stopped_is_not_taken_from_a_turn(
    monkeypatch: pytest.MonkeyPatch, stopped: float, left: float
) -> None:
    """The same for a request that had to wait for its turn."""
    call = call_to("http://127.0.0.1:1", timeouts=Timeouts(connect=10, read=100))

    async def enter(_: PooledOrigin) -> None:
        if stopped:
            stall(stopped)
        await asyncio.sleep(1)

    async def main() -> float:
        transport = HttpTransport()
        monkeypatch.setattr(PooledOrigin, "enter", enter)
        return await transport._enter(transport._pool.origin(DialTarget("127.0.0.1", 1, tls=False)), call)

    assert run(main) == pytest.approx(left, abs=0.002)
