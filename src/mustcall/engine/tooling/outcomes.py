"""What became of a call: plain values, for results, events and records."""

from enum import StrEnum
from typing import Self

import msgspec

from mustcall.core.parts import ToolCall

__all__ = ["CallStatus", "ExecutedCall", "shortened"]

#: Characters of a result that a `repr` shows.
_SHOWN = 60


def shortened(text: str, most: int) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[:most]}…"


class CallStatus(StrEnum):
    """The outcome of a call. The tool started only for `ok`, `failed`, `timed_out`, `cancelled` and `unknown`."""

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


class ExecutedCall(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One call and its outcome. `result` is the text that the model read, without its tags.

    `error` is the exception of the tool in one line (`KeyError: 'oslo'`). The model does not read it, unless it is a
    `ToolError`.
    """

    call: ToolCall
    result: str
    status: CallStatus
    seconds: float = 0.0
    tries: int = 1
    step: int = 1
    error: str | None = None

    @property
    def exception(self) -> BaseException | None:
        """The exception of the tool with its traceback; only in the process that ran the tool."""
        return vars(self).get("raised")

    def raising(self, error: BaseException | None) -> Self:
        """Return this call with the exception of its tool."""
        if error is None:
            return self
        told = msgspec.structs.replace(self, error=_described(error))
        vars(told)["raised"] = error  # beside the fields: it is compared, written and copied by none of them
        return told

    def __repr__(self) -> str:
        return f"ExecutedCall({self.call!r}, {self.status}, result={shortened(self.result, _SHOWN)!r})"

    @property
    def name(self) -> str:
        """The name of the called tool; empty if the call could not be parsed."""
        return self.call.name

    @property
    def ok(self) -> bool:
        """Whether the tool ran and succeeded."""
        return self.status is CallStatus.OK


def _described(error: BaseException) -> str:
    """Return an exception as the last line of its traceback says it."""
    try:
        said = shortened(str(error), 300)
    except Exception:  # noqa: BLE001  a tool's own class
        said = ""
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
