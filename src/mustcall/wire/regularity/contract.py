"""What it takes to forward a stream's bytes: a judge of each block, who remembers what came before."""

from collections.abc import Sequence
from typing import Annotated, Protocol, TypeVar

import msgspec

from mustcall.wire.sse import SseEvent

__all__ = ["Anything", "Count", "Given", "StreamRegularity", "is_utf8", "read"]

_T = TypeVar("_T")

#: A text that says something.
Given = Annotated[str, msgspec.Meta(min_length=1)]
#: A number of tokens, or a place in a list.
Count = Annotated[int, msgspec.Meta(ge=0)]


class Anything(msgspec.Struct, gc=False):
    """Any object: what is in it is nobody's business here."""


class StreamRegularity(Protocol):
    """One stream on one wire."""

    @property
    def names(self) -> Sequence[str]:
        """The ids of the items announced so far, where the wire has them; another writer goes on with the same."""
        ...

    @property
    def settled(self) -> bool:
        """Whether all that was announced is told, so that another writer could go on from here."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the stream came to the end its wire prescribes."""
        ...

    def takes(self, block: bytes, events: list[SseEvent]) -> bool:
        """Tell whether a strict client reads these bytes, after all before, as their events mean; never raises.

        After a no, nothing more is asked. Deltas of nothing but text, in a part that is open, need not be shown.
        """
        ...


def read(decoder: msgspec.json.Decoder[_T], data: bytes | msgspec.Raw) -> _T | None:
    """Return what the bytes are, None if they are not that."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def is_utf8(body: bytes) -> bool:
    """Tell whether every byte is text: what no field asks for is not looked at by a typed decoder."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
