"""One part of a reply on its way into a block of a Messages stream."""

from mustcall.core.parts import (
    CallKind,
    OpaqueState,
    Part,
    Reasoning,
    ToolCall,
)
from mustcall.core.streams.events import (
    Event,
)

__all__ = ["BlockSlot", "missing_text"]


class BlockSlot:
    """One part: what it began as, what came for it while it waited, and what was sent of it."""

    __slots__ = ("ended", "final", "held", "index", "part", "sent", "state", "summary", "unsent", "withheld")

    def __init__(self, index: int, part: Part) -> None:
        self.index = index
        self.part = part
        self.held: list[Event] = []
        self.ended = False
        self.final: Part | None = None
        self.sent: list[str] = []
        self.unsent: list[str] = []
        # Custom input is rewritten as a whole, and arguments that begin like no object can only be wrong.
        self.withheld = isinstance(part, ToolCall) and part.kind is CallKind.CUSTOM
        self.state: OpaqueState | None = part.state if isinstance(part, Reasoning) else None
        self.summary: int | None = None


def missing_text(slot: BlockSlot, final: str) -> str:
    """Return what the final text has beyond what was sent; nothing if the two disagree, for nothing can be taken back.

    Only looked at when nothing, or less than all, was streamed.
    """
    if not slot.sent:
        return final
    sent = "".join(slot.sent)
    return final[len(sent) :] if final.startswith(sent) else ""
