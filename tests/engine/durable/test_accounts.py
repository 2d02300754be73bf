"""What durable runs cost: accounts that outlive the process, as the runs do."""

import asyncio

import pytest

from mustcall import Agent, tool
from mustcall.core.errors import BudgetSpent
from mustcall.engine import worker as working
from mustcall.engine.spending import accounts
from mustcall.engine.spending.budget_account import Budget
from mustcall.engine.worker import Worker
from mustcall.ledger import ContentsKept, RunStatus, open_ledger
from mustcall.policy.limits.budget import Caps, Charge, ChargeKey
from mustcall.testing import Call
from mustcall.testing.model import Line, ScriptedModel
from support.queues import Queue


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left in this process's memory of what was spent before."""
    monkeypatch.setattr(accounts, "_shared", None)


async def test_a_session_s_cap_outlives_the_process(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is gone on with elsewhere finds what its session has spent; nothing more is spent."""
    started = asyncio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        started.set()
        await asyncio.Event().wait()
        return ""

    def made(*script: Line) -> Agent:
        return Agent(ScriptedModel(script), tools=[hang], ledger=place, budget=Budget(caps=Caps(calls=1)), session="s")

    running = asyncio.create_task(made(Call("hang")).run("Go.", run_id="r"))
    await started.wait()
    running.cancel()
    await asyncio.wait({running})
    monkeypatch.setattr(accounts, "_shared", None)
    again = made("Done.")
    with pytest.raises(BudgetSpent, match="1"):
        await again.resume("r")
    assert (await again.runs.find("r")).status is RunStatus.WAITING
    with pytest.raises(BudgetSpent):
        await made("Done.").run("Another question, and nothing durable.")
    async with open_ledger(place) as ledger:
        assert (await ledger.spending("s")).spent.calls == 1
        exported = b"".join([line async for line in ledger.export(ContentsKept.FULL)])
    assert b'"r#1"' in exported  # the run and its fence: what each process paid is told apart


async def test_a_session_without_a_ledger_stays_in_memory() -> None:
    """Nobody who names no ledger gets a file."""
    one = Agent(ScriptedModel(["Done.", "No."]), budget=Caps(calls=1), session="s")
    assert (await one.run("Go.")).text == "Done."
    with pytest.raises(BudgetSpent):
        await one.run("Go.")
    assert (await accounts.shared_meter().spending("s")).spent.calls == 1


async def test_a_worker_writes_off_what_the_dead_had_reserved(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Money that was reserved and never settled counts as spent after a while, whoever died."""
    monkeypatch.setattr(working, "_WRITE_OFF", -1.0)
    async with open_ledger(place) as ledger:
        await ledger.reserve("s", ChargeKey("r#1", "1", 1), Charge(calls=1), Caps())
        task = asyncio.create_task(Worker(Agent(ScriptedModel([]), ledger=place), Queue(), beat=0.02).work())
        async with asyncio.timeout(180):
            while (await ledger.spending("s")).spent.calls == 0:  # noqa: ASYNC110  the worker does it
                await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.wait({task})
        account = await ledger.spending("s")
    assert (account.spent.calls, account.running) == (1, 0)
