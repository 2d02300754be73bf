"""What an upstream's answer may be, and that nobody waits for a large one to be read."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from itertools import count
from typing import Self

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import UpstreamGarbage
from mustcall.core.limits import DEFAULTS
from mustcall.upstream import bounds
from mustcall.upstream.bounds import LINES, PIECE, SHORT, cut, fits, in_turns, joined, read_bounded
from mustcall.upstream.http import HttpTransport
from support.loopback import call_to, listening

SMALL = msgspec.structs.replace(DEFAULTS, reply_bytes=300_000, reply_elements=50)


async def _source(*pieces: bytes) -> AsyncGenerator[bytes]:
    for piece in pieces:
        yield piece


class _Others:
    """Another task that counts its turns."""

    def __init__(self) -> None:
        self.turns = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)


def _clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let each look at the clock find it so much later."""
    ticks = count()
    monkeypatch.setattr("mustcall.upstream.bounds.thread_time", lambda: next(ticks) * seconds)


@pytest.mark.parametrize("size", [0, 1, SHORT, SHORT + 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 1, 200_001])
async def test_large_pieces_are_cut_and_others_run_in_between(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 68: what comes at once and takes long is read in turns, byte for byte the same."""
    _clock(monkeypatch, 1.0)
    text = bytes(index % 251 for index in range(size))
    async with _Others() as others:
        pieces = [piece async for piece in in_turns(_source(text), SMALL)]
    assert b"".join(pieces) == text
    _check_bounds(pieces)
    assert others.turns >= (len(pieces) if size > SHORT else 0)


def _check_bounds(pieces: list[bytes]) -> None:
    """See that no piece is large, and that none but a short one has many lines."""
    assert all(len(piece) <= PIECE for piece in pieces)
    assert all(piece.count(b"\n") + piece.count(b"\r") <= LINES for piece in pieces if len(piece) > SHORT)


async def test_pieces_that_take_no_time_share_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 68: what is read quickly is cut all the same, and costs no step of the loop between two pieces."""
    _clock(monkeypatch, 0.0)
    async with _Others() as others:
        await asyncio.sleep(0)
        before = others.turns
        pieces = [piece async for piece in in_turns(_source(b"x" * (2 * PIECE + 5)), SMALL)]
        assert others.turns == before
    assert [len(piece) for piece in pieces] == [PIECE, PIECE, 5]


_LINES = [b"\n\n" * 2_000, b"\r\n\r\n" * 1_000, b"\r" * 5_000, b"data: {}\n\n" * 700, b"a: b\r" * 2_000]


@given(st.lists(st.sampled_from([b"\n\n", b"\n", b"x", b"y" * 5_000, b"z" * PIECE, *_LINES]), max_size=40))
def test_pieces_end_behind_events(parts: list[bytes]) -> None:
    """Rule 68: cut pieces are the data, none is large or of many lines, and they end behind events where they can."""
    data = b"".join(parts)
    pieces = list(cut(data))
    assert b"".join(pieces) == data
    assert fits(data) is (len(pieces) == 1)
    _check_bounds(pieces)
    assert all(piece.endswith(b"\n\n") or b"\n\n" not in piece for piece in pieces[:-1])


@pytest.mark.parametrize("line", [b"x" * 9 + b"\n", b"x" * 9 + b"\r"])
def test_a_piece_has_just_so_many_lines(line: bytes) -> None:
    """Rule 68: the last line that may be in a piece still is, whatever follows it; a CR ends a line, too."""
    for rest in (b"", b"x"):
        assert fits(line * LINES + rest)
        assert not fits(line * (LINES + 1) + rest)


@pytest.mark.parametrize("event", [b"data: %s\n\n", b"event: x\ndata: %s\n\n"])
def test_a_reply_of_two_hundred_deltas_is_one_piece(event: bytes) -> None:
    """Rule 68: a usual reply that came at once is read at once, with a name in each of its events or without."""
    assert fits(event % (b"x" * 100) * 206)
    assert not fits(event % (b"x" * 100) * 500)


@pytest.mark.parametrize("event", [b"data: %s\n\n", b"event: x\ndata: %s\n\n", b"data: %s\r\n\r\n"])
def test_usual_events_are_read_at_once_and_tiny_ones_in_turns(event: bytes) -> None:
    """Rule 68: a piece holds all the usual events of fifty kilobytes, but only a few hundred of the smallest ones."""
    usual = event % (b"x" * 400) * 120
    assert len(usual) > 48_000
    assert list(cut(usual)) == [usual]
    tiny = list(cut(event % b"{}" * 20_000))
    assert len(tiny) > 20
    _check_bounds(tiny)


async def test_a_stream_ends_at_its_limit() -> None:
    """Rule 68: an endless stream is refused at the limit."""
    pieces: list[bytes] = []

    async def take() -> None:
        async for piece in in_turns(_source(*[b"x" * 10_000] * 1_000), SMALL):
            pieces.append(piece)  # noqa: PERF401  what came before the error is looked at

    with pytest.raises(UpstreamGarbage, match="300000 bytes"):
        await take()
    assert sum(map(len, pieces)) == 300_000


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        (b"[" + b"[]," * 60_000 + b"0]", True),
        (b'"' + b"[,{" * 60_000 + b'"', False),
        (b"[" + b"1,  " * 60_000 + b"0]", True),
        (b" " * 299_999, False),
    ],
    ids=["lists", "text", "numbers", "blanks"],
)
async def test_values_are_counted_before_they_are_read(body: bytes, refused: bool) -> None:
    """Rule 68: 60,000 values are refused, the same characters in a text are not; others run meanwhile."""
    async with _Others() as others:
        if refused:
            with pytest.raises(UpstreamGarbage, match="50 values"):
                await read_bounded(_source(body), SMALL)
        else:
            assert await read_bounded(_source(body), SMALL) == body
    assert others.turns


