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
    check_types,
    checks_answers,
    is_small_model,
    metering_of,
    read_list,
    read_setting,
    read_upstream,
    the_caller,
)
from mustcall.engine.agent.run_making import After, RulesOf, RunMaker
from mustcall.engine.agent.running.plan import Hook, RunSettings
from mustcall.engine.agent.running.streams import RunStream
from mustcall.engine.agent.upstream import Upstream
from mustcall.engine.answers.shapes import Output
from mustcall.engine.durable.documents import Start, decode
from mustcall.engine.parameters import Asked, Deps, Out
from mustcall.engine.run_records.results import RunResult
from mustcall.engine.sharing import Shared
from mustcall.engine.spending.accounts import shared_meter
from mustcall.engine.spending.budget_account import Budget, Metering
from mustcall.engine.spending.metering import Meter
from mustcall.engine.tooling.definition import Approve
from mustcall.engine.tooling.roster import Force, ToolLike, read_tools
from mustcall.engine.turns import OperatorSettings
from mustcall.policy.facts.controls import Controls, OnUnmet
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
    """A model, its tools and the settings of its runs.

    - `upstream`: an `Upstream`, or its address; `model` selects another model of it
    - `tools`: functions, `FunctionTool`s and `ToolSource`s
    - `output`: the type of the structured answer, unless a run names another one
    - `deps`, `deps_type`: the dependency of tools, approvals and rules (a database, a user), or its type; a parameter
      with this annotation, or with `ToolContext[…]`, is filled in
    - `controls`: settings of each turn (forces, limits, protocol); `on_unmet` overrides the value in it (rule 27)
    - `rules`: grounding rules, or functions that return them for a dependency
    - `max_steps`: maximum model turns in one run; the last one may not call tools (rule 109)
    - `timeout`: seconds for one turn with all its attempts
    - `approve`: approval for tools without their own
    - `hooks`: receive every event; `before_step` and `after_step` run around each step and may change it
    - `required_steps`: tools that must succeed before the run answers
    - `compaction`: how a long conversation is shortened before it is sent
    - `budget`, `session`, `meter`: limits, the account that all runs of one session share, and where accounts are
      stored (default: the `ledger` if one is named or the run is durable, else memory)
    - `claims="report"`: compare actions that the answer claims with the calls that ran
    - `check_answers`: replace an answer whose numbers, dates, times or file names contradict the tool results, and
      give the results where the model gives none: for no model (`"off"`), for those known to be small (`"small"`, the
      default for a model in this process), or for all (`"always"`)
    - `planner`, `caller`: two models: the planner reasons in prose without tools, and the caller (or `upstream`) turns
      its plans into calls; `planner_options` are the planner's, `options` the caller's
    - `ledger`, `lease`, `contents`: where durable runs are stored (a path, a `postgresql://` URL or a `Ledger`;
      default: MUSTCALL_LEDGER, DATABASE_URL or the user's file), the seconds after which a silent process loses its
      run, and which contents are kept after the end (`full`, `redacted`, `none`; default: MUSTCALL_LEDGER_CONTENTS,
      else `full`)

    `async with agent:` keeps connections and tool sources open; otherwise each run opens and closes its own. Raise
    `ConfigError` for settings that cannot be used together.
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
        check_answers: AnswerCheck | str | None = None,
        ledger: "Place | None" = None,
        lease: float = 30.0,
        contents: str | None = None,
    ) -> None:
        check_types(model=(model, str), instructions=(instructions, str), session=(session, str))
        check_types(controls=(controls, Controls), wording=(wording, Wording), compaction=(compaction, Compaction))
        check_types(options=(options, Options), planner_options=(planner_options, Options))
        check_types(budget=(budget, Budget | Caps))
        if budget is None and (session is not None or meter is not None):
            budget = Budget()  # counts, and caps nothing
        self.upstream = the_caller(upstream, caller, planned=planner is not None)
        self.planner = None if planner is None else read_upstream("planner", planner)
        self.model = model or self.upstream.model
        self.output: type[Any] | None = output
        self.deps = deps
        self.deps_type: type[Any] | None = deps_type or (None if deps is None else type(deps))
        self.tools = read_tools(tools, self.deps_type)
        small = is_small_model(self.upstream, self.model)
        unmet = read_setting("on_unmet", OnUnmet, on_unmet)
        given = read_list("rules", rules)
        self.rules = tuple(each for each in given if isinstance(each, GroundingRule))
        #: Rules that depend on what a run is given.
        self._rules_of = tuple(each for each in given if not isinstance(each, GroundingRule))
        self._operator = OperatorSettings(
            rules=self.rules, overrides=self.upstream.overrides, wording=wording or Wording(), controls=Controls()
        )
        self._plan = RunSettings(
            endpoint=self.upstream.endpoint,
            model=self.model,
            clock=self.upstream.clock,
            controls=msgspec.structs.replace(controls or Controls(), on_unmet=unmet, metadata=False),
            wording=self._operator.wording,
            instructions=instructions,
            options=options or Options(),
            max_steps=max_steps,
            concurrency=concurrency,
            timeout=timeout,
            approve=approve,
            stateful=self.upstream.stateful,
            hooks=read_list("hooks", hooks),
            before=read_list("before_step", before_step),
            after=read_list("after_step", after_step),
            required=read_list("required_steps", required_steps),
            compaction=compaction,
            metering=metering_of(budget, self.upstream, meter or shared_meter()),
            session=session,
            claims=read_setting("claims", Claims, claims),
            compares=(checks := checks_answers(check_answers, self.upstream, small=small)),
            small=checks and small,
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
        force: Force = None,
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
        force: Force = None,
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
        force: Force = None,
        output: Output | None = None,
        hops: int | None = None,
        check: bool = True,
        run_id: str | None = None,
        deps: Deps | None = None,
    ) -> RunResult[Any]:
        """Run until the model answers, and return the result.

        `after` continues an earlier run, or its `history`. `force` demands a call of any tool (True) or of one, given
        by its name or itself (rule 9). `output` is the type or JSON schema of a structured answer; at most `hops` tool
        executions come before it (default: from `controls`, 2). `deps` is the dependency of this run. With a `run_id`
        the run is durable: the same id again continues it, or returns the stored result without a model call.

        Raise `MustcallError` if there is no answer; with `check=False` return the failed run with `stopped` and
        `error`.
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
        """Continue a durable run where it was interrupted, or return its result if it has ended.

        Finished model turns are not paid for again, and finished tools are not run again. A call that had started and
        has no result is reported as `unknown`, unless its tool may be repeated or its `check` knows the outcome.
        `output` is the type of the structured answer (default: the agent's, else the schema of the run). `deps` is not
        stored and must be passed again. `take` takes the run from an owner whose lease has not expired.

        Raise `UnknownRun` for an unknown id, `RunBusy` if another process holds the run and `take` is false, and the
        error of a failed run unless `check=False`.
        """
        row = await self.runs.find(run_id)
        told = decode(row.data, Start, run_id) if row.outcome is None and row.data else Start(messages=())
        answering = self._answering_for(output or self.output or told.schema, told.hops)
        run = self._made(told, answering, deps, stream=False, durable=True)
        try:
            if row.status.ended:
                return await self.runs.tell(row, run, self._answering_for(output or self.output, told.hops))
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
        force: Force = None,
        output: Output | None = None,
        hops: int | None = None,
    ) -> None:
        """Store a run in the ledger for a worker (`mustcall worker`). `resume` returns its result."""
        await self.runs.queue(run_id, self._start(prompt, after, force, self._answering(output, hops)))

    @overload
    def run_sync(
        self,
        prompt: Prompt,
        *,
        after: After = None,
        force: Force = None,
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
        force: Force = None,
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
        force: Force = None,
        output: Any = None,
        hops: int | None = None,
        check: bool = True,
        run_id: str | None = None,
        deps: Deps | None = None,
    ) -> RunResult[Any]:
        """Call `run` where no event loop runs. Raise the same errors."""
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
        """Call `resume` where no event loop runs. Raise the same errors."""
        check_outside("resume")
        return asyncio.run(self.resume(run_id, output=output, take=take, check=check, deps=deps))

    @overload
    def stream(
        self,
        prompt: Prompt,
        *,
        after: After = None,
        force: Force = None,
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
        force: Force = None,
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
        force: Force = None,
        output: Output | None = None,
        hops: int | None = None,
        run_id: str | None = None,
        deps: Deps | None = None,
        partial: bool = False,
    ) -> RunStream[Any]:
        """Return a run as a stream: `async with agent.stream(…) as events: async for event in events: …`.

        The parameters are those of `run`. With `partial` a structured answer is also streamed while it is written
        (`PartialOutput`). The error of a failed run is raised after its last event.
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
