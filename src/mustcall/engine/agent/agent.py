"""The agent: a model that may use tools, until it has answered.

It holds settings and starts runs; the loop itself is `agent.loop`, and every turn of the model's is taken by the same
engine as the gateway's (`engine.turns`). Nothing of a run stays here: agents can be shared and used at the same time.
"""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import msgspec

from mustcall.core.errors import ConfigError, MustcallError
from mustcall.engine.agent.events import RunEvent, RunFinished
from mustcall.engine.agent.loop import Run
from mustcall.engine.agent.options import Options
from mustcall.engine.agent.plan import Emit, Hook, Plan
from mustcall.engine.agent.planned import PlannedRun
from mustcall.engine.agent.prompts import Prompt, read_prompt
from mustcall.engine.agent.results import RunResult, Stopped
from mustcall.engine.agent.sharing import Shared
from mustcall.engine.agent.streams import RunStream
from mustcall.engine.agent.upstream import Upstream
from mustcall.engine.answers import Answering, answering_for
from mustcall.engine.answers.shapes import Output
from mustcall.engine.durable.documents import Start, decode
from mustcall.engine.spending.accounts import shared_meter
from mustcall.engine.spending.metering import Meter
from mustcall.engine.spending.purse import Budget, Metering, check_budget
from mustcall.engine.tooling.definition import Approve, FunctionTool
from mustcall.engine.tooling.roster import Roster, ToolLike, open_roster, read_tools
from mustcall.engine.turns import House, Turns
from mustcall.policy.facts.controls import Controls, OnUnmet
from mustcall.policy.facts.model_size import is_small
from mustcall.policy.facts.wording import Wording, check_wording
from mustcall.policy.limits.budget import Caps
from mustcall.policy.reply.faithfulness import AnswerCheck
from mustcall.policy.reply.unbacked_claims import Claims
from mustcall.policy.words.grounding import GroundingRule, check_rules

if TYPE_CHECKING:
    from mustcall.engine.durable.runs import Place, Runs

__all__ = ["Agent"]


