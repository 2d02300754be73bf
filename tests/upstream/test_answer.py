"""What the bytes of an answer mean: any cut into pieces gives the same answer, and any end of them a known one."""

import random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.upstream.http1.answer import HEAD_LIMIT, AnswerPhase, AnswerReader, Garbled, Hangup


class Read(NamedTuple):
    """What a reader knows in the end."""

    phase: AnswerPhase
    begun: bool
    status: int
    headers: dict[str, str]
    body: bytes
    keep: bool
    error: str


def read(*pieces: bytes, bodiless: bool = False, closed: bool = True) -> Read:
    """Read an answer that comes in these pieces, up to the end of its connection."""
    reader = AnswerReader()
    reader.expect(bodiless=bodiless)
    for piece in filter(None, pieces):  # a loop never brings nothing
        reader.feed(piece)
    keep = reader.keep
    if closed:
        reader.end(None)
    error = "" if reader.error is None else f"{type(reader.error).__name__}: {reader.error}"
    status, headers = (reader.status, reader.headers) if reader.begun else (0, {})
    return Read(reader.phase, reader.begun, status, headers, b"".join(reader.pieces), keep, error)


LENGTH = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Two: a\r\ncontent-length: 5\r\nx-two: b\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nx-pad:  padded \t\r\n\r\n"
    b"5\r\nhello\r\n6;name=value\r\n world\r\n0\r\nx-trailer: t\r\n\r\n"
)
CLOSING = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nuntil the end"
INTERIM = b"HTTP/1.1 100 Continue\r\nx-early: 1\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\n" + LENGTH
ANSWERS = {
    "length": LENGTH,
    "no body": b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n",
    "chunked": CHUNKED,
    "until the end": CLOSING,
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\n\r\nold",
    "interim": INTERIM,
    "204": b"HTTP/1.1 204 No Content\r\ncontent-length: 3\r\n\r\n",
    "304": b"HTTP/1.1 304 Not Modified\r\ncontent-length: 3\r\n\r\n",
    "no reason": b"HTTP/1.1 200\r\ncontent-length: 1\r\n\r\nx",
    "latin-1": b"HTTP/1.1 200 OK\r\nx-name: caf\xe9\r\ncontent-length: 1\r\n\r\nx",
    "garbage": b"SSH-2.0-OpenSSH_9.9\r\n\r\n",
    "bad chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\nxyz\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nok",
    "length and chunks": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "upgrade": b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nanything",
    "more than the answer": LENGTH + b"and more",
    "second answer": LENGTH + LENGTH,
    "second answer begun": LENGTH + b"HTTP/1.1 2",
    "after close": CLOSING.replace(b"\r\n\r\n", b"\r\ncontent-length: 5\r\n\r\n"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_every_cut_into_two_is_the_same(name: str) -> None:
    """Wherever the network cuts an answer, it is the same one; byte by byte, too."""
    answer = ANSWERS[name]
    whole = read(answer)
    assert read(*(answer[at : at + 1] for at in range(len(answer)))) == whole
    for at in range(len(answer) + 1):
        assert read(answer[:at], answer[at:]) == whole, at


@given(name=st.sampled_from(sorted(ANSWERS)), seed=st.integers(), pieces=st.integers(1, 12))
def test_any_cut_is_the_same(name: str, seed: int, pieces: int) -> None:
    """The same for any number of pieces."""
    answer = ANSWERS[name]
    cuts = sorted(random.Random(seed).choices(range(len(answer) + 1), k=pieces))
    parts = [answer[start:end] for start, end in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    assert read(*parts) == read(answer)


@pytest.mark.parametrize(
    ("name", "status", "body", "keep"),
    [
        ("length", 200, b"hello", True),
        ("no body", 500, b"", True),
        ("chunked", 200, b"hello world", True),
        ("until the end", 200, b"until the end", False),
        ("HTTP/1.0", 200, b"old", False),
        ("interim", 200, b"hello", True),
        ("204", 204, b"", True),
        ("304", 304, b"", True),
        ("no reason", 200, b"x", True),
        ("more than the answer", 200, b"hello", False),
        ("second answer", 200, b"hello", False),
        ("second answer begun", 200, b"hello", False),
        ("after close", 200, b"until", False),
    ],
)
def test_complete_answers(name: str, status: int, body: bytes, keep: bool) -> None:
    """Each way to frame a body is read to its end; what follows it ends the use of the connection."""
    answer = read(ANSWERS[name])
    assert (answer.phase, answer.status, answer.body, answer.error) == (AnswerPhase.DONE, status, body, "")
    assert answer.keep == keep


def test_headers() -> None:
    """Names are lower case, several values are one, padding is gone, trailers and interim headers do not count."""
    assert read(LENGTH).headers == {"content-type": "text/plain", "x-two": "a, b", "content-length": "5"}
    assert read(CHUNKED).headers == {"transfer-encoding": "chunked", "x-pad": "padded"}
    assert read(INTERIM).headers == read(LENGTH).headers
    assert read(ANSWERS["latin-1"]).headers["x-name"] == "café"


@pytest.mark.parametrize(
    "name", ["garbage", "bad chunk", "two lengths", "length and chunks", "upgrade"], ids=lambda name: name
)
def test_what_is_no_http(name: str) -> None:
    """Anything else is garbled, and never used again."""
    answer = read(ANSWERS[name])
    assert answer.phase is AnswerPhase.BROKEN
    assert answer.error.startswith("Garbled: ")
    assert not answer.keep


@pytest.mark.parametrize("name", ["length", "chunked", "interim", "no body"])
def test_cut_at_every_point(name: str) -> None:
    """An answer that ends early hung up, and its beginning is the whole one's."""
    answer = ANSWERS[name]
    whole = read(answer)
    for at in range(len(answer)):
        cut = read(answer[:at])
        assert (cut.phase, cut.error) == (AnswerPhase.BROKEN, "Hangup: "), at
        assert whole.body.startswith(cut.body)
        assert cut.headers == (whole.headers if cut.begun else {})


def test_reset_in_a_body_without_length() -> None:
    """Only a clean end completes a body that lasts until the end."""
    reader = AnswerReader()
    reader.expect(bodiless=False)
    reader.feed(CLOSING)
    reset = ConnectionResetError()
    reader.end(reset)
    assert (reader.phase, reader.error) == (AnswerPhase.BROKEN, reset)


@pytest.mark.parametrize("framing", [b"content-length: 5", b"transfer-encoding: chunked", b"x: y"])
def test_answers_without_a_body(framing: bytes) -> None:
    """An answer to `HEAD` ends with its head, and the next one is read from its own beginning."""
    reader = AnswerReader()
    reader.expect(bodiless=True)
    reader.feed(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n")
    assert (reader.phase, reader.keep) == (AnswerPhase.DONE, framing != b"x: y")
    reader.expect(bodiless=False)
    reader.feed(LENGTH)
    assert (reader.phase, reader.keep, reader.pieces) == (AnswerPhase.DONE, True, [b"hello"])


def test_body_where_none_can_be() -> None:
    """A body after an answer that has none is dropped, and the connection with it."""
    answer = read(LENGTH, bodiless=True, closed=False)
    assert (answer.phase, answer.body, answer.keep) == (AnswerPhase.DONE, b"", False)


def test_trailers_stay_with_their_answer() -> None:
    """The trailers of one answer are no headers of the next."""
    reader = AnswerReader()
    for _ in range(2):
        reader.expect(bodiless=False)
        reader.feed(CHUNKED)
        assert reader.headers == {"transfer-encoding": "chunked", "x-pad": "padded"}
        assert b"".join(reader.pieces) == b"hello world"
        reader.pieces.clear()


@pytest.mark.parametrize("after", [LENGTH, b"x", b"HTTP/1.1 408 Request Timeout\r\n\r\n"])
def test_words_that_nobody_asked_for(after: bytes) -> None:
    """What comes after an answer, or before any request, is never taken for an answer."""
    reader = AnswerReader()
    reader.expect(bodiless=False)
    reader.feed(LENGTH)
    assert reader.keep
    reader.feed(after)
    assert (reader.phase, reader.keep, reader.pieces) == (AnswerPhase.DONE, False, [b"hello"])
    idle = AnswerReader()
    idle.feed(after)
    assert (idle.phase, type(idle.error), idle.pieces) == (AnswerPhase.BROKEN, Garbled, [])


def of_size(size: int) -> bytes:
    """A head of so many bytes."""
    frame = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-long: %b\r\n\r\n"
    return frame % (b"y" * (size - len(frame % b"")))


@pytest.mark.parametrize("step", [1000, 4096, HEAD_LIMIT - 1, HEAD_LIMIT, HEAD_LIMIT + 1, 1_000_000])
@pytest.mark.parametrize(("size", "fits"), [(HEAD_LIMIT, True), (HEAD_LIMIT + 1, False), (100_000, False)])
def test_head_has_a_limit(size: int, fits: bool, step: int) -> None:
    """A head of the greatest size is read and a larger one is not, however it comes."""
    answer = of_size(size) + b"ok"
    got = read(*(answer[at : at + step] for at in range(0, len(answer), step)))
    assert got.phase is (AnswerPhase.DONE if fits else AnswerPhase.BROKEN)
    assert got.body == (b"ok" if fits else b"")
    assert fits or str(HEAD_LIMIT) in got.error


def test_interim_answers_have_a_limit() -> None:
    """Interim answers without end are a head that does not end."""
    reader = AnswerReader()
    reader.expect(bodiless=False)
    for _ in range(HEAD_LIMIT // 25 + 1):
        reader.feed(b"HTTP/1.1 102 Working\r\n\r\n\r\n")
    assert isinstance(reader.error, Garbled)


@given(data=st.lists(st.binary(max_size=60), max_size=6), begun=st.sampled_from([b"", LENGTH[:40], CHUNKED[:90]]))
def test_any_bytes_are_read(data: list[bytes], begun: bytes) -> None:
    """Whatever comes, the reader ends in a complete answer or in an error of its own."""
    reader = AnswerReader()
    reader.expect(bodiless=False)
    for piece in [begun, *data]:
        reader.feed(piece)
    reader.end(None)
    assert reader.phase in {AnswerPhase.DONE, AnswerPhase.BROKEN}
    assert reader.phase is AnswerPhase.DONE or isinstance(reader.error, (Hangup, Garbled))
    assert not reader.keep
