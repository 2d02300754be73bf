"""What became of a call: plain values, for results, events and records."""

from enum import StrEnum

import msgspec

from mustcall.core.parts import ToolCall

__all__ = ["CallStatus", "ExecutedCall"]


class CallStatus(StrEnum):
    """What became of one call. The tool was begun only under `ok`, `failed`, `timed_out`, `cancelled`, `unknown`."""

    OK = "ok"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    REFUSED = "refused"
    SCHEMA_ERROR = "schema_error"
    PARSE_ERROR = "parse_error"
    UNKNOWN_TOOL = "unknown_tool"
    CANCELLED = "cancelled"
    #: Begun before the run was interrupted; whether it took effect is not known, and it was not begun again.
    UNKNOWN = "unknown"
    HOP_BUDGET_EXHAUSTED = "hop_budget_exhausted"
    IGNORED_EXTRA = "ignored_extra"
    COST_CAP_EXCEEDED = "cost_cap_exceeded"


class ExecutedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call and what came of it. `result` is the text without its wrapper, cut as the model saw it."""

    call: ToolCall
    result: str
    status: CallStatus
    seconds: float = 0.0
    tries: int = 1
    step: int = 1

    @property
    def name(self) -> str:
        """The name of the tool that was called; empty where the call could not be read."""
        return self.call.name

    @property
    def ok(self) -> bool:
        """Whether the tool ran and succeeded."""
        return self.status is CallStatus.OK
