"""A reply as it streams, independent of the wire.

The order every decoder keeps and every encoder may rely on:

    Started
      (PartStarted (TextDelta | ReasoningDelta | ArgumentsDelta | StateDelta)* PartEnded)*   parts may interleave
      UsageUpdated*                                                                          anywhere after Started
    Finished
      UsageUpdated*
    Ended

or, at any point, `Failed` as the last event. `index` numbers the parts of the reply in the order they started.
`PartEnded.part` is the upstream's own final word on the part where the wire sends one; it wins over the deltas.
"""

from typing import Any

import msgspec

from mustcall.core.errors import ErrorInfo
from mustcall.core.parts import OpaqueState, Part
from mustcall.core.reply import FinishReason, Usage

__all__ = [
    "ArgumentsDelta",
    "Ended",
    "Event",
    "Failed",
    "Finished",
    "PartEnded",
    "PartReasoningDelta",
    "PartStarted",
    "PartTextDelta",
    "Started",
    "StateDelta",
    "UsageUpdated",
]


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The upstream began a reply."""

    id: str
    model: str


class PartStarted(msgspec.Struct, frozen=True, tag="part_started"):
    """A part began. `part` holds what is known so far; text and arguments usually come as deltas."""

    index: int
    part: Part


class PartTextDelta(msgspec.Struct, frozen=True, tag="text_delta"):
    """More text of a `Text` or `Refusal` part."""

    index: int
    text: str


class PartReasoningDelta(msgspec.Struct, frozen=True, tag="reasoning_delta"):
    """More thinking; `summary` numbers the summary it belongs to, None means the thinking itself."""

    index: int
    text: str
    summary: int | None = None


class ArgumentsDelta(msgspec.Struct, frozen=True, tag="arguments_delta"):
    """More of a call's arguments."""

    index: int
    text: str


class StateDelta(msgspec.Struct, frozen=True, tag="state_delta"):
    """The opaque state of a reasoning part, whole."""

    index: int
    state: OpaqueState


class PartEnded(msgspec.Struct, frozen=True, tag="part_ended"):
    """A part is complete."""

    index: int
    part: Part | None = None


class UsageUpdated(msgspec.Struct, frozen=True, tag="usage_updated"):
    """Token counts so far; the last one counts."""

    usage: Usage


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The model stopped, for the reason the upstream reported."""

    reason: FinishReason
    reported: str | None = None
    stop_sequence: str | None = None


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The stream is complete."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The upstream reported an error in the stream, or the stream was cut."""

    error: ErrorInfo
    raw: Any = None


Event = (
    Started
    | PartStarted
    | PartTextDelta
    | PartReasoningDelta
    | ArgumentsDelta
    | StateDelta
    | PartEnded
    | UsageUpdated
    | Finished
    | Ended
    | Failed
)
