"""Whether a history is in order: every call answered once, right behind it, and nothing in it that may need a change.

Nearly every history of an agent is, and a longer one begins with the messages of the one before. So what a message is
(`Traits`) is read once and kept with it, and a history is looked through in one short pass. What is in order needs no
mending (`policy.history.mended`) and no other ids (`policy.history.names`); whatever is not certain here is left to
them. It knows neither profiles nor tools: what depends on those is told, not decided.

Cost: one pass over the messages; over the parts only of those that are new.
"""

import re
from collections.abc import Set as AbstractSet
from enum import Enum

import msgspec

from mustcall.core.memo import Attached
from mustcall.core.message import Message, Role
from mustcall.core.origin import Wire
from mustcall.core.parts import Audio, File, Image, Part, Refusal, Text, ToolCall, ToolResult
from mustcall.core.request import Request
from mustcall.policy.words.talk import talk_length

__all__ = ["OPENS_MARKUP", "Order", "order_of", "written_length"]

#: Every dialect has one of these in each of its calls.
OPENS_MARKUP = re.compile(r"[<{\[(]|tool_code")
#: What every wire takes in a name or an id, whatever a model would.
_PLAIN = re.compile(r"[a-zA-Z0-9_-]+")


class _Kind(Enum):
    """What a message does in a conversation."""

    #: People and instructions, in words and pictures.
    SAYS = 1
    #: The assistant, in words and calls.
    ASKS = 2
    #: Results, and what a user says behind them.
    ANSWERS = 3
    #: Whatever else: it has to be looked at.
    OTHER = 4


class _Traits(msgspec.Struct, frozen=True):
    """What is known of one message, whatever stands around it."""

    kind: _Kind
    #: Characters of its texts, calls and results.
    length: int
    #: Of its calls, or of the calls its results answer.
    ids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    #: Whether every id is plain.
    plain: bool = True
    #: Whether what the assistant wrote may hold markup.
    marked: bool = False
    #: Whether results must follow this very message.
    closed: bool = False
    #: Whether something is said behind the results.
    goes_on: bool = False
    #: Whether a model may answer it.
    ends: bool = False


class Order(msgspec.Struct, frozen=True):
    """What is known of a history."""

    #: Whether every call is answered once, right behind it, under an id of its own, and nothing is empty or odd.
    kept: bool
    names: AbstractSet[str] = frozenset()
    ids: AbstractSet[str] = frozenset()
    #: Whether every id is plain.
    plain: bool = True
    #: Whether what the assistant wrote may hold markup.
    marked: bool = False
    #: Whether the last message is one a model may answer.
    ends: bool = True
    #: The characters of a history that is nothing but talk.
    talk: int | None = None


_NONE = Order(kept=False)


def written_length(request: Request) -> int:
    """Return the characters of all texts, calls and results in a request's system prompt and messages."""
    told = 0 if request.system is None else _traits.of(request.system).length
    talk = order_of(request).talk
    return told + (talk if talk is not None else sum([traits.length for traits in _traits.each(request.messages)]))


def _order_of(request: Request) -> Order:
    talk = talk_length(request.messages)
    if talk is not None:
        return Order(kept=True, talk=talk)
    names: set[str] = set()
    ids: set[str] = set()
    waiting: set[str] = set()
    plain = True
    marked = closed = answering = False
    last: _Traits | None = None
    for traits in _traits.each(request.messages):
        last, kind = traits, traits.kind
        if kind is _Kind.OTHER:
            return _NONE
        if kind is _Kind.ANSWERS:
            if not waiting.issuperset(traits.ids):
                return _NONE
            waiting.difference_update(traits.ids)
            if waiting and traits.goes_on:
                return _NONE
            answering = True
            continue
        if waiting and (kind is _Kind.SAYS or closed or answering):
            return _NONE
        if kind is _Kind.ASKS:
            closed, answering = traits.closed, False
            marked = marked or traits.marked
            if traits.ids:
                if not ids.isdisjoint(traits.ids):
                    return _NONE
                ids.update(traits.ids)
                waiting.update(traits.ids)
                names.update(traits.names)
                plain = plain and traits.plain
    if waiting or last is None:
        return _NONE
    return Order(True, names, ids, plain, marked, last.ends)


#: Return what is known of a request's history.
order_of = Attached("order", _order_of).of


def _traits_of(message: Message) -> _Traits:
    length = _length(message.parts)
    role, parts = message.role, message.parts
    if role is Role.ASSISTANT:
        return _assistant(message, length)
    results = 0
    while results < len(parts) and isinstance(parts[results], ToolResult):
        results += 1
    rest = parts[results:]
    if not parts or not all(map(_is_said, rest)) or (results and role not in (Role.USER, Role.TOOL)):
        return _Traits(_Kind.OTHER, length)
    if not results:
        return _Traits(_Kind.SAYS if role is not Role.TOOL else _Kind.OTHER, length, ends=role is Role.USER)
    ids = tuple([part.call_id for part in parts[:results] if isinstance(part, ToolResult)])
    kind = _Kind.ANSWERS if len(set(ids)) == len(ids) else _Kind.OTHER
    return _Traits(kind, length, ids, goes_on=bool(rest), ends=True)


def _assistant(message: Message, length: int) -> _Traits:
    """Return the traits of what the assistant said and called."""
    calls: list[ToolCall] = []
    speaks = blank = marked = False
    for part in message.parts:
        if isinstance(part, ToolCall):
            if part.namespace is not None:
                return _Traits(_Kind.OTHER, length)
            calls.append(part)
        elif isinstance(part, Text | Refusal):
            if not part.text or part.text.isspace():
                blank = True
            else:
                speaks = True
                marked = marked or (isinstance(part, Text) and OPENS_MARKUP.search(part.text) is not None)
        else:
            return _Traits(_Kind.OTHER, length)
    ids = tuple([call.id for call in calls])
    wire = message.origin.wire if message.origin is not None else None
    if not (speaks or calls) or (blank and wire is Wire.MESSAGES) or len(set(ids)) != len(ids):
        return _Traits(_Kind.OTHER, length)
    return _Traits(
        _Kind.ASKS,
        length,
        ids,
        tuple([call.name for call in calls]),
        plain=all([_PLAIN.fullmatch(one) is not None for one in ids]),  # noqa: C419  cheaper than a generator
        marked=marked,
        closed=wire is Wire.CHAT and bool(calls),
    )


_traits: Attached[Message, _Traits] = Attached("traits", _traits_of)


def _is_said(part: Part) -> bool:
    """Tell what people send: words that are not blank, and media."""
    if isinstance(part, Text):
        return bool(part.text) and not part.text.isspace()
    return isinstance(part, Image | File | Audio)


def _length(parts: tuple[Part, ...]) -> int:
    length = 0
    for part in parts:
        if isinstance(part, Text):
            length += len(part.text)
        elif isinstance(part, ToolCall):
            length += len(part.name) + len(part.arguments_json)
        elif isinstance(part, ToolResult):
            length += _length(part.content)
        elif isinstance(part, Refusal | File):
            length += len(part.text or "")
    return length
