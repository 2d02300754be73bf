"""The agent: a model that may use tools, until it has answered.

It holds settings and starts runs; the loop itself is `agent.loop`, and every turn of the model's is taken by the same
engine as the gateway's (`engine.turns`). Nothing of a run stays here: agents can be shared and used at the same time.
"""

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from types import TracebackType
from typing import Self

import msgspec

from mustcall.core.errors import ConfigError, MustcallError
from mustcall.core.message import Message
from mustcall.engine.agent.events import RunEvent
from mustcall.engine.agent.loop import Emit, Hook, Plan, Run
from mustcall.engine.agent.options import Options
from mustcall.engine.agent.planned import PlannedRun
from mustcall.engine.agent.prompts import Prompt, read_prompt
from mustcall.engine.agent.results import RunResult
from mustcall.engine.agent.sharing import Shared
from mustcall.engine.agent.streams import RunStream
from mustcall.engine.agent.upstream import Upstream
from mustcall.engine.answers import Answering, answering_for
from mustcall.engine.answers.shapes import Output
from mustcall.engine.tooling.definition import Approve, FunctionTool
from mustcall.engine.tooling.roster import Roster, ToolLike, open_roster, read_tools
from mustcall.engine.turns import House, Turns
from mustcall.policy.controls import Controls, OnUnmet
from mustcall.policy.grounding import GroundingRule, check_rules
from mustcall.policy.wording import Wording, check_wording

__all__ = ["Agent"]


class Agent:
    """A model, its tools and how to use them.

    `upstream` is an `Upstream`, or its address with `model`. `tools` are functions, `FunctionTool`s and `ToolSource`s.
    `controls` are the settings of each turn (forces, limits, protocol); `on_unmet` stands over the one in there and
    gives the reply as it is with `force_satisfied=False` (rule 27). `rules` ground questions in a tool. `max_steps` are
    the model's turns in one run: the last one may call nothing (rule 109). `timeout` is the seconds of one turn, all of
    its attempts together. `approve` is asked before the calls of tools that have no approval of their own. `hooks` see
    every event.

    With a `planner` a run has two models: the planner reasons in prose and is offered no tools, the `caller` (or the
    `upstream`, which is another word for it) turns its plans into calls, and results go back to the planner, whose
    answer is the run's. `options` are the caller's then, `planner_options` the planner's.

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
    ) -> None:
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
        )
        self._planner = None if self.planner is None else self._planning(self.planner, planner_options or Options())
        self._shared = Shared(self._opened)
        self._held: list[AbstractAsyncContextManager[tuple[Turns, Roster, Turns | None]]] = []
        self._check()

    async def run(
        self,
        prompt: Prompt,
        *,
        after: RunResult | None = None,
        force: bool | str | None = None,
        output: Output | None = None,
        hops: int = 2,
        check: bool = True,
    ) -> RunResult:
        """Run to an answer; raise `MustcallError` where there is none.

        `after` goes on from an earlier run. `force` demands any tool (True) or the named one for this run (rule 9).
        `output` is the type or JSON schema of a structured answer, before which `hops` tool executions are allowed; it
        is then in the result's `output`. With `check=False` a failed run is returned, `stopped` and `error` saying so,
        instead of raised.
        """
        run = self._begin(prompt, after, force, answering_for(output, hops), stream=False)
        try:
            return await self._drive(run, _nowhere)
        except MustcallError:
            if check:
                raise
            return run.result()

    def run_sync(
        self,
        prompt: Prompt,
        *,
        after: RunResult | None = None,
        force: bool | str | None = None,
        output: Output | None = None,
        hops: int = 2,
        check: bool = True,
    ) -> RunResult:
        """Do as `run` where no event loop runs."""
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            raise ConfigError("run_sync cannot be used inside an event loop; write `await agent.run(…)` there")
        return asyncio.run(self.run(prompt, after=after, force=force, output=output, hops=hops, check=check))

    def stream(
        self,
        prompt: Prompt,
        *,
        after: RunResult | None = None,
        force: bool | str | None = None,
        output: Output | None = None,
        hops: int = 2,
    ) -> RunStream:
        """Return the run as it happens: `async with agent.stream(…) as events: async for event in events: …`."""
        run = self._begin(prompt, after, force, answering_for(output, hops), stream=True)
        return RunStream(run, lambda emit: self._drive(run, emit))

    async def __aenter__(self) -> Self:
        held = self._shared.use()
        await held.__aenter__()
        self._held.append(held)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._held.pop().__aexit__(kind, error, trace)

    def _begin(
        self,
        prompt: Prompt,
        after: RunResult | None,
        force: bool | str | None,
        answering: Answering | None,
        *,
        stream: bool,
    ) -> Run:
        messages = read_prompt(prompt)
        if after is not None:
            messages = (*after.messages, *messages)
        controls = self._plan.controls
        if force is not None:
            controls = msgspec.structs.replace(controls, force_tools=force)
        plan = msgspec.structs.replace(self._plan, controls=controls, stream=stream, answering=answering)
        return Run(plan, messages, after) if self._planner is None else self._planned(plan, messages, after)

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
            raise ConfigError("the planner has no model: pass Upstream('…', model='…')")
        if planner.stateful or self.upstream.stateful:
            raise ConfigError(
                "stateful=True cannot be used with a planner: the conversation of two models is kept here"
            )
        return msgspec.structs.replace(
            self._plan, endpoint=planner.endpoint, model=planner.model, clock=planner.clock, options=options
        )

    def _planned(self, plan: Plan, messages: tuple[Message, ...], after: RunResult | None) -> Run:
        assert self._planner is not None, "only then are there two models"
        return PlannedRun(plan, self._planner, messages, after)

    def _check(self) -> None:
        """Raise `ConfigError` for what cannot be run."""
        if not self.model:
            raise ConfigError("no model is named: pass model='…' to the Upstream or to the Agent")
        check_rules(self.rules)
        check_wording(self._house.wording)
        plan = self._plan
        for name, value in (("max_steps", plan.max_steps), ("concurrency", plan.concurrency)):
            if value < 1:
                raise ConfigError(f"{name} must be 1 or more, got {value}")
        if plan.timeout <= 0:
            raise ConfigError(f"timeout must be above 0 seconds, got {plan.timeout}")
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


async def _nowhere(event: RunEvent) -> None:
    """Take events nobody iterates over."""
