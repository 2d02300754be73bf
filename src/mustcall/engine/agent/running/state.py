"""Where a run stands, at any moment of it: what was said, called and spent, and what a keeper needs to go on with it.

It is asked for the result, told where an interrupted run stood, and gives its moments. What happens next is the loop's
(`agent.loop`).
"""

import os
from typing import Any

from mustcall.core.errors import MustcallError
from mustcall.core.message import Message, Role
from mustcall.core.parts import Text, ToolCall, ToolResult
from mustcall.core.reply import Usage
from mustcall.engine.agent.hooking import Changed
from mustcall.engine.agent.prompts import text_message
from mustcall.engine.agent.running.plan import RunSettings
from mustcall.engine.agent.running.run_events import RunTelling
from mustcall.engine.records import TurnRecord
from mustcall.engine.run_records.checkpoints import Checkpoint, Recovered, RunKeeper, RunStanding
from mustcall.engine.run_records.results import RunResult, Stopped, force_satisfied
from mustcall.engine.tooling.outcomes import CallStatus, ExecutedCall
from mustcall.policy.facts.wording import fill
from mustcall.policy.history.compaction import Compacted
from mustcall.policy.limits.budget import Charge
from mustcall.policy.reply.repeated_calls import Loop
from mustcall.policy.reply.unbacked_claims import UnbackedClaim

__all__ = ["RunState"]

_UNFIT = frozenset({CallStatus.SCHEMA_ERROR, CallStatus.PARSE_ERROR, CallStatus.UNKNOWN_TOOL})


