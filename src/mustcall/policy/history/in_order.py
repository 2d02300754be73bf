"""Whether a history is in order: every call answered once, right behind it, and nothing in it that may need a change.

Nearly every history of an agent is, and a longer one begins with the messages of the one before. So a history is read
as a fold (`core.history`): what is known of its beginning holds, and only new messages are looked at. What is in order
needs no mending (`policy.history.mended`) and no other ids (`policy.history.names`); whatever is not certain here is
left to them. It knows neither profiles nor tools: what depends on those is told, not decided.

Cost: one pass over the messages that are new.
"""

import re
from enum import Enum

import msgspec

from mustcall.core.history import Folded, beginning_of
from mustcall.core.memo import Attached
from mustcall.core.message import Message, Role
from mustcall.core.origin import Wire
from mustcall.core.parts import Audio, File, Image, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from mustcall.core.request import Request
from mustcall.policy.words.talk import talk_length

__all__ = ["OPENS_MARKUP", "HistoryOrder", "call_ids", "ids_called", "may_hold_markup", "order_of", "written_length"]

#: Every dialect has one of these in each of its calls.
OPENS_MARKUP = re.compile(r"[<{\[(]|tool_code")
#: What every wire takes in a name or an id, whatever a model would.
_PLAIN = re.compile(r"[a-zA-Z0-9_-]+")
#: A history with more names, or more calls that wait at once, is left to those who look closer: what is known of a
#: history is kept for each branch of it, and must not grow with it.
_MOST_NAMES = 64
_MOST_WAITING = 128


class _Kind(Enum):
    """What a message does in a conversation."""

    #: People and instructions, in words and pictures.
    SAYS = 1
    #: The assistant, in thoughts, words and calls.
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
    #: Whether the assistant thinks in it, and whether it does nothing else.
    thinks: bool = False
    unsaid: bool = False


class HistoryOrder(msgspec.Struct, frozen=True):
    """What is known of a history up to some message."""

    #: Whether every call but those that wait is answered once, right behind it, under an id of its own, and nothing is
    #: empty or odd.
    regular: bool = True
    #: Characters of all texts, calls and results.
    length: int = 0
    #: Whether it is nothing but talk.
    talks: bool = True
    names: frozenset[str] = frozenset()
    #: The ids of all calls, in sets of which each is much smaller than the one before it.
    ids: tuple[frozenset[str], ...] = ()
    #: Whether every id is plain.
    plain: bool = True
    #: Whether what the assistant wrote may hold markup.
    marked: bool = False
    #: Whether the last message is one a model may answer.
    ends: bool = False
    #: The calls without a result.
    waiting: frozenset[str] = frozenset()
    #: Whether results must follow the last calls at once, and whether some of them came.
    closed: bool = False
    answering: bool = False
    #: Whether the assistant's reasoning is in it: what of it an upstream may get is not known here.
    thinks: bool = False
    #: Whether the assistant has thought and said nothing yet.
    unsaid: bool = False

    @property
    def kept(self) -> bool:
        """Whether every call is answered once, right behind it, under an id of its own, and nothing is empty or odd."""
        return self.regular and not self.waiting

    @property
    def talk(self) -> int | None:
        """The characters of a history that is nothing but talk."""
        return self.length if self.talks else None


def written_length(request: Request) -> int:
    """Return the characters of all texts, calls and results in a request's system prompt and messages."""
    told = 0 if request.system is None else _traits.of(request.system).length
    return told + order_of(request).length


def order_of(request: Request) -> HistoryOrder:
    """Return what is known of a request's history."""
    return _orders.of(beginning_of(request), None)


