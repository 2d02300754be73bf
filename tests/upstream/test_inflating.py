"""Answers that come compressed although nobody asked for it."""

import gzip
import zlib
from collections.abc import AsyncGenerator

import pytest

from mustcall.core.errors import UpstreamGarbage
from mustcall.upstream.http import HttpTransport
from mustcall.upstream.inflating import inflated
from support.loopback import call_to, failure_of, listening, read_all, stream_all

TEXT = b"data: word\n\n" * 500
BARE = zlib.compressobj(wbits=-zlib.MAX_WBITS)
FORMS = {
    "gzip": gzip.compress(TEXT, mtime=0),
    "x-gzip": gzip.compress(TEXT, mtime=0),
    "GZIP": gzip.compress(TEXT[:600], mtime=0) + gzip.compress(TEXT[600:], mtime=0),
    "deflate": zlib.compress(TEXT),
    " deflate ": BARE.compress(TEXT) + BARE.flush(),
    "gzip, deflate": zlib.compress(gzip.compress(TEXT, mtime=0)),
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


async def test_expansion_is_bounded() -> None:
    """A small answer that holds a large one comes in pieces, never at once."""
    pieces = await unfold("gzip", gzip.compress(bytes(20_000_000)))
    assert sum(map(len, pieces)) == 20_000_000
    assert max(map(len, pieces)) <= 256 * 1024


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


async def test_many_layers_are_refused() -> None:
    """An answer wrapped again and again is refused before it is unwrapped."""
    form = b"x"
    for _ in range(400):
        form = zlib.compress(form)
    with pytest.raises(UpstreamGarbage, match="400 times"):
        await unfold(", ".join(["deflate"] * 400), form)
