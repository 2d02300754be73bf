"""One run: a turn of the model's, its calls, their results, and again, until there is an answer or a reason to stop.

The loop writes the history, and nothing else does. What a reply is worth, what is retried and what is forced is for the
turn engine (`engine.turns`); here are only the step cap (rule 109), the advice about loops (rule 108), and which
messages a step sends. A run can be looked at while it goes on, and what it shows is always a legal history.
"""

import os
from inspect import isawaitable
from typing import Any

import msgspec

from mustcall.core.errors import LoopBlocked, ModelError, MustcallError
from mustcall.core.message import Message, Role
from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import Text, ToolCall, ToolResult
from mustcall.core.reply import FinishReason, Reply, Usage
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode, ToolChoice
from mustcall.engine.agent.claiming import claims_of
from mustcall.engine.agent.comparing import Told, calls_nothing, instead_of, instead_of_failure
from mustcall.engine.agent.events import (
    CallFinished,
    CallStarted,
    ReasoningDelta,
    RunEvent,
    RunFinished,
    StepFinished,
    TextDelta,
)
from mustcall.engine.agent.moments import Keeper, Moment, Recovered, Standing, Taken
from mustcall.engine.agent.plan import Asked, Emit, Plan
from mustcall.engine.agent.prompts import latest_only, text_message, text_of
from mustcall.engine.agent.results import RunResult, Stopped, force_satisfied, stopped_by
from mustcall.engine.agent.step import Say, Step
from mustcall.engine.agent.telling import RunTelling
from mustcall.engine.agent.withholding import Withheld, Withholding
from mustcall.engine.answers.answering import BadAnswer, Way
from mustcall.engine.answers.envelopes import (
    Malformed,
    bad_answer,
    calls_at_the_end,
    controls_before,
    ended_without,
    ignored_calls,
    malformed_call,
    mended_calls,
    validated_once,
)
from mustcall.engine.records import TurnRecord
from mustcall.engine.tooling.outcomes import CallStatus, ExecutedCall
from mustcall.engine.tooling.roster import Roster
from mustcall.engine.tooling.running import Executed, Runner
from mustcall.engine.turns import Turns
from mustcall.policy.facts.profile import Profile
from mustcall.policy.facts.wording import fill
from mustcall.policy.limits.budget import Charge, NextCall
from mustcall.policy.reply.repeated_calls import Loop, loop_of
from mustcall.policy.reply.unbacked_claims import Claims, UnbackedClaim
from mustcall.policy.words.grounding import latest_input
from mustcall.telemetry.logs import log_of

__all__ = ["Run"]

_logger = log_of("mustcall.engine")