class Agent:
    """A model, its tools and how to use them.

    `upstream` is an `Upstream`, or its address with `model`. `tools` are functions, `FunctionTool`s and `ToolSource`s.
    `controls` are the settings of each turn (forces, limits, protocol); `on_unmet` stands over the one in there and
    gives the reply as it is with `force_satisfied=False` (rule 27). `rules` ground questions in a tool. `max_steps` are
    the model's turns in one run: the last one may call nothing (rule 109). `timeout` is the seconds of one turn, all of
    its attempts together. `approve` is asked before the calls of tools that have no approval of their own. `hooks` see
    every event. `budget` bounds what may be spent, by all the runs of one `session` together or, without one, by each
    run; its accounts are `meter`'s. Without one those of a session are in the `ledger`, if one is named or the run is
    durable, else in this process's memory. With `claims="report"` what an answer
    says was done is held against the calls that ran. With `check_answers` numbers, dates, times and file names of an
    answer are held against the results of its calls, and one that departs from them is replaced by the results:
    "small" does that for models whose name says that they are small, "always" for all.

    With a `planner` a run has two models: the planner reasons in prose and is offered no tools, the `caller` (or the
    `upstream`, which is another word for it) turns its plans into calls, and results go back to the planner, whose
    answer is the run's. `options` are the caller's then, `planner_options` the planner's.

    A run with a `run_id` is durable: it is kept in the `ledger` (a path, a `postgresql://` URL or a `Ledger`; by
    default the one of MUSTCALL_LEDGER, DATABASE_URL or the user's own file) and can be gone on with after a crash.
    `lease` are the seconds after which another process may take over a run whose own process says nothing any more.
    `contents` is what stays of what was said in a run that has ended, besides its result: "full", "redacted" or "none";
    by default as MUSTCALL_LEDGER_CONTENTS says, else all of it.

    `async with agent:` keeps connections and tool sources open; without it each run opens and closes its own.
    """

    def __init__(
        self,
        upstream: Upstream | str | None = None,
        *,
        tools: Iterable[ToolLike] = (),
        instructions: str | None = None,
        model: str | None = None,
        controls: Controls | None = None,
        on_unmet: OnUnmet = OnUnmet.ANSWER,
        rules: Iterable[GroundingRule] = (),
        wording: Wording | None = None,
        options: Options | None = None,
        max_steps: int = 10,
        concurrency: int = 8,
        timeout: float = 600.0,
        approve: Approve | None = None,
        hooks: Iterable[Hook] = (),
        planner: Upstream | str | None = None,
        caller: Upstream | str | None = None,
        planner_options: Options | None = None,
        budget: Budget | Caps | None = None,
        session: str | None = None,
        meter: Meter | None = None,
        claims: Claims | str = Claims.OFF,
        check_answers: AnswerCheck | str = AnswerCheck.OFF,
        ledger: "Place | None" = None,
        lease: float = 30.0,
        contents: str | None = None,
    ) -> None:
        if budget is None and (session is not None or meter is not None):
            budget = Budget()  # counts, and caps nothing
        self.upstream = _the_caller(upstream, caller, planned=planner is not None)
        self.planner = planner if isinstance(planner, Upstream | None) else Upstream(planner)
        self.model = model or self.upstream.model
        self.tools = read_tools(tools)
        self.rules = tuple(rules)
        self._house = House(
            rules=self.rules, overrides=self.upstream.overrides, wording=wording or Wording(), controls=Controls()
        )
        self._plan = Plan(
            endpoint=self.upstream.endpoint,
            model=self.model,
            clock=self.upstream.clock,
            controls=msgspec.structs.replace(controls or Controls(), on_unmet=OnUnmet(on_unmet), metadata=False),
            wording=self._house.wording,
            instructions=instructions,
            options=options or Options(),
            max_steps=max_steps,
            concurrency=concurrency,
            timeout=timeout,
            approve=approve,
            stateful=self.upstream.stateful,
            hooks=tuple(hooks),
            metering=_metering(budget, self.upstream, meter or shared_meter()),
            session=session,
            claims=_read_setting("claims", Claims, claims),
            compares=(checks := _checks(check_answers, self.model)),
            small=checks and is_small(self.model),
        )
        self._planner = None if self.planner is None else self._planning(self.planner, planner_options or Options())
        self._ledger, self._lease, self._contents = ledger, lease, contents
        self._budget = budget
        self._accounts: Metering | None = None
        #: Whether the accounts of a session are kept where its runs are.
        self._keeps_accounts = budget is not None and session is not None and meter is None
        self._durable: Runs | None = None
        self._shared = Shared(self._opened)
        self._held: list[AsyncExitStack] = []
        self._check()

    async def run(
        self,
        prompt: Prompt,
        *,
        after: RunResult | None = None,
        force: bool | str | None = None,
        output: Output | None = None,
        hops: int | None = None,
        check: bool = True,
        run_id: str | None = None,
    ) -> RunResult:
        """Run to an answer; raise `MustcallError` where there is none.

        `after` goes on from an earlier run. `force` demands any tool (True) or the named one for this run (rule 9).
        `output` is the type or JSON schema of a structured answer, before which `hops` tool executions are allowed (as
        many as `controls` says, 2, unless given); it is then in the result's `output`. With `check=False` a failed run
        is returned, `stopped` and `error` saying so, instead of raised. With a `run_id` the run is durable; the same
        name again goes on with it, or returns what it came to without asking a model.
        """
        answering = self._answering(output, hops)
        start = self._start(prompt, after, force, answering)
        run = self._made(start, answering, stream=False, durable=run_id is not None)
        try:
            if run_id is None:
                return await self._drive(run, _nowhere)
            return await self._drive_durably(run_id, run, start, answering, _nowhere)
        except MustcallError:
            if check or not run.over:  # one that is not over is not ours to tell of
                raise
            return run.result()

    async def resume(
        self, run_id: str, *, output: Output | None = None, take: bool = False, check: bool = True
    ) -> RunResult:
        """Go on with a durable run where it was interrupted; return what it came to if it has ended.

        Nothing that is done is done again: finished turns of the model are not paid for twice, finished tools are not
        run twice, and a call that had begun and has no result is reported as `unknown`, unless its tool may be run
        again or its `check` can tell. `output` is the type of a structured answer, for its value. `take` takes the run
        from an owner whose lease still lasts; by default that raises `RunBusy`, unless the owner is certainly dead.
        """
        row = await self.runs.find(run_id)
        told = decode(row.data, Start, run_id) if row.outcome is None and row.data else Start(messages=())
        asked = output if output is not None else told.schema
        answering = answering_for(asked, told.hops)
        run = self._made(told, answering, stream=False, durable=True)
        try:
            if row.status.ended:
                return await self.runs.tell(row, run, answering_for(output, told.hops))
            return await self._drive_durably(run_id, run, told, answering, _nowhere, take=take)
        except MustcallError:
            if check or not run.over:  # one that is not over is not ours to tell of
                raise
            return run.result()

    async def submit(
        self,
        prompt: Prompt,
        *,
        run_id: str,
        after: RunResult | None = None,
        force: bool | str | None = None,
        output: Output | None = None,
        hops: int | None = None,
    ) -> None:
        """Write a run down in the ledger for a worker (`mustcall worker`) to carry out; `resume` returns its result."""
        await self.runs.queue(run_id, self._start(prompt, after, force, self._answering(output, hops)))

    def run_sync(
        self,
        prompt: Prompt,
        *,
        after: RunResult | None = None,
        force: bool | str | None = None,
        output: Output | None = None,
        hops: int | None = None,
        check: bool = True,
        run_id: str | None = None,
    ) -> RunResult:
        """Do as `run` where no event loop runs."""
        _check_outside("run")
        return asyncio.run(
            self.run(prompt, after=after, force=force, output=output, hops=hops, check=check, run_id=run_id)
        )

    def resume_sync(
        self, run_id: str, *, output: Output | None = None, take: bool = False, check: bool = True
    ) -> RunResult:
        """Do as `resume` where no event loop runs."""
        _check_outside("resume")
        return asyncio.run(self.resume(run_id, output=output, take=take, check=check))

    def stream(
        self,
        prompt: Prompt,
        *,
        after: RunResult | None = None,
        force: bool | str | None = None,
        output: Output | None = None,
        hops: int | None = None,
        run_id: str | None = None,
    ) -> RunStream:
        """Return the run as it happens: `async with agent.stream(…) as events: async for event in events: …`."""
        answering = self._answering(output, hops)
        start = self._start(prompt, after, force, answering)
        run = self._made(start, answering, stream=True, durable=run_id is not None)
        if run_id is None:
            return RunStream(run, lambda emit: self._drive(run, emit))
        return RunStream(run, lambda emit: self._drive_durably(run_id, run, start, answering, emit))

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._shared.use())
            if self._ledger is not None:
                await stack.enter_async_context(self.runs.ledger())
            self._held.append(stack.pop_all())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._held.pop().__aexit__(kind, error, trace)

    def _answering(self, output: Output | None, hops: int | None) -> Answering | None:
        return answering_for(output, self._plan.controls.hops if hops is None else hops)

    def _start(
        self, prompt: Prompt, after: RunResult | None, force: bool | str | None, answering: Answering | None
    ) -> Start:
        """Return what a run is started with."""
        messages = read_prompt(prompt)
        if after is None:
            after = _NOTHING
        return Start(
            messages=(*after.messages, *messages),
            force=force,
            schema=None if answering is None else answering.shape.asked.schema,
            hops=0 if answering is None else answering.hops,
            response_id=after.response_id,
            kept=after.kept,
        )

    def _made(self, start: Start, answering: Answering | None, *, stream: bool, durable: bool) -> Run:
        controls = self._plan.controls
        if start.force is not None:
            controls = msgspec.structs.replace(controls, force_tools=start.force)
        plan = msgspec.structs.replace(self._plan, controls=controls, stream=stream, answering=answering)
        if self._keeps_accounts and (durable or self._ledger is not None):
            if self._accounts is None:
                self._accounts = _metering(self._budget, self.upstream, self.runs.meter)
            plan = msgspec.structs.replace(plan, metering=self._accounts)
        after = msgspec.structs.replace(_NOTHING, response_id=start.response_id, kept=start.kept)
        if self._planner is None:
            return Run(plan, start.messages, after)
        return PlannedRun(plan, self._planner, start.messages, after)

    @property
    def runs(self) -> "Runs":
        """The durable runs of this agent, in their ledger."""
        if self._durable is None:
            from mustcall.engine.durable.runs import Runs  # noqa: PLC0415  a database, for those who want one

            self._durable = Runs(self._ledger, self._lease, self._contents)
        return self._durable

    async def _drive_durably(
        self, run_id: str, run: Run, start: Start, answering: Answering | None, emit: Emit, *, take: bool = False
    ) -> RunResult:
        driven = False

        async def drive() -> RunResult:
            nonlocal driven
            driven = True
            return await self._drive(run, emit)

        try:
            return await self.runs.drive(run_id, run, start, drive, answering=answering, take=take)
        finally:
            if not driven and run.over:  # it had ended before
                await emit(RunFinished(run.result()))

    async def _drive(self, run: Run, emit: Emit) -> RunResult:
        async with self._shared.use() as (turns, roster, planning):
            if planning is not None and isinstance(run, PlannedRun):
                run.plan_with(planning)
            return await run.drive(turns, roster, emit)

    async def _opened(self, stack: AsyncExitStack) -> tuple[Turns, Roster, Turns | None]:
        """Connect the upstreams and open the tool sources; the stack closes them."""
        turns = await _turns_on(self.upstream, self._house, stack)
        planning = None
        if self.planner is not None:  # grounding rules are about tools, which it is not offered
            house = House(overrides=self.planner.overrides, wording=self._house.wording)
            planning = await _turns_on(self.planner, house, stack)
        return turns, await open_roster(self.tools, stack), planning

    def _planning(self, planner: Upstream, options: Options) -> Plan:
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
        check_wording(self._house.wording)
        plan = self._plan
        for name, value in (("max_steps", plan.max_steps), ("concurrency", plan.concurrency)):
            if value < 1:
                raise ConfigError(f"{name} must be 1 or more, got {value}")
        if plan.timeout <= 0:
            raise ConfigError(f"timeout must be above 0 seconds, got {plan.timeout}")
        if plan.metering is not None:
            check_budget(plan.metering.budget)
        Roster(each for each in self.tools if isinstance(each, FunctionTool))  # two of one name


