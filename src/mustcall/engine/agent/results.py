"""What a run came to: plain values, whole at any moment of it."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from mustcall.core.errors import ErrorInfo
from mustcall.core.message import Message
from mustcall.core.reply import FinishReason, Usage
from mustcall.engine.records import TurnRecord
from mustcall.engine.tooling.outcomes import CallStatus, ExecutedCall
from mustcall.policy.limits.budget import CostCap
from mustcall.policy.reply.unbacked_claims import UnbackedClaim

__all__ = ["RunResult", "Stopped", "force_satisfied", "stopped_by"]


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


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """A run. `messages` is the whole history without the instructions, ready to be passed in again."""

    text: str
    messages: tuple[Message, ...]
    stopped: Stopped
    #: The structured answer, where one was asked for: a value of the type, or what the JSON says.
    output: Any = None
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
    def unknown(self) -> tuple[ExecutedCall, ...]:
        """The calls that an interruption left in the dark: whether they took effect is not known."""
        return tuple(call for call in self.calls if call.status is CallStatus.UNKNOWN)

    @property
    def cost_usd(self) -> float:
        """What the model's turns cost together, every attempt of them, as far as prices are known (rule 98)."""
        return sum(step.cost_usd for step in self.steps)

    @property
    def estimated(self) -> bool:
        """Whether something of the cost is not known: a price, or the tokens of an attempt."""
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
