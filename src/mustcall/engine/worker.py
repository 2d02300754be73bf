"""A worker: takes runs that wait in the ledger, and those of workers that died, and carries each to its end.

Which worker gets which run is the engine's business. Here is what a task means (a run, and the fence it had when it was
handed out), when a run is given up, and how a worker that is stopped leaves its runs to the others. The ledger alone
says what is left to do: a run that is not over is in its queue, or held by somebody, or its lease is over.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, TypeVar

from mustcall.core.errors import (
    BreakerOpen,
    ConfigError,
    FenceLost,
    LedgerError,
    LedgerFull,
    LedgerUnavailable,
    MustcallError,
    RunBusy,
    UnknownRun,
    UpstreamError,
)
from mustcall.engine.agent.agent import Agent
from mustcall.engine.durable.engines import TaskQueue
from mustcall.engine.durable.owners import is_gone, is_worker, new_owner
from mustcall.engine.durable.queueing import DbosEngine, Task
from mustcall.engine.durable.runs import KIND
from mustcall.ledger import Ledger, RunStatus, StoredRun, default_place
from mustcall.telemetry.logs import log_of

__all__ = ["Worker", "postgres_worker"]

_logger = log_of("mustcall.runs")

#: Seconds before a run that failed and is not over is tried again. What does not pass by itself is tried so often.
_PAUSES = (1.0, 5.0, 15.0, 60.0)
#: How many runs are looked at in one go, and how many of the oldest are handed to the engine more than once.
_MOST = 10_000
_OLDEST = 100
#: Seconds after which money that was reserved and never settled counts as spent, and between two looks at it.
_WRITE_OFF = 3600.0
_SWEEP = 600.0
_T = TypeVar("_T")
_POSTGRES = ("postgresql://", "postgres://")


class Worker:
    """Carries out an agent's queued runs, `concurrency` at a time."""

    def __init__(self, agent: Agent[Any, Any], engine: TaskQueue, *, concurrency: int = 4, beat: float = 0.5) -> None:
        if concurrency < 1:
            raise ConfigError(f"concurrency must be 1 or more, got {concurrency}")
        self._agent = agent
        self._engine = engine
        self._concurrency = concurrency
        self._beat = beat
        self._working: set[asyncio.Task[None]] = set()
        #: The fence of each run that the engine was given, and when.
        self._fed: dict[str, tuple[int, float]] = {}
        #: How often each run failed that is not over, and when it may be tried again.
        self._resting: dict[str, tuple[int, float]] = {}
        #: The runs that are being carried out here.
        self._driven: set[str] = set()
        self.finished = 0
        agent.runs.released = RunStatus.QUEUED  # a worker that stops leaves its runs to the others

    async def work(self) -> None:
        """Work until cancelled; runs under way are then left to others."""
        async with self._agent, self._agent.runs.ledger() as ledger, asyncio.TaskGroup() as group:
            chores = [group.create_task(self._feed(ledger)), group.create_task(_write_off(ledger))]
            try:
                await self._engine.serve(self._carry_out, self._concurrency)
            finally:
                for chore in chores:
                    chore.cancel()
                for task in tuple(self._working):
                    task.cancel()
                if self._working:
                    await asyncio.wait(set(self._working))
                await self._engine.close()

    async def _feed(self, ledger: Ledger) -> None:
        """Hand the engine what waits in the ledger, and what workers held whose lease is over.

        Runs that others began are not looked at: they may be of another agent.
        """
        while True:
            try:
                queued = await ledger.runs(status=RunStatus.QUEUED, kind=KIND, most=_MOST)
                expired = await ledger.expired_runs(kind=KIND, most=_MOST)
                left = [run for run in expired if is_worker(run.owner or "")]
                for place, run in enumerate((*left, *reversed(queued))):
                    await self._submit(run, old=place < _OLDEST)
            except Exception as error:  # noqa: BLE001  whoever is away is asked again
                _logger.debug("filling the queue failed: %s", type(error).__name__)
            await asyncio.sleep(self._beat)

    async def _submit(self, run: StoredRun, *, old: bool) -> None:
        """Hand a run to the engine; what it has already it does not take twice.

        The oldest are handed over again after a while: whoever took them may have stopped before it had them.
        """
        now = time.monotonic()
        fence, at = self._fed.get(run.id, (-1, 0.0))
        if self._rests(run.id) or (fence == run.fence and not (old and now - at > self._agent.runs.lease)):
            return
        await self._engine.submit(task_of(run.id, run.fence))
        _remember(self._fed, run.id, (run.fence, now))

    async def _carry_out(self, task: str) -> None:
        current = asyncio.current_task()
        assert current is not None, "tasks are carried out by tasks"
        self._working.add(current)
        run_id = run_of(task)
        try:
            if run_id in self._driven:  # an engine may hand a run out twice
                return
            self._driven.add(run_id)
            try:
                if not self._rests(run_id):
                    await self._drive(run_id)
            finally:
                self._driven.discard(run_id)
                self._fed.pop(run_id, None)
        finally:
            self._working.discard(current)

    async def _drive(self, run_id: str) -> None:
        """Go on with a run; one that fails and is not over rests, and is handed out again after that.

        One that waits for somebody is left alone, although it may have been handed out before it did.
        """
        try:
            if (await self._agent.runs.find(run_id)).status is RunStatus.WAITING:
                return
            result = await self._agent.resume(run_id)
        except (UnknownRun, RunBusy, FenceLost):  # somebody is at it; if they die, their lease will be over
            return
        except Exception as error:  # noqa: BLE001  the agent's own code, too
            await self._failed(run_id, error)
            return
        _logger.info("run %s finished: %s", run_id, result.stopped)
        self._over(run_id)

    def _over(self, run_id: str) -> None:
        self._resting.pop(run_id, None)
        self.finished += 1

    def _rests(self, run_id: str) -> bool:
        return run_id in self._resting and time.monotonic() < self._resting[run_id][1]

    async def _failed(self, run_id: str, error: Exception) -> None:
        """Decide what becomes of a run that failed: it is over, it is tried again later, or somebody has to look."""
        said = error.message if isinstance(error, MustcallError) else type(error).__name__
        tries = self._resting.get(run_id, (0, 0.0))[0]
        _remember(self._resting, run_id, (tries + 1, time.monotonic() + _PAUSES[min(tries, len(_PAUSES) - 1)]))
        try:
            status = (await self._agent.runs.find(run_id)).status
            if status.ended:
                _logger.warning("run %s failed: %s", run_id, said)
                self._over(run_id)
                return
            if status is not RunStatus.WAITING and tries >= len(_PAUSES) and not _passes(error):
                await self._agent.runs.put(run_id, status := RunStatus.WAITING)
        except LedgerError:  # it is back, or its lease is over, when the ledger is
            return
        if status is RunStatus.WAITING:
            _logger.warning("run %s needs an operator: %s", run_id, said)
            self._resting.pop(run_id, None)
        else:
            _logger.warning("run %s will be retried: %s", run_id, said)
        _logger.debug("run %s", run_id, exc_info=error)


