"""What a step of a run asks of its model: messages, tools, what is demanded, and how the last step differs.

It reads where the run stands (`running.state`) and sends nothing. What comes of a request is the loop's; here is only
whether a structured answer is asked for again.
"""

from typing import Any

import msgspec

from mustcall.core.errors import EmptyReply, ModelError
from mustcall.core.message import Message, Role
from mustcall.core.origin import Origin, Wire
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode, ToolChoice
from mustcall.engine.agent.hooking import StepView, before_step
from mustcall.engine.agent.prompts import latest_only, question_only, text_message
from mustcall.engine.agent.running.plan import StepRequest
from mustcall.engine.agent.running.state import RunState
from mustcall.engine.answers.answering import Way
from mustcall.engine.answers.envelopes import (
    answer_problem,
    answered_once,
    calls_at_the_end,
    controls_before,
    ended_without,
    validated_once,
)
from mustcall.engine.records import TurnRecord
from mustcall.engine.tooling.ordering import missing_steps
from mustcall.engine.tooling.roster import Roster
from mustcall.policy.facts.controls import Controls, OnUnmet
from mustcall.policy.facts.profile import Profile
from mustcall.policy.facts.wording import fill
from mustcall.policy.history.compaction import compact
from mustcall.policy.words.grounding import latest_input

__all__ = ["AskingRun"]


