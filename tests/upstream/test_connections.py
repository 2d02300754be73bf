"""Connections in use: kept, stale, cut off, pressed back upon, and many at a time."""

import asyncio
from contextlib import aclosing, closing, suppress

import pytest

from mustcall.core.errors import UpstreamGarbage, UpstreamTimeout, UpstreamUnavailable
from mustcall.upstream.http import HttpReply, HttpTransport
from mustcall.upstream.http1 import pool
from mustcall.upstream.http1.connection import HIGH_WATER
from mustcall.upstream.seam import UpstreamCall
from support.loopback import BRIEF_READ, OK, PATIENT, call_to, failure_of, listening, read_all, within_reason
from support.serving import Served, Serving, serving


def get(url: str) -> UpstreamCall:
    """A call that may be repeated."""
    return UpstreamCall(url=f"{url}/models", headers={}, body=None, method="GET", timeouts=PATIENT)


async def kept(transport: HttpTransport, server: Serving) -> Served:
    """Make one exchange and return the connection it leaves behind, which rests on the client's side."""
    exchange = asyncio.create_task(read_all(transport, call_to(server.url)))
    served = await server.accept()
    assert await served.heard()
    await served.say()
    assert await exchange == (200, b"ok")
    return served


async def answer_next(server: Serving) -> bytes:
    """Take the next connection, answer it, and return what was asked."""
    served = await server.accept()
    heard = await served.heard()
    await served.say()
    return heard


# Stale connections.


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_end_of_a_resting_connection_is_seen_at_once(transport: HttpTransport, how: str) -> None:
    """A connection is asked whether it is open before it is used again: one that ended a moment ago costs nothing."""
    async with serving() as server:
        getattr(await kept(transport, server), how)()
        exchange = asyncio.create_task(answer_next(server))
        assert await read_all(transport, call_to(server.url)) == (200, b"ok")  # no step of the loop lies between
        assert (await exchange).endswith(b'{"say":"sekret-body"}')


async def test_end_that_the_loop_has_seen(transport: HttpTransport) -> None:
    """A connection whose peer hangs up while it rests is dropped, whatever its age."""
    async with serving() as server:
        (await kept(transport, server)).close()
        await asyncio.sleep(0.01)
        assert transport.open_connections == 0
        exchange = asyncio.create_task(answer_next(server))
        assert await read_all(transport, call_to(server.url)) == (200, b"ok")
        await exchange


@pytest.mark.parametrize("used", [False, True], ids=["resting", "used"])
async def test_an_origin_that_keeps_no_connection(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch, used: bool
) -> None:
    """Where the peer ends a connection soon after its answer, none is kept for a while; under a request is no sign."""
    monkeypatch.setattr(pool, "_SOON", 60.0)  # on a busy machine it is not as soon
    async with serving() as server:
        served = await kept(transport, server)
        if used:
            exchange = asyncio.create_task(failure_of(transport, call_to(server.url)))
            await served.heard()
            served.close()
            await exchange
        else:
            served.close()
            await asyncio.sleep(0.01)
        second = await kept(transport, server)
        assert transport.resting_connections == used
        if not used:
            assert await second.heard() == b""  # the client left it