@pytest.mark.parametrize("stream", [False, True])
async def test_the_transport_keeps_the_limits(stream: bool) -> None:
    """Rule 68: over HTTP, too, an answer over the limit is the upstream's garbage, and large ones come in turns."""
    transport = HttpTransport(limits=SMALL)
    large = b"x" * 300_001
    fits = bytes(97 + index % 23 for index in range(299_999))
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"
    try:
        async with listening(head % len(fits) + fits, head % len(large) + large) as upstream:
            reply = await transport.send(call_to(upstream.url))
            if stream:
                pieces = [piece async for piece in reply.chunks()]
                assert b"".join(pieces) == fits
                assert all(0 < len(piece) <= PIECE for piece in pieces)
                assert len(pieces) > 2
            else:
                assert await reply.read() == fits
            reply = await transport.send(call_to(upstream.url))
            with pytest.raises(UpstreamGarbage, match="300000 bytes"):
                assert [piece async for piece in reply.chunks()] if stream else await reply.read()
            await reply.close()
    finally:
        await transport.close()


@pytest.mark.parametrize(("pieces", "beside"), [(1, False), (2, False), (40, True)], ids=["one", "small", "large"])
async def test_a_large_body_is_put_together_beside_the_loop(
    pieces: int, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 113: copying megabytes is no work of the loop; a body of one piece or of little is not handed about."""
    threads: list[int] = []
    join = bounds._join

    def noted(given: list[bytes]) -> bytes:
        threads.append(threading.get_ident())
        return join(given)

    monkeypatch.setattr(bounds, "_join", noted)
    piece = b"x" * 65_536
    given = [piece] * pieces
    assert await joined(given, len(piece) * pieces) == piece * pieces
    assert given == []
    assert [thread != threading.get_ident() for thread in threads] == [beside]


async def test_large_answers_are_put_together_like_small_ones() -> None:
    """What came in pieces is the same bytes, whatever the size."""
    for size in (1, 3_000_000):
        pieces = [b"a" * size, b"b" * size, b"c"]
        assert await read_bounded(_source(*pieces), DEFAULTS) == b"".join(pieces)