class AskingRun(RunState):
    """A run, as far as its requests go."""

    def _missing(self, roster: Roster) -> str | None:
        """Return the tool that has to be called before the run may answer."""
        return next(iter(self._missing_steps(roster)), None)

    def _missing_steps(self, roster: Roster) -> tuple[str, ...]:
        """Return the tools that must still succeed before the run may answer, in the order they can be called."""
        required = self._plan.required
        return missing_steps(required, roster, {call.name for call in self._calls if call.ok}) if required else ()

    def _reserve(self, roster: Roster, offered: Roster) -> None:
        """Demand the next required step if the run has no more calls left than required steps.

        A small model repeats a call that succeeded. Each repetition costs a step, and a hop before a structured
        answer; without this it would use up what the required steps need, and the run could only fail.
        """
        missing = self._missing_steps(roster)
        left = self._plan.max_steps - self._number
        if self._plan.answering is not None:
            left = min(left, self._hops)
        if missing and 0 < left <= len(missing):
            self._owed = next((name for name in missing if name in offered.tools), self._owed)

    def _controls(self) -> Controls:
        """Return the controls of this step: a step that was left out is demanded, also after results."""
        controls = self._plan.controls
        if self._owed is not None:
            return msgspec.structs.replace(
                controls, force_tools=self._owed, force_after_results=True, on_unmet=OnUnmet.ERROR
            )
        if self._change.force is not None:
            return msgspec.structs.replace(controls, force_tools=self._change.force, force_after_results=True)
        return controls

    async def _begin(self, roster: Roster) -> Roster:
        """Ask the hooks what this step should be like; return what is offered in it."""
        offered = roster
        if self._plan.before:
            change = self._change = await before_step(self._plan.before, self._view(roster))
            if change.tools is not None:
                offered = Roster(tool for name, tool in roster.tools.items() if name in change.tools)
        if self._plan.required:
            self._reserve(roster, offered)
        return offered

    @property
    def _instructions(self) -> str | None:
        """What this step's model is told first."""
        return self._plan.instructions if self._change.instructions is None else self._change.instructions

    def _view(self, roster: Roster, record: TurnRecord | None = None) -> StepView[Any]:
        return StepView(
            number=self._number,
            messages=tuple(self._messages),
            tools=tuple(roster.tools),
            calls=tuple(self._calls),
            usage=self._usage,
            deps=self._plan.deps,
            record=record,
        )

    def _asked(self, roster: Roster, profile: Profile) -> StepRequest:
        """Return what this step asks; in the last one nothing may be called (rule 109)."""
        plan, controls, self._left_out = self._plan, self._controls(), 0
        request = self._request(roster, profile)
        rounds = latest_input(self._whole(request)).rounds
        if self._plainly:
            bare = msgspec.structs.replace(controls, force_tools=False, step_cap=0)
            return StepRequest(question_only(request), bare, capped=True)
        capped = self._number >= plan.max_steps or 0 < controls.step_cap <= rounds
        answering = plan.answering
        again = self._reminder is not None
        last = capped or self._closing
        due = (again or not last) and self._is_answer_due(roster, profile)
        last = last or again or due
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
            return StepRequest(request, msgspec.structs.replace(controls, step_cap=0))
        controls = msgspec.structs.replace(controls, force_tools=False, step_cap=latest_input(request).rounds)
        if answering is not None:  # the one final round is validated once (rule 83)
            controls = answered_once(controls) if due and not again else validated_once(controls)
            way, notice = answering.way(profile), plan.wording.step_cap
            if due and way is Way.TOOL:
                # The schema went with the tool, and a server that enforces one does not show it to the model.
                notice = f"{notice}\n\n{answering.in_words(plan.wording)}"
            if due or way is Way.LAST:
                return StepRequest(self._without_tools(request, notice, due=due), controls, capped=True, due=due)
        if plan.small and answering is None and (controls.step_cap or self._reminder is not None):
            # What is in sight is called, `none` or not.
            if self._reminder is None:
                short = latest_only(request)
                self._left_out, request = len(request.messages) - len(short.messages), short
            return StepRequest(self._without_tools(request, plan.wording.answer_worked), controls, capped=True)
        if controls.step_cap == 0:
            # No tool was used yet: there is nothing to give notice of, and the choice says it all.
            request = request.evolve(tool_choice=ToolChoice(mode=ChoiceMode.NONE))
        return StepRequest(request, controls, capped=True)

    def _is_answer_due(self, roster: Roster, profile: Profile) -> bool:
        """Tell whether all hops are used and the server can be made to write the answer, but not beside tools.

        Any further call would be refused, and a small model that sees tools writes one: it would cost a whole reply.
        """
        answering = self._plan.answering
        if answering is None or self._hops or not answering.hops or self._missing_steps(roster):
            return False
        return answering.enforced_alone(profile)

    def _times_asked(self, asked: StepRequest) -> int:
        """Return how often the answer was asked for, this round's attempts included (rule 91)."""
        rounds = 1 if self._reminder is None else 2
        return sum(len(step.attempts) for step in self._steps[-rounds:]) if asked.due else rounds

    def _is_asked_again(self, error: ModelError, asked: StepRequest) -> bool:
        """Tell whether the answer that a turn failed with is asked for once more, and take note of it (rule 84)."""
        problem = answer_problem(error) if asked.due and self._reminder is None else None
        if problem is None:
            return False
        self._calls += calls_at_the_end(error, self._steps[-1], self._plan.wording, self._number)
        self._reminder, self._saying = fill(self._plan.wording.bad_answer, problem=problem), []
        return True

    def _ended(self, error: ModelError, asked: StepRequest) -> ModelError:
        """Return what a turn's failure is to the run; what the one final round called is kept (rules 83, 89)."""
        if asked.capped and self._plan.answering is None and isinstance(error, EmptyReply):
            said = (
                f"{error.message}; in step {self._number}, the last one, no tools may be called (max_steps, step_cap)"
            )
            return EmptyReply(said, details=error.details)
        if not asked.capped or self._plan.answering is None:
            return error
        record, wording = self._steps[-1], self._plan.wording
        self._calls += calls_at_the_end(error, record, wording, self._number)
        return ended_without(error, record, self._times_asked(asked))

    def _without_tools(self, request: Request, notice: str, *, due: bool = False) -> Request:
        """Return the last request where tools are in the way of the answer; a reminder follows the notice."""
        messages, told = request.messages, text_message(Role.USER, notice)
        if self._reminder is None:
            messages = (*messages, told)
        elif due:
            messages = (*messages[:-1], told, messages[-1])
        return request.evolve(messages=messages, tools=(), parallel_tool_calls=None)

    def _sent(self, kept: int = 0) -> tuple[Message, ...]:
        """Return the messages of a request: those that the upstream does not keep, compacted where they are many."""
        messages = self._messages[kept:] if kept else self._messages
        if self._plan.compaction is None:
            return tuple(messages)
        self._compacted = compact(messages, self._plan.compaction, self._plan.wording)
        return self._compacted.messages

    def _request(self, roster: Roster, profile: Profile) -> Request:
        plan, options = self._plan, self._change.options or self._plan.options
        instructions = self._instructions
        if plan.answering is not None:
            instructions = plan.answering.instructions(instructions, profile, plan.wording, tools=bool(roster.tools))
        kept = self._kept if self._response_id is not None else 0
        return Request(
            model=plan.model,
            messages=self._sent(kept),
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
