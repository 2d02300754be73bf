"""A change made to a request or reply on its way. Adapt freely, never invisibly."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

__all__ = ["REPAIRS", "Adaptation", "AdaptationKind", "AdaptationLog"]


class AdaptationKind(StrEnum):
    """What sort of change it was; the stable word in headers and traces."""

    FIELD_DROPPED = "field_dropped"
    FIELD_MAPPED = "field_mapped"
    FIELD_DEFAULTED = "field_defaulted"
    VALUE_CLAMPED = "value_clamped"
    TOOL_DROPPED = "tool_dropped"
    TOOL_RESHAPED = "tool_reshaped"
    TOOL_ADDED = "tool_added"
    NAME_MAPPED = "name_mapped"
    ID_MAPPED = "id_mapped"
    PART_DROPPED = "part_dropped"
    PART_RESHAPED = "part_reshaped"
    MESSAGE_MOVED = "message_moved"
    STATE_DROPPED = "state_dropped"
    ESTIMATED = "estimated"
    RETRIED = "retried"
    HISTORY_MENDED = "history_mended"
    SCHEMA_REDUCED = "schema_reduced"
    FORCE_SOFTENED = "force_softened"
    FORCE_DROPPED = "force_dropped"
    FORCE_ADDED = "force_added"
    REASONING_OFF = "reasoning_off"
    DIRECTIVE_ADDED = "directive_added"
    CALL_DROPPED = "call_dropped"
    CALL_PROMOTED = "call_promoted"
    ARGUMENTS_READ = "arguments_read"
    ARGUMENTS_COERCED = "arguments_coerced"
    ARGUMENTS_SALVAGED = "arguments_salvaged"
    ARGUMENTS_EXPANDED = "arguments_expanded"
    MARKUP_STRIPPED = "markup_stripped"
    FINISH_CORRECTED = "finish_corrected"
    TEXT_DROPPED = "text_dropped"
    ANSWER_REPLACED = "answer_replaced"
    REPORTED = "reported"
    LEARNT = "learnt"


#: What mends a reply on its way to the caller: without it the model's reply would not have been what was asked for.
REPAIRS = frozenset(
    {
        AdaptationKind.CALL_DROPPED,
        AdaptationKind.CALL_PROMOTED,
        AdaptationKind.ARGUMENTS_READ,
        AdaptationKind.ARGUMENTS_COERCED,
        AdaptationKind.ARGUMENTS_SALVAGED,
        AdaptationKind.ARGUMENTS_EXPANDED,
        AdaptationKind.MARKUP_STRIPPED,
        AdaptationKind.FINISH_CORRECTED,
        AdaptationKind.TEXT_DROPPED,
        AdaptationKind.ANSWER_REPLACED,
    }
)


class Adaptation(msgspec.Struct, frozen=True, order=True):
    """One change: its kind, what it was done to, and why in a few words."""

    kind: AdaptationKind
    subject: str
    detail: str = ""


class AdaptationLog:
    """Collects adaptations in order, each once."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[Adaptation, None] = {}

    def add(self, kind: AdaptationKind, subject: str, detail: str = "") -> None:
        """Note one change; the same change again is not noted twice."""
        self._seen[Adaptation(kind, subject, detail)] = None

    def extend(self, noted: Sequence[Adaptation]) -> None:
        """Note again what was noted before."""
        if noted:
            self._seen.update(dict.fromkeys(noted))

    @property
    def entries(self) -> tuple[Adaptation, ...]:
        """Return what was noted, in order."""
        return tuple(self._seen)
