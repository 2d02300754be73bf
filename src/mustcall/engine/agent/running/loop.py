"""One run: a turn of the model's, its calls, their results, and again, until there is an answer or a reason to stop.

The loop writes the history, and nothing else does. What a reply is worth, what is retried and what is forced is for the
turn engine (`engine.turns`); here are only the step cap (rule 109), the advice about loops (rule 108), and which
messages a step sends. A run can be looked at while it goes on, and what it shows is always a legal history.
"""

from inspect import isawaitable
from typing import Any

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationKind
from mustcall.core.errors import LoopBlocked, ModelError, MustcallError
from mustcall.core.message import Message, Role
from mustcall.core.parts import Text, ToolCall, ToolResult
from mustcall.core.reply import FinishReason, Reply, Usage
from mustcall.engine.agent.events import (
    CallFinished,
    CallStarted,
    PartialOutput,
    ReasoningDelta,
    RunEvent,
    RunFinished,
    StepFinished,
    TextDelta,
)
from mustcall.engine.agent.hooking import after_step
from mustcall.engine.agent.prompts import text_of
from mustcall.engine.agent.running.asking import AskingRun
from mustcall.engine.agent.running.claiming import claims_of
from mustcall.engine.agent.running.comparing import (
    PlainResult,
    beside_the_point,
    calls_nothing,
    instead_of,
    instead_of_call,
    instead_of_failure,
)
from mustcall.engine.agent.running.plan import Emit, RunSettings, StepRequest
from mustcall.engine.agent.running.run_events import RunTelling
from mustcall.engine.agent.running.step import Say, Step
from mustcall.engine.agent.running.withholding import WithheldWords, Withholding
from mustcall.engine.answers.answering import BadAnswer
from mustcall.engine.answers.envelopes import (
    MalformedCall,
    bad_answer,
    ignored_calls,
    malformed_call,
    mended_calls,
)
from mustcall.engine.answers.partial import PartialAnswer
from mustcall.engine.answers.shapes import WRAPPED
from mustcall.engine.records import TurnRecord
from mustcall.engine.run_records.checkpoints import ModelTurn, Recovered
from mustcall.engine.run_records.results import RunResult, Stopped, stopped_by
from mustcall.engine.tooling.ordering import unmet_step
from mustcall.engine.tooling.outcomes import CallStatus
from mustcall.engine.tooling.roster import Roster
from mustcall.engine.tooling.running import Executed, Runner
from mustcall.engine.turns import Turns
from mustcall.policy.facts.wording import fill
from mustcall.policy.history.compaction import Compacted
from mustcall.policy.limits.budget import NextCall
from mustcall.policy.reply.repeated_calls import Loop, loop_of
from mustcall.policy.reply.unbacked_claims import Claims
from mustcall.telemetry.logs import log_of

__all__ = ["AgentRun"]

_logger = log_of("mustcall.engine")


