"""What an agent does behind its methods: makes runs of its settings, opens what they need and drives them.

Nothing of a run stays here. What callers see of it is `agent.agent`.
"""

from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Generic

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.memo import owned
from mustcall.engine.agent.events import RunFinished
from mustcall.engine.agent.options import Options
from mustcall.engine.agent.prompts import History, Prompt, read_history, read_prompt
from mustcall.engine.agent.reading import (
    check_callables,
    metering_of,
    read_deps,
    turns_on,
)
from mustcall.engine.agent.running.loop import AgentRun
from mustcall.engine.agent.running.plan import Emit, RunSettings
from mustcall.engine.agent.running.planned import PlannedRun
from mustcall.engine.agent.upstream import Upstream
from mustcall.engine.answers import Answering, answering_for
from mustcall.engine.answers.shapes import Output
from mustcall.engine.durable.documents import Start
from mustcall.engine.parameters import Deps
from mustcall.engine.run_records.results import RunResult, Stopped
from mustcall.engine.sharing import Shared
from mustcall.engine.spending.budget_account import Budget, Metering, check_budget
from mustcall.engine.tooling.definition import FunctionTool, ToolSource
from mustcall.engine.tooling.ordering import check_order
from mustcall.engine.tooling.roster import Force, Roster, open_roster, read_force
from mustcall.engine.turns import OperatorSettings, Turns
from mustcall.policy.facts.checking import check_number
from mustcall.policy.facts.controls import check_limits
from mustcall.policy.facts.wording import check_wording
from mustcall.policy.history.compaction import check_compaction
from mustcall.policy.limits.budget import Caps
from mustcall.policy.words.grounding import GroundingRule, check_rules

if TYPE_CHECKING:
    from mustcall.engine.durable.runs import Place, Runs

__all__ = ["After", "RulesOf", "RunMaker"]

RulesOf = Callable[[Any], Iterable[GroundingRule]]
"""Gives the grounding rules of a run that depend on its dependencies."""

After = RunResult[Any] | History | None
"""What a run goes on from: a result, its `history`, or messages."""


