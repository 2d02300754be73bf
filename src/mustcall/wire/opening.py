"""The top level of a request body: its fields as they were written, found in one pass.

Everyone who needs a field before the request is read takes it from here: bodies are large, and looking through one
again for a single word costs as much as reading it.

Most of a body are its tools and its earlier messages, and an agent sends them every time. What came before is not
looked through again: it is compared, which is fifty times as fast, and given as it was the first time. Tools are found
by how they begin, messages by the bytes of the whole body up to them (`wire.caching.conversations`).
"""

import re

import msgspec

from mustcall.core.memo import Bounded, Store
from mustcall.core.origin import Wire
from mustcall.wire.caching.conversations import Known, Tenant
from mustcall.wire.codec import Peek

__all__ = ["LISTED", "Fields", "KnownTools", "Opened", "doubled_field", "glimpse", "open_body", "place_of"]

Fields = dict[str, msgspec.Raw]

_fields = msgspec.json.Decoder(Fields)
_text = msgspec.json.Decoder(str)
_STREAMS = {b"true": True, b"false": False, b"null": False}
_ABSENT = msgspec.Raw(b"false")
_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)

#: What leads to the first value of an object, and from one value to the next or to the end.
_NAMED = rb'[ \t\r\n]*("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*'
_FIRST = re.compile(rb"[ \t\r\n]*\{" + _NAMED, re.DOTALL)
_NEXT = re.compile(rb"[ \t\r\n]*(?:," + _NAMED + rb"|\})", re.DOTALL)

_TOOLS = b'"tools":'
#: Stands for tools that are known while the rest of a body is read.
_STAND_IN = b'"mustcall: the tools that came before"'
#: Stands for messages that are known.
_EARLIER = b'"mustcall: the messages that came before"'
#: The field that holds the messages of each wire.
LISTED = {Wire.CHAT: "messages", Wire.MESSAGES: "messages", Wire.RESPONSES: "input"}


class Opened(Fields):
    """The fields of a body that belongs to a conversation. Of messages that are known, a stand-in is all that is left.

    `rest` is what was read: the body, with the stand-in where `known` says that messages came before.
    """

    __slots__ = ("conversations", "known", "rest")

    def __init__(self, fields: Fields, conversations: Tenant, rest: bytes, known: Known | None = None) -> None:
        super().__init__(fields)
        self.conversations = conversations
        self.rest = rest
        self.known = known


class KnownTools:
    """Lists of tools that came before, by how they begin."""

    __slots__ = ("_lists",)

    #: What is shorter is read as fast as it is compared; what is longer is no agent's.
    _LEAST, _LONGEST = 1024, 256 * 1024
    _BEGINNING = 96

    def __init__(self, most_bytes: int = 4 * 1024 * 1024) -> None:
        self._lists: Bounded[bytes, tuple[bytes, msgspec.Raw]] = Bounded(4096, most_bytes)

    @property
    def size(self) -> int:
        """The bytes that are remembered."""
        return self._lists.size

    def find(self, body: bytes, start: int) -> tuple[bytes, msgspec.Raw] | None:
        """Return the list that stands at this place of a body, if it came before."""
        known = self._lists.get(body[start : start + self._BEGINNING])
        return known if known is not None and body.startswith(known[0], start) else None

    def note(self, tools: msgspec.Raw) -> msgspec.Raw:
        """Remember a list; return what it will be given as."""
        written = bytes(tools)
        if not self._LEAST <= len(written) <= self._LONGEST:
            return tools
        tools = msgspec.Raw(written)  # the one of the body would keep all of it
        self._lists.keep(written[: self._BEGINNING], (written, tools), len(written))
        return tools


_known = Store(KnownTools)


def open_body(body: bytes, conversations: Tenant | None = None, wire: Wire | None = None) -> Fields | None:
    """Return a body's fields; None if it is no JSON object: the codec will say what is wrong with it.

    With the conversations of its tenant on its wire they are `Opened`.
    """
    try:
        if conversations is None or wire is None:
            return _around_tools(body) or _opened(body)
        return _around_messages(body, conversations, LISTED[wire]) or Opened(
            _around_tools(body) or _opened(body), conversations, body
        )
    except _UNREADABLE:
        return None


