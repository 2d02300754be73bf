"""What the user said, for models that need to be held to it: every message of the user's, and no sentence of ours.

Another mustcall in front of this one, or a caller that copied its words, may have put a demand behind the user's
message ("Use the tool … now"). It says nothing about what is wanted, and its words are no arguments.
"""

import re
from collections.abc import Iterator

from mustcall.core.message import Message, Role
from mustcall.core.parts import Text
from mustcall.core.request import Request
from mustcall.policy.facts.wording import Wording
from mustcall.policy.words.grounding import input_of

__all__ = ["said_by_user", "without_demands"]

_SENTENCES = (*Wording().call_named, *Wording().call_any)
_DEMAND = re.compile("|".join(re.escape(sentence).replace(r"\{tool\}", r"[^\n`]{1,128}") for sentence in _SENTENCES))


def without_demands(request: Request) -> Request:
    """Return the request without demands of ours at its end; the same object if there is none, or nothing else."""
    messages = list(request.messages)
    changed = False
    while len(messages) > 1 and messages[-1].role is Role.USER:
        last = messages[-1]
        parts = tuple(part for part in last.parts if not (isinstance(part, Text) and _is_demand(part.text)))
        if len(parts) == len(last.parts):
            break
        changed = True
        if parts:
            messages[-1] = last.evolve(parts=parts)
            break
        messages.pop()
    return request.evolve(messages=tuple(messages)) if changed else request


def said_by_user(request: Request) -> tuple[str, ...]:
    """Return what the user said in this conversation, the latest first."""
    return tuple(_texts(reversed(request.messages)))


def _texts(messages: Iterator[Message]) -> Iterator[str]:
    for message in messages:
        if message.role is Role.USER:
            yield from (text for text in input_of(message.parts) or () if not _is_demand(text))


def _is_demand(text: str) -> bool:
    return _DEMAND.fullmatch(text.strip()) is not None
