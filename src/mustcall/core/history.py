"""A conversation as a chain of its beginnings, so that what is known of a beginning holds for everything that follows.

Each request of an agent has the messages of the last one and a few more. A `Beginning` is a conversation up to one of
its messages; its past is another one. Whoever reads a history from its start writes the reading as a fold (`Folded`):
a state and a step. The state at a beginning is kept with it, so a longer conversation only costs its new messages, and
one that goes another way from somewhere in the middle costs what is behind that place.

Pure in effect: a step may depend on nothing but the state, the message and the key it is asked with.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from mustcall.core.message import Message
from mustcall.core.request import Request

__all__ = ["Beginning", "Folded", "begin", "beginning_of"]

S = TypeVar("S")
K = TypeVar("K")
_BEGINNING = "beginning"


class Beginning:
    """A conversation up to and with one message.

    `value` is the message's JSON; `signs` bounds the values in the JSON of all messages so far, and `sealed` says
    whether any of it may be sealed. What is found out about it is held with it (`held`), and gone when it is forgotten.
    """

    __slots__ = ("depth", "gathered", "held", "message", "past", "sealed", "signs", "value")

    def __init__(
        self, past: "Beginning | None", message: Message, value: Any = None, *, sealed: bool = False, signs: int = 0
    ) -> None:
        self.past = past
        self.message = message
        self.value = value
        self.sealed = sealed or (past is not None and past.sealed)
        self.signs: int = signs if past is None else past.signs + signs
        self.depth: int = 1 if past is None else past.depth + 1
        self.held: dict[object, Any] = {}
        #: All messages and their JSON, where they were asked for last.
        self.gathered: tuple[tuple[Message, ...], tuple[Any, ...]] | None = None

    def all(self) -> tuple[tuple[Message, ...], tuple[Any, ...]]:
        """Return all messages and their JSON, from the first to this one."""
        known = self.gathered
        if known is not None:
            return known
        links: list[Beginning] = []
        link: Beginning | None = self
        while link is not None and link.gathered is None:
            links.append(link)
            link = link.past
        links.reverse()
        messages, values = tuple([one.message for one in links]), tuple([one.value for one in links])
        if link is not None and link.gathered is not None:
            messages, values = link.gathered[0] + messages, link.gathered[1] + values
            link.gathered = None  # one copy for each conversation, not one for each of its requests
        self.gathered = messages, values
        return self.gathered


class Folded(Generic[S, K]):
    """What a history comes to, read from its start. States are kept where they were asked for, one for each fold."""

    __slots__ = ("_same", "_start", "_step")

    def __init__(
        self, start: Callable[[K], S], step: Callable[[S, Message, K], S], same: Callable[[K, K], bool] | None = None
    ) -> None:
        self._start = start
        self._step = step
        self._same = same

    def of(self, beginning: Beginning | None, key: K) -> S:
        """Return the state at a beginning; None is a history without messages."""
        links: list[Beginning] = []
        link, same = beginning, self._same
        state: S
        while True:
            if link is None:
                state = self._start(key)
                break
            known = link.held.get(self)
            if known is not None and (same is None or same(known[0], key)):
                state = known[1]
                break
            links.append(link)
            link = link.past
        if not links:
            return state
        step = self._step
        for one in reversed(links):
            state = step(state, one.message, key)
        links[0].held[self] = (key, state)
        return state


def beginning_of(request: Request) -> Beginning | None:
    """Return the history of a request; the chain it was read into, or one of its own. None if it has no messages."""
    held = _held_by(request)
    known: Beginning | None = held.get(_BEGINNING)
    if known is None:
        for message in request.messages:
            known = Beginning(known, message)
        held[_BEGINNING] = known
    return known


def begin(request: Request, beginning: Beginning) -> Request:
    """Say which chain the messages of a request are; they must be its messages. Return the request."""
    _held_by(request)[_BEGINNING] = beginning
    return request


def _held_by(request: Any) -> dict[str, Any]:
    return request.__dict__  # a plain dict, whatever the type of a frozen value says
