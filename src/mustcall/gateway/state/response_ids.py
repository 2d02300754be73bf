"""Ids of replies that the gateway stores: its own, whatever the upstream called them.

An upstream's ids are its own affair: one counts from 1 after each start, another is asked by callers who know nothing
of each other. What a caller goes on from is found by an id that only this gateway can have made, so a stored response
and its items get names that end in the turn's token. Ids are replaced only as the values of the fields that hold them
(`_HELD`): names of tools, ids of calls and texts that equal an id stay, and so does every other byte.
"""

import re
from typing import Any

import msgspec

from mustcall.core.origin import Wire
from mustcall.wire.sse import SseDecoder

__all__ = ["Renamer"]

_FIELD = b'"id"'
#: A field that holds the id of a response or an item, and an id that can be replaced. In a text the quotes are escaped.
_HELD = re.compile(rb'("(?:item_id|id|response_id)"\s*:\s*)"([\w-]{1,256})"')
_PLAIN = re.compile(r"[\w-]{1,256}", re.ASCII)
_KIND = re.compile(r"([a-z]{1,12})[_-]")


class _Item(msgspec.Struct):
    id: Any = None


class _Response(msgspec.Struct):
    id: Any = None
    output: list[_Item] = []


class _Event(msgspec.Struct):
    response: _Response | None = None
    message: _Item | None = None
    item: _Item | None = None


class Renamer:
    """The names of one reply, as they become known."""

    def __init__(self, wire: Wire, token: str) -> None:
        self._wire = wire
        self._token = token
        self._names: dict[str, str] = {}
        self._spelled: dict[bytes, bytes] = {}

    def body(self, body: bytes) -> bytes:
        """Return a whole reply under our ids."""
        try:
            self._learn(msgspec.json.decode(body, type=_Response))
        except (msgspec.DecodeError, ValueError, RecursionError):
            return body
        return self._replace(body)

    def events(self, chunk: bytes) -> bytes:
        """Return whole events of a stream under our ids."""
        if _FIELD in chunk:
            for event in SseDecoder().feed(chunk):
                try:
                    read = msgspec.json.decode(event.data, type=_Event)
                except (msgspec.DecodeError, ValueError, RecursionError):
                    continue
                if read.response is not None:
                    self._learn(read.response)
                if read.message is not None and self._wire is Wire.MESSAGES:
                    self._name(read.message.id, f"msg_{self._token}")
                if read.item is not None and self._wire is Wire.RESPONSES:
                    self._name_item(read.item.id)
        return self._replace(chunk)

    def _learn(self, response: _Response) -> None:
        self._name(response.id, f"{'resp' if self._wire is Wire.RESPONSES else 'msg'}_{self._token}")
        if self._wire is Wire.RESPONSES:
            for item in response.output:
                self._name_item(item.id)

    def _name_item(self, given: Any) -> None:
        kind = _KIND.match(given) if isinstance(given, str) else None
        self._name(given, f"{kind[1] if kind else 'item'}_{self._token}_{len(self._names)}")

    def _name(self, given: Any, ours: str) -> None:
        if not isinstance(given, str) or given in self._names or self._token in given or not _PLAIN.fullmatch(given):
            return
        self._names[given] = ours
        self._spelled[given.encode()] = ours.encode()

    def _replace(self, data: bytes) -> bytes:
        return _HELD.sub(self._renamed, data) if self._spelled else data

    def _renamed(self, held: re.Match[bytes]) -> bytes:
        ours = self._spelled.get(held[2])
        return held[0] if ours is None else b'%b"%b"' % (held[1], ours)
