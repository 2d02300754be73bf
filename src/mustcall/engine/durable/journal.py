"""The journal of one run: what is written when, so that a crash at any moment loses nothing and repeats nothing.

A tool turn takes two commits: the model's turn with the intents of the calls that follow from it, and the results. A
model's turn in the middle of a step is held back and written before anything else is asked of a model; where what
follows from it is written at once, it is not written at all. The last turn is written with the end of the run.
"""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from mustcall.core.errors import BreakerOpen, BudgetSpent, LedgerError, MustcallError, UpstreamError, UpstreamRejected
from mustcall.engine.answers.answering import Answering
from mustcall.engine.durable.documents import Intent, encode, lean_moment, lean_taken, outcome_of, result_from
from mustcall.engine.durable.folding import (
    INTENT,
    MODEL,
    RESULT,
    TAKEN,
    FoldedJournal,
    call_path,
    step_path,
    taken_path,
)
from mustcall.engine.durable.holding import Hold
from mustcall.engine.run_records.checkpoints import Checkpoint, ModelTurn
from mustcall.engine.run_records.results import RunResult
from mustcall.engine.tooling.running import Executed
from mustcall.ledger import NewEvent, RunEnd, RunStatus
from mustcall.telemetry.logs import log_of

__all__ = ["RunJournal"]

_logger = log_of("mustcall.runs")

#: What an upstream answers to a request that will never be right.
_HOPELESS = frozenset({400, 404, 413, 422})


class _Held(NamedTuple):
    """An event that is not written yet."""

    step: str
    kind: str
    value: Checkpoint | ModelTurn


