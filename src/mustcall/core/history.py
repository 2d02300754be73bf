"""A conversation as a chain of its beginnings, so that what is known of a beginning holds for everything that follows.

Each request of an agent has the messages of the last one and a few more. A `Beginning` is a conversation up to one of
its messages; its past is another one. Whoever reads a history from its start writes the reading as a fold (`Folded`):
a state and a step. The state at a beginning is kept with it, so a longer conversation only costs its new messages, and
one that goes another way from somewhere in the middle costs what is behind that place.

Pure in effect: a step may depend on nothing but the state, the message and the key it is asked with.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from mustcall.core.message import Message
from mustcall.core.request import HISTORY, Request

__all__ = ["Beginning", "BeginningKeeper", "Folded", "begin", "beginning_of", "continued"]

S = TypeVar("S")
K = TypeVar("K")
#: How many neighbours are gathered at once: a history is put together from blocks that all its branches share.
_BLOCK = 16


class _Block:
    """Neighbours up to a beginning whose depth is a multiple of `_BLOCK`, the last first, and what is before them."""

    __slots__ = ("messages", "past", "values")

    def __init__(self, last: "Beginning") -> None:
        links = [last]
        while len(links) < _BLOCK and (past := links[-1].past) is not None:
            links.append(past)
        self.past = links[-1].past
        self.messages = [link.message for link in links]
        self.values = [link.value for link in links]


class BeginningKeeper(Protocol):
    """Who keeps a beginning, and counts the memory that is taken for it."""

    def grow(self, beginning: "Beginning", size: int) -> bool:
        """Count so many bytes more for a beginning; return False if it is kept no longer."""
        ...


class Beginning:
    """A conversation up to and with one message.

    `value` is the message's JSON; `signs` bounds the values in the JSON of all messages so far, and `sealed` says
    whether any of it may be sealed. `weight` is the memory this message takes, with what is made of it. What is found
    out about it is held with it (`held`), and gone when it is forgotten; what is large has to be counted (`keeper`).
    Threads may share one.
    """

    __slots__ = ("block", "depth", "held", "keeper", "message", "past", "sealed", "signs", "value", "weight")

    def __init__(
        self,
        past: "Beginning | None",
        message: Message,
        value: Any = None,
        *,
        sealed: bool = False,
        signs: int = 0,
        weight: int = 0,
    ) -> None:
        self.past = past
        self.message = message
        self.value = value
        self.weight = weight
        self.sealed = sealed or (past is not None and past.sealed)
        self.signs: int = signs if past is None else past.signs + signs
        self.depth: int = 1 if past is None else past.depth + 1
        self.held: dict[object, Any] = {}
        #: Where it is kept; None if it goes with its request.
        self.keeper: BeginningKeeper | None = None
        #: Once made never changed: every conversation that goes on from here has the same one.
        self.block: _Block | None = None

    def all(self) -> tuple[tuple[Message, ...], list[Any]]:
        """Return all messages and their JSON, from the first to this one."""
        messages: list[Message] = []
        values: list[Any] = []
        link: Beginning | None = self
        while link is not None and link.depth % _BLOCK:
            messages.append(link.message)
            values.append(link.value)
            link = link.past
        while link is not None:
            block = link.block
            if block is None:
                block = link.block = _Block(link)
            messages += block.messages
            values += block.values
            link = block.past
        messages.reverse()
        values.reverse()
        return tuple(messages), values


class Folded(Generic[S, K]):
    """What a history comes to, read from its start. States are kept where they were asked for, one for each fold.

    On the way there one is kept at each block as well, so that an edit in the middle costs what is behind it, and of a
    conversation read from its start one before its last message: applications ask another question behind the same
    instructions and examples.

    A state is for keys with the same `mark`, which is kept with it; without one it is for every key. Both stay small
    however long the history is and whatever else a request holds: they are kept for each branch of a conversation.
    """

    __slots__ = ("_mark", "_start", "_step")

    def __init__(
        self, start: Callable[[K], S], step: Callable[[S, Message, K], S], mark: Callable[[K], object] | None = None
    ) -> None:
        self._start = start
        self._step = step
        self._mark = mark

    def of(self, beginning: Beginning | None, key: K) -> S:
        """Return the state at a beginning; None is a history without messages."""
        if beginning is None:
            return self._start(key)
        mark = None if self._mark is None else self._mark(key)
        known: tuple[object, S] | None = beginning.held.get(self)
        if known is not None and known[0] == mark:
            return known[1]
        return self._read(beginning, key, mark)

    def _read(self, asked: Beginning, key: K, mark: object) -> S:
        """Return the state at a beginning where none is kept: the steps from the nearest one before it."""
        links = [asked]
        link = asked.past
        while link is not None:
            known: tuple[object, S] | None = link.held.get(self)
            if known is not None and known[0] == mark:
                state = known[1]
                break
            links.append(link)
            link = link.past
        else:
            state = self._start(key)
        step = self._step
        branch = links[1] if link is None and len(links) > 1 else asked
        for one in reversed(links):
            state = step(state, one.message, key)
            if one.depth % _BLOCK == 0 or one is branch:
                one.held[self] = (mark, state)
        asked.held[self] = (mark, state)
        return state


def beginning_of(request: Request) -> Beginning | None:
    """Return the history of a request; the chain it was read into, or one of its own. None if it has no messages."""
    known: Beginning | None = request.__dict__.get(HISTORY)
    if known is None:
        for message in request.messages:
            known = Beginning(known, message)
        _held_by(request)[HISTORY] = known
    return known


def begin(request: Request, beginning: Beginning) -> Request:
    """Say which chain the messages of a request are; they must be its messages. Return the request."""
    _held_by(request)[HISTORY] = beginning
    return request


def continued(request: Request, before: Request, added: Sequence[Message]) -> Request:
    """Say that a request has the messages of the one before and some more. Return the request."""
    last = beginning_of(before)
    for message in added:
        last = Beginning(last, message)
    _held_by(request)[HISTORY] = last
    return request


def _held_by(request: Any) -> dict[str, Any]:
    return request.__dict__  # a plain dict, whatever the type of a frozen value says
