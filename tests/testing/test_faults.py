"""Every fault as a client sees it on the wire, and what the upstream says about it afterwards."""

import asyncio
import http.client
import json
import socket
from collections.abc import Generator
from contextlib import closing, contextmanager

import aiohttp
import pytest

from mustcall.testing import Call, Cut, Delayed, End, Fail, Hang, Raw, RawStream, Reset, Say, ScriptedUpstream, Turn

TURN = Turn(Say("one two three four five"))
STREAMED = json.dumps({"model": "m", "messages": [], "stream": True})
WHOLE = json.dumps({"model": "m", "messages": []})
PATH = "/v1/chat/completions"


@contextmanager
def ask(upstream: ScriptedUpstream, body: str = STREAMED, timeout: float = 5) -> Generator[http.client.HTTPConnection]:
    """Send a request on a connection of its own; the caller reads the response."""
    with closing(http.client.HTTPConnection("127.0.0.1", upstream.port, timeout=timeout)) as connection:
        connection.request("POST", PATH, body)
        yield connection


def read_some(response: http.client.HTTPResponse, count: int) -> bytes:
    """Read so many bytes of a body as they come."""
    data = b""
    while len(data) < count:
        data += response.read1(count - len(data))
    return data


def read_whole(answer: Turn = TURN) -> bytes:
    """Return the streamed body of a healthy answer."""
    with ScriptedUpstream([answer]) as upstream, ask(upstream) as connection:
        return connection.getresponse().read()


def test_hang_before_the_headers() -> None:
    """`after=0` sends nothing; the client's leaving is recorded and its connection freed."""
    with ScriptedUpstream([Hang(TURN)]) as upstream:
        with ask(upstream, timeout=0.05) as connection, pytest.raises(TimeoutError):
            connection.getresponse()
        upstream.wait_for_requests(1)
        [recorded] = upstream.wait_until_done()
        upstream.wait_for_connections(0)
    assert recorded.disconnected
    assert recorded.ended is End.DISCONNECTED


def test_hang_after_the_headers() -> None:
    """`head=True` sends the headers and no body."""
    with ScriptedUpstream([Hang(TURN, head=True)]) as upstream, ask(upstream) as connection:
        response = connection.getresponse()
        connection.sock.settimeout(0.05)
        assert response.status == 200
        with pytest.raises(TimeoutError):
            response.read1(1)


def test_hang_in_the_body_until_released() -> None:
    """So many bytes arrive and no more; `release` lets the rest go, and the reply is complete."""
    whole = read_whole()
    with ScriptedUpstream([Hang(TURN, after=100)]) as upstream, ask(upstream) as connection:
        response = connection.getresponse()
        head = read_some(response, 100)
        assert upstream.requests[0].ended is None
        upstream.release()
        rest = response.read()
        [recorded] = upstream.wait_until_done()
    assert head + rest == whole
    assert recorded.ended is End.COMPLETE


def test_closing_ends_a_hang() -> None:
    """Closing the upstream ends what hangs at once and says so."""
    with ScriptedUpstream([Hang(TURN, after=10)]) as upstream, ask(upstream) as connection:
        response = connection.getresponse()
        assert len(read_some(response, 10)) == 10
        upstream.close()
        with pytest.raises(http.client.IncompleteRead):
            response.read()
    assert upstream.requests[0].ended is End.CLOSED
    assert not upstream.requests[0].disconnected


@pytest.mark.parametrize("after", [1, 57, 200])
def test_cut_in_a_stream(after: int) -> None:
    """A cut stream ends cleanly on the TCP level, its chunked body unfinished, after exactly so many bytes."""
    with ScriptedUpstream([Cut(TURN, after=after)]) as upstream, ask(upstream) as connection:
        with pytest.raises(http.client.IncompleteRead) as caught:
            connection.getresponse().read()
        [recorded] = upstream.wait_until_done()
    assert len(caught.value.partial) == after
    assert recorded.ended is End.CUT
    assert not recorded.disconnected


def test_cut_leaves_our_side_open() -> None:
    """After a cut the upstream still holds its half, until the client closes its own."""
    with ScriptedUpstream([Cut(TURN, after=10)]) as upstream:
        with ask(upstream) as connection:
            with pytest.raises(http.client.IncompleteRead):
                connection.getresponse().read()
            upstream.wait_until_done()
            held = upstream.open_connections
        upstream.wait_for_connections(0)
    assert held == 1