def _around_messages(body: bytes, conversations: Tenant, listed: str) -> Opened | None:
    """Read a body around messages that came before; None if it has none, or if what is left cannot be read alone.

    They are equal, byte for byte and from the first byte of the body on, to what was read before. So they are the
    first elements of the same array of the same object, and what is behind them is read as if they were there.
    """
    known = conversations.find(body)
    if known is None:
        return None
    rest = b"".join((body[: known.first], _EARLIER, body[known.end :]))
    try:
        fields = _around_tools(rest) or _opened(rest)
    except _UNREADABLE:
        return None
    # A second field of the same name further on would be the one that is read.
    if _EARLIER not in bytes(fields.get(listed, _ABSENT)) or rest.count(_EARLIER) != 1:
        return None
    return Opened(fields, conversations, rest, known)


def _opened(body: bytes) -> Fields:
    """Read all of a body."""
    fields = _fields.decode(body)
    tools, known = fields.get("tools"), _known.here()
    if tools is not None and known is not None:
        fields["tools"] = known.note(tools)
    return fields


def _around_tools(body: bytes) -> Fields | None:
    """Read a body around tools that came before; None if it has none.

    They are taken out and a text is put in their place. If that text is the value of `tools` in what is left, a whole
    value stood there, so what is left is the rest of the body, whatever the bytes around them try to look like.
    """
    lists = _known.here()
    at = -1 if lists is None else body.find(_TOOLS)
    if lists is None or at < 0:
        return None
    start = at + len(_TOOLS)
    if body[start : start + 1] == b" ":
        start += 1
    known = lists.find(body, start)
    if known is None:
        return None
    written, tools = known
    rest = body[:start] + _STAND_IN + body[start + len(written) :]
    try:
        fields = _fields.decode(rest)
    except _UNREADABLE:
        return None
    if bytes(fields.get("tools", _ABSENT)) != _STAND_IN or rest.count(_STAND_IN) != 1:
        return None
    fields["tools"] = tools
    return fields


def doubled_field(body: bytes, fields: Fields) -> str | None:
    """Return the name of a field that a body has twice, None if each is there once.

    Of two that have one name readers take either: we would price and route by one of them, and the upstream read the
    other. What is written without blanks is counted, which is all it takes; otherwise the names are looked through,
    and each value is passed over by comparing it.
    """
    body = fields.rest if isinstance(fields, Opened) else body
    if _is_compact(body, fields) or not fields:
        return None
    step = _FIRST.match(body)
    seen: set[str] = set()
    for _ in fields:
        if step is None or step[1] is None:
            break
        name = _text.decode(step[1])
        value, place = fields[name], step.end()
        if name in seen or not body.startswith(value, place):
            return name
        seen.add(name)
        step = _NEXT.match(body, place + len(value))
        if step is None:  # a number that begins like the one of the same name
            return name
    return None if step is None or step[1] is None else _text.decode(step[1])


def _is_compact(body: bytes, fields: Fields) -> bool:
    """Tell whether a body has no byte beside its fields: no blank, no escape in a name, no name twice."""
    # "name":value, and braces
    return len(body) == 1 + sum(map(len, fields)) + sum(map(len, fields.values())) + 4 * len(fields)


def place_of(body: bytes, fields: Fields, wanted: str) -> int | None:
    """Return where the value of a field begins in a body that has no field twice; None if that cannot be told."""
    if _is_compact(body, fields):
        place = 1
        for name, value in fields.items():
            place += len(name) + 3
            if name == wanted:
                return place
            place += len(value) + 1
        return None
    step = _FIRST.match(body)
    for _ in fields:
        if step is None or step[1] is None:
            break
        name, place = _text.decode(step[1]), step.end()
        if name == wanted:
            return place
        step = _NEXT.match(body, place + len(fields[name]))
    return None


def glimpse(fields: Fields) -> Peek | None:
    """Return what routing needs of a request; None where that is not what it should be."""
    model, stream = fields.get("model"), _STREAMS.get(bytes(fields.get("stream", _ABSENT)))
    if model is None or stream is None:
        return None
    try:
        return Peek(_text.decode(model), stream)
    except (msgspec.DecodeError, ValueError):
        return None