class AgentRun(AskingRun):
    """One run, step by step to its end."""

    async def drive(self, turns: Turns, roster: Roster, emit: Emit) -> RunResult[Any]:
        """Run to the end; raise `MustcallError` for a run that failed, after its last event."""
        plan = self._plan
        runner = Runner(
            roster,
            concurrency=plan.concurrency,
            approve=plan.approve,
            wording=plan.wording,
            clock=plan.clock,
            egress=self._account,
            controls=plan.controls,
            deps=plan.deps,
        )
        keeper = self.keeper
        telling = self._telling = RunTelling(turns.events, plan.clock, plan.endpoint.name, plan.model)
        try:
            if self._account is not None and self._paid is not None:
                await self._account.recover(self._paid)
            if self._left is not None:
                await self._go_on(self._left, runner, emit)
            while self._stopped is None:
                await self._step(turns, roster, runner, emit)
                if plan.after:
                    await after_step(plan.after, self._view(roster, self._steps[-1] if self._steps else None))
                if keeper is not None and self._stopped is None and keeper.owes(self._number):
                    keeper.mark(self._moment())
        except MustcallError as error:
            self._stopped, self._error = Stopped.FAILED, error
            self._saying, self._text = [], ""  # what a failed turn said is no part of the conversation
            telling.ended(str(Stopped.FAILED), self._number)
            if keeper is not None:
                await keeper.fail(self._moment(), self.result(), error)
            await self._tell(RunFinished(self.result()), emit)
            raise
        if plan.claims is Claims.REPORT:
            self._claims = claims_of(self._text, self._calls, self._messages, roster)
        result = self.result()
        telling.ended(str(result.stopped), self._number)
        if keeper is not None:
            result = self._stored = await keeper.end(self._moment(), result)
        await self._tell(RunFinished(result), emit)
        return result

    async def _step(self, turns: Turns, roster: Roster, runner: Runner, emit: Emit) -> None:
        """Take one turn of the model's, and run the calls it makes."""
        plan = self._plan
        self._number += 1
        offered = await self._begin(roster)
        asked = self._asked(offered, turns.profile(plan.endpoint, plan.model))
        if asked.capped and (missing := self._missing(roster)) is not None:
            raise unmet_step(missing, self._number)
        withheld = WithheldWords(self._withholding(roster), lambda delta: self._tell(delta, emit))

        preview = self._preview()

        async def say(delta: TextDelta | ReasoningDelta) -> None:
            if isinstance(delta, TextDelta):
                self._saying.append(delta.text)
                if preview is not None and (value := preview.feed(delta.text)) is not None:
                    await self._tell(PartialOutput(value), emit)
            await withheld.say(delta)

        try:
            reply, usage = await self._take(turns, plan, asked, say)
        except ModelError as error:
            if self._plainly or (self._compares and self._missing(roster) is None):
                told = instead_of_failure(error, self._calls, plan.wording)
                await self._answer_without(told, roster, asked, emit)
                return
            if self._is_asked_again(error, asked):
                await self._pay_for_mended(emit)
                await self._tell(StepFinished(self._steps[-1], self._number, self._steps[-1].usage or Usage()), emit)
                return
            malformed = malformed_call(error, self._steps[-1], plan.wording) if self._steps else None
            if plan.answering is None or malformed is None or not roster.tools or asked.capped:
                raise self._ended(error, asked) from None
            await self._pay_for_mended(emit)
            await self._refuse(malformed, emit)
            return
        self._notice = None
        if plan.answering is not None:
            await self._pay_for_mended(emit)
            self._calls += ignored_calls(self._steps[-1], self._number)
        calls = () if asked.capped else reply.calls
        loop = loop_of(self._whole(asked.request), calls, asked.controls.tools)
        if loop is not None and loop.block:
            raise LoopBlocked(f"LoopBlocked: {loop.told}")
        told = self._instead(reply, calls, roster)
        if told is not None:
            await self._answer_without(told, roster, asked, emit)
            return
        accepted = bool(calls) or self._answers(reply, roster, asked)
        if accepted:
            self._hear(reply, calls)
            await withheld.release()
        await self._tell(StepFinished(self._steps[-1], self._number, usage), emit)
        if calls:
            await self._run_calls(calls, loop, runner, emit)
        elif accepted:
            capped = asked.capped and not asked.due and self._reminder is None and not self._plainly
            self._stopped = self._capped_by() if capped else stopped_by(reply.finish)

    def _preview(self) -> PartialAnswer | None:
        """Return what tells a structured answer as it is written, where that was asked for."""
        answering = self._plan.answering
        if not self._plan.partial or answering is None:
            return None
        return PartialAnswer(None if answering.shape.inside is None else WRAPPED)

    def _withholding(self, roster: Roster) -> Withholding:
        """Return how much of what the next step says waits until it is known whether it is the answer."""
        if self._plan.answering is not None or self._compares or self._missing(roster) is not None:
            return Withholding.ALL
        return Withholding.JSON if self._plan.compares else Withholding.NOTHING

    @property
    def _compares(self) -> bool:
        """Whether the next answer is held against results: there are some, and it is not held to a schema."""
        return self._plan.compares and self._plan.answering is None and bool(self._calls) and not self._plainly

    def _instead(self, reply: Reply, calls: tuple[ToolCall, ...], roster: Roster) -> PlainResult | None:
        """Return what is said in place of a reply, None where the reply stands."""
        wording = self._plan.wording
        if self._plainly:
            nothing = calls_nothing(reply, self._messages)
            return instead_of_call(reply, self._calls, wording) if nothing else None
        if not self._compares or self._missing(roster) is not None:
            return None
        return instead_of(reply, calls, self._calls, self._messages, wording)

    async def _answer_without(self, told: PlainResult, roster: Roster, asked: StepRequest, emit: Emit) -> None:
        """End the run with the results themselves, or ask the question once more, without tools; report which.

        It is asked once more where all calls failed, none of them can have changed anything, and they were beside the
        point. Where a call was demanded, by the caller or by a grounding rule, its failure is the answer.
        """
        demanded = any(step.force != "none" for step in self._steps)
        reads = all(
            (tool := roster.tools.get(call.name)) is not None and not tool.settings.side_effect for call in self._calls
        )
        small = self._plan.small and not asked.capped and not demanded
        if small and reads and beside_the_point(self._calls, self._messages):
            record = self._steps[-1]
            why = "asked without them: their calls failed, and were about nothing that the question names"
            record.adaptations = (*record.adaptations, Adaptation(AdaptationKind.REPORTED, "tools", why))
            self._plainly, self._saying = True, []
            await self._tell(StepFinished(record, self._number, record.usage or Usage()), emit)
            return
        await self._say_instead(told, emit)

    async def _say_instead(self, told: PlainResult, emit: Emit) -> None:
        """End the run with the results themselves, and report it."""
        record = self._steps[-1]
        record.adaptations = (*record.adaptations, told.note)
        self._hear(told.reply, ())
        await self._tell(TextDelta(self._text), emit)
        await self._tell(StepFinished(record, self._number, record.usage or Usage()), emit)
        self._stopped = Stopped.ANSWERED

    def _capped_by(self) -> Stopped:
        """Return which cap a run ended by."""
        return Stopped.COST_CAP if self._spent else Stopped.STEP_CAP

    async def _take(self, turns: Turns, plan: RunSettings, asked: StepRequest, say: Say) -> tuple[Reply, Usage]:
        """Take one turn of a model's; its record and its usage are kept also where it fails."""
        keeper = self.keeper
        if keeper is not None:
            recalled = keeper.recall(self._number)
            if recalled is not None:
                self._count(plan, recalled.record, recalled.usage)
                return recalled.reply, recalled.usage
            await keeper.before_model()
        step = Step(
            turns,
            plan.endpoint,
            plan.clock,
            timeout=plan.timeout,
            extra=plan.options.extra,
            account=self._account,
            number=len(self._steps) + 1,  # of the turns: a step of two models has two
            trace=None if self._telling is None else self._telling.turn(),
        )
        try:
            reply = await step.take(asked.request, asked.controls, say)
        finally:
            self._count(plan, step.record, step.usage)
        if keeper is not None:
            keeper.took(ModelTurn(reply=reply, usage=step.usage, record=step.record))
        return reply, step.usage

    def _count(self, plan: RunSettings, record: TurnRecord | None, usage: Usage) -> None:
        if record is not None:
            if self._compacted.left_out or self._compacted.emptied:
                record.adaptations = (*record.adaptations, _compacted_note(self._compacted))
            if self._left_out:
                told = f"the tools and {self._left_out} earlier messages left out: a small model answers better without"
                record.adaptations = (*record.adaptations, Adaptation(AdaptationKind.PART_DROPPED, "messages", told))
            self._steps.append(record)
        self._usage += usage
        self._usage_by[plan.model] = self._usage_by.get(plan.model, Usage()) + usage

    async def _refuse(self, malformed: MalformedCall, emit: Emit) -> None:
        """Let the malformed call a turn failed with cost a hop; the next request says what was wrong (rule 85)."""
        self._saying, self._notice = [], None
        await self._tell(StepFinished(self._steps[-1], self._number, self._steps[-1].usage or Usage()), emit)
        self._notice = malformed.sentence if self._hops else None
        await self._pay_for(malformed, emit)

    async def _pay_for_mended(self, emit: Emit) -> None:
        """Let each malformed call that the turn's retries mended cost a hop: they said what was wrong (rule 85).

        In a turn that demands a required step they are recorded and cost nothing: the hops that are left are for the
        required steps, and the turn's own limit bounds its retries.
        """
        for malformed in mended_calls(self._steps[-1], self._plan.wording):
            await self._pay_for(malformed, emit, hops=0 if self._owed is not None else 1)

    async def _pay_for(self, malformed: MalformedCall, emit: Emit, *, hops: int = 1) -> None:
        """Take hops for a malformed call and record it; without one left, one final round follows (rule 83)."""
        if self._hops == 0:
            self._closing = True
            malformed = msgspec.structs.replace(malformed, status=CallStatus.HOP_BUDGET_EXHAUSTED)
        else:
            self._hops -= hops
        record = malformed.record(self._number)
        self._calls.append(record)
        await self._tell(CallFinished(record.call, record.result, ok=False, seconds=0.0, status=record.status), emit)

    def _answers(self, reply: Reply, roster: Roster, asked: StepRequest) -> bool:
        """Tell whether a reply without calls is the answer; take note of what is wrong with one that is not.

        One that does not fit is asked for once more, which costs no hop (rule 84), and not at all where this was the
        last round (rule 83).
        """
        plan, answering = self._plan, self._plan.answering
        if reply.finish in (FinishReason.REFUSAL, FinishReason.CONTENT_FILTER):
            return True
        missing = self._missing(roster)
        if missing is not None:
            if asked.capped:
                raise unmet_step(missing, self._number)
            self._owed, self._saying = missing, []
            return False
        if answering is None:
            if plan.compares and not asked.capped and calls_nothing(reply, self._messages):
                self._reminder, self._saying = "", []  # the question speaks for itself once no tools are in sight
                return False
            return True
        try:
            self._output = answering.read(text_of(reply), roster.offers)
        except BadAnswer as bad:
            if (asked.capped and not asked.due) or self._reminder is not None:
                raise bad_answer(str(bad), self._steps[-1], self._times_asked(asked)) from None
            self._reminder = fill(plan.wording.bad_answer, problem=str(bad))
            self._saying = []
            return False
        return True

    def _hear(self, reply: Reply, calls: tuple[ToolCall, ...]) -> None:
        """Take a reply into the history; calls that will not be run stay out of it."""
        parts = tuple(part for part in reply.parts if calls or not isinstance(part, ToolCall))
        if parts:
            self._messages.append(Message(role=Role.ASSISTANT, parts=parts))
        self._saying = []
        self._text = text_of(reply)
        if self._plan.stateful:
            self._response_id, self._kept = reply.id, len(self._messages)
        self._pending = calls
        self._results = {}

    async def _run_calls(self, calls: tuple[ToolCall, ...], loop: Loop | None, runner: Runner, emit: Emit) -> None:
        allowed = calls if self._plan.answering is None else calls[: self._hops]
        if self._account is not None and self._account.next is not NextCall.GO:  # one final round is left (rule 95)
            allowed, self._spent = (), True
        self._hops -= len(allowed)
        self._owed, runner.succeeded = None, self._succeeded
        if self.keeper is not None:
            await self.keeper.intend(self._moment(calls, allowed, loop), runner.begin_at_once(allowed))
        await self._carry_out(calls, runner, emit, allowed=len(allowed), loop=loop, known={})

    async def _go_on(self, left: Recovered, runner: Runner, emit: Emit) -> None:
        """Finish the step a run was interrupted in: what is done stays, what had begun is settled, the rest is run."""
        moment = left.moments[-1]
        runner.succeeded = self._succeeded
        known = dict(left.done)
        self._calls += [executed.record for executed in left.done.values()]
        for index in sorted(left.begun - set(known)):
            settled = await runner.settled(moment.pending[index], self._number)
            if settled is not None:
                known[index] = settled
                await self._finished(index, settled, emit)
        await self._carry_out(moment.pending, runner, emit, allowed=moment.allowed, loop=moment.loop, known=known)

    async def _finished(self, index: int, executed: Executed, emit: Emit) -> None:
        record = executed.record
        if self._telling is not None:
            self._telling.tool(record)
        if self.keeper is not None:
            await self.keeper.finish(index, executed)
        self._calls.append(record)
        self._begun = [call for call in self._begun if call is not record.call]
        self._results[record.call.id] = executed.result
        await self._tell(CallFinished(record.call, record.result, record.ok, record.seconds, record.status), emit)

    async def _carry_out(
        self,
        calls: tuple[ToolCall, ...],
        runner: Runner,
        emit: Emit,
        *,
        allowed: int,
        loop: Loop | None,
        known: dict[int, Executed],
    ) -> None:
        """Run the calls that have no outcome yet, and take all outcomes into the history."""
        places = {id(call): index for index, call in enumerate(calls)}  # a careless model's ids are not unique
        keeper = self.keeper

        async def started(call: ToolCall) -> None:
            await self._tell(CallStarted(call), emit)

        async def finished(executed: Executed) -> None:
            await self._finished(places[id(executed.record.call)], executed, emit)

        async def begin(call: ToolCall) -> None:
            if keeper is not None:
                await keeper.begin(places[id(call)])
            self._begun.append(call)

        missing = [call for index, call in enumerate(calls[:allowed]) if index not in known]
        for executed in await runner.run_all(missing, self._number, started, finished, begin):
            known[places[id(executed.record.call)]] = executed
        for index, call in enumerate(calls[allowed:], allowed):
            self._closing = True
            if index not in known:
                await started(call)
                refuse = runner.unaffordable if self._spent else runner.refused
                known[index] = refuse(call, self._number)
                await finished(known[index])
        results = [known[index].result for index in range(len(calls))]
        if loop is not None and loop.advise:
            results = [self._advised(call, result, loop) for call, result in zip(calls, results, strict=True)]
        self._messages.append(Message(role=Role.TOOL, parts=tuple(results)))
        self._pending = ()

    def _advised(self, call: ToolCall, result: ToolResult, loop: Loop) -> ToolResult:
        """Return a result with the advice about its loop, outside the wrapper (rule 108).

        In the result and not as a user message: that would be the user's latest, and begin everything anew.
        """
        if call.name != loop.name:
            return result
        return result.evolve(content=(*result.content, Text(text=self._plan.wording.looping)))

    async def _tell(self, event: RunEvent, emit: Emit) -> None:
        """Pass an event on, to the hooks first."""
        for hook in self._plan.hooks:
            try:
                waiting = hook(event)
                if isawaitable(waiting):
                    await waiting
            except Exception as error:  # the user's own code
                _logger.warning("a hook failed: %s", type(error).__name__)
                _logger.debug("the hook", exc_info=True)
        await emit(event)


def _compacted_note(compacted: Compacted) -> Adaptation:
    told = f"{compacted.left_out} messages and {compacted.emptied} results left out: the conversation is too long"
    return Adaptation(AdaptationKind.PART_DROPPED, "messages", told)