def test_cut_of_a_whole_body_and_before_everything() -> None:
    """A body shorter than its length, and a connection closed without a word."""
    with ScriptedUpstream([Cut(TURN, after=20), Cut(TURN)]) as upstream:
        with ask(upstream, WHOLE) as connection, pytest.raises(http.client.IncompleteRead):
            connection.getresponse().read()
        with ask(upstream, WHOLE) as connection, pytest.raises(http.client.RemoteDisconnected):
            connection.getresponse()


@pytest.mark.parametrize("after", [0, 100])
def test_reset(after: int) -> None:
    """A reset connection is an RST for the client."""
    with ScriptedUpstream([Reset(TURN, after=after)]) as upstream, ask(upstream) as connection:
        with pytest.raises(ConnectionResetError):
            connection.getresponse().read()
        [recorded] = upstream.wait_until_done()
        upstream.wait_for_connections(0)
    assert recorded.ended is End.RESET


def test_delay_comes_first_and_wraps_faults() -> None:
    """A delayed answer sends nothing for its time; faults and delays nest."""
    with ScriptedUpstream([Delayed(TURN, 60), Delayed(Cut(Fail(500, "x" * 99), after=7), 0.01)]) as upstream:
        with ask(upstream, timeout=0.01) as connection, pytest.raises(TimeoutError):
            connection.getresponse()
        upstream.wait_for_requests(1)
        with ask(upstream) as connection, pytest.raises(http.client.IncompleteRead) as caught:
            connection.getresponse().read()
        first, second = upstream.wait_until_done()
    assert first.disconnected
    assert (second.status, len(caught.value.partial)) == (500, 7)


def test_closing_ends_a_delay() -> None:
    """An upstream that closes does not wait for its delayed answers."""
    with ScriptedUpstream([Delayed(TURN, 60)]) as upstream, ask(upstream) as connection:
        upstream.wait_for_requests(1)
        upstream.close()
        with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
            connection.getresponse()
    assert upstream.requests[0].ended is End.CLOSED


async def test_a_leaving_client_is_seen_mid_stream() -> None:
    """A client that drops the response in the middle is recorded as disconnected, and its connection is gone."""
    async with ScriptedUpstream([Hang(TURN, after=100)]) as upstream, aiohttp.ClientSession() as session:
        response = await session.post(upstream.url + PATH, data=STREAMED)
        assert len(await response.content.readexactly(100)) == 100
        assert not upstream.requests[0].disconnected
        response.close()
        [recorded] = await upstream.await_done()
        await upstream.await_connections(0)
    assert recorded.disconnected


def test_raw_and_raw_stream_are_sent_as_they_are() -> None:
    """Bytes, status and headers go out unchanged; a raw stream keeps its own chunks."""
    chunks = [b"data: \xc3", b"\xa9\n\n", b": odd\r\n"]
    answers = [Raw(418, b"\xff\x00", {"x-odd": "1"}), RawStream(chunks, headers={"content-type": "text/plain"})]
    with ScriptedUpstream(answers, chunking=1) as upstream:
        with ask(upstream) as connection:
            raw = connection.getresponse()
            assert (raw.status, raw.headers["x-odd"], raw.read()) == (418, "1", b"\xff\x00")
        with socket.create_connection(("127.0.0.1", upstream.port), timeout=180) as plain:
            plain.sendall(
                f"POST {PATH} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}".encode()
            )
            received = b"".join(iter(lambda: plain.recv(65536), b""))
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"content-type: text/plain" in head.lower()
    assert body == b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


async def test_faults_do_not_touch_other_exchanges() -> None:
    """While one answer hangs, others are served."""
    answers = [Hang(TURN), Turn(Call("f", {})), Reset(TURN, after=1), TURN]
    async with ScriptedUpstream(answers) as upstream, aiohttp.ClientSession() as session:
        stuck = asyncio.create_task(session.post(upstream.url + PATH, data=STREAMED))
        await upstream.await_requests(1)
        async with session.post(upstream.url + PATH, data=WHOLE) as second:
            assert (await second.json())["choices"][0]["finish_reason"] == "tool_calls"
        with pytest.raises(aiohttp.ClientError):
            await (await session.post(upstream.url + PATH, data=STREAMED)).read()
        async with session.post(upstream.url + PATH, data=STREAMED) as fourth:
            assert (await fourth.read()).endswith(b"data: [DONE]\n\n")
        stuck.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stuck
        recorded = await upstream.await_done()
    assert [one.ended for one in recorded] == [End.DISCONNECTED, End.COMPLETE, End.RESET, End.COMPLETE]
