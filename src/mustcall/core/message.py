"""One turn of a conversation."""

from enum import StrEnum

import msgspec

from mustcall.core.origin import Value
from mustcall.core.parts import Part, ToolCall, ToolResult

__all__ = ["Message", "Role"]


class Role(StrEnum):
    """Who speaks. `tool` is a message of nothing but tool results."""

    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Message(Value, frozen=True, dict=True):
    """A role and its parts, in order.

    Messages of one role may follow each other (each Responses item is a message of its own); encoders join or split
    them as their wire needs. A Messages user turn that mixes tool results and text is one `user` message.
    """

    role: Role
    parts: tuple[Part, ...]
    #: Whether it stays however long the conversation becomes (`policy.history.compaction`); written where it is set.
    pinned: bool | msgspec.UnsetType = msgspec.UNSET

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The client-side calls this message makes."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The tool results this message brings."""
        return tuple(part for part in self.parts if isinstance(part, ToolResult))
