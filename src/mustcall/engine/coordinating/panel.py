"""The steps of a coordinated answer: a proposal, critics in parallel, further rounds, then the final answer.

The first round must be complete: a proposal, and a quorum of critics. A later one that is not ends the debate, and so
does one whose critics all agree; the answer is then made from the last complete round.
"""

import asyncio
from collections.abc import Sequence
from inspect import isawaitable

import msgspec

from mustcall.core.errors import ErrorInfo, MustcallError, QuorumMissed, RoleFailed
from mustcall.engine.agent.events import RunEvent
from mustcall.engine.agent.running.plan import Hook
from mustcall.engine.coordinating.envelopes import Critique, Proposal, Synthesis
from mustcall.engine.coordinating.events import CoordinateEvent, OnEvent, RoleFinished, RoleProgress, RoleStarted
from mustcall.engine.coordinating.members import Member
from mustcall.engine.coordinating.prompts import ask_critic, ask_proposer, ask_synthesizer
from mustcall.engine.coordinating.results import CoordinateResult, RoleRun, WorkerTools
from mustcall.telemetry.logs import log_of

__all__ = ["Panel", "PanelProgress", "PanelSettings"]

_logger = log_of("mustcall.engine")


class PanelProgress:
    """Passes events on to the one who wants to see them."""

    def __init__(self, on_event: OnEvent | None) -> None:
        self._on_event = on_event
        self.round = 1

    def hook(self, name: str) -> Hook:
        """Return what passes an agent's events on under a member's name."""

        async def passed(event: RunEvent) -> None:
            await self.tell(RoleProgress(name, self.round, event))

        return passed

    async def tell(self, event: CoordinateEvent) -> None:
        """Pass an event on."""
        if self._on_event is None:
            return
        try:
            waiting = self._on_event(event)
            if isawaitable(waiting):
                await waiting
        except Exception as error:  # the user's own code
            _logger.warning("the callback for progress failed: %s", type(error).__name__)
            _logger.debug("the callback", exc_info=True)


class PanelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one coordinated answer."""

    question: str
    session: str
    rounds: int
    quorum: int
    hops: int
    worker_tools: WorkerTools | None = None
    #: The name of a durable run.
    run_id: str | None = None


class _Round(msgspec.Struct, frozen=True):
    """A complete round."""

    proposal: Proposal
    critiques: tuple[tuple[str, Critique], ...]

    @property
    def settled(self) -> bool:
        """Whether there is nothing left to debate."""
        return all(critique.stance == "agree" for _, critique in self.critiques)


class Panel:
    """The members of one coordinated answer. `result` can be asked for at any time."""

    def __init__(
        self,
        settings: PanelSettings,
        proposer: Member,
        critics: Sequence[Member],
        synthesizer: Member,
        progress: PanelProgress,
    ) -> None:
        self._settings = settings
        self._proposer = proposer
        self._critics = tuple(critics)
        self._synthesizer = synthesizer
        self._progress = progress
        self._runs: list[RoleRun] = []
        self._last: _Round | None = None
        self._rounds = 0
        self._synthesis: Synthesis | None = None
        self._error: MustcallError | None = None

    def result(self) -> CoordinateResult:
        """Return what there is."""
        last = self._last
        return CoordinateResult(
            answer=None if self._synthesis is None else self._synthesis.answer,
            session=self._settings.session,
            roles=tuple(self._runs),
            rounds=self._rounds,
            synthesis=self._synthesis,
            proposal=None if last is None else last.proposal,
            critiques=() if last is None else tuple(critique for _, critique in last.critiques),
            worker_tools=self._settings.worker_tools,
            error=None if self._error is None else self._error.info(),
        )

    async def hold(self) -> CoordinateResult:
        """Get the answer; raise `RoleFailed` or `QuorumMissed` where there is none."""
        try:
            await self._debate()
            await self._conclude()
        except MustcallError as error:
            self._error = error
            raise
        return self.result()

    async def _debate(self) -> None:
        for number in range(1, self._settings.rounds + 1):
            self._progress.round = number
            try:
                self._last = await self._round(number)
            except (RoleFailed, QuorumMissed):
                if self._last is None:
                    raise
                return
            self._rounds = number
            if self._last.settled:
                return

    async def _round(self, number: int) -> _Round:
        question, last = self._settings.question, self._last
        critiques = () if last is None else last.critiques
        proposed = await self._ask(
            self._proposer, ask_proposer(question, None if last is None else last.proposal, critiques), number
        )
        if not isinstance(proposed.output, Proposal):
            raise self._failed(proposed)
        prompt = ask_critic(question, proposed.output)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._ask(critic, prompt, number)) for critic in self._critics]
        except BaseExceptionGroup as errors:  # another process is at one of them
            raise errors.exceptions[0] from None
        said = [task.result() for task in tasks]
        heard = tuple((run.name, run.output) for run in said if isinstance(run.output, Critique))
        if len(heard) < self._settings.quorum:
            raise self._missed(said, len(heard))
        return _Round(proposed.output, heard)

    async def _conclude(self) -> None:
        last = self._last
        assert last is not None, "a first round that is not complete has raised"
        prompt = ask_synthesizer(self._settings.question, last.proposal, last.critiques)
        run = await self._ask(self._synthesizer, prompt, self._progress.round)
        if not isinstance(run.output, Synthesis):
            raise self._failed(run)
        self._synthesis = run.output

    async def _ask(self, member: Member, prompt: str, number: int) -> RoleRun:
        await self._progress.tell(RoleStarted(member.role, member.name, member.agent.model, number))
        run = await member.work(prompt, self._settings.hops, number, self._settings.run_id)
        self._runs.append(run)
        await self._progress.tell(RoleFinished(run))
        return run

    def _failed(self, run: RoleRun) -> RoleFailed:
        assert run.error is not None, "a role without an output has an error"
        return RoleFailed(
            f"the {run.name} ({run.model}) gave no usable answer: {run.error.message}",
            details={"session": self._settings.session, "role": run.name, "error": _brief(run.error)},
        )

    def _missed(self, said: Sequence[RoleRun], heard: int) -> QuorumMissed:
        errors = {run.name: _brief(run.error) for run in said if run.error is not None}
        why = ", ".join(f"{name}: {error['code']}" for name, error in errors.items())
        return QuorumMissed(
            f"{heard} of {len(said)} critics gave a usable answer and {self._settings.quorum} are needed ({why}); "
            "lower `quorum`, or name other critics",
            details={"session": self._settings.session, "errors": errors},
        )


def _brief(error: ErrorInfo) -> dict[str, str]:
    return {"code": error.code, "message": error.message}
