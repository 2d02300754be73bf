"""The messages of a conversation as bytes for one wire: what was written of its beginning is not written again.

Where the assistant's turn begins, every wire begins a new element: nothing that was written before joins with what
follows. So what is written up to there depends on nothing behind it. It is kept as bytes with the beginning it belongs
to (`core.history`), counted where that is counted, and put in front of what is new.

A passage holds for one upstream and, where it depends on them, for the very tools it was written with. Its notes are
kept with it and noted again.

Cost: writing what is new, and one copy of the rest.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationLog
from mustcall.core.history import Beginning, beginning_of
from mustcall.core.memory import footprint
from mustcall.core.message import Message, Role
from mustcall.core.origin import JsonObject
from mustcall.core.request import Request

__all__ = ["Pieces", "WrittenHistory", "splice"]

#: What is new is kept in passages of at least so many messages: an edit in the middle costs one of them.
_LEAST = 16
#: What a passage takes beside its bytes.
_PASSAGE = 512

#: Writes neighbouring messages of a request for an upstream: its elements, and whether they depend on the tools.
_Write = Callable[[Request, Sequence[Message], str, AdaptationLog], tuple[list[Any], bool]]


class Pieces:
    """A JSON array as the bytes of its elements, in order; no piece is empty. `told` is what its elements come to."""

    __slots__ = ("chunks", "told")

    def __init__(self, chunks: list[bytes], told: bool = False) -> None:
        self.chunks = chunks
        self.told = told


class _Passage(msgspec.Struct, frozen=True):
    """What some neighbouring messages were written as, and the passage before them."""

    past: "_Passage | None"
    written: bytes
    notes: tuple[Adaptation, ...]
    issuer: str
    #: The tools that it depends on, None if it depends on none.
    tools: tuple[object, ...] | None
    #: What all elements up to its end come to.
    told: bool

    def holds(self, issuer: str, tools: tuple[object, ...]) -> bool:
        """Tell whether it would be written the same for an upstream and with these tools."""
        return self.issuer == issuer and (self.tools is None or self.tools is tools)

    def weight(self) -> int:
        """Return the bytes it takes; the caller's tools are counted where the first passage depends on them."""
        size = len(self.written) + _PASSAGE
        if self.tools is not None and (self.past is None or self.past.tools is not self.tools):
            size += footprint(self.tools)
        return size


class WrittenHistory:
    """The conversations that one wire was asked to write.

    `tell` is what must be known of the elements that are written: told of those before, and the next one.
    """

    __slots__ = ("_tell", "_write")

    def __init__(self, write: _Write, tell: Callable[[bool, Any], bool] | None = None) -> None:
        self._write = write
        self._tell = tell

    def get(
        self, request: Request, issuer: str, log: AdaptationLog, head: Callable[[], list[Any]] | None = None
    ) -> Pieces | None:
        """Return the messages of a request, behind a head; None if they belong to no conversation that is kept."""
        known, links = self._known(request, issuer)
        if known is None and (not links or links[0].keeper is None):
            return None
        chunks = [msgspec.json.encode(head())[1:-1]] if head is not None else []
        passages = _from_first(known)
        for passage in passages:
            if passage.notes:
                log.extend(passage.notes)
        start = 0
        for end in _borders(links):
            known = self.write(request, known, [link.message for link in links[start:end]], issuer)
            log.extend(known.notes)
            self._keep(links[end - 1], known)
            passages.append(known)
            start = end
        chunks += [passage.written for passage in passages]
        return Pieces([chunk for chunk in chunks if chunk], known is not None and known.told)

    def write(self, request: Request, past: _Passage | None, messages: Sequence[Message], issuer: str) -> _Passage:
        """Write what follows a passage."""
        noted = AdaptationLog()
        elements, asked = self._write(request, messages, issuer, noted)
        tools = request.tools if asked else None if past is None else past.tools
        told = past is not None and past.told
        if self._tell is not None:
            told = reduce(self._tell, elements, told)
        return _Passage(past, msgspec.json.encode(elements)[1:-1], noted.entries, issuer, tools, told)

    def _known(self, request: Request, issuer: str) -> tuple[_Passage | None, list[Beginning]]:
        """Return the longest passage that was written before, and the messages behind it."""
        links: list[Beginning] = []
        link = beginning_of(request)
        while link is not None:
            passage: _Passage | None = link.held.get(self)
            if passage is not None and passage.holds(issuer, request.tools):
                follows = links[-1].message.role if links else Role.ASSISTANT
                if follows is Role.ASSISTANT:
                    links.reverse()
                    return passage, links
            links.append(link)
            link = link.past
        links.reverse()
        return None, links

    def _keep(self, link: Beginning, passage: _Passage) -> None:
        """Keep a passage with its last message, unless the assistant goes on there or nobody would count it.

        One that was there before, for another upstream, is replaced: those that follow it are written anew as well.
        """
        keeper = link.keeper
        if link.message.role is Role.ASSISTANT or keeper is None:
            return
        before: _Passage | None = link.held.get(self)
        if keeper.grow(link, passage.weight() - (0 if before is None else before.weight())):
            link.held[self] = passage


def _from_first(passage: _Passage | None) -> list[_Passage]:
    """Return passages in order, of which this is the last."""
    passages: list[_Passage] = []
    while passage is not None:
        passages.append(passage)
        passage = passage.past
    passages.reverse()
    return passages


def _borders(links: list[Beginning]) -> Iterator[int]:
    """Yield where passages end: before turns of the assistant, the last one among them, and at the last message."""
    roles = [link.message.role for link in links]
    turns = [
        place
        for place in range(1, len(roles))
        if roles[place] is Role.ASSISTANT and roles[place - 1] is not Role.ASSISTANT
    ]
    start = 0
    for place in turns:
        if place - start >= _LEAST or place == turns[-1]:
            yield place
            start = place
    if links:
        yield len(links)


def splice(body: JsonObject, listed: str, pieces: Pieces) -> bytes:
    """Write a body one of whose fields is an array in pieces; every byte of them is copied once."""
    fields = list(body)
    place = fields.index(listed)
    before = {name: body[name] for name in fields[:place]}
    after = {name: body[name] for name in fields[place + 1 :]}
    parts = [msgspec.json.encode(before)[:-1], b"," if before else b"", msgspec.json.encode(listed), b":["]
    elements = [b","] * (2 * len(pieces.chunks) - 1)
    elements[::2] = pieces.chunks
    parts += elements
    parts += (b"],", msgspec.json.encode(after)[1:]) if after else (b"]}",)
    return b"".join(parts)
