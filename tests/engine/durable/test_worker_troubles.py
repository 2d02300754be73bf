"""Workers in trouble: runs that nobody holds any more, services that are away, and runs that fail again and again."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import dbos
import psycopg
import pytest

from mustcall import Agent, tool
from mustcall.core.errors import LedgerUnavailable
from mustcall.engine import worker as working
from mustcall.engine.durable.owners import is_worker
from mustcall.engine.durable.queueing import DbosEngine
from mustcall.engine.durable.runs import KIND
from mustcall.engine.worker import Worker, postgres_worker, task_of
from mustcall.ledger import Ledger, NewEvent, RunEnd, RunStatus, open_ledger
from mustcall.testing import Call, Fail
from mustcall.testing.model import ScriptedModel
from support.postgres import postgres_server
from support.queues import Queue


async def become(ledger: Ledger, run_id: str, status: RunStatus) -> None:
    """Wait for a run to be so."""
    end = time.monotonic() + 180
    while True:
        run = await ledger.get_run(run_id)
        if run is not None and run.status is status:
            return
        assert time.monotonic() < end, run
        await asyncio.sleep(0.02)


async def carried(agent: Agent, queue: Queue, run_id: str, status: RunStatus) -> None:
    """Let a worker work until a run is so."""
    task = asyncio.create_task(Worker(agent, queue, beat=0.01).work())
    async with agent.runs.ledger() as ledger:
        await become(ledger, run_id, status)
    task.cancel()
    await asyncio.wait({task})


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that a test can wait for."""
    monkeypatch.setattr(working, "_PAUSES", (0.01, 0.02, 0.03))


async def test_a_run_whose_lease_is_over_is_taken_over(place: str) -> None:
    """What a worker left as running is found by the database's clock, whichever engine knew of it."""
    agent = Agent(ScriptedModel(["Done."]), ledger=place, lease=0.3)
    await agent.submit("Go.", run_id="r")
    async with agent.runs.ledger() as ledger:
        assert await ledger.claim_run("r", owner="elsewhere/1/2/worker-3", lease=0.1) is not None
    await carried(agent, Queue(), "r", RunStatus.DONE)


async def test_a_run_that_no_worker_held_is_left_alone(place: str) -> None:
    """What a program of its own began may be of another agent, and is not a worker's to end."""
    agent = Agent(ScriptedModel(["Done."] * 2), ledger=place, lease=0.3)
    for name in ("r", "s"):
        await agent.submit("Go.", run_id=name)
    async with agent.runs.ledger() as ledger:
        assert await ledger.claim_run("r", owner="elsewhere/1/2/3", lease=-1.0) is not None
        assert await ledger.claim_run("s", owner="elsewhere/1/2/worker-3", lease=-1.0) is not None
    await carried(agent, Queue(), "s", RunStatus.DONE)
    assert (await agent.runs.find("r")).status is RunStatus.RUNNING


@pytest.mark.parametrize("worker", [True, False])
async def test_a_worker_claims_as_one(place: str, *, worker: bool) -> None:
    """Who holds a run says whether it is a worker."""
    owners: list[str] = []

    @tool
    async def look() -> str:
        """Look who holds the run."""
        owners.append((await agent.runs.find("r")).owner or "")
        return "ok"

    agent = Agent(ScriptedModel([Call("look"), "Done."]), tools=[look], ledger=place)
    await agent.submit("Go.", run_id="r")
    if worker:
        await carried(agent, Queue(), "r", RunStatus.DONE)
    else:
        await agent.resume("r")
    assert [is_worker(owner) for owner in owners] == [worker]


async def test_a_run_outlives_an_upstream_that_is_away_for_long(place: str) -> None:
    """More failures than there are pauses: the run stays in the queue and ends when the upstream is back."""
    model = ScriptedModel([*([Fail(401, "no such key")] * 12), "Done."])
    agent = Agent(model, ledger=place)
    await agent.submit("Go.", run_id="r")
    await carried(agent, Queue(), "r", RunStatus.DONE)
    assert len(model.requests) == 13


