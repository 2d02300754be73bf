"""Whether a history is nothing but talk: what people and instructions say, in words.

Most requests of a chat, and the first of every agent, are. Such a history needs no mending, holds no names or ids to
map, and its length is the sum of its texts; who asks here first need not look further.

Cost: one pass over the messages, which ends at the first that is more than talk.
"""

from collections.abc import Iterable

from mustcall.core.message import Message, Role
from mustcall.core.parts import Text

__all__ = ["talk_length"]

_SPEAKERS = frozenset({Role.USER, Role.SYSTEM, Role.DEVELOPER})


def talk_length(messages: Iterable[Message]) -> int | None:
    """Return the characters of a history that is only talk, every message with words in it; None for any other."""
    length = 0
    for message in messages:
        if message.role not in _SPEAKERS or not message.parts:
            return None
        for part in message.parts:
            if not isinstance(part, Text):
                return None
            text = part.text
            if not text or text.isspace():
                return None
            length += len(text)
    return length
