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
    """The next piece of the model's text."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, tag="reasoning_delta"):
    """The next piece of the model's reasoning, or of its summary."""

    text: str


class PartialOutput(msgspec.Struct, frozen=True, tag="partial_output"):
    """The part of a structured answer that is written so far: plain data, not validated.

    Only a stream with `partial=True` has these events. They are the only events that may belong to a discarded attempt;
    then later ones start again.
    """

    value: Any


class StepFinished(msgspec.Struct, frozen=True, tag="step_finished"):
    """A turn of the model has its outcome. `record` contains its attempts."""

    record: TurnRecord
    step: int = 1
    usage: Usage = Usage()


class CallStarted(msgspec.Struct, frozen=True, tag="call_started"):
    """A call will now be checked, approved and run."""

    call: ToolCall


class CallFinished(msgspec.Struct, frozen=True, tag="call_finished"):
    """A call has its result. `result` is the text that the model will read, without its tags."""

    call: ToolCall
    result: str
    ok: bool
    seconds: float
    status: CallStatus = CallStatus.OK


class RunFinished(msgspec.Struct, frozen=True, tag="run_finished"):
    """The run has ended. This is the last event of every run."""

    result: RunResult[Any]


RunEvent = TextDelta | ReasoningDelta | PartialOutput | StepFinished | CallStarted | CallFinished | RunFinished