class Run:
    """One run. `result` can be asked for at any time: what it shows is always a legal history."""

    def __init__(self, plan: Plan, messages: tuple[Message, ...], after: RunResult[Any] | None = None) -> None:
        self._plan = plan
        self._messages = list(messages)
        #: Where a stateful upstream keeps the conversation, and how much of it it has.
        self._response_id = after.response_id if after is not None and plan.stateful else None
        self._kept = after.kept if after is not None and self._response_id is not None else 0
        #: What the run may spend; None where nothing is counted.
        self._purse = None if plan.metering is None else plan.metering.open(plan.session, os.urandom(12).hex())
        self._calls: list[ExecutedCall] = []
        self._steps: list[TurnRecord] = []
        self._usage = Usage()
        self._usage_by: dict[str, Usage] = {}
        self._text = ""
        self._number: int = 0
        self._stopped: Stopped | None = None
        self._error: MustcallError | None = None
        # A structured answer: its value, the tool executions left before it, whether they are spent, and what to say
        # about one that did not fit.
        self._output: Any = None
        self._hops = 0 if plan.answering is None else plan.answering.hops
        self._closing = False
        self._spent = False
        self._reminder: str | None = None
        #: What was wrong with a call that could not be one, until the model has been told.
        self._notice: str | None = None
        # What the model is saying right now; the calls it made, and the results that are there for them.
        self._saying: list[str] = []
        self._pending: tuple[ToolCall, ...] = ()
        self._results: dict[str, ToolResult] = {}
        # Of a durable run: who keeps it, how much of the lists is in moments, the step it was interrupted in, and the
        # result of one that had ended.
        self.keeper: Keeper | None = None
        self._noted = (len(self._messages), 0, 0)
        self._left: Recovered | None = None
        self._paid: Charge | None = None
        self._stored: RunResult[Any] | None = None
        self._claims: tuple[UnbackedClaim, ...] = ()
        self._telling: RunTelling | None = None

    # --- what it looks like from outside -----------------------------------------------------------------------------

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
            calls=tuple(self._calls),
            steps=tuple(self._steps),
            usage=self._usage,
            usage_by_model=dict(self._usage_by),
            cost_cap=None if self._purse is None else self._purse.cost_cap,
            force_satisfied=force_satisfied(self._steps),
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
        if self._purse is not None:
            self._purse.turn = name

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
        self._paid = at.charge
        if last.pending:
            self._left, self._pending = recovered, last.pending
            self._results = {last.pending[index].id: executed.result for index, executed in recovered.done.items()}

    def _moment(
        self, pending: tuple[ToolCall, ...] = (), allowed: tuple[ToolCall, ...] = (), loop: Loop | None = None
    ) -> Moment:
        """Return what is new since the last moment, and where the run stands."""
        messages, calls, steps = self._noted
        self._noted = (len(self._messages), len(self._calls), len(self._steps))
        return Moment(
            standing=Standing(
                number=self._number,
                usage=self._usage,
                usage_by=dict(self._usage_by),
                text=self._text,
                hops=self._hops,
                closing=self._closing,
                spent=self._spent,
                charge=None if self._purse is None else self._purse.spent,
                reminder=self._reminder,
                notice=self._notice,
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

    def _cancelled(self, call: ToolCall) -> ToolResult:
        line = fill(self._plan.wording.tool_cancelled, tool=call.name)
        return ToolResult(call_id=call.id, content=(Text(text=line),), is_error=True, kind=call.kind)

    # --- the loop ----------------------------------------------------------------------------------------------------

    async def drive(self, turns: Turns, roster: Roster, emit: Emit) -> RunResult[Any]:
        """Run to the end; raise `MustcallError` for a run that failed, after its last event."""
        plan = self._plan
        runner = Runner(
            roster,
            concurrency=plan.concurrency,
            approve=plan.approve,
            wording=plan.wording,
            clock=plan.clock,
            egress=self._purse,
            controls=plan.controls,
            deps=plan.deps,
        )
        keeper = self.keeper
        telling = self._telling = RunTelling(turns.events, plan.clock, plan.endpoint.name, plan.model)
        try:
            if self._purse is not None and self._paid is not None:
                await self._purse.recover(self._paid)
            if self._left is not None:
                await self._go_on(self._left, runner, emit)
            while self._stopped is None:
                await self._step(turns, roster, runner, emit)
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
        asked = self._asked(roster, turns.profile(plan.endpoint, plan.model))
        withheld = Withheld(self._withholding, lambda delta: self._tell(delta, emit))

        async def say(delta: TextDelta | ReasoningDelta) -> None:
            if isinstance(delta, TextDelta):
                self._saying.append(delta.text)
            await withheld.say(delta)

        try:
            reply, usage = await self._take(turns, plan, asked, say)
        except ModelError as error:
            if self._compares:
                await self._say_instead(instead_of_failure(error, self._calls, plan.wording), emit)
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
        if self._compares and (told := instead_of(reply, calls, self._calls, self._messages, plan.wording)):
            await self._say_instead(told, emit)
            return
        accepted = bool(calls) or self._answers(reply, roster, asked)
        if accepted:
            self._hear(reply, calls)
            await withheld.release()
        await self._tell(StepFinished(self._steps[-1], self._number, usage), emit)
        if calls:
            await self._run_calls(calls, loop, runner, emit)
        elif accepted:
            capped = asked.capped and self._reminder is None
            self._stopped = self._capped_by() if capped else stopped_by(reply.finish)

    @property
    def _withholding(self) -> Withholding:
        """How much of what the next step says waits until it is known whether it is the answer."""
        if self._plan.answering is not None or self._compares:
            return Withholding.ALL
        return Withholding.JSON if self._plan.compares else Withholding.NOTHING

    @property
    def _compares(self) -> bool:
        """Whether the next answer is held against results: there are some, and it is not held to a schema."""
        return self._plan.compares and self._plan.answering is None and bool(self._calls)

    async def _say_instead(self, told: Told, emit: Emit) -> None:
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

    async def _take(self, turns: Turns, plan: Plan, asked: Asked, say: Say) -> tuple[Reply, Usage]:
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
            purse=self._purse,
            number=len(self._steps) + 1,  # of the turns: a step of two models has two
            trace=None if self._telling is None else self._telling.turn(),
        )
        try:
            reply = await step.take(asked.request, asked.controls, say)
        finally:
            self._count(plan, step.record, step.usage)
        if keeper is not None:
            keeper.took(Taken(reply=reply, usage=step.usage, record=step.record))
        return reply, step.usage

    def _count(self, plan: Plan, record: TurnRecord | None, usage: Usage) -> None:
        if record is not None:
            self._steps.append(record)
        self._usage += usage
        self._usage_by[plan.model] = self._usage_by.get(plan.model, Usage()) + usage

    async def _refuse(self, malformed: Malformed, emit: Emit) -> None:
        """Let the malformed call a turn failed with cost a hop; the next request says what was wrong (rule 85)."""
        self._saying, self._notice = [], None
        await self._tell(StepFinished(self._steps[-1], self._number, self._steps[-1].usage or Usage()), emit)
        self._notice = malformed.sentence if self._hops else None
        await self._pay_for(malformed, emit)

    async def _pay_for_mended(self, emit: Emit) -> None:
        """Let each malformed call that the turn's retries mended cost a hop: they said what was wrong (rule 85)."""
        for malformed in mended_calls(self._steps[-1], self._plan.wording):
            await self._pay_for(malformed, emit)

    async def _pay_for(self, malformed: Malformed, emit: Emit) -> None:
        """Take a hop for a malformed call and record it; without one left, one final round follows (rule 83)."""
        if self._hops == 0:
            self._closing = True
            malformed = msgspec.structs.replace(malformed, status=CallStatus.HOP_BUDGET_EXHAUSTED)
        else:
            self._hops -= 1
        record = malformed.record(self._number)
        self._calls.append(record)
        await self._tell(CallFinished(record.call, record.result, ok=False, seconds=0.0, status=record.status), emit)

    def _ended(self, error: ModelError, asked: Asked) -> ModelError:
        """Return what a turn's failure is to the run; what the one final round called is kept (rules 83, 89)."""
        if not asked.capped or self._plan.answering is None:
            return error
        record, wording = self._steps[-1], self._plan.wording
        self._calls += calls_at_the_end(error, record, wording, self._number)
        return ended_without(error, record, 1 if self._reminder is None else 2)

    def _answers(self, reply: Reply, roster: Roster, asked: Asked) -> bool:
        """Tell whether a reply without calls is the answer; take note of what is wrong with one that is not.

        One that does not fit is asked for once more, which costs no hop (rule 84), and not at all where this was the
        last round (rule 83).
        """
        plan, answering = self._plan, self._plan.answering
        if reply.finish in (FinishReason.REFUSAL, FinishReason.CONTENT_FILTER):
            return True
        if answering is None:
            if plan.compares and not asked.capped and calls_nothing(reply, self._messages):
                self._reminder, self._saying = "", []  # the question speaks for itself once no tools are in sight
                return False
            return True
        try:
            self._output = answering.read(text_of(reply), roster.offers)
        except BadAnswer as bad:
            if asked.capped or self._reminder is not None:
                count = 1 if self._reminder is None else 2
                raise bad_answer(str(bad), self._steps[-1], count) from None
            self._reminder = fill(plan.wording.bad_answer, problem=str(bad))
            self._saying = []
            return False
        return True

    def _asked(self, roster: Roster, profile: Profile) -> Asked:
        """Return what this step asks; in the last one nothing may be called (rule 109)."""
        plan, controls = self._plan, self._plan.controls
        request = self._request(roster, profile)
        rounds = latest_input(self._whole(request)).rounds
        capped = self._number >= plan.max_steps or 0 < controls.step_cap <= rounds
        last = capped or self._closing or self._reminder is not None
        answering = plan.answering
        told = self._reminder or self._notice
        if told is not None:
            request = request.evolve(messages=(*request.messages, text_message(Role.USER, told)))
        if answering is not None:
            beside = bool(roster.tools) and (
                not last or answering.way(profile) is Way.TOOL
            )  # that one the turn sees to
            request = request.evolve(output=answering.form(profile, tools=beside))
        if not (last and roster.tools):
            if answering is not None:
                controls = controls_before(controls, profile, self._hops)
            return Asked(request, msgspec.structs.replace(controls, step_cap=0))
        controls = msgspec.structs.replace(controls, force_tools=False, step_cap=latest_input(request).rounds)
        if answering is not None:  # the one final round is validated once (rule 83)
            controls = validated_once(controls)
            if answering.way(profile) is Way.LAST:
                return Asked(self._without_tools(request, plan.wording.step_cap), controls, capped=True)
        if plan.small and answering is None and (controls.step_cap or self._reminder is not None):
            # What is in sight is called, `none` or not.
            request = latest_only(request) if self._reminder is None else request
            return Asked(self._without_tools(request, plan.wording.answer_worked), controls, capped=True)
        if controls.step_cap == 0:
            # No tool was used yet: there is nothing to give notice of, and the choice says it all.
            request = request.evolve(tool_choice=ToolChoice(mode=ChoiceMode.NONE))
        return Asked(request, controls, capped=True)

    def _without_tools(self, request: Request, notice: str) -> Request:
        """Return the last request where tools are in the way of the answer."""
        messages = request.messages
        if self._reminder is None:
            messages = (*messages, text_message(Role.USER, notice))
        return request.evolve(messages=messages, tools=(), parallel_tool_calls=None)

    def _request(self, roster: Roster, profile: Profile) -> Request:
        plan, options = self._plan, self._plan.options
        instructions = plan.instructions
        if plan.answering is not None:
            instructions = plan.answering.instructions(instructions, profile, plan.wording, tools=bool(roster.tools))
        kept = self._kept if self._response_id is not None else 0
        return Request(
            model=plan.model,
            messages=tuple(self._messages[kept:]),
            system=None if instructions is None else text_message(Role.SYSTEM, instructions),
            tools=roster.offers,
            parallel_tool_calls=options.parallel_tool_calls if roster.tools else None,
            max_tokens=options.max_tokens,
            temperature=options.temperature,
            top_p=options.top_p,
            stop=options.stop,
            reasoning=options.reasoning,
            stream=plan.stream,
            stream_usage=plan.stream,
            previous_response_id=self._response_id,
            # A request that comes from the wire itself may leave its state there; one that does not is sent without.
            origin=Origin(Wire.RESPONSES, {"store": True}) if plan.stateful else None,
        )

    def _whole(self, request: Request) -> Request:
        """Return the request with the whole conversation, also where the upstream keeps some of it."""
        return request if len(request.messages) == len(self._messages) else request.evolve(messages=(*self._messages,))

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
        if self._purse is not None and self._purse.next is not NextCall.GO:  # one final round is left (rule 95)
            allowed, self._spent = (), True
        self._hops -= len(allowed)
        if self.keeper is not None:
            await self.keeper.intend(self._moment(calls, allowed, loop), runner.begin_at_once(allowed))
        await self._carry_out(calls, runner, emit, allowed=len(allowed), loop=loop, known={})

    async def _go_on(self, left: Recovered, runner: Runner, emit: Emit) -> None:
        """Finish the step a run was interrupted in: what is done stays, what had begun is settled, the rest is run."""
        moment = left.moments[-1]
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
