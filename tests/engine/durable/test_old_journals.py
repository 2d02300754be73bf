"""Journals written before results and calls had types are read as ever: runs go on, and ended ones tell their result.

`journals_of_0_1.json` was written by the sources before that change: two runs interrupted after their first call, one
of them with a structured answer, and one that had ended.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mustcall import Agent, tool
from mustcall.ledger import NewEvent, RunEnd, RunStatus, open_ledger
from mustcall.testing import ScriptedModel

JOURNALS: dict[str, Any] = json.loads(Path(__file__).with_name("journals_of_0_1.json").read_text(encoding="utf-8"))


@dataclass
class Report:  # noqa: D101  a docstring would be part of the schema that was asked for
    city: str
    degrees: int


@tool
def look(city: str) -> str:
    """Look."""
    raise AssertionError(f"it was run before, for {city}")


@pytest.fixture
async def place(tmp_path: Path) -> str:
    """A ledger with the journals in it."""
    where = str(tmp_path / "runs.db")
    async with open_ledger(where) as ledger:
        for name, journal in JOURNALS.items():
            data = (journal["data"] or "").encode()
            claim = await ledger.start_run(name, data, owner="before", lease=30.0, kind="agent")
            events = [NewEvent(**{**event, "data": event["data"].encode()}) for event in journal["events"]]
            await ledger.append(name, claim.run.fence, events)
            outcome = None if journal["outcome"] is None else journal["outcome"].encode()
            end = RunEnd(status=RunStatus(journal["status"]), outcome=outcome)
            await ledger.end_run(name, claim.run.fence, end)
    return where


async def test_a_run_goes_on(place: str) -> None:
    """By its name with the same question, and by `resume`: its call is not made again, and no field is missing."""
    model = ScriptedModel(["Sunny."])
    result = await Agent(model, tools=[look], ledger=place).run("Go", run_id="plain")
    assert (result.text, [call.call.arguments for call in result.calls]) == ("Sunny.", [{"city": "Oslo"}])
    assert len(model.requests) == 1


async def test_a_structured_run_goes_on(place: str) -> None:
    """Its answer is of the agent's type."""
    model = ScriptedModel(['{"city": "Oslo", "degrees": 21}'])
    result = await Agent(model, tools=[look], output=Report, ledger=place).resume("typed")
    assert (result.output, len(result.calls)) == (Report("Oslo", 21), 1)


async def test_a_run_that_had_ended(place: str) -> None:
    """It tells its answer without asking a model, by the question it was asked."""
    model = ScriptedModel()
    agent = Agent(model, ledger=place, output=Report)
    for result in (await agent.run("Done", run_id="done"), await agent.resume("done")):
        assert result.output == Report("Rome", 3)
    assert model.requests == []
