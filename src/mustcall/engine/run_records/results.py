"""What a run came to: plain values, whole at any moment of it."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, cast

import msgspec

from mustcall.core.errors import ErrorInfo, StructuredOutputError
from mustcall.core.message import Message
from mustcall.core.reply import FinishReason, Usage
from mustcall.engine.parameters import Out_co
from mustcall.engine.records import TurnRecord
from mustcall.engine.tooling.outcomes import CallStatus, ExecutedCall, shortened
from mustcall.policy.limits.budget import CostCap
from mustcall.policy.reply.unbacked_claims import UnbackedClaim

if TYPE_CHECKING:
    from mustcall.engine.run_records.tracing import Trace

__all__ = ["RunResult", "Stopped", "force_satisfied", "plain_messages", "stopped_by"]


class Stopped(StrEnum):
    """Why a run ended."""

    ANSWERED = "answered"
    STEP_CAP = "step_cap"
    COST_CAP = "cost_cap"
    LENGTH = "length"
    REFUSED = "refused"
    FILTERED = "filtered"
    CANCELLED = "cancelled"
    FAILED = "failed"


#: How a run ends that has no structured answer although one was asked for.
_UNANSWERED = frozenset({Stopped.REFUSED, Stopped.FILTERED, Stopped.CANCELLED, Stopped.FAILED})
#: Characters of a text that a `repr` shows.
_SHOWN = 60


class RunResult(msgspec.Struct, Generic[Out_co], frozen=True, kw_only=True):
    """The result of a run. `messages` is the whole history without the instructions; pass it to another run."""

    text: str
    messages: tuple[Message, ...]
    stopped: Stopped
    #: The structured answer, None where there is none: `output` is the same and raises instead.
    answer: Out_co | None = None
    #: Whether a structured answer was asked for.
    structured: bool = False
    calls: tuple[ExecutedCall, ...] = ()
    steps: tuple[TurnRecord, ...] = ()
    usage: Usage = Usage()
    #: The same by the name of the model: two where one plans and another calls.
    usage_by_model: dict[str, Usage] = {}
    #: How the run stands against its own cost cap, where it has one (rule 95).
    cost_cap: CostCap | None = None
    #: None if no tool was demanded; False if one was and no turn called it (rule 27).
    force_satisfied: bool | None = None
    #: What the run failed with, where it was asked not to raise.
    error: ErrorInfo | None = None
    #: The id under which a stateful upstream keeps the conversation (rule 78).
    response_id: str | None = None
    #: How many of `messages` it keeps.
    kept: int = 0
    #: What the answer says was done and no call did; only where the agent checks that (`claims`).
    claims: tuple[UnbackedClaim, ...] = ()
    #: The name of a durable run.
    run_id: str | None = None

    @property
    def answered(self) -> bool:
        """Whether the run ended with an answer; false if it was refused, filtered, cancelled or failed."""
        return self.stopped not in _UNANSWERED

    @property
    def output(self) -> Out_co:
        """The structured answer: a value of the requested type, or plain data; None if none was requested.

        Raise `StructuredOutputError` if one was requested and the run ended without it.
        """
        if self.structured and not self.answered:
            why = f": {self.error.message}" if self.error is not None else ""
            raise StructuredOutputError(f"the run has no answer of the type asked for; it ended as {self.stopped}{why}")
        return cast("Out_co", self.answer)  # None is the type where nothing was asked for

    @property
    def history(self) -> list[dict[str, Any]]:
        """The messages as plain data that can be stored as JSON, for `after` of another run."""
        return plain_messages(self.messages)

    def trace(self) -> "Trace":
        """Return the steps of the run. `print` shows text; a notebook shows a table."""
        from mustcall.engine.run_records.tracing import Trace  # noqa: PLC0415  most runs are not looked at

        return Trace(self)

    def _repr_html_(self) -> str:
        """Show the trace in a notebook."""
        return self.trace().html

    def __repr__(self) -> str:
        said = f"answer={self.answer!r}" if self.structured else f"text={shortened(self.text, _SHOWN)!r}"
        counts = f"steps={len(self.steps)}, calls={len(self.calls)}"
        failed = f", error={self.error.code!r}" if self.error is not None else ""
        return f"RunResult({self.stopped}, {said}, {counts}{failed})"

    @property
    def unknown(self) -> tuple[ExecutedCall, ...]:
        """The calls whose outcome is unknown because the run was interrupted."""
        return tuple(call for call in self.calls if call.status is CallStatus.UNKNOWN)

    @property
    def cost_usd(self) -> float:
        """The cost of all attempts in US dollars, as far as prices are known (rule 98)."""
        return sum(step.cost_usd for step in self.steps)

    @property
    def estimated(self) -> bool:
        """Whether a price, or the token count of an attempt, is unknown."""
        return any(step.estimated for step in self.steps)


_STOPPED = {
    FinishReason.LENGTH: Stopped.LENGTH,
    FinishReason.REFUSAL: Stopped.REFUSED,
    FinishReason.CONTENT_FILTER: Stopped.FILTERED,
}


def stopped_by(finish: FinishReason) -> Stopped:
    """Return why a run ended with a reply that finished so."""
    return _STOPPED.get(finish, Stopped.ANSWERED)


def force_satisfied(steps: Sequence[TurnRecord]) -> bool | None:
    """Return whether what was demanded was called: None if nothing was."""
    forces = {step.force for step in steps}
    if "met" in forces and "unmet" not in forces:
        return True
    return False if forces & {"unmet", "dropped"} else None


def plain_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages as plain data: dicts, lists and texts, which `read_prompt` takes back as they were."""
    return msgspec.to_builtins(list(messages))