@pytest.mark.parametrize("limit", ["_SOON", "_DISTRUST"])
async def test_connections_are_kept_again(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """A connection that ends after a longer rest was kept, as it should be; a minute after one that was not, too."""
    monkeypatch.setattr(pool, limit, 0.0)
    async with serving() as server:
        (await kept(transport, server)).close()
        await asyncio.sleep(0.01)
        await kept(transport, server)
        assert transport.resting_connections == 1


async def test_ended_connections_are_not_collected(transport: HttpTransport) -> None:
    """Of a connection that ends while it rests nothing is kept, also where younger ones are still open."""
    async with serving() as server:
        exchanges = [asyncio.create_task(read_all(transport, call_to(server.url))) for _ in range(3)]
        ends = [await server.accept() for _ in exchanges]
        for served in ends:
            await served.heard()
            await served.say()
        await asyncio.gather(*exchanges)
        assert (transport.open_connections, transport.resting_connections) == (3, 3)
        for left, served in zip((2, 1, 0), ends, strict=True):
            served.close()
            await asyncio.sleep(0.01)
            assert (transport.open_connections, transport.resting_connections) == (left, left)


async def test_request_that_could_not_be_written_is_sent_again(transport: HttpTransport) -> None:
    """A connection that is reset before the first byte leaves takes nothing with it: the request goes to another."""
    async with serving() as server:
        (await kept(transport, server)).reset()
        exchange = asyncio.create_task(answer_next(server))
        assert await read_all(transport, call_to(server.url)) == (200, b"ok")
        assert (await exchange).startswith(b"POST ")
        assert not server.has_caller()


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_request_that_was_written_is_not_sent_again(transport: HttpTransport, how: str) -> None:
    """An upstream that heard the request and hung up may have begun to work: whether to try again is not ours."""
    async with serving() as server:
        served = await kept(transport, server)
        exchange = asyncio.create_task(failure_of(transport, call_to(server.url)))
        assert (await served.heard()).startswith(b"POST ")
        getattr(served, how)()
        error = await exchange
        assert type(error) is UpstreamUnavailable
        assert error.retryable
        assert not server.has_caller()


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_request_that_may_be_repeated_is(transport: HttpTransport, how: str) -> None:
    """A `GET` on a kept connection that ends without a byte is asked once more, on a new one."""
    async with serving() as server:
        served = await kept(transport, server)
        exchange = asyncio.create_task(read_all(transport, get(server.url)))
        assert (await served.heard()).startswith(b"GET ")
        getattr(served, how)()
        assert (await answer_next(server)).startswith(b"GET ")
        assert await exchange == (200, b"ok")


async def test_only_one_repetition(transport: HttpTransport) -> None:
    """A new connection that ends as well is a failure."""
    async with serving() as server:
        served = await kept(transport, server)
        exchange = asyncio.create_task(failure_of(transport, get(server.url)))
        await served.heard()
        served.close()
        again = await server.accept()
        await again.heard()
        again.close()
        assert type(await exchange) is UpstreamUnavailable
        assert not server.has_caller()


async def test_no_repetition_after_a_byte(transport: HttpTransport) -> None:
    """An answer that has begun is not asked for again."""
    async with serving() as server:
        served = await kept(transport, server)
        exchange = asyncio.create_task(failure_of(transport, get(server.url)))
        await served.heard()
        await served.say(b"H")
        served.close()
        assert "closed the connection" in (await exchange).message
        assert not server.has_caller()


async def test_no_repetition_after_the_time(transport: HttpTransport) -> None:
    """An upstream that is silent for too long is not asked again."""
    async with serving() as server:
        served = await kept(transport, server)
        call = UpstreamCall(url=f"{server.url}/models", headers={}, body=None, method="GET", timeouts=BRIEF_READ)
        assert type(await failure_of(transport, call)) is UpstreamTimeout
        assert await served.heard()
        assert not server.has_caller()


async def test_kept_connection_is_closed_in_time(transport: HttpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that nobody uses again is closed."""
    monkeypatch.setattr(pool, "_KEEP_ALIVE", 0.02)
    async with listening(OK) as upstream:
        await read_all(transport, call_to(upstream.url))
        await within_reason(upstream.left)
        assert transport.open_connections == 0


@pytest.mark.parametrize("more", [b"x", OK, b"HTTP/1.1 200 OK\r\n"], ids=["garbage", "answer", "begun"])
async def test_more_than_the_answer_ends_the_connection(transport: HttpTransport, more: bytes) -> None:
    """What nobody asked for is never the answer to the next request."""
    async with listening(OK + more, OK) as upstream:
        for _ in range(2):
            assert await read_all(transport, call_to(upstream.url)) == (200, b"ok")
        assert [len(requests) for requests in upstream.connections] == [1, 1]


async def test_words_on_a_resting_connection(transport: HttpTransport) -> None:
    """The same for what comes later, such as a server's farewell."""
    async with serving() as server:
        served = await kept(transport, server)
        await served.say(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")
        await asyncio.sleep(0.01)
        exchange = asyncio.create_task(answer_next(server))
        assert await read_all(transport, call_to(server.url)) == (200, b"ok")
        await exchange


async def test_server_that_speaks_first(transport: HttpTransport) -> None:
    """A port where something else answers is said to be that."""

    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        await writer.drain()
        writer.close()

    with closing(await asyncio.start_server(greet, "127.0.0.1", 0)) as server:
        port = server.sockets[0].getsockname()[1]
        assert type(await failure_of(transport, call_to(f"http://127.0.0.1:{port}"))) is UpstreamGarbage


# What closes when.


async def test_unread_but_complete_answer_keeps_its_connection(transport: HttpTransport) -> None:
    """An answer that has arrived whole need not be read for its connection to be used again."""
    async with listening(OK, OK) as upstream:
        reply = await transport.send(call_to(upstream.url))
        await reply.close()
        await reply.close()
        assert await reply.read() == b""
        assert await read_all(transport, call_to(upstream.url)) == (200, b"ok")
        assert len(upstream.connections) == 1


async def test_closed_reply_is_not_read_on(transport: HttpTransport) -> None:
    """A reply that was given up does not reach into what its connection does next."""
    async with listening(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf") as upstream:
        reply = await transport.send(call_to(upstream.url))
        async with aclosing(reply.chunks()) as chunks:
            assert await anext(chunks) == b"half"
            await reply.close()
            with pytest.raises(UpstreamUnavailable):
                await anext(chunks)


async def test_closed_reply_does_not_read_the_next_answer(transport: HttpTransport) -> None:
    """A stream that was given up once its answer was there does not take pieces of the exchange that follows it."""
    async with serving() as server:
        sending = asyncio.create_task(transport.send(call_to(server.url)))
        served = await server.accept()
        await served.heard()
        await served.say(OK[:-1])
        first = await sending
        chunks = first.chunks()
        assert await anext(chunks) == b"o"
        await served.say(OK[-1:])
        await asyncio.sleep(0.01)
        await first.close()
        sending = asyncio.create_task(transport.send(call_to(server.url)))
        assert await served.heard()  # on the same connection
        await served.say()
        second = await sending
        with pytest.raises(UpstreamUnavailable):
            await anext(chunks)
        assert await second.read() == b"ok"


async def test_head_request(transport: HttpTransport) -> None:
    """The answer to `HEAD` has the headers of a body and none; the connection goes on."""
    async with listening(OK[:-2], OK) as upstream:
        head = UpstreamCall(url=upstream.url, headers={}, body=None, method="HEAD", timeouts=PATIENT)
        assert await read_all(transport, head) == (200, b"")
        assert await read_all(transport, call_to(upstream.url)) == (200, b"ok")
        assert len(upstream.connections) == 1


async def test_failure_after_pieces(transport: HttpTransport) -> None:
    """What has arrived before a cut is handed on, and then the cut."""
    answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 9\r\n\r\nhalf"
    async with listening(answer) as upstream:
        reply = await transport.send(call_to(upstream.url))
        chunks = reply.chunks()
        await asyncio.sleep(0.01)  # the cut has arrived as well
        assert await anext(chunks) == b"half"
        with pytest.raises(UpstreamUnavailable, match="closed the connection"):
            await anext(chunks)
        await reply.close()


@pytest.mark.parametrize("at", range(len(OK)))
async def test_cut_at_every_point(transport: HttpTransport, at: int) -> None:
    """Wherever an answer is cut off, the exchange fails in our own words, and no socket stays open."""
    async with serving() as server:
        exchange = asyncio.create_task(failure_of(transport, call_to(server.url)))
        served = await server.accept()
        await served.heard()
        await served.say(OK[:at])
        served.close()
        error = await exchange
        assert type(error) is UpstreamUnavailable
        assert "closed the connection before its answer was complete" in error.message
        assert transport.open_connections == 0


# Cancelling.


@pytest.mark.parametrize("moment", ["connecting", "waiting", "uploading", "reading"])
async def test_cancelled_exchanges_leave_nothing(transport: HttpTransport, moment: str) -> None:
    """Rule 116: whenever an exchange is cancelled, its connection is closed."""
    async with serving() as server:
        body = bytes(20_000_000) if moment == "uploading" else b"{}"
        task = asyncio.create_task(read_all(transport, call_to(server.url, body=body)))
        if moment == "connecting":
            await asyncio.sleep(0)
            task.cancel()
        else:
            served = await server.accept()
            assert await served.heard()
            if moment == "reading":
                await served.say(OK[:-1])
                await asyncio.sleep(0.01)
            task.cancel()
            await served.client_has_left()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert transport.open_connections == 0


async def test_closing_the_transport_ends_exchanges() -> None:
    """What is under way when the transport closes fails in our words, and later calls do too."""
    transport = HttpTransport()
    async with serving() as server:
        exchange = asyncio.create_task(failure_of(transport, call_to(server.url)))
        served = await server.accept()
        await served.heard()
        await transport.close()
        assert type(await exchange) is UpstreamUnavailable
        assert await served.heard() == b""
        assert "closed" in (await failure_of(transport, call_to(server.url))).message


# Sizes and numbers.


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a request with its body."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    body = await reader.readexactly(size)
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
    writer.write(body)
    await writer.drain()
    writer.close()


async def test_large_bodies_both_ways(transport: HttpTransport) -> None:
    """Four megabytes, more than the system keeps on the way, are the same to the last byte there and back."""
    body = b"".join(b"%08d" % number for number in range(500_000))
    with closing(await asyncio.start_server(echo, "127.0.0.1", 0)) as server:
        port = server.sockets[0].getsockname()[1]
        status, answer = await read_all(transport, call_to(f"http://127.0.0.1:{port}", body=body))
        assert status == 200
        assert answer == body


async def test_answer_before_the_request_is_written(transport: HttpTransport) -> None:
    """A refusal that comes while a large body is still being sent is the answer, and its connection is not kept."""
    async with serving() as server:
        exchange = asyncio.create_task(read_all(transport, call_to(server.url, body=bytes(20_000_000))))
        served = await server.accept()
        await served.heard()
        await served.say(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
        assert await exchange == (413, b"big")
        assert transport.open_connections == 0


async def test_answer_that_begins_early_does_not_stop_the_request(transport: HttpTransport) -> None:
    """A body goes on being sent while its answer begins."""
    async with serving() as server:
        sending = asyncio.create_task(transport.send(call_to(server.url, body=bytes(20_000_000))))
        served = await server.accept()
        heard = await served.heard()
        await served.say(OK[:-2])
        reply = await sending
        await served.hear_exactly(20_000_000 - len(heard.partition(b"\r\n\r\n")[2]))
        await served.say(b"ok")
        assert await reply.read() == b"ok"
        exchange = asyncio.create_task(read_all(transport, call_to(server.url)))
        assert await served.heard()  # on the same connection
        await served.say()
        assert await exchange == (200, b"ok")


async def test_slow_consumer_slows_the_upstream(transport: HttpTransport) -> None:
    """What is not taken is not read: the upstream waits, and what is held stays small."""
    piece = bytes(65536)
    total = 800
    sent = 0
    stalled = asyncio.Event()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (total * len(piece)))
        while sent < total:
            writer.write(piece)
            sent += 1
            drained = asyncio.ensure_future(writer.drain())
            if not (await asyncio.wait({drained}, timeout=0.3))[0]:
                stalled.set()
            await drained
        writer.close()

    with closing(await asyncio.start_server(stream, "127.0.0.1", 0)) as server:
        reply = await transport.send(call_to(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
        assert isinstance(reply, HttpReply)
        chunks = reply.chunks()
        size = len(await anext(chunks))
        await within_reason(stalled)
        assert sent < total / 2
        connection = reply._connection
        assert connection is not None
        assert HIGH_WATER < sum(map(len, connection.pieces)) <= 2 * HIGH_WATER
        async for more in chunks:
            assert len(more) <= 2 * HIGH_WATER
            size += len(more)
        assert size == total * len(piece)
        await reply.close()


async def test_framing_without_content(transport: HttpTransport) -> None:
    """A body that is nothing but chunk extensions or trailers is refused before it fills the memory."""
    async with serving() as server:
        exchange = asyncio.create_task(failure_of(transport, call_to(server.url)))
        served = await server.accept()
        await served.heard()
        await served.say(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-long: ")
        with suppress(ConnectionError):
            await served.say(b"y" * 20_000_000)
        error = await exchange
        assert type(error) is UpstreamGarbage
        assert "framing" in error.message


async def test_many_exchanges_at_a_time(transport: HttpTransport) -> None:
    """Three hundred requests are with the upstream at once; the next three hundred use the same connections."""
    number = 300
    arrived = 0
    opened = 0
    everybody = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal arrived, opened
        opened += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                arrived += 1
                if arrived % number == 0:
                    everybody.set()
                await everybody.wait()
                name = head.partition(b"x-name: ")[2].partition(b"\r\n")[0]
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(name), name))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=512)
    with closing(server):
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for turn in range(2):
            everybody.clear()
            calls = [
                UpstreamCall(url=url, headers={"x-name": f"{turn}-{name}"}, body=None, method="GET", timeouts=PATIENT)
                for name in range(number)
            ]
            answers = await asyncio.gather(*[read_all(transport, call) for call in calls])
            assert answers == [(200, f"{turn}-{name}".encode()) for name in range(number)]
        assert opened == number
        await transport.close()
