"""Answers that come compressed although nobody asked for it."""

import asyncio
import gzip
import random
import zlib
from collections.abc import AsyncGenerator

import pytest

from mustcall.core.errors import UpstreamGarbage
from mustcall.upstream.http import HttpTransport
from mustcall.upstream.http1.inflating import inflated
from support.loopback import call_to, failure_of, listening, read_all, stream_all

TEXT = b"data: word\n\n" * 500
BARE = zlib.compressobj(wbits=-zlib.MAX_WBITS)
FORMS = {
    "gzip": gzip.compress(TEXT, mtime=0),
    "x-gzip": gzip.compress(TEXT, mtime=0),
    "GZIP": gzip.compress(TEXT[:600], mtime=0) + gzip.compress(TEXT[600:], mtime=0),
    "deflate": zlib.compress(TEXT),
    " deflate ": BARE.compress(TEXT) + BARE.flush(),
    "identity, gzip": gzip.compress(TEXT, mtime=0),
    "identity": TEXT,
    "": TEXT,
}


async def unfold(coding: str, *pieces: bytes) -> list[bytes]:
    """Read an answer of these pieces."""

    async def source() -> AsyncGenerator[bytes]:
        for piece in pieces:
            yield piece

    return [piece async for piece in inflated(source(), coding)]


@pytest.mark.parametrize("coding", FORMS)
@pytest.mark.parametrize("step", [1, 7, 100_000])
async def test_known_encodings(coding: str, step: int) -> None:
    """Each known encoding is taken off, however the answer is cut."""
    form = FORMS[coding]
    pieces = [form[at : at + step] for at in range(0, len(form), step)]
    assert b"".join(await unfold(coding, *pieces)) == TEXT


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, br", "unknown"])
async def test_other_encodings_are_refused(coding: str) -> None:
    """What cannot be read is said to be so, by its name."""
    with pytest.raises(UpstreamGarbage, match=coding.rpartition(" ")[2]):
        await unfold(coding, b"x")


@pytest.mark.parametrize(
    "broken",
    [b"not compressed", FORMS["gzip"][:-9] + b"x" * 9, FORMS["gzip"][:20] + b"?" * 40],
    ids=["plain", "other checksum", "broken within"],
)
async def test_broken_compression(broken: bytes) -> None:
    """An answer that is not what its headers say is an error of ours."""
    with pytest.raises(UpstreamGarbage, match="compress"):
        await unfold("gzip", broken)


@pytest.mark.parametrize("cut", [5, 30, -1])
async def test_compression_that_does_not_end(cut: int) -> None:
    """An answer that stops within its compression is not taken for a whole one; no answer at all is one."""
    with pytest.raises(UpstreamGarbage, match="middle of its compression"):
        await unfold("gzip", FORMS["gzip"][:cut])
    assert await unfold("gzip") == []


async def test_pieces_are_small_and_others_run_between_them() -> None:
    """Rule 68: an answer that inflates comes in pieces, and another task has a turn after each of them."""
    text = random.Random(1).randbytes(10_000) * 300
    turns, done = 0, False

    async def other() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    pieces = await unfold("gzip", gzip.compress(text))
    done = True
    await task
    assert b"".join(pieces) == text
    assert max(map(len, pieces)) <= 64 * 1024
    assert turns >= len(pieces) >= len(text) // (64 * 1024)


async def test_an_answer_that_inflates_too_far_is_refused() -> None:
    """Rule 68: a kilobyte that holds megabytes of blanks is refused after the first of them."""
    taken = 0
    small = gzip.compress(b"\n" * 20_000_000)

    async def source() -> AsyncGenerator[bytes]:
        yield small

    async def take() -> None:
        nonlocal taken
        async for piece in inflated(source(), "gzip"):
            taken += len(piece)

    with pytest.raises(UpstreamGarbage, match="100 times its size"):
        await take()
    assert taken <= 100 * len(small) + 64 * 1024
    assert len(b"".join(await unfold("gzip", gzip.compress(b"\n" * 1_000_000)))) == 1_000_000


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_transport_reads_them(transport: HttpTransport, coding: str) -> None:
    """Read whole or in pieces, what arrives is the plain answer, and the connection is used again."""
    form = FORMS[coding]
    answer = b"HTTP/1.1 200 OK\r\ncontent-encoding: %b\r\ncontent-length: %d\r\n\r\n%b" % (
        coding.encode(),
        len(form),
        form,
    )
    async with listening(answer, answer) as upstream:
        assert await read_all(transport, call_to(upstream.url)) == (200, TEXT)
        assert await stream_all(transport, call_to(upstream.url)) == TEXT
        assert len(upstream.connections) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_transport_types_their_failures(transport: HttpTransport, stream: bool) -> None:
    """What cannot be read is the upstream's garbage."""
    answer = b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 2\r\n\r\nok"
    async with listening(answer) as upstream:
        assert type(await failure_of(transport, call_to(upstream.url), stream=stream)) is UpstreamGarbage


@pytest.mark.parametrize("size", [262_144, 262_145, 262_146, 524_288, 524_289, 524_290])
@pytest.mark.parametrize("word", [b"a", b"data: word\n\n"])
async def test_what_is_left_behind_a_full_piece(size: int, word: bytes) -> None:
    """The last bytes come out, also where all the input was taken when a piece was full."""
    bare = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    text = (word * size)[:size]
    assert b"".join(await unfold("deflate", bare.compress(text) + bare.flush())) == text


@pytest.mark.parametrize("layers", [2, 400])
async def test_several_layers_are_refused(layers: int) -> None:
    """Rule 68: an answer wrapped more than once is refused before it is unwrapped."""
    form = b"x"
    for _ in range(layers):
        form = zlib.compress(form)
    with pytest.raises(UpstreamGarbage, match=f"{layers} times"):
        await unfold(", ".join(["deflate"] * layers), form)


async def test_members_of_gzip_are_counted() -> None:
    """An answer of many small members of gzip is read; one of endlessly many empty ones is refused."""
    member = gzip.compress(b"ab", mtime=0)
    assert b"".join(await unfold("gzip", member * 2_000)) == b"ab" * 2_000
    with pytest.raises(UpstreamGarbage, match="members"):
        await unfold("gzip", gzip.compress(b"", mtime=0) * 2_001)