def _next(order: HistoryOrder, message: Message, _: None) -> HistoryOrder:
    """Return what is known when one message more is there."""
    if order.talks:
        talk = talk_length((message,))
        if talk is not None:
            return msgspec.structs.replace(order, length=order.length + talk, ends=message.role is Role.USER)
    traits = _traits.of(message)
    length, kind, waiting = order.length + traits.length, traits.kind, order.waiting
    if not order.regular or not _may_follow(order, traits):
        return HistoryOrder(regular=False, length=length, talks=False)
    if kind is not _Kind.ASKS:
        answers = kind is _Kind.ANSWERS
        return msgspec.structs.replace(
            order,
            length=length,
            talks=False,
            ends=traits.ends,
            waiting=waiting.difference(traits.ids) if answers else waiting,
            answering=order.answering or answers,
            unsaid=False,
        )
    new = frozenset(traits.ids)
    names = order.names if order.names.issuperset(traits.names) else order.names.union(traits.names)
    if len(names) > _MOST_NAMES or len(waiting) + len(new) > _MOST_WAITING:
        return HistoryOrder(regular=False, length=length, talks=False)
    return HistoryOrder(
        True,
        length,
        talks=False,
        names=names,
        ids=_added(order.ids, new) if new else order.ids,
        plain=order.plain and traits.plain,
        marked=order.marked or traits.marked,
        ends=traits.ends,
        waiting=waiting | new if waiting else new,
        closed=traits.closed,
        thinks=order.thinks or traits.thinks,
        unsaid=traits.unsaid,
    )


def _may_follow(order: HistoryOrder, traits: _Traits) -> bool:
    """Tell whether a message may stand where a history has come to."""
    if order.unsaid and traits.kind is not _Kind.ASKS:
        return False
    match traits.kind:
        case _Kind.OTHER:
            return False
        case _Kind.ANSWERS:
            return order.waiting.issuperset(traits.ids) and not (
                traits.goes_on and len(order.waiting) != len(traits.ids)
            )
        case _Kind.SAYS:
            return not order.waiting
        case _Kind.ASKS:
            if order.waiting and (order.closed or order.answering):
                return False
            return all([known.isdisjoint(traits.ids) for known in order.ids])  # noqa: C419  cheaper than a generator


def _added(sets: tuple[frozenset[str], ...], new: frozenset[str]) -> tuple[frozenset[str], ...]:
    """Add a set; neighbours of nearly one size become one, so that there are few and each is copied seldom."""
    while sets and len(sets[-1]) <= 2 * len(new):
        new |= sets[-1]
        sets = sets[:-1]
    return (*sets, new)


_orders: Folded[HistoryOrder, None] = Folded(lambda _: HistoryOrder(), _next)


def ids_called(request: Request) -> tuple[frozenset[str], ...]:
    """Return the ids of all calls in a request's history, in a few sets."""
    order = order_of(request)
    return order.ids if order.regular else _called.of(beginning_of(request), None)


_called: Folded[tuple[frozenset[str], ...], None] = Folded(
    lambda _: (), lambda sets, message, _: _added(sets, new) if (new := frozenset(_ids_of(message))) else sets
)


def _ids_of(message: Message) -> list[str]:
    return [part.id for part in message.parts if isinstance(part, ToolCall)]


def call_ids(message: Message) -> tuple[str, ...]:
    """Return the ids of a message's calls, or of the calls its results answer."""
    return _traits.of(message).ids


def may_hold_markup(message: Message) -> bool:
    """Tell whether a message that is in order may hold markup of calls."""
    return _traits.of(message).marked


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
    speaks = blank = marked = thinks = False
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
        elif isinstance(part, Reasoning):
            thinks = True
        else:
            return _Traits(_Kind.OTHER, length)
    ids = tuple([call.id for call in calls])
    wire = message.origin.wire if message.origin is not None else None
    if not (speaks or calls or thinks) or (blank and wire is Wire.MESSAGES) or len(set(ids)) != len(ids):
        return _Traits(_Kind.OTHER, length)
    return _Traits(
        _Kind.ASKS,
        length,
        ids,
        tuple([call.name for call in calls]),
        plain=all([_PLAIN.fullmatch(one) is not None for one in ids]),  # noqa: C419  cheaper than a generator
        marked=marked,
        closed=wire is Wire.CHAT and bool(calls),
        thinks=thinks,
        unsaid=not (speaks or calls),
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
