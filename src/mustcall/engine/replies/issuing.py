"""Who issued reasoning state that its own wire carries without a name on it (rule 124).

A client hands a signed or encrypted thought back as it got it, and may meanwhile ask another upstream or another model.
Bytes of a healthy reply are not changed, so no name can be written into them. Instead a digest of each state that was
delivered is kept, with its issuer. State that another issuer is known to have made is marked as such, and history
mending leaves it out; state of which nothing is known is the caller's own affair and passes.

Kept in this process only, bounded: the oldest digests are forgotten first.
"""

import hashlib
from typing import Any, cast

from mustcall.core.history import Folded, beginning_of
from mustcall.core.memo import Attached
from mustcall.core.message import Message
from mustcall.core.parts import OpaqueState, Part, Reasoning
from mustcall.core.reply import Reply
from mustcall.core.request import Request

__all__ = ["IssuedStates"]

_MOST = 20_000
#: The field of a state that only its issuer can have made.
_SECRET = ("signature", "data", "encrypted_content")


class IssuedStates:
    """The states that were delivered, by digest, and who issued each."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._by: dict[bytes, str] = {}

    def __len__(self) -> int:
        return len(self._by)

    def note(self, reply: Reply, issuer: str) -> None:
        """Keep who issued the states of a delivered reply."""
        for part in reply.parts:
            digest = _digest(part.state) if isinstance(part, Reasoning) else None
            if digest is not None:
                self._by.pop(digest, None)
                self._by[digest] = issuer
                if len(self._by) > self._most:
                    del self._by[next(iter(self._by))]

    def marked(self, request: Request, issuer: str) -> Request:
        """Return the request with the states of other issuers marked as theirs; the same object if there are none."""
        if not self._by or not _stateful.of(beginning_of(request), None):
            return request
        if all(
            self._by.get(digest, issuer) == issuer for digests in _unsigned.each(request.messages) for digest in digests
        ):
            return request
        messages = tuple(self._message(message, issuer) for message in request.messages)
        changed = any(new is not old for new, old in zip(messages, request.messages, strict=True))
        return request.evolve(messages=messages) if changed else request

    def _message(self, message: Message, issuer: str) -> Message:
        parts = tuple(self._part(part, issuer) for part in message.parts)
        return message if all(map(_is, parts, message.parts)) else message.evolve(parts=parts)

    def _part(self, part: Part, issuer: str) -> Part:
        if not isinstance(part, Reasoning) or part.state is None or part.state.issuer:
            return part
        digest = _digest(part.state)
        maker = self._by.get(digest, issuer) if digest is not None else issuer
        if maker == issuer:
            return part
        return part.evolve(state=OpaqueState(part.state.form, part.state.data, maker))


def _digests_of(message: Message) -> tuple[bytes, ...]:
    """Return digests of the states in a message that do not say who made them."""
    states = [part.state for part in message.parts if isinstance(part, Reasoning)]
    digests = [_digest(state) for state in states if state is not None and not state.issuer]
    return tuple(digest for digest in digests if digest is not None)


#: A digest takes long to make, and a conversation brings its states with every request.
_unsigned: Attached[Message, tuple[bytes, ...]] = Attached("digests of states", _digests_of)


def _has_state(found: bool, message: Message, _: None) -> bool:
    return found or any(isinstance(part, Reasoning) and part.state is not None for part in message.parts)


#: Whether a history holds any state at all.
_stateful: Folded[bool, None] = Folded(lambda _: False, _has_state)


def _is(new: object, old: object) -> bool:
    return new is old


def _digest(state: OpaqueState | None) -> bytes | None:
    """Return a digest of the part of a state that nobody else can write; None where it has none."""
    data = state.data if state is not None else None
    if isinstance(data, dict):
        fields = cast("dict[str, Any]", data)  # state went through the caller's hands: only its shape is certain
        data = next((fields[name] for name in _SECRET if fields.get(name)), None)
    return hashlib.sha256(data.encode(errors="replace")).digest()[:16] if isinstance(data, str) and data else None
