"""`coordinate`: a question answered by several models, one to propose, some to criticise, one to conclude.

It reads what it was given, opens what is needed and closes it; the steps of the answer are in `coordinating.panel`, and
everything about one model's work the agent's.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from mustcall.core.errors import ConfigError, InvalidRequest, MustcallError
from mustcall.engine.agent.agent import Agent
from mustcall.engine.agent.options import Options
from mustcall.engine.agent.upstream import Upstream
from mustcall.engine.coordinating.envelopes import RoleKind
from mustcall.engine.coordinating.events import OnEvent
from mustcall.engine.coordinating.members import Member, Participant, read_participant
from mustcall.engine.coordinating.panel import Panel, PanelProgress, PanelSettings
from mustcall.engine.coordinating.prompts import instructions_for
from mustcall.engine.coordinating.results import CoordinateResult, WorkerTools
from mustcall.engine.coordinating.workers import accept_tools
from mustcall.engine.spending.budget_account import Budget
from mustcall.engine.spending.metering import Meter
from mustcall.engine.tooling.definition import Approve, FunctionTool
from mustcall.engine.tooling.roster import ToolLike
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.wording import Wording
from mustcall.policy.limits.budget import Caps

if TYPE_CHECKING:
    from mustcall.engine.durable.runs import Place
    from mustcall.ledger import Ledger

__all__ = ["WORKERS", "coordinate", "coordinate_sync"]

P = ParamSpec("P")
R = TypeVar("R")

#: The roles that may have tools at all.
WORKERS = (RoleKind.PROPOSER, RoleKind.CRITIC)

#: Turns that an agent needs besides its hops: a refused call, the final round, and one for an answer that did not fit.
_SPARE_STEPS = 4


async def coordinate(
    question: str,
    *,
    proposer: Upstream | str | Participant,
    critics: Iterable[Upstream | str | Participant],
    synthesizer: Upstream | str | Participant,
    worker_tools: Iterable[str | ToolLike] | None = None,
    allowed: Iterable[ToolLike] | None = None,
    applies_to: Collection[RoleKind | str] = WORKERS,
    hop_budget: int | None = None,
    rounds: int = 1,
    quorum: int = 1,
    session: str | None = None,
    budget: Budget | Caps | None = None,
    meter: Meter | None = None,
    options: Options | None = None,
    controls: Controls | None = None,
    wording: Wording | None = None,
    timeout: float = 600.0,  # noqa: ASYNC109  of each turn, not of the whole
    approve: Approve | None = None,
    on_event: OnEvent | None = None,
    check: bool = True,
    run_id: str | None = None,
    ledger: "Place | None" = None,
) -> CoordinateResult:
    """Answer a question with several models: one proposes, critics review in parallel, one writes the answer.

    `worker_tools` are tools, or names of tools in `allowed`, for the proposer and the critics (`applies_to`), never for
    the synthesizer. With `allowed` only the tools in it can run (rule 87). Each role may execute `hop_budget` tools
    before its answer (default: from `controls`). There are at most `rounds` rounds of proposal and critique; a round
    whose critics all agree is the last. At least `quorum` critics must answer. All costs are charged to one `session`
    (default: a new one); `budget` limits it, and `meter` stores its accounts. `options`, `controls`, `wording`,
    `timeout` and `approve` apply to the agent of every role. `on_event` receives the events. With a `run_id` the answer
    is durable and stored in the `ledger` (default: as for an agent): if it is called again, finished roles are not
    asked again.

    Raise `RoleFailed` if the proposer or the synthesizer gives no usable answer, and `QuorumMissed` if too few critics
    do. With `check=False` return the partial result with its `error`.
    """
    if not question.strip():
        raise InvalidRequest("the question is empty", param="question")
    if hop_budget is None:
        hop_budget = (controls or Controls()).hops
    members = (read_participant(proposer), _critics(critics), read_participant(synthesizer))
    roles = _roles(applies_to)
    _check(len(members[1]), hop_budget, rounds, quorum)
    progress = PanelProgress(on_event)
    spender = session or (f"ses_{os.urandom(8).hex()}" if run_id is None else f"run_{run_id}")
    opened: Ledger | None = None

    def member(role: RoleKind, name: str, who: Participant, tools: tuple[FunctionTool, ...]) -> Member:
        agent = Agent(
            who.upstream,
            model=who.model,
            tools=tools if role in roles else (),
            instructions=instructions_for(role, who.instructions),
            options=who.options or options,
            controls=controls,
            wording=wording,
            max_steps=hop_budget + _SPARE_STEPS,
            timeout=timeout,
            approve=approve,
            budget=budget or Budget(),  # without caps: what roles cost is counted all the same
            session=spender,
            meter=meter,
            hooks=[progress.hook(name)] if on_event is not None else (),
            ledger=opened,
        )
        return Member(role, name, agent)

    async with AsyncExitStack() as stack:
        if run_id is not None:
            opened = await _opened(ledger, stack)
        accepted = await accept_tools(worker_tools or (), allowed, stack)
        first = member(RoleKind.PROPOSER, "proposer", members[0], accepted.tools)
        judges = [
            member(RoleKind.CRITIC, f"critic_{number}", who, accepted.tools) for number, who in enumerate(members[1], 1)
        ]
        last = member(RoleKind.SYNTHESIZER, "synthesizer", members[2], ())
        for each in (first, *judges, last):
            await stack.enter_async_context(each.agent)
        settings = PanelSettings(
            question=question,
            session=spender,
            rounds=rounds,
            quorum=quorum,
            hops=hop_budget,
            run_id=run_id,
            worker_tools=None
            if worker_tools is None
            else WorkerTools(
                accepted=accepted.names, rejected=accepted.rejected, hop_budget=hop_budget, applies_to=roles
            ),
        )
        panel = Panel(settings, first, judges, last, progress)
        try:
            return await panel.hold()
        except MustcallError:
            if check:
                raise
            return panel.result()


async def _opened(place: "Place | None", stack: AsyncExitStack) -> "Ledger":
    """Return the ledger, open, for all roles."""
    from mustcall.ledger import Ledger, open_ledger  # noqa: PLC0415  a database, for those who want one

    if isinstance(place, Ledger):
        await place.open()  # who made it closes it
        return place
    return await stack.enter_async_context(open_ledger(place))


def _blocking(wanted: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """Return a coroutine function as one that waits, with the same parameters."""

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            raise ConfigError("coordinate_sync cannot be used inside an event loop; write `await coordinate(…)` there")
        return asyncio.run(wanted(*args, **kwargs))

    run.__doc__ = "Call `coordinate` where no event loop runs. Raise the same errors."
    return run


coordinate_sync = _blocking(coordinate)


def _critics(given: Iterable[Upstream | str | Participant]) -> tuple[Participant, ...]:
    """Return the critics; raise for one that is no list of them."""
    if isinstance(given, Upstream | str | Participant):
        raise ConfigError(f"critics must be a list, got {given!r} alone; write critics=[…]")
    return tuple(map(read_participant, given))


def _roles(applies_to: Collection[RoleKind | str]) -> tuple[RoleKind, ...]:
    """Return the roles that get tools, in their own order; raise for one that never does (rule 88)."""
    known = [str(role) for role in WORKERS]
    if isinstance(applies_to, str):
        raise ConfigError(f"applies_to must be a list of roles, not the text {applies_to!r}; write [{applies_to!r}]")
    for each in applies_to:
        if each not in known:
            raise ConfigError(f"applies_to names {each!r}; tools are for {' and '.join(known)} only")
    return tuple(role for role in WORKERS if role in applies_to)


def _check(critics: int, hop_budget: int, rounds: int, quorum: int) -> None:
    if critics < 1:
        raise ConfigError("no critic is named: pass critics=[…] with at least one")
    if hop_budget < 0:
        raise ConfigError(f"hop_budget must be 0 or more, got {hop_budget}")
    if rounds < 1:
        raise ConfigError(f"rounds must be 1 or more, got {rounds}")
    if not 0 <= quorum <= critics:
        raise ConfigError(f"quorum must be between 0 and the number of critics ({critics}), got {quorum}")