class RunMaker(Generic[Deps]):
    """The settings of an agent, and how its runs are made and driven."""

    upstream: Upstream
    planner: Upstream | None
    model: str
    output: type[Any] | None
    deps: Deps | None
    deps_type: type[Any] | None
    tools: tuple[FunctionTool | ToolSource, ...]
    rules: tuple[GroundingRule, ...]
    #: Rules that depend on what a run is given.
    _rules_of: tuple[RulesOf, ...]
    _operator: OperatorSettings
    _plan: RunSettings
    _planner: RunSettings | None
    _ledger: "Place | None"
    _lease: float
    _contents: str | None
    _budget: Budget | Caps | None
    _accounts: Metering | None
    #: Whether the accounts of a session are kept where its runs are.
    _keeps_accounts: bool
    _durable: "Runs | None"
    _shared: Shared[tuple[Turns, Roster, Turns | None]]

    def _answering(self, output: Output | None, hops: int | None) -> Answering | None:
        return self._answering_for(output or self.output, self._plan.controls.hops if hops is None else hops)

    def _answering_for(self, output: Output | None, hops: int) -> Answering | None:
        """Return how a run answers; its schema is compiled once for all runs on the upstream."""
        with owned(self.upstream.caches):
            return answering_for(output, hops)

    def _start(self, prompt: Prompt, after: After, force: Force, answering: Answering | None) -> Start:
        """Return what a run is started with."""
        messages = read_prompt(prompt)
        if not isinstance(after, RunResult):
            after = msgspec.structs.replace(_NOTHING, messages=read_history(after or ()))
        return Start(
            messages=(*after.messages, *messages),
            force=read_force(force),
            schema=None if answering is None else answering.shape.asked.schema,
            hops=0 if answering is None else answering.hops,
            response_id=after.response_id,
            kept=after.kept,
        )

    def _made(
        self,
        start: Start,
        answering: Answering | None,
        deps: Any,
        *,
        stream: bool,
        durable: bool,
        partial: bool = False,
    ) -> AgentRun:
        controls = self._plan.controls
        deps = read_deps(deps, self.deps, self.deps_type)
        if start.force is not None:
            controls = msgspec.structs.replace(controls, force_tools=start.force)
        plan = msgspec.structs.replace(
            self._plan, controls=controls, stream=stream, partial=partial, answering=answering, deps=deps
        )
        if self._keeps_accounts and (durable or self._ledger is not None):
            if self._accounts is None:
                self._accounts = metering_of(self._budget, self.upstream, self._runs.meter)
            plan = msgspec.structs.replace(plan, metering=self._accounts)
        after = msgspec.structs.replace(_NOTHING, response_id=start.response_id, kept=start.kept)
        if self._planner is None:
            return AgentRun(plan, start.messages, after)
        return PlannedRun(plan, self._planner, start.messages, after)

    @property
    def _runs(self) -> "Runs":
        if self._durable is None:
            from mustcall.engine.durable.runs import Runs  # noqa: PLC0415  a database, for those who want one

            self._durable = Runs(self._ledger, self._lease, self._contents)
        return self._durable

    async def _drive_durably(
        self, run_id: str, run: AgentRun, start: Start, answering: Answering | None, emit: Emit, *, take: bool = False
    ) -> RunResult[Any]:
        driven = False

        async def drive() -> RunResult[Any]:
            nonlocal driven
            driven = True
            return await self._drive(run, emit)

        try:
            return await self._runs.drive(run_id, run, start, drive, answering=answering, take=take)
        finally:
            if not driven and run.over:  # it had ended before
                await emit(RunFinished(run.result()))

    async def _drive(self, run: AgentRun, emit: Emit) -> RunResult[Any]:
        with owned(self.upstream.caches):
            async with self._shared.use() as (turns, roster, planning):
                return await self._driven(run, emit, turns, roster, planning)

    async def _driven(
        self, run: AgentRun, emit: Emit, turns: Turns, roster: Roster, planning: Turns | None
    ) -> RunResult[Any]:
        if planning is not None and isinstance(run, PlannedRun):
            run.plan_with(planning)
        ruled = turns.ruled_by((*self.rules, *self._rules_for(run.deps))) if self._rules_of else turns
        return await run.drive(ruled, roster, emit)

    def _rules_for(self, deps: Any) -> Iterable[GroundingRule]:
        """Return the rules of a run that depend on what it is given; raise `ConfigError` for those that cannot be."""
        rules: list[GroundingRule] = []
        for rules_of in self._rules_of:
            given: Any = rules_of(deps)
            if not isinstance(given, Iterable):
                raise ConfigError(f"rules: {rules_of!r} must return a list of GroundingRules, got {given!r}")
            rules += given
        check_rules(rules)
        return rules

    async def _opened(self, stack: AsyncExitStack) -> tuple[Turns, Roster, Turns | None]:
        """Connect the upstreams and open the tool sources; the stack closes them."""
        turns = await turns_on(self.upstream, self._operator, stack)
        planning = None
        if self.planner is not None:  # grounding rules are about tools, which it is not offered
            operator = OperatorSettings(overrides=self.planner.overrides, wording=self._operator.wording)
            planning = await turns_on(self.planner, operator, stack)
        roster = await open_roster(self.tools, stack)
        check_order(roster, self._plan.required)
        return turns, roster, planning

    def _planning(self, planner: Upstream, options: Options) -> RunSettings:
        """Return the planner's settings; raise `ConfigError` for what cannot plan."""
        if not planner.model:
            raise ConfigError("the planner has no model: pass Upstream('…', model='…'), or write wire=URL#model")
        if planner.stateful or self.upstream.stateful:
            raise ConfigError(
                "stateful=True cannot be used with a planner: the conversation of two models is kept here"
            )
        return msgspec.structs.replace(
            self._plan, endpoint=planner.endpoint, model=planner.model, clock=planner.clock, options=options
        )

    def _check(self) -> None:
        """Raise `ConfigError` for what cannot be run."""
        if not self.model:
            raise ConfigError(
                "no model is named: pass model='…' to the Upstream or to the Agent, or write wire=URL#model"
            )
        check_rules(self.rules)
        check_wording(self._operator.wording)
        plan = self._plan
        for name, value in (("max_steps", plan.max_steps), ("concurrency", plan.concurrency)):
            check_number(name, value, least=1, whole=True)
        check_number("timeout", plan.timeout, above=0, unit=" seconds")
        check_limits(plan.controls.limits)
        approve = () if plan.approve is None else (plan.approve,)
        check_callables(
            hooks=plan.hooks, before_step=plan.before, after_step=plan.after, approve=approve, rules=self._rules_of
        )
        if plan.metering is not None:
            check_budget(plan.metering.budget)
        here = Roster(each for each in self.tools if isinstance(each, FunctionTool))  # raises for two of one name
        if len(here.tools) == len(self.tools):
            check_order(here, plan.required)
        if plan.compaction is not None:
            check_compaction(plan.compaction)
            if plan.stateful:
                raise ConfigError("compaction cannot be used with stateful=True: the upstream keeps the conversation")


#: What comes before a run that goes on from nothing.
_NOTHING: RunResult[Any] = RunResult(text="", messages=(), stopped=Stopped.ANSWERED)
