"""The head of an answer: its headers are written with one join, and say what uvicorn would say."""

import socket

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.connections.receiving import headers_of
from mustcall.gateway.connections.write_coalescing import written_headers
from mustcall.testing import Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway

names = st.sampled_from([b"x-a", b"x-b", b"content-type", b"vary"])
values = st.binary(max_size=8)


@given(st.lists(st.tuples(names, values), min_size=1, max_size=6))
def test_what_a_header_cannot_hold_is_not_written(headers: list[tuple[bytes, bytes]]) -> None:
    """A control character in any value leaves the headers to uvicorn, which refuses them; all others are lines."""
    written = written_headers(headers)
    if any(byte == 0x7F or (byte < 0x20 and byte != 0x09) for _, value in headers for byte in value):
        assert written is None
    else:
        assert written is not None
        assert written.split(b"\r\n") == [name + b": " + value for name, value in headers]


@pytest.mark.parametrize("name", [b"content-length", b"transfer-encoding", b"connection"])
def test_what_frames_a_body_is_left_to_uvicorn(name: bytes) -> None:
    """It goes by these headers, and has to see them."""
    assert written_headers([(b"x-a", b"1"), (name, b"0")]) is None
    assert written_headers([]) is None


def test_heads_frame_their_bodies() -> None:
    """Each header stands once, behind the status line; a stream is chunked, and HEAD and HTTP/1.0 are as before."""
    body = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    with (
        ScriptedUpstream(default=Turn(Say("ok"))) as upstream,
        RunningGateway(settings=settings_from_flags(f"chat={upstream.base_url}")) as gateway,
    ):
        host, _, port = gateway.url.removeprefix("http://").partition(":")

        def ask(line: bytes, sent: bytes = b"") -> tuple[bytes, dict[bytes, bytes], bytes]:
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(
                    b"%b\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
                    % (line, len(sent), sent)
                )
                said = b""
                while piece := connection.recv(65_536):
                    said += piece
            head, _, rest = said.partition(b"\r\n\r\n")
            status, *lines = head.split(b"\r\n")
            headers = {name: value for name, _, value in (line.partition(b": ") for line in lines)}
            assert len(headers) == len(lines)
            return status, headers, rest

        status, headers, rest = ask(b"POST /v1/chat/completions HTTP/1.1", body)
        assert status == b"HTTP/1.1 200 OK"
        assert int(headers[b"content-length"]) == len(rest)
        assert headers[b"connection"] == b"close"
        assert headers[b"x-mustcall-outcome"] == b"answer"
        status, headers, rest = ask(b"POST /v1/chat/completions HTTP/1.1", body[:-1] + b',"stream":true}')
        assert headers[b"transfer-encoding"] == b"chunked"
        assert rest.endswith(b"0\r\n\r\n")
        status, headers, rest = ask(b"HEAD /v1/models HTTP/1.1")
        assert (rest, int(headers[b"content-length"]) > 0) == (b"", True)
        status, headers, rest = ask(b"GET /healthz HTTP/1.0")
        assert int(headers[b"content-length"]) == len(rest)


@given(st.lists(st.tuples(st.binary(max_size=4), st.binary(max_size=6)), max_size=6))
def test_headers_are_read_as_they_came(raw: list[tuple[bytes, bytes]]) -> None:
    """Names and values are Latin-1, those of one name joined, whatever they hold."""
    expected: dict[str, str] = {}
    for name, value in raw:
        key, word = name.decode("latin-1"), value.decode("latin-1")
        expected[key] = f"{expected[key]}, {word}" if key in expected else word
    assert headers_of({"headers": raw}) == expected


def test_connections_that_stay_open_are_framed_as_well() -> None:
    """Answers behind each other on one connection: whole, streamed, to a large body, and to one in many chunks."""

    def asked(text: str, *, stream: bool = False) -> bytes:
        messages = [{"role": "user", "content": text}]
        return msgspec.json.encode({"model": "m", "messages": messages, "stream": stream})

    def read(connection: socket.socket) -> tuple[dict[bytes, bytes], bytes]:
        said = b""
        while b"\r\n\r\n" not in said:
            said += connection.recv(65_536)
        head, _, rest = said.partition(b"\r\n\r\n")
        status, *lines = head.split(b"\r\n")
        assert status == b"HTTP/1.1 200 OK"
        headers = {name: value for name, _, value in (line.partition(b": ") for line in lines)}
        assert len(headers) == len(lines)
        size = int(headers[b"content-length"]) if b"content-length" in headers else None
        while len(rest) < size if size is not None else not rest.endswith(b"0\r\n\r\n"):
            rest += connection.recv(65_536)
        return headers, rest

    large = asked("x" * 400_000)
    with (
        ScriptedUpstream(default=Turn(Say("ok"))) as upstream,
        RunningGateway(settings=settings_from_flags(f"chat={upstream.base_url}")) as gateway,
    ):
        host, _, port = gateway.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as connection:
            start = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            for body in (asked("hi"), asked("hi", stream=True), large, asked("again")):
                connection.sendall(b"%bcontent-length: %d\r\n\r\n%b" % (start, len(body), body))
                headers, rest = read(connection)
                assert (b"content-length" in headers) != (headers.get(b"transfer-encoding") == b"chunked")
                assert b"connection" not in headers
                assert len(rest) == int(headers.get(b"content-length", len(rest)))
                assert upstream.requests[-1].body == msgspec.json.decode(body)
            chunks = b"".join(
                b"%x\r\n%b\r\n" % (len(large[i : i + 999]), large[i : i + 999]) for i in range(0, len(large), 999)
            )
            connection.sendall(b"%btransfer-encoding: chunked\r\n\r\n%b0\r\n\r\n" % (start, chunks))
            read(connection)
            assert upstream.requests[-1].body == msgspec.json.decode(large)
