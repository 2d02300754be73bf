"""Reads an answer that came compressed although it was asked for as it is: gzip or deflate, once.

What comes out is handed on in bounded pieces, other tasks run in between, and an answer that inflates to more than
`ratio` times its size is refused: a kilobyte must not become hours of work. An encoding that is not known here is an
error: its bytes mean nothing to whoever reads the answer.
"""

import asyncio
import re
import zlib
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from typing import Protocol

from mustcall.core.errors import UpstreamGarbage
from mustcall.core.limits import DEFAULTS

__all__ = ["MOST_MEMBERS", "inflated"]

_PIECE = 64 * 1024
#: How much of the input is inflated at once: what follows a member of gzip is copied when it ends.
_INPUT = 4 * 1024
#: The most members of gzip in one answer: servers that write in blocks have one for every 64 KB.
MOST_MEMBERS = 2_000
#: How much may come out before the ratio counts: short answers full of blanks compress well.
_FREE = 1024 * 1024
_AUTOMATIC = zlib.MAX_WBITS | 32  # the gzip or the zlib frame, whichever is there
_BARE = -zlib.MAX_WBITS
#: The name of an encoding, and no sentence: a model may come to read it.
_WORD = re.compile(r"[a-z0-9-]{1,20}")


async def inflated(
    pieces: AsyncGenerator[bytes], coding: str, ratio: int = DEFAULTS.inflate_ratio
) -> AsyncGenerator[bytes]:
    """Yield what `pieces` hold under the encoding of a `content-encoding` header; raise `UpstreamGarbage`."""
    layers = 0
    for name in coding.lower().split(","):
        match name.strip():
            case "gzip" | "x-gzip" | "deflate":
                layers += 1
            case "identity" | "":
                pass
            case _:
                said = repr(name.strip()) if _WORD.fullmatch(name.strip()) else "nobody knows what"
                raise UpstreamGarbage(f"the upstream's answer is encoded as {said}, which was not asked for")
    if layers > 1:
        raise UpstreamGarbage(f"the upstream's answer is compressed {layers} times over, which was not asked for")
    layer = _Layer()
    taken = given = 0
    async with aclosing(pieces):
        async for piece in pieces:
            if not layers:
                yield piece
                continue
            for start in range(0, len(piece), _INPUT):
                part = piece[start : start + _INPUT]
                taken += len(part)
                for plain in layer.feed(part):
                    given += len(plain)
                    if given > _FREE and given > taken * ratio:
                        raise UpstreamGarbage(
                            f"the upstream's answer inflates to more than {ratio} times its size "
                            "([limits] inflate_ratio)"
                        )
                    yield plain
                    await asyncio.sleep(0)
    if not layer.is_complete:
        raise UpstreamGarbage("the upstream's answer ended in the middle of its compression")


class _Inflater(Protocol):
    """What `zlib.decompressobj` returns, whose class has no public name."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    @property
    def unconsumed_tail(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Layer:
    """One layer of compression."""

    def __init__(self) -> None:
        self._inflate: _Inflater | None = None
        self._members = 0
        self.is_complete = True  # of nothing, until something comes

    def feed(self, data: bytes) -> Generator[bytes]:
        """Yield what more is known with this piece."""
        more = bool(data)
        while more:
            if self._inflate is None:
                # Some servers send deflate without its frame, whose first byte is always 8 in its lower half.
                framed = data[0] == 0x1F or data[0] & 0x0F == 8
                self._inflate = zlib.decompressobj(_AUTOMATIC if framed else _BARE)
                self._members += 1
                if self._members > MOST_MEMBERS:
                    raise UpstreamGarbage(f"the upstream's answer is compressed in more than {MOST_MEMBERS} members")
                self.is_complete = False
            try:
                plain = self._inflate.decompress(data, _PIECE)
            except zlib.error:
                raise UpstreamGarbage("the upstream's answer is not compressed as its headers say") from None
            data = self._inflate.unconsumed_tail
            # A full piece may have taken all there is of the input and still leave some of the output behind.
            more = bool(data) or len(plain) == _PIECE
            if self._inflate.eof:  # gzip may go on with another member
                data = self._inflate.unused_data
                more = bool(data)
                self._inflate = None
                self.is_complete = True
            if plain:
                yield plain