async def _write_off(ledger: Ledger) -> None:
    """Count as spent what processes that died had reserved, again and again until cancelled."""
    while True:
        try:
            await ledger.write_off(age=_WRITE_OFF)
        except LedgerError as error:
            _logger.debug("releasing reserved budget failed: %s", error.message)
        await asyncio.sleep(_SWEEP)


def _passes(error: Exception) -> bool:
    """Tell whether a failure passes by itself, however long it takes: a service is away."""
    return isinstance(error, UpstreamError | BreakerOpen | LedgerUnavailable | LedgerFull) or (
        isinstance(error, MustcallError) and error.retryable
    )


def _remember(kept: dict[str, _T], name: str, value: _T) -> None:
    """Keep a value by its name, the newest last, and not without end."""
    kept.pop(name, None)
    kept[name] = value
    if len(kept) > 2 * _MOST:
        del kept[next(iter(kept))]


def postgres_worker(agent: Agent[Any, Any], place: str | None = None, *, concurrency: int = 4) -> Worker:
    """Return a worker on DBOS, in the database the agent's runs are in; raise `ConfigError` where that is none."""
    url = place or agent.runs.place
    url = url if isinstance(url, str) else default_place()
    if not url.startswith(_POSTGRES):
        raise ConfigError(
            f"workers share a PostgreSQL: set DATABASE_URL=postgresql://…, or --ledger; {url} is a file of one machine"
        )

    async def deserted(tasks: Sequence[Task]) -> list[str]:
        async with agent.runs.ledger() as ledger:
            expired = {run.id for run in await ledger.expired_runs(kind=KIND, most=_MOST)}
            return [
                task
                for task, age in tasks
                if run_of(task) in expired or await _is_deserted(ledger, run_of(task), age, agent.runs.lease)
            ]

    engine = DbosEngine(url, name=new_owner(), deserted=deserted, beat=min(1.0, agent.runs.lease / 3))
    return Worker(agent, engine, concurrency=concurrency)


async def _is_deserted(ledger: Ledger, run_id: str, age: float, lease: float) -> bool:
    """Tell whether nobody works on a run that another process took `age` seconds ago."""
    run = await ledger.get_run(run_id)
    if run is not None and run.status is RunStatus.RUNNING and run.owner is not None:
        return is_gone(run.owner)
    return age > lease


def task_of(run_id: str, fence: int) -> str:
    """Return the task of a queued run: one that is queued again is another one."""
    return f"{run_id}@{fence}"


def run_of(task: str) -> str:
    """Return the run of a task."""
    return task.rpartition("@")[0]
