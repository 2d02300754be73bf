"""Who takes part in a coordinated answer, and what one of them hands over when asked.

A member is an agent with one role. Everything about its turns, its tools and the fit of its answer is the agent's; here
a run becomes the record of a role's work.
"""

from typing import Any

import msgspec

from mustcall.core.adaptation import AdaptationKind
from mustcall.core.errors import ErrorInfo
from mustcall.engine.agent.agent import Agent
from mustcall.engine.agent.options import Options
from mustcall.engine.agent.running.tool_spending import listening
from mustcall.engine.agent.upstream import Upstream
from mustcall.engine.coordinating.envelopes import ENVELOPES, Envelope, RoleKind
from mustcall.engine.coordinating.results import InnerCall, InnerStatus, RoleRun
from mustcall.engine.run_records.results import RunResult
from mustcall.engine.tooling.outcomes import CallStatus, ExecutedCall
from mustcall.policy.reply.judge import SURPLUS

__all__ = ["Member", "Participant", "inner_calls", "read_participant"]


class Participant(msgspec.Struct, frozen=True):
    """A model with more to say about it than where it is. `instructions` go behind those of its role."""

    upstream: Upstream
    model: str | None = None
    instructions: str | None = None
    options: Options | None = None


def read_participant(given: Upstream | str | Participant) -> Participant:
    """Return what people name a model by as one value; raise `ConfigError`."""
    match given:
        case Participant():
            return given
        case Upstream():
            return Participant(given)
        case _:
            return Participant(Upstream(given))


class Member(msgspec.Struct, frozen=True):
    """An agent in a role. `name` tells members of one role apart."""

    role: RoleKind
    name: str
    agent: Agent[Any, Any]

    async def work(self, prompt: str, hops: int, number: int, run_id: str | None = None) -> RoleRun:
        """Return what came of the role's work in a round; a failure is one of the things that can come of it.

        Under the name of a durable run the role's own run is durable: what it has done is not done again.
        """
        clock = self.agent.upstream.clock
        began = clock.monotonic()
        with listening() as beside:  # a tool may ask a model, too
            result = await self.agent.run(
                prompt, output=ENVELOPES[self.role], hops=hops, check=False, run_id=self._path(run_id, number)
            )
        output: Envelope | None = result.answer
        error = result.error
        if output is None and error is None:  # a refusal is an end of its own, not a bad answer
            error = ErrorInfo(
                message=f"the model gave no answer: {result.stopped}", status=502, code=str(result.stopped)
            )
        return RoleRun(
            role=self.role,
            name=self.name,
            upstream=self.agent.upstream.endpoint.name,
            model=self.agent.model,
            round=number,
            output=output,
            error=error,
            inner_tool_calls=inner_calls(result),
            attempts=sum(step.calls for step in result.steps) + beside.attempts,
            usage=result.usage + beside.usage,
            cost_usd=result.cost_usd + beside.cost_usd,
            estimated=result.estimated or beside.estimated,
            seconds=clock.monotonic() - began,
        )

    def _path(self, run_id: str | None, number: int) -> str | None:
        """Return the name of the role's own run: `…/proposer/1`, `…/critic_2/1`."""
        return None if run_id is None else f"{run_id}/{self.name}/{number}"


#: Calls that took no hop.
_FREE = (CallStatus.HOP_BUDGET_EXHAUSTED, CallStatus.COST_CAP_EXCEEDED, CallStatus.IGNORED_EXTRA)


def inner_calls(result: RunResult[Any]) -> tuple[InnerCall, ...]:
    """Return the calls of a run, and the tries at one that never became a call, in the order of its steps."""
    found: list[InnerCall] = []
    taken = 0
    for number, step in enumerate(result.steps, 1):
        # What a reply called beyond what it may comes after what it called.
        made = sorted(_made_in(result, number), key=lambda each: each.status is CallStatus.IGNORED_EXTRA)
        for each in made:
            runs = each.status not in _FREE
            taken += runs
            found.append(InnerCall(hop=taken + (not runs), name=each.call.name, status=_status(each.status)))
        found += [
            InnerCall(hop=taken + 1, name=change.subject, status=InnerStatus.IGNORED_EXTRA)
            for change in step.adaptations
            if change.kind is AdaptationKind.CALL_DROPPED and change.detail not in SURPLUS  # those are calls of the run
        ]
    return tuple(found)


def _made_in(result: RunResult[Any], number: int) -> list[ExecutedCall]:
    return [each for each in result.calls if each.step == number]


def _status(status: CallStatus) -> InnerStatus:
    return InnerStatus.REFUSED if status is CallStatus.UNKNOWN_TOOL else InnerStatus(str(status))
