"""Workers on one PostgreSQL: real processes, one of which is killed in the middle."""

import asyncio
import os
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mustcall import Agent
from mustcall.core.errors import ConfigError
from mustcall.engine.worker import Worker, postgres_worker
from mustcall.ledger import Ledger, RunStatus
from mustcall.testing import Call
from mustcall.testing.model import ScriptedModel
from support.postgres import postgres_server
from support.queues import Queue

SRC = Path(__file__).parents[3] / "src"
#: What every worker runs: three payments for each run, each of them seen by the witness.
AGENTS = textwrap.dedent(
    """
    import os, time
    from mustcall import Agent, tool
    from mustcall.testing import Call, Turn
    from mustcall.testing.model import ScriptedModel

    @tool
    def pay(key: str) -> str:
        "Pay."
        witness = os.open(os.environ["WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(witness, f"{key} {os.getpid()}\\n".encode())
        os.fsync(witness)
        time.sleep(0.2)
        return "paid"

    def reply(asked):
        messages = asked.body["messages"]
        done = sum(1 for message in messages if message.get("tool_calls"))
        key = f"{messages[0]['content']}.{done}"
        return Turn(Call("pay", {"key": key}, id=f"call_{done}")) if done < 3 else "All paid."

    def agent():
        return Agent(ScriptedModel(reply), tools=[pay], lease=3.0)
    """
)
RUNS = 8


@contextmanager
def worker(folder: Path, environment: dict[str, str]) -> Generator["subprocess.Popen[bytes]"]:
    """A worker as it is started from the command line."""
    command = [sys.executable, "-m", "mustcall", "worker", "agents:agent", "--concurrency", "2"]
    process = subprocess.Popen(command, cwd=folder, env=environment)  # noqa: S603  our own command
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def seen(witness: Path) -> list[list[str]]:
    """The payments that were made, each with its process."""
    return [line.split() for line in witness.read_text().splitlines()] if witness.exists() else []


async def test_the_runs_of_a_dead_worker_are_taken_over(tmp_path: Path) -> None:
    """Two workers, one killed at work: every run ends, nothing is paid twice, and what was in the dark is unknown."""
    url, witness = postgres_server().new_database(), tmp_path / "witness"
    (tmp_path / "agents.py").write_text(AGENTS)
    environment = {**os.environ, "PYTHONPATH": str(SRC), "DATABASE_URL": url, "WITNESS": str(witness)}
    environment.pop("MUSTCALL_LEDGER", None)
    mine = Agent(ScriptedModel([]), ledger=url)
    with worker(tmp_path, environment) as first, worker(tmp_path, environment) as second:
        for number in range(RUNS):
            await mine.submit(f"bill{number}", run_id=f"r{number}")
        pids = {str(first.pid), str(second.pid)}
        await until(lambda: {pid for _, pid in seen(witness)} == pids)
        first.kill()
        async with mine.runs.ledger() as ledger:
            await until_done(ledger)
        second.terminate()
        assert second.wait(180) == 0
    results = [await mine.resume(f"r{number}") for number in range(RUNS)]
    paid = Counter(key for key, _ in seen(witness))
    assert {result.text for result in results} == {"All paid."}
    assert set(paid.values()) == {1}
    for number, result in enumerate(results):
        for step, call in enumerate(result.calls):
            assert str(call.status) in ("ok", "unknown")
            assert call.status == "unknown" or paid[f"bill{number}.{step}"] == 1
    assert sum(len(result.unknown) for result in results) <= 2  # no more than it had under way


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something to be so."""
    end = time.monotonic() + 180
    while not holds():
        assert time.monotonic() < end, "it never came to be"
        await asyncio.sleep(0.05)


async def until_done(ledger: Ledger) -> None:
    """Wait for every run to be over."""
    end = time.monotonic() + 180
    while any(run.status is not RunStatus.DONE for run in await ledger.runs()):
        assert time.monotonic() < end, [str(run.status) for run in await ledger.runs()]
        await asyncio.sleep(0.1)


async def test_an_engine_may_repeat_itself(tmp_path: Path) -> None:
    """Correctness does not depend on the engine: a task that is given out twice is carried out once."""
    model = ScriptedModel(["Done."] * 3)
    agent = Agent(model, ledger=str(tmp_path / "ledger.db"), lease=0.5)
    queue = Queue()
    for number in range(3):
        await agent.submit("Go.", run_id=f"r{number}")
    working = asyncio.create_task(Worker(agent, queue, beat=0.02).work())
    async with agent.runs.ledger() as ledger:
        await until_done(ledger)
    working.cancel()
    await asyncio.wait({working})
    assert len(model.requests) == 3
    assert queue.closed


async def test_a_worker_that_stops_leaves_its_runs_to_the_others(tmp_path: Path) -> None:
    """Stopped in the middle, a worker puts its runs back into the queue."""
    started = asyncio.Event()

    async def hang() -> str:
        """Hang."""
        started.set()
        await asyncio.Event().wait()
        return ""

    agent = Agent(ScriptedModel([Call("hang")]), tools=[hang], ledger=str(tmp_path / "ledger.db"))
    await agent.submit("Go.", run_id="r")
    working = asyncio.create_task(Worker(agent, Queue(), beat=0.02).work())
    await started.wait()
    working.cancel()
    await asyncio.wait({working})
    assert (await agent.runs.find("r")).status is RunStatus.QUEUED


def test_workers_need_a_database_they_can_share(tmp_path: Path) -> None:
    """A file of one machine is refused, with the fix."""
    with pytest.raises(ConfigError, match="set DATABASE_URL=postgresql"):
        postgres_worker(Agent(ScriptedModel([]), ledger=str(tmp_path / "ledger.db")))
    with pytest.raises(ConfigError, match="concurrency must be 1 or more"):
        Worker(Agent(ScriptedModel([])), Queue(), concurrency=0)