class Away(Ledger):
    """A ledger that is away for the first so many claims."""

    failures = 12

    async def start_run(self, run: str, data: bytes, **settings: Any) -> Any:
        """Claim, if it is there."""
        if self.failures:
            self.failures -= 1
            raise LedgerUnavailable("the ledger is away")
        return await super().start_run(run, data, **settings)


async def test_a_run_outlives_a_ledger_that_is_away_for_long(place: str) -> None:
    """A worker does not give a run up because the ledger was away."""
    async with Away(open_ledger(place).store) as ledger:
        agent = Agent(ScriptedModel(["Done."]), ledger=ledger)
        await agent.submit("Go.", run_id="r")
        await carried(agent, Queue(), "r", RunStatus.DONE)
        assert (ledger.failures, (await agent.resume("r")).text) == (0, "Done.")


async def test_a_run_that_fails_again_and_again_waits_for_somebody(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure of the program's own is tried so many times, with pauses, and then left for people."""
    agent = Agent(ScriptedModel([]), ledger=place)
    tries: list[float] = []

    async def broken(*_: object) -> None:
        tries.append(time.monotonic())
        raise RuntimeError("a programming error")

    monkeypatch.setattr(agent, "_drive", broken)
    await agent.submit("Go.", run_id="r")
    await carried(agent, Queue(), "r", RunStatus.WAITING)
    assert len(tries) == 4
    assert tries[3] - tries[2] >= 0.03


async def test_a_run_that_waits_is_not_gone_on_with_from_an_old_list(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of runs may be older than what became of one of them: what waits for somebody is left alone."""
    agent = Agent(ScriptedModel([]), ledger=place)
    tries: list[str] = []

    async def broken(*_: object) -> None:
        tries.append("tried")
        raise RuntimeError("a programming error")

    monkeypatch.setattr(agent, "_drive", broken)
    await agent.submit("Go.", run_id="r")
    queue = Queue()
    async with agent.runs.ledger() as ledger:
        (listed,) = await ledger.runs(status=RunStatus.QUEUED, kind=KIND, most=1)
        await agent.runs.put("r", RunStatus.WAITING)
        worker = Worker(agent, queue, beat=0.01)
        await worker._carry_out(task_of(listed.id, listed.fence))
    assert tries == []


async def test_a_worker_stopped_while_it_writes_leaves_its_run_to_the_next() -> None:
    """On DBOS: the write was there, its answer was not; the next worker carries the run out, and none is an error."""
    url = postgres_server().new_database()
    written = asyncio.Event()

    class Unheard(Ledger):
        """A ledger whose first answer does not come."""

        async def append(
            self, run: str, fence: int, events: Sequence[NewEvent], *, end: RunEnd | None = None, again: bool = False
        ) -> None:
            await super().append(run, fence, events, end=end, again=again)
            if not written.is_set():
                written.set()
                await asyncio.Event().wait()

    @tool
    async def pay(n: int) -> str:
        """Pay."""
        return str(n)

    async with Unheard(open_ledger(url).store) as ledger:
        first = Agent(ScriptedModel([Call("pay", {"n": 1})]), tools=[pay], ledger=ledger, lease=2.0)
        await first.submit("Go.", run_id="r")
        task = asyncio.create_task(postgres_worker(first, url).work())
        await written.wait()
        task.cancel()
        await asyncio.wait({task})
        second = Agent(ScriptedModel(["Done."]), tools=[pay], ledger=url, lease=2.0)
        task = asyncio.create_task(postgres_worker(second, url).work())
        await become(ledger, "r", RunStatus.DONE)
        task.cancel()
        await asyncio.wait({task})
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT status FROM dbos.workflow_status").fetchall()
    assert {status for (status,) in rows} <= {"SUCCESS", "PENDING"}


async def test_a_task_that_is_over_and_submitted_again_is_carried_out_again() -> None:
    """Whoever took a task may have stopped before it had the run: the ledger says that it is left to do."""

    async def deserted(_: Sequence[tuple[str, float]]) -> list[str]:
        return []

    engine = DbosEngine(postgres_server().new_database(), name="one", deserted=deserted, beat=0.1)
    done: asyncio.Queue[str] = asyncio.Queue()
    serving = asyncio.create_task(engine.serve(done.put, 2))
    tasks: list[str] = []
    end = time.monotonic() + 180
    while len(tasks) < 2 and time.monotonic() < end:
        with contextlib.suppress(Exception):  # until the tables are there
            await engine.submit("r@0")
        with contextlib.suppress(TimeoutError):
            tasks.append(await asyncio.wait_for(done.get(), 0.5))
    serving.cancel()
    await asyncio.wait({serving})
    await engine.close()
    assert tasks == ["r@0", "r@0"]


@pytest.mark.parametrize("method", ["submit", "cancel", "serve"])
async def test_closing_waits_for_calls_that_nobody_waits_for(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread goes on when its caller is cancelled; the connection that it holds is closed after it."""
    order: list[str] = []
    called, go_on = threading.Event(), threading.Event()

    class Client:
        """Waits in every call until it is let go."""

        def __init__(self, **_: Any) -> None:
            order.append("connected")

        def __getattr__(self, name: str) -> Callable[..., Any]:
            def call(*_: Any, **__: Any) -> list[Any]:
                called.set()
                assert go_on.wait(180)
                order.append(name)
                return []

            return call

        def destroy(self) -> None:
            order.append("destroyed")

    async def deserted(_: Sequence[tuple[str, float]]) -> list[str]:
        return []

    monkeypatch.setattr(dbos, "DBOSClient", Client)

    def launch(*_: Any) -> None: ...

    monkeypatch.setattr(DbosEngine, "_launch", launch)
    engine = DbosEngine("postgresql://unused", name="one", deserted=deserted, beat=0.0)
    calls = {"submit": engine.submit("r"), "cancel": engine.cancel("r"), "serve": engine.serve(_unused, 1)}
    task = asyncio.create_task(calls.pop(method))
    for other in calls.values():
        other.close()
    assert await asyncio.to_thread(called.wait, 30)
    task.cancel()
    await asyncio.wait({task})
    closing = asyncio.create_task(engine.close())
    await asyncio.sleep(0)
    assert order == ["connected"]
    go_on.set()
    await closing
    verb = {"submit": "enqueue", "cancel": "cancel_workflow", "serve": "list_workflows"}[method]
    assert order == ["connected", verb, "destroyed"]


async def test_a_launch_that_nobody_waits_for_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker stopped while DBOS starts leaves no DBOS behind."""
    begun, go_on = threading.Event(), threading.Event()
    stopped: list[dict[str, Any]] = []

    def launch(engine: DbosEngine, *_: Any) -> None:
        begun.set()
        assert go_on.wait(180)
        engine._launched = True

    async def deserted(_: Sequence[tuple[str, float]]) -> list[str]:
        return []

    monkeypatch.setattr(DbosEngine, "_launch", launch)

    def destroy(**options: Any) -> None:
        stopped.append(options)

    monkeypatch.setattr(dbos.DBOS, "destroy", destroy)
    engine = DbosEngine("postgresql://unused", name="one", deserted=deserted)
    task = asyncio.create_task(engine.serve(_unused, 1))
    assert await asyncio.to_thread(begun.wait, 30)
    task.cancel()
    await asyncio.wait({task})
    closing = asyncio.create_task(engine.close())
    await asyncio.sleep(0)
    go_on.set()
    await closing
    assert len(stopped) == 1


async def _unused(_: str) -> None:
    raise AssertionError("nothing is carried out")
