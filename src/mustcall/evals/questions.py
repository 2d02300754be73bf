"""A question as every suite asks it: messages, tools, and what the caller demands. Plain data.

Which reply is right is the suite's to say; how a question is written on a wire is `asking`'s.
"""

from enum import StrEnum

import msgspec

from mustcall.core.tools import Tool

__all__ = ["AskedCall", "Question", "Said", "Speaker"]


class AskedCall(StrEnum):
    """What the caller asks for: some call, one tool by name, or a call if the model sees fit."""

    REQUIRED = "required"
    NAMED = "named"
    AUTO = "auto"


class Speaker(StrEnum):
    """Who says a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class Said(msgspec.Struct, frozen=True):
    """One message."""

    role: Speaker
    text: str


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a suite. `named` is the tool that `AskedCall.NAMED` names; `set` groups questions in figures."""

    id: str
    set: str
    messages: tuple[Said, ...]
    tools: tuple[Tool, ...]
    demand: AskedCall
    named: str | None = None

    @property
    def words(self) -> str:
        """The text of all messages, for reports and lengths."""
        return "\n".join(said.text for said in self.messages)
