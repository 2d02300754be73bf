"""Ways in which the bytes of a stream or the characters of a text arrive, few enough to try them all."""

from collections.abc import Iterator
from itertools import pairwise
from zlib import crc32

from support.examples import PROFILE

__all__ = ["some_places", "splits", "text_splits"]

_NEAR = 2
_WIDTH = 61
_TEXT_WIDTH = 13
#: Of the places of a text, one in so many is the only cut in one of the ways, unless a test names another number.
_ALONE = 5


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


def text_splits(text: str, profile: str = PROFILE, *, alone: int = _ALONE) -> Iterator[list[str]]:
    """Yield the text whole, in characters, and cut at every place: some places alone, each one among others.

    A cut alone at every place costs the square of the text, which the profile `deep` pays. Under `ci` pieces of one
    width begin at every offset, so that each place is a cut in one of as many ways as the width, and one in `alone` is
    a cut alone; which ones depends on the text, so that fixtures that look alike are cut at different places.
    """
    yield [text]
    yield list(text)
    if profile != "ci":
        yield from ([text[:at], text[at:]] for at in range(1, len(text)))
        return
    first = crc32(text.encode(errors="surrogatepass")) % alone
    yield from ([text[:at], text[at:]] for at in range(1 + first, len(text), alone))
    for offset in range(min(_TEXT_WIDTH, len(text))):
        starts = sorted({0, *range(offset, len(text), _TEXT_WIDTH)})
        yield [text[a:b] for a, b in pairwise([*starts, len(text)])]


def some_places(start: int, stop: int, every: int, key: str, profile: str = PROFILE) -> range:
    """Return the places of a text at which to cut it: one in `every` under `ci`, beginning where the key says.

    For a whole turn at each cut. Scanners and decoders are cut at every place by their own tests.
    """
    if profile != "ci":
        return range(start, stop)
    return range(start + crc32(key.encode()) % every, stop, every)
