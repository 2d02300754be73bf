"""Reads an answer that came compressed although it was asked for as it is: gzip and deflate, in a few layers.

What comes out is handed on in bounded pieces, so that a small answer cannot become a large one in memory at once. An
encoding that is not known here is an error: its bytes mean nothing to whoever reads the answer.
"""

import re
import zlib
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from typing import Protocol

from mustcall.core.errors import UpstreamGarbage

__all__ = ["inflated"]

_PIECE = 256 * 1024
_AUTOMATIC = zlib.MAX_WBITS | 32  # the gzip or the zlib frame, whichever is there
_BARE = -zlib.MAX_WBITS
#: The name of an encoding, and no sentence: a model may come to read it.
_WORD = re.compile(r"[a-z0-9-]{1,20}")
#: Nobody compresses more often; each layer is a call within a call.
_MOST_LAYERS = 16


async def inflated(pieces: AsyncGenerator[bytes], coding: str) -> AsyncGenerator[bytes]:
    """Yield what `pieces` hold under the encodings of a `content-encoding` header; raise `UpstreamGarbage`."""
    layers: list[_Layer] = []
    for name in reversed(coding.lower().split(",")):
        match name.strip():
            case "gzip" | "x-gzip" | "deflate":
                layers.append(_Layer())
            case "identity" | "":
                pass
            case _:
                said = repr(name.strip()) if _WORD.fullmatch(name.strip()) else "nobody knows what"
                raise UpstreamGarbage(f"the upstream's answer is encoded as {said}, which was not asked for")
    if len(layers) > _MOST_LAYERS:
        raise UpstreamGarbage(f"the upstream's answer is compressed {len(layers)} times over, which was not asked for")
    async with aclosing(pieces):
        async for piece in pieces:
            for plain in _through(layers, piece):
                yield plain
    if not all(layer.is_complete for layer in layers):
        raise UpstreamGarbage("the upstream's answer ended in the middle of its compression")


def _through(layers: "list[_Layer]", piece: bytes) -> Generator[bytes]:
    if not layers:
        yield piece
        return
    for plain in layers[0].feed(piece):
        yield from _through(layers[1:], plain)


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
        self.is_complete = True  # of nothing, until something comes

    def feed(self, data: bytes) -> Generator[bytes]:
        """Yield what more is known with this piece."""
        more = bool(data)
        while more:
            if self._inflate is None:
                # Some servers send deflate without its frame, whose first byte is always 8 in its lower half.
                framed = data[0] == 0x1F or data[0] & 0x0F == 8
                self._inflate = zlib.decompressobj(_AUTOMATIC if framed else _BARE)
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
