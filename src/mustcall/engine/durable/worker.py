"""A worker: takes runs that wait in the ledger, and those of workers that died, and carries each to its end.

Which worker gets which run is the engine's business. Here is what a task means (a run, and the fence it had when it was
queued), when a run is given up, and how a worker that is stopped leaves its runs to the others.
"""

import asyncio
import logging
import time
from collections.abc import Sequence

from mustcall.core.errors import ConfigError, FenceLost, LedgerError, MustcallError, RunBusy, UnknownRun
from mustcall.engine.agent.agent import Agent
from mustcall.engine.durable.engines import Engine
from mustcall.engine.durable.owners import is_gone, new_owner
from mustcall.engine.durable.queueing import DbosEngine, Task
from mustcall.engine.durable.runs import KIND
from mustcall.ledger import Ledger, RunStatus, default_place

__all__ = ["Worker", "postgres_worker"]

_logger = logging.getLogger("mustcall.runs")

#: Seconds before a run that failed for others' sake is tried again, and how often.
_PAUSES = (1.0, 5.0, 15.0, 60.0)
_POSTGRES = ("postgresql://", "postgres://")


class Worker:
    """Carries out an agent's queued runs, `concurrency` at a time."""

    def __init__(self, agent: Agent, engine: Engine, *, concurrency: int = 4, beat: float = 0.5) -> None:
        if concurrency < 1:
            raise ConfigError(f"concurrency must be 1 or more, got {concurrency}")
        self._agent = agent
        self._engine = engine
        self._concurrency = concurrency
        self._beat = beat
        self._working: set[asyncio.Task[None]] = set()
        self.finished = 0
        agent.runs.released = RunStatus.QUEUED  # a worker that stops leaves its runs to the others

    async def work(self) -> None:
        """Work until cancelled; runs under way are then left to others."""
        async with self._agent, self._agent.runs.ledger() as ledger, asyncio.TaskGroup() as group:
            feeding = group.create_task(self._feed(ledger))
            try:
                await self._engine.serve(self._carry_out, self._concurrency)
            finally:
                feeding.cancel()
                for task in tuple(self._working):
                    task.cancel()
                if self._working:
                    await asyncio.wait(set(self._working))
                await self._engine.close()

    async def _feed(self, ledger: Ledger) -> None:
        """Hand the engine what waits in the ledger; what it has already it does not take twice."""
        fed: dict[str, None] = {}
        while True:
            try:
                for run in reversed(await ledger.runs(status=RunStatus.QUEUED, kind=KIND, most=10_000)):
                    task = task_of(run.id, run.fence)
                    if task not in fed:
                        await self._engine.submit(task)
                        fed[task] = None
                while len(fed) > 10_000:
                    del fed[next(iter(fed))]
            except Exception as error:  # noqa: BLE001  whoever is away is asked again
                _logger.debug("the queue could not be fed: %s", type(error).__name__)
            await asyncio.sleep(self._beat)

    async def _carry_out(self, task: str) -> None:
        current = asyncio.current_task()
        assert current is not None, "tasks are carried out by tasks"
        self._working.add(current)
        try:
            await self._drive(run_of(task))
        finally:
            self._working.discard(current)

    async def _drive(self, run_id: str) -> None:
        """Go on with a run until it has ended, or failed so often that somebody has to look at it."""
        tries = 0
        while True:
            try:
                result = await self._agent.resume(run_id)
            except UnknownRun:
                return
            except (RunBusy, FenceLost):  # somebody is at it; if they die, it is ours
                await asyncio.sleep(self._agent.runs.lease / 3)
                continue
            except MustcallError as error:
                if not isinstance(error, LedgerError) and (await self._agent.runs.find(run_id)).status.ended:
                    _logger.warning("the run %s failed: %s", run_id, error.message)
                    break
                if tries == len(_PAUSES):
                    _logger.warning("the run %s waits for somebody to look at it: %s", run_id, error.message)
                    return
                await asyncio.sleep(_PAUSES[tries])
                tries += 1
                continue
            _logger.info("the run %s is over: %s", run_id, result.stopped)
            break
        self.finished += 1


def postgres_worker(agent: Agent, place: str | None = None, *, concurrency: int = 4) -> Worker:
    """Return a worker on DBOS, in the database the agent's runs are in; raise `ConfigError` where that is none."""
    url = place or agent.runs.place
    url = url if isinstance(url, str) else default_place()
    if not url.startswith(_POSTGRES):
        raise ConfigError(
            f"workers share a PostgreSQL: set DATABASE_URL=postgresql://…, or --ledger; {url} is a file of one machine"
        )

    async def deserted(tasks: Sequence[Task]) -> list[str]:
        async with agent.runs.ledger() as ledger:
            return [task for task, age in tasks if await _is_deserted(ledger, run_of(task), age, agent.runs.lease)]

    engine = DbosEngine(url, name=new_owner(), deserted=deserted, beat=min(1.0, agent.runs.lease / 3))
    return Worker(agent, engine, concurrency=concurrency)


async def _is_deserted(ledger: Ledger, run_id: str, age: float, lease: float) -> bool:
    """Tell whether nobody works on a run that another process took `age` seconds ago."""
    run = await ledger.get_run(run_id)
    if run is not None and run.status is RunStatus.RUNNING and run.owner is not None:
        return is_gone(run.owner) or (run.lease_until or 0.0) < time.time()
    return age > lease


def task_of(run_id: str, fence: int) -> str:
    """Return the task of a queued run: one that is queued again is another one."""
    return f"{run_id}@{fence}"


def run_of(task: str) -> str:
    """Return the run of a task."""
    return task.rpartition("@")[0]
