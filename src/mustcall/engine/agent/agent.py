"""The agent: a model that may use tools, until it has answered.

It holds settings and starts runs; the loop itself is `agent.loop`, and every turn of the model's is taken by the same
engine as the gateway's (`engine.turns`). Nothing of a run stays here: agents can be shared and used at the same time.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, overload

import msgspec

from mustcall.core.errors import MustcallError
from mustcall.engine.agent.events import RunEvent
from mustcall.engine.agent.hooking import AfterStep, BeforeStep
from mustcall.engine.agent.options import Options
from mustcall.engine.agent.prompts import Prompt
from mustcall.engine.agent.reading import (
    check_outside,
    checks_answers,
    metering_of,
    read_setting,
    the_caller,
)
from mustcall.engine.agent.run_making import After, RulesOf, RunMaker
from mustcall.engine.agent.running.plan import Hook, RunSettings
from mustcall.engine.agent.running.streams import RunStream
from mustcall.engine.agent.upstream import Upstream
from mustcall.engine.answers import answering_for
from mustcall.engine.answers.shapes import Output
from mustcall.engine.durable.documents import Start, decode
from mustcall.engine.parameters import Asked, Deps, Out
from mustcall.engine.run_records.results import RunResult
from mustcall.engine.sharing import Shared
from mustcall.engine.spending.accounts import shared_meter
from mustcall.engine.spending.budget_account import Budget, Metering
from mustcall.engine.spending.metering import Meter
from mustcall.engine.tooling.definition import Approve
from mustcall.engine.tooling.roster import ToolLike, read_tools
from mustcall.engine.turns import OperatorSettings
from mustcall.policy.facts.controls import Controls, OnUnmet
from mustcall.policy.facts.model_size import is_small
from mustcall.policy.facts.wording import Wording
from mustcall.policy.history.compaction import Compaction
from mustcall.policy.limits.budget import Caps
from mustcall.policy.reply.faithfulness import AnswerCheck
from mustcall.policy.reply.unbacked_claims import Claims
from mustcall.policy.words.grounding import GroundingRule

if TYPE_CHECKING:
    from mustcall.engine.durable.runs import Place, Runs

__all__ = ["Agent"]


class Agent(RunMaker[Deps], Generic[Deps, Out]):
    """A model, its tools and how to use them.

    `upstream` is an `Upstream`, or its address with `model`. `tools` are functions, `FunctionTool`s and `ToolSource`s.
    `controls` are the settings of each turn (forces, limits, protocol); `on_unmet` stands over the one in there and
    gives the reply as it is with `force_satisfied=False` (rule 27). `rules` ground questions in a tool; one that is a
    function gives the rules for a run's dependencies. `max_steps` are
    the model's turns in one run: the last one may call nothing (rule 109). `timeout` is the seconds of one turn, all of
    its attempts together. `approve` is asked before the calls of tools that have no approval of their own. `hooks` see
    every event; `before_step` and `after_step` are called around each step and may change what it asks. The run does
    not answer before each of `required_steps` has succeeded. With `compaction` a long conversation is sent shortened.
    `budget` bounds what may be spent, by all the runs of one `session` together or, without one, by each run; its
    accounts are `meter`'s. Without one those of a session are in the `ledger`, if one is named or the run is durable,
    else in this process's memory. With `claims="report"` what an answer says was done is held against the calls that
    ran. With `check_answers` numbers, dates, times and file names of an answer are held against the results of its
    calls, and one that departs from them is replaced by the results: "small" does that for models whose name says that
    they are small, "always" for all.

    With a `planner` a run has two models: the planner reasons in prose and is offered no tools, the `caller` (or the
    `upstream`, which is another word for it) turns its plans into calls, and results go back to the planner, whose
    answer is the run's. `options` are the caller's then, `planner_options` the planner's.

    A run with a `run_id` is durable: it is kept in the `ledger` (a path, a `postgresql://` URL or a `Ledger`; by
    default the one of MUSTCALL_LEDGER, DATABASE_URL or the user's own file) and can be gone on with after a crash.
    `lease` are the seconds after which another process may take over a run whose own process says nothing any more.
    `contents` is what stays of what was said in a run that has ended, besides its result: "full", "redacted" or "none";
    by default as MUSTCALL_LEDGER_CONTENTS says, else all of it.

    `output` is the type of a structured answer, for every run that asks for none of its own: `result.output` has it.
    `deps` is what tools, approvals and rules depend on (a database, a user); a parameter annotated with its type, or
    with `ToolContext[…]`, is filled in. A run may be given another one; `deps_type` says its type where there is none
    yet.

    `async with agent:` keeps connections and tool sources open; without it each run opens and closes its own.
    """

    def __init__(
        self,
        upstream: Upstream | str | None = None,
        *,
        tools: Iterable[ToolLike] = (),
        instructions: str | None = None,
        output: type[Out] | None = None,
        deps: Deps | None = None,
        deps_type: type[Deps] | None = None,
        model: str | None = None,
        controls: Controls | None = None,
        on_unmet: OnUnmet = OnUnmet.ANSWER,
        rules: Iterable[GroundingRule | RulesOf] = (),
        wording: Wording | None = None,
        options: Options | None = None,
        max_steps: int = 10,
        concurrency: int = 8,
        timeout: float = 600.0,
        approve: Approve | None = None,
        hooks: Iterable[Hook] = (),
        before_step: Iterable[BeforeStep] = (),
        after_step: Iterable[AfterStep] = (),
        required_steps: Iterable[str] = (),
        compaction: Compaction | None = None,
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
        self.upstream = the_caller(upstream, caller, planned=planner is not None)
        self.planner = planner if isinstance(planner, Upstream | None) else Upstream(planner)
        self.model = model or self.upstream.model
        self.output: type[Any] | None = output
        self.deps = deps
        self.deps_type: type[Any] | None = deps_type or (None if deps is None else type(deps))
        self.tools = read_tools(tools, self.deps_type)
        given = tuple(rules)
        self.rules = tuple(each for each in given if isinstance(each, GroundingRule))
        #: Rules that depend on what a run is given.
        self._rules_of = tuple(each for each in given if not isinstance(each, GroundingRule))
        self._house = OperatorSettings(
            rules=self.rules, overrides=self.upstream.overrides, wording=wording or Wording(), controls=Controls()
        )
        self._plan = RunSettings(
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
            before=tuple(before_step),
            after=tuple(after_step),
            required=tuple(required_steps),
            compaction=compaction,
            metering=metering_of(budget, self.upstream, meter or shared_meter()),
            session=session,
            claims=read_setting("claims", Claims, claims),
            compares=(checks := checks_answers(check_answers, self.model)),
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

    @overload
    async def run(
        self,
        prompt: Prompt,
        *,
        after: After = None,
        force: bool | str | None = None,
        output: None = None,
        hops: int | None = None,
        check: bool = True,
        run_id: str | None = None,
        deps: Deps | None = None,
    ) -> RunResult[Out]: ...

    @overload
    async def run(
        self,
        prompt: Prompt,
        *,
        after: After = None,
        force: bool | str | None = None,
        output: type[Asked] | Mapping[str, Any],
        hops: int | None = None,
        check: bool = True,
        run_id: str | None = None,
        deps: Deps | None = None,
    ) -> RunResult[Asked]: ...

    async def run(
        self,
        prompt: Prompt,
        *,
        after: After = None,
        force: bool | str | None = None,
        output: Output | None = None,
        hops: int | None = None,
        check: bool = True,
        run_id: str | None = None,
        deps: Deps | None = None,
    ) -> RunResult[Any]:
        """Run to an answer; raise `MustcallError` where there is none.

        `after` goes on from an earlier run, or from its `history`. `force` demands any tool (True) or the named one for
        this run (rule 9). `output` is the type or JSON schema of a structured answer, before which `hops` tool
        executions are allowed (as many as `controls` says, 2, unless given); it is then in the result's `output`.
        `deps` is what this run's tools depend on. With `check=False` a failed run is returned, `stopped` and `error`
        saying so, instead of raised. With a `run_id` the run is durable; the same name again goes on with it, or
        returns what it came to without asking a model.
        """
        answering = self._answering(output, hops)
        start = self._start(prompt, after, force, answering)
        run = self._made(start, answering, deps, stream=False, durable=run_id is not None)
        try:
            if run_id is None:
                return await self._drive(run, _nowhere)
            return await self._drive_durably(run_id, run, start, answering, _nowhere)
        except MustcallError:
            if check or not run.over:  # one that is not over is not ours to tell of
                raise
            return run.result()

    @overload
    async def resume(
        self, run_id: str, *, output: None = None, take: bool = False, check: bool = True, deps: Deps | None = None
    ) -> RunResult[Out]: ...

    @overload
    async def resume(
        self,
        run_id: str,
        *,
        output: type[Asked] | Mapping[str, Any],
        take: bool = False,
        check: bool = True,
        deps: Deps | None = None,
    ) -> RunResult[Asked]: ...

    async def resume(
        self,
        run_id: str,
        *,
        output: Output | None = None,
        take: bool = False,
        check: bool = True,
        deps: Deps | None = None,
    ) -> RunResult[Any]:
        """Go on with a durable run where it was interrupted; return what it came to if it has ended.

        Nothing that is done is done again: finished turns of the model are not paid for twice, finished tools are not
        run twice, and a call that had begun and has no result is reported as `unknown`, unless its tool may be run
        again or its `check` can tell. `output` is the type of a structured answer, for its value: where it is not
        given the agent's own, else the schema of the run. `deps` is not kept with a run: it is given again. `take`
        takes the run from an owner whose lease still lasts; by default that raises `RunBusy`, unless the owner is
        certainly dead.
        """
        row = await self.runs.find(run_id)
        told = decode(row.data, Start, run_id) if row.outcome is None and row.data else Start(messages=())
        answering = answering_for(output or self.output or told.schema, told.hops)
        run = self._made(told, answering, deps, stream=False, durable=True)
        try:
            if row.status.ended:
                return await self.runs.tell(row, run, answering_for(output or self.output, told.hops))
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
        after: After = None,
        force: bool | str | None = None,
        output: Output | None = None,
        hops: int | None = None,
    ) -> None:
        """Write a run down in the ledger for a worker (`mustcall worker`) to carry out; `resume` returns its result."""
        await self.runs.queue(run_id, self._start(prompt, after, force, self._answering(output, hops)))

    @overload
    def run_sync(
        self,
        prompt: Prompt,
        *,
        after: After = None,
        force: bool | str | None = None,
        output: None = None,
        hops: int | None = None,
        check: bool = True,
        run_id: str | None = None,
        deps: Deps | None = None,
    ) -> RunResult[Out]: ...

    @overload
    def run_sync(
        self,
        prompt: Prompt,
        *,
        after: After = None,
        force: bool | str | None = None,
        output: type[Asked] | Mapping[str, Any],
        hops: int | None = None,
        check: bool = True,
        run_id: str | None = None,
        deps: Deps | None = None,
    ) -> RunResult[Asked]: ...

    def run_sync(
        self,
        prompt: Prompt,
        *,
        after: After = None,
        force: bool | str | None = None,
        output: Any = None,
        hops: int | None = None,
        check: bool = True,
        run_id: str | None = None,
        deps: Deps | None = None,
    ) -> RunResult[Any]:
        """Do as `run` where no event loop runs."""
        check_outside("run")
        return asyncio.run(
            self.run(prompt, after=after, force=force, output=output, hops=hops, check=check, run_id=run_id, deps=deps)
        )

    @overload
    def resume_sync(
        self, run_id: str, *, output: None = None, take: bool = False, check: bool = True, deps: Deps | None = None
    ) -> RunResult[Out]: ...

    @overload
    def resume_sync(
        self,
        run_id: str,
        *,
        output: type[Asked] | Mapping[str, Any],
        take: bool = False,
        check: bool = True,
        deps: Deps | None = None,
    ) -> RunResult[Asked]: ...

    def resume_sync(
        self, run_id: str, *, output: Any = None, take: bool = False, check: bool = True, deps: Deps | None = None
    ) -> RunResult[Any]:
        """Do as `resume` where no event loop runs."""
        check_outside("resume")
        return asyncio.run(self.resume(run_id, output=output, take=take, check=check, deps=deps))

    @overload
    def stream(
        self,
        prompt: Prompt,
        *,
        after: After = None,
        force: bool | str | None = None,
        output: None = None,
        hops: int | None = None,
        run_id: str | None = None,
        deps: Deps | None = None,
        partial: bool = False,
    ) -> RunStream[Out]: ...

    @overload
    def stream(
        self,
        prompt: Prompt,
        *,
        after: After = None,
        force: bool | str | None = None,
        output: type[Asked] | Mapping[str, Any],
        hops: int | None = None,
        run_id: str | None = None,
        deps: Deps | None = None,
        partial: bool = False,
    ) -> RunStream[Asked]: ...

    def stream(
        self,
        prompt: Prompt,
        *,
        after: After = None,
        force: bool | str | None = None,
        output: Output | None = None,
        hops: int | None = None,
        run_id: str | None = None,
        deps: Deps | None = None,
        partial: bool = False,
    ) -> RunStream[Any]:
        """Return the run as it happens: `async with agent.stream(…) as events: async for event in events: …`.

        With `partial` a structured answer is told as it is written, too (`PartialOutput`).
        """
        answering = self._answering(output, hops)
        start = self._start(prompt, after, force, answering)
        run = self._made(start, answering, deps, stream=True, partial=partial, durable=run_id is not None)
        if run_id is None:
            return RunStream(run, lambda emit: self._drive(run, emit))
        return RunStream(run, lambda emit: self._drive_durably(run_id, run, start, answering, emit))

    @property
    def runs(self) -> "Runs":
        """The durable runs of this agent, in their ledger."""
        return self._runs

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


async def _nowhere(event: RunEvent) -> None:
    """Take events nobody iterates over."""