def _the_caller(upstream: Upstream | str | None, caller: Upstream | str | None, *, planned: bool) -> Upstream:
    """Return the upstream whose model makes the calls; raise `ConfigError` where it is not named once."""
    if caller is not None and not planned:
        raise ConfigError("caller= is the second of two models: pass planner= as well, or the upstream alone")
    if (upstream is None) == (caller is None):
        raise ConfigError("an agent needs exactly one upstream: Agent('chat=…', …), or Agent(planner=…, caller=…)")
    one = upstream if caller is None else caller
    assert one is not None, "one of them is there"
    return one if isinstance(one, Upstream) else Upstream(one)


async def _turns_on(upstream: Upstream, house: House, stack: AsyncExitStack) -> Turns:
    transport = await stack.enter_async_context(upstream.connected())
    turns = Turns(transport, upstream.clock, house)
    turns.learnt = upstream.learnt
    return turns


_S = TypeVar("_S", bound=StrEnum)


def _read_setting(name: str, kind: type[_S], given: str) -> _S:
    try:
        return kind(given)
    except ValueError:
        raise ConfigError(f"{name} must be one of {', '.join(kind)}, got {given!r}") from None


def _checks(given: str, model: str) -> bool:
    """Tell whether a model's answers are held against the results of its calls."""
    check = _read_setting("check_answers", AnswerCheck, given)
    return check is AnswerCheck.ALWAYS or (check is AnswerCheck.SMALL and is_small(model))


def _metering(budget: Budget | Caps | None, upstream: Upstream, meter: Meter) -> Metering | None:
    if budget is None:
        return None
    if isinstance(budget, Caps):
        budget = Budget(caps=budget)
    return Metering(budget, upstream.clock, meter=meter, breakers=upstream.breakers)


#: What comes before a run that goes on from nothing.
_NOTHING = RunResult(text="", messages=(), stopped=Stopped.ANSWERED)


def _check_outside(name: str) -> None:
    """Raise `ConfigError` inside an event loop, where the asynchronous form is the one to use."""
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise ConfigError(f"{name}_sync cannot be used inside an event loop; write `await agent.{name}(…)` there")


async def _nowhere(event: RunEvent) -> None:
    """Take events nobody iterates over."""
