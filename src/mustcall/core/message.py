"""One turn of a conversation."""

from enum import StrEnum

import msgspec

from mustcall.core.origin import Value
from mustcall.core.parts import Part, ProviderItem, ToolCall, ToolResult

__all__ = ["Message", "Role", "holds_result"]


class Role(StrEnum):
    """The author of a message. A `tool` message contains only tool results."""

    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Message(Value, frozen=True, dict=True):
    """One message of a conversation: a role and its parts, in order.

    Several messages of one role may follow each other (each Responses item is a separate message); encoders join or
    split them for their wire. A Messages user turn with tool results and text is one `user` message.
    """

    role: Role
    parts: tuple[Part, ...]
    #: Whether it stays however long the conversation becomes (`policy.history.compaction`); written where it is set.
    pinned: bool | msgspec.UnsetType = msgspec.UNSET

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The client-side calls of this message."""
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The tool results of this message."""
        return tuple([part for part in self.parts if isinstance(part, ToolResult)])


def holds_result(message: Message) -> bool:
    """Tell whether a message has the result of a call that the client ran, also in a provider's own form."""
    return any(map(_is_result, message.parts))


def _is_result(part: Part) -> bool:
    return isinstance(part, ToolResult) or (isinstance(part, ProviderItem) and part.result_of is not None)
