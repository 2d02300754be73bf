"""What an upstream answered: parts, why it stopped, and what it cost."""

from collections.abc import Iterable
from enum import StrEnum

from mustcall.core.errors import UpstreamGarbage
from mustcall.core.limits import MOST_PARTS
from mustcall.core.origin import Value
from mustcall.core.parts import Part, ProviderItem, Refusal, ToolCall

__all__ = ["FinishReason", "Reply", "Usage", "derive_finish"]


class FinishReason(StrEnum):
    """Why generation ended."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    REFUSAL = "refusal"
    PAUSE = "pause"
    UNKNOWN = "unknown"


class Usage(Value, frozen=True):
    """Token counts. `input_tokens` includes cached and newly cached tokens, on every wire."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


class Reply(Value, frozen=True):
    """A finished reply. `reported_finish` is the upstream's own word; `finish` is what the content says."""

    id: str
    model: str
    parts: tuple[Part, ...]
    finish: FinishReason
    reported_finish: str | None = None
    stop_sequence: str | None = None
    usage: Usage | None = None
    #: Further choices that came beside it, where several were asked for (chat `n`).
    others: tuple["Reply", ...] = ()

    def __post_init__(self) -> None:
        """Refuse a reply of more parts than are ever looked at, wherever it is made."""
        if len(self.parts) > MOST_PARTS:
            raise UpstreamGarbage(f"the upstream's reply has more than {MOST_PARTS} parts")

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The client-side calls this reply makes."""
        parts = self.parts
        if len(parts) == 1:  # most replies
            only = parts[0]
            return (only,) if isinstance(only, ToolCall) else ()
        return tuple([part for part in parts if isinstance(part, ToolCall)])

    @property
    def client_items(self) -> tuple[ProviderItem, ...]:
        """The calls for the client in the provider's own form; the provider ran one that has its result beside it."""
        parts = self.parts
        if len(parts) == 1 and not isinstance(parts[0], ProviderItem):  # most replies
            return ()
        items = [part for part in parts if isinstance(part, ProviderItem)]
        if not items:
            return ()
        done = {item.value.get("call_id") for item in items if item.type.endswith("_call_output")}
        return tuple([item for item in items if item.client_tools and item.value.get("call_id") not in done])


#: Reports that say nothing against what the content shows.
_ORDINARY = frozenset({FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.UNKNOWN})


def derive_finish(reported: FinishReason, parts: Iterable[Part]) -> FinishReason:
    """Return why the reply ended as its content shows (rule 127).

    Calls make it `tool_calls` whatever was reported, except where the report says the reply is incomplete or
    withheld; `tool_calls` without a call is `stop`; an ordinary end with the model's refusal in it is `refusal`.
    """
    has_calls = has_refusal = False
    for part in parts:
        if isinstance(part, ToolCall):
            has_calls = True
        elif isinstance(part, Refusal):
            has_refusal = True
    if has_calls and reported in _ORDINARY:
        return FinishReason.TOOL_CALLS
    if has_refusal and not has_calls and reported in _ORDINARY:
        return FinishReason.REFUSAL
    return FinishReason.STOP if reported is FinishReason.TOOL_CALLS and not has_calls else reported