class RunState:
    """Where one run stands. `result` can be asked for at any time: what it shows is always a legal history."""

    _response_id: str | None
    _reminder: str | None
    _notice: str | None
    _owed: str | None

    def __init__(self, plan: RunSettings, messages: tuple[Message, ...], after: RunResult[Any] | None = None) -> None:
        self._plan = plan
        self._messages = list(messages)
        #: Where a stateful upstream keeps the conversation, and how much of it it has.
        self._response_id = after.response_id if after is not None and plan.stateful else None
        self._kept = after.kept if after is not None and self._response_id is not None else 0
        #: What the run may spend; None where nothing is counted.
        self._account = None if plan.metering is None else plan.metering.open(plan.session, os.urandom(12).hex())
        self._calls: list[ExecutedCall] = []
        self._steps: list[TurnRecord] = []
        self._usage: Usage = Usage()
        self._usage_by: dict[str, Usage] = {}
        self._text = ""
        self._number: int = 0
        self._stopped: Stopped | None = None
        self._error: MustcallError | None = None
        # A structured answer: its value, the tool executions left before it, whether they are spent, and what to say
        # about one that did not fit.
        self._output: Any = None
        self._hops: int = 0 if plan.answering is None else plan.answering.hops
        self._closing = False
        self._spent = False
        self._reminder = None
        #: Whether the question is asked without tools, because the calls made for it were beside the point and failed.
        self._plainly = False
        #: What was wrong with a call that could not be one, until the model has been told.
        self._notice = None
        #: The required step that an answer left out, until it is called.
        self._owed = None
        #: What hooks make of this step.
        self._change = Changed()
        #: What of the conversation the latest request left out.
        self._compacted = Compacted(())
        #: How many messages it left out besides, for a small model.
        self._left_out = 0
        # What the model is saying right now; the calls it made, and the results that are there for them.
        self._saying: list[str] = []
        self._pending: tuple[ToolCall, ...] = ()
        self._results: dict[str, ToolResult] = {}
        #: Those of them that were begun and have not ended.
        self._begun: list[ToolCall] = []
        # Of a durable run: who keeps it, how much of the lists is in moments, the step it was interrupted in, and the
        # result of one that had ended.
        self.keeper: RunKeeper | None = None
        self._noted = (len(self._messages), 0, 0)
        self._left: Recovered | None = None
        self._paid: Charge | None = None
        self._stored: RunResult[Any] | None = None
        self._claims: tuple[UnbackedClaim, ...] = ()
        self._telling: RunTelling | None = None

    def result(self) -> RunResult[Any]:
        """Return the run as it stands; one that is not over counts as cancelled."""
        if self._stored is not None:
            return self._stored
        messages = list(self._messages)
        said = "".join(self._saying)
        if said:
            messages.append(text_message(Role.ASSISTANT, said))
        if self._pending:
            results = tuple(self._results.get(call.id) or self._cancelled(call) for call in self._pending)
            messages.append(Message(role=Role.TOOL, parts=results))
        return RunResult(
            text=said or self._text,
            messages=tuple(messages),
            stopped=self._stopped or Stopped.CANCELLED,
            answer=self._output,
            structured=self._plan.answering is not None,
            calls=(*self._calls, *map(self._cut_off, self._begun)),
            steps=tuple(self._steps),
            usage=self._usage,
            usage_by_model=dict(self._usage_by),
            cost_cap=None if self._account is None else self._account.cost_cap,
            force_satisfied=self._force_satisfied(),
            error=self._error.info() if self._error is not None else None,
            response_id=self._response_id,
            kept=self._kept,
            claims=self._claims,
            run_id=None if self.keeper is None else self.keeper.run_id,
        )

    def store(self, result: RunResult[Any]) -> None:
        """Be a run that has ended with this result."""
        self._stored, self._stopped = result, result.stopped

    def pay_as(self, name: str) -> None:
        """Be known to the accounts by a name: what this process pays for a run is told apart from what others paid."""
        if self._account is not None:
            self._account.turn = name

    @property
    def deps(self) -> Any:
        """What the run's tools, approvals and rules depend on."""
        return self._plan.deps

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self._stopped is not None

    def restore(self, recovered: Recovered) -> None:
        """Stand where a run stood when it was interrupted."""
        for moment in recovered.moments:
            self._messages += moment.messages
            self._calls += moment.calls
            self._steps += moment.steps
        self._noted = (len(self._messages), len(self._calls), len(self._steps))
        if not recovered.moments:
            return
        last = recovered.moments[-1]
        at = last.standing
        self._number, self._usage, self._usage_by, self._text = at.number, at.usage, dict(at.usage_by), at.text
        self._hops, self._closing, self._reminder, self._notice = at.hops, at.closing, at.reminder, at.notice
        self._response_id, self._kept, self._spent = at.response_id, at.kept, at.spent
        self._owed, self._plainly = at.owed, at.plainly
        self._paid = at.charge
        if last.pending:
            self._left, self._pending = recovered, last.pending
            self._results = {last.pending[index].id: executed.result for index, executed in recovered.done.items()}

    def _moment(
        self, pending: tuple[ToolCall, ...] = (), allowed: tuple[ToolCall, ...] = (), loop: Loop | None = None
    ) -> Checkpoint:
        """Return what is new since the last moment, and where the run stands."""
        messages, calls, steps = self._noted
        self._noted = (len(self._messages), len(self._calls), len(self._steps))
        return Checkpoint(
            standing=RunStanding(
                number=self._number,
                usage=self._usage,
                usage_by=dict(self._usage_by),
                text=self._text,
                hops=self._hops,
                closing=self._closing,
                spent=self._spent,
                charge=None if self._account is None else self._account.spent,
                reminder=self._reminder,
                plainly=self._plainly,
                notice=self._notice,
                owed=self._owed,
                response_id=self._response_id,
                kept=self._kept,
            ),
            messages=tuple(self._messages[messages:]),
            calls=tuple(self._calls[calls:]),
            steps=tuple(self._steps[steps:]),
            pending=pending,
            allowed=len(allowed),
            loop=loop,
        )

    @property
    def _succeeded(self) -> frozenset[str]:
        """The tools that have succeeded in the steps before this one."""
        return frozenset(call.name for call in self._calls if call.ok and call.step < self._number)

    def _force_satisfied(self) -> bool | None:
        """Return whether what was demanded was called; calls that fit no tool are none.

        A force is not met either where the first step was the last one, which may not call (rule 10).
        """
        met = force_satisfied(self._steps)
        if met is None and self._plan.controls.force_tools and self._steps:
            return False
        return False if met and self._calls and all(call.status in _UNFIT for call in self._calls) else met

    def _cut_off(self, call: ToolCall) -> ExecutedCall:
        """Return the record of a call that the end of the run cut off: it may have taken effect."""
        line = fill(self._plan.wording.tool_cancelled, tool=call.name)
        return ExecutedCall(call=call, result=line, status=CallStatus.CANCELLED, tries=1, step=self._number)

    def _cancelled(self, call: ToolCall) -> ToolResult:
        line = fill(self._plan.wording.tool_cancelled, tool=call.name)
        return ToolResult(call_id=call.id, content=(Text(text=line),), is_error=True, kind=call.kind)
