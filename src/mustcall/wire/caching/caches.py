"""What a server keeps of the requests it has read, in one object that it owns: it goes when the server goes.

A library call that is made once has none of this; nothing of its text outlives it.
"""

from mustcall.wire.caching.conversations import Conversations

__all__ = ["Caches"]


class Caches:
    """The stores of one server. Each is bounded in bytes, and keeps tenants apart where it holds what they wrote."""

    __slots__ = ("conversations",)

    def __init__(self, conversations: Conversations | None = None) -> None:
        self.conversations = Conversations() if conversations is None else conversations
