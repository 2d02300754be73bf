"""Ways in which the bytes of a stream arrive, few enough to try them all on a whole turn."""

from collections.abc import Iterator
from itertools import pairwise

__all__ = ["splits"]

_NEAR = 2
_WIDTH = 61


def splits(stream: bytes) -> Iterator[list[bytes]]:
    """Yield the stream whole, byte by byte, cut once near each end of a line, and cut at every place.

    A cut alone at every place costs the square of the stream. Here pieces of one width begin at every offset, so that
    each place is a cut in one of as many ways as the width; alone it is a cut where lines and events end.
    """
    yield [stream]
    yield [stream[at : at + 1] for at in range(len(stream))]
    ends = (at + 1 for at in range(len(stream)) if stream[at] == ord("\n"))
    for cut in sorted({end + near for end in ends for near in range(-_NEAR, _NEAR + 1)} & {*range(1, len(stream))}):
        yield [stream[:cut], stream[cut:]]
    for offset in range(_WIDTH):
        starts = sorted({0, *range(offset, len(stream), _WIDTH)})
        yield [stream[a:b] for a, b in pairwise([*starts, len(stream)])]