class RunJournal:
    """Keeps one run (`agent.moments.Keeper`). `asked` is the digest of what it was started with.

    `released` is how a run is left that can be gone on with without anybody having to look at it.
    """

    def __init__(
        self,
        hold: Hold,
        folded: FoldedJournal,
        *,
        asked: str,
        answering: Answering | None = None,
        prefix: str = "",
        released: RunStatus = RunStatus.WAITING,
    ) -> None:
        self._hold = hold
        self._asked = asked
        self._answering = answering
        self._prefix = prefix
        self._released = released
        self._taken = folded.taken
        self._attempts = dict(folded.attempts)
        moments = folded.recovered.moments
        #: The last step that has a moment, and the step that is on with the turns taken in it.
        self._last = moments[-1].standing.number if moments else 0
        self._calls = moments[-1].pending if moments else ()
        self._number, self._turn = 0, 0
        self._held: list[_Held] = []
        #: Results that are being written.
        self._telling: list[NewEvent] = []
        #: The last write of all, once it is under way.
        self._end: tuple[list[NewEvent], RunEnd] | None = None
        self._intended: set[str] = set()
        #: When the intents that were written with their step were.
        self._intended_at = 0.0

    @property
    def run_id(self) -> str:
        """The run's name."""
        return self._hold.run_id

    def recall(self, number: int) -> ModelTurn | None:
        """Return the next model's turn of a step, if it was written before."""
        self._turn = self._turn + 1 if number == self._number else 0
        self._number = number
        return self._taken.get(taken_path(self._prefix, number, self._turn))

    async def before_model(self) -> None:
        """Write what is held."""
        if self._held:
            await self._hold.write([_event(*held) for held in self._held])
            self._held.clear()

    def took(self, taken: ModelTurn) -> None:
        """Hold a model's turn."""
        self._held.append(_Held(taken_path(self._prefix, self._number, self._turn), TAKEN, taken))

    def owes(self, number: int) -> bool:
        """Tell whether a step has no moment yet."""
        return number > self._last

    def mark(self, moment: Checkpoint) -> None:
        """Hold a step that made no calls; the turns in it go with it."""
        self._held = [held for held in self._held if held.kind != TAKEN]
        self._held.append(_Held(step_path(self._prefix, moment.standing.number), MODEL, moment))
        self._last = moment.standing.number

    async def intend(self, moment: Checkpoint, at_once: Sequence[int]) -> None:
        """Write a step that makes calls, with its intents, in one commit."""
        self.mark(moment)
        self._calls = moment.pending
        self._intended_at = time.monotonic()
        await self._hold.write([*(_event(*held) for held in self._held), *map(self._intent, at_once)])
        self._held.clear()

    async def begin(self, index: int) -> None:
        """Write a call's intent if it is not written yet; one that was written a while ago is asked about first."""
        if self._path(index) in self._intended:
            await self._hold.ensure(since=self._intended_at)
        else:
            await self._hold.write([self._intent(index)])

    async def finish(self, index: int, executed: Executed) -> None:
        """Write what became of a call."""
        path = self._path(index)
        attempt = max(0, self._attempts.get(path, 0) - 1)
        result = NewEvent(step=path, kind=RESULT, data=encode(executed), attempt=attempt)
        self._telling.append(result)
        await self._hold.write([result])
        self._telling.remove(result)

    async def end(self, moment: Checkpoint, result: RunResult[Any]) -> RunResult[Any]:
        """Write the last turn, the result and the end in one commit."""
        data = outcome_of(self._asked, result, self._answering)
        await self._conclude(moment, RunEnd(status=RunStatus.DONE, outcome=data))
        return result_from(data, self._answering, self.run_id)

    async def fail(self, moment: Checkpoint, result: RunResult[Any], error: MustcallError) -> None:
        """Write the end of a run that failed; one that failed for others' sake waits and can be gone on with."""
        if isinstance(error, LedgerError):
            return  # what could not be written cannot be written now; the lease runs out by itself
        try:
            if _may_pass(error):
                await self._let_go(RunStatus.WAITING if _waits_for_somebody(error) else self._released)
            else:
                data = outcome_of(self._asked, result, self._answering)
                await self._conclude(moment, RunEnd(status=RunStatus.FAILED, outcome=data))
        except LedgerError as lost:
            _logger.warning("recording the end of run %s failed: %s", self.run_id, lost.message)

    async def leave(self) -> None:
        """Let go of a run: whoever wants to may go on with it. One that was about to end ends."""
        try:
            if self._end is not None:
                await self._hold.write(*self._end, again=True)
            else:
                await self._let_go(self._released)
        except LedgerError as lost:
            _logger.info("releasing run %s failed: %s", self.run_id, lost.message)

    async def _let_go(self, status: RunStatus) -> None:
        """Write what is not known to be written: who is interrupted in a write does not know what came of it."""
        events = [*(_event(*held) for held in self._held), *self._telling]
        await self._hold.write(events, RunEnd(status=status), again=True)

    async def _conclude(self, moment: Checkpoint, end: RunEnd) -> None:
        """Write what is held, the last turn and the end."""
        if self.owes(moment.standing.number):
            self.mark(moment)
        self._end = [_event(*held) for held in self._held], end
        await self._hold.write(*self._end)

    def _path(self, index: int) -> str:
        return call_path(self._prefix, self._last, index)

    def _intent(self, index: int) -> NewEvent:
        path, call = self._path(index), self._calls[index]
        attempt = self._attempts.get(path, 0)
        self._attempts[path] = attempt + 1
        self._intended.add(path)
        return NewEvent(step=path, kind=INTENT, data=encode(Intent(name=call.name, call_id=call.id)), attempt=attempt)


def _event(step: str, kind: str, value: Checkpoint | ModelTurn) -> NewEvent:
    lean = lean_moment(value) if isinstance(value, Checkpoint) else lean_taken(value)
    return NewEvent(step=step, kind=kind, data=encode(lean))


def _waits_for_somebody(error: MustcallError) -> bool:
    """Tell whether a failure that may pass does not pass by itself: money that is spent."""
    return isinstance(error, BudgetSpent) and not (error.details or {}).get("transient")


def _may_pass(error: MustcallError) -> bool:
    """Tell whether a failure is nobody's last word: the upstream was down, the money was spent."""
    if isinstance(error, UpstreamRejected):
        return error.info().status not in _HOPELESS
    return error.retryable or isinstance(error, UpstreamError | BreakerOpen | BudgetSpent)
