"""What a caller asks for, independent of the wire it came on."""

from enum import StrEnum
from typing import Any, Self

import msgspec

from mustcall.core.message import Message
from mustcall.core.origin import JsonObject, Value
from mustcall.core.tools import ProviderTool, Tool, ToolChoice

__all__ = ["HISTORY", "OutputFormat", "OutputKind", "ReasoningConfig", "ReasoningMode", "Request"]

#: Under which name a request holds the chain of its messages (`core.history`).
HISTORY = "beginning"


class ReasoningMode(StrEnum):
    """Whether the model thinks before it answers, as far as the caller said."""

    ADAPTIVE = "adaptive"
    ENABLED = "enabled"
    DISABLED = "disabled"


class ReasoningConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The caller's reasoning settings. `effort` is the provider's own word (`low`, `high`, `max`, …)."""

    mode: ReasoningMode | None = None
    effort: str | None = None
    budget_tokens: int | None = None
    summary: str | None = None


class OutputKind(StrEnum):
    """The form a structured answer takes."""

    TEXT = "text"
    JSON = "json_object"
    SCHEMA = "json_schema"


class OutputFormat(msgspec.Struct, frozen=True, kw_only=True):
    """A structured answer the caller wants."""

    kind: OutputKind
    schema: JsonObject | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class Request(Value, frozen=True, dict=True):
    """One request for one reply.

    `system` is the prompt a wire carries outside its message list (Messages `system`, Responses `instructions`);
    system messages inside the list stay there. `origin.fields` holds top-level fields without a canonical word.
    """

    model: str
    messages: tuple[Message, ...]
    system: Message | None = None
    tools: tuple[Tool | ProviderTool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    reasoning: ReasoningConfig | None = None
    output: OutputFormat | None = None
    stream: bool = False
    stream_usage: bool = False
    previous_response_id: str | None = None

    def evolve(self, **changes: Any) -> Self:
        """Return a changed copy; what is known of its messages is known of the copy, unless they are others."""
        changed = super().evolve(**changes)
        if "messages" not in changes and HISTORY in self.__dict__:
            held: Any = changed.__dict__  # a plain dict, whatever the type of a frozen value says
            held[HISTORY] = self.__dict__[HISTORY]
        return changed
