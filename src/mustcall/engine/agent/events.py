"""What happens in a run, as it happens: frozen values for `Agent.stream` and for hooks.

The order within one step: `TextDelta` and `ReasoningDelta` as they come, `StepFinished` once the model's turn has its
outcome, then a `CallStarted` for each call and, in the order they end, a `CallFinished`. `RunFinished` is the last
event of every run, a failed one included. Nothing of a discarded attempt is ever an event, but for `PartialOutput`,
which is a preview and has to be asked for.
"""

from typing import Any

import msgspec

from mustcall.core.parts import ToolCall
from mustcall.core.reply import Usage
from mustcall.engine.records import TurnRecord
from mustcall.engine.run_records.results import RunResult
from mustcall.engine.tooling.outcomes import CallStatus

__all__ = [
    "CallFinished",
    "CallStarted",
    "PartialOutput",
    "ReasoningDelta",
    "RunEvent",
    "RunFinished",
    "StepFinished",
    "TextDelta",
]


class TextDelta(msgspec.Struct, frozen=True, tag="text_delta"):
    """More of the model's text."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, tag="reasoning_delta"):
    """More of the model's thinking, or of its summary."""

    text: str


class PartialOutput(msgspec.Struct, frozen=True, tag="partial_output"):
    """A structured answer as far as it is written: plain data, not checked. A later one may begin anew.

    Only a stream that was asked for it (`partial=True`) has these: the one kind of event that may be of an attempt
    whose answer is not accepted in the end.
    """

    value: Any


class StepFinished(msgspec.Struct, frozen=True, tag="step_finished"):
    """A turn of the model's has its outcome. `record` holds every attempt it took."""

    record: TurnRecord
    step: int = 1
    usage: Usage = Usage()


class CallStarted(msgspec.Struct, frozen=True, tag="call_started"):
    """A call is about to be checked, approved and run."""

    call: ToolCall


class CallFinished(msgspec.Struct, frozen=True, tag="call_finished"):
    """A call has its result; `result` is its text as the model will see it, without the wrapper."""

    call: ToolCall
    result: str
    ok: bool
    seconds: float
    status: CallStatus = CallStatus.OK


class RunFinished(msgspec.Struct, frozen=True, tag="run_finished"):
    """The run is over."""

    result: RunResult[Any]


RunEvent = TextDelta | ReasoningDelta | PartialOutput | StepFinished | CallStarted | CallFinished | RunFinished
