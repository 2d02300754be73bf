"""A coordinated answer that is interrupted goes on with the roles that are done."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from mustcall import CoordinateResult, coordinate, tool
from mustcall.core.errors import RoleFailed, RunBusy
from mustcall.ledger import open_ledger
from mustcall.testing import Call, Fail
from mustcall.testing.model import Line, ScriptedModel

PROPOSAL = '{"answer":"330 m"}'
REVISE = '{"stance":"revise","problems":["no source"]}'
FINAL = '{"answer":"It is 330 metres high."}'


async def ask(
    place: str, proposer: list[Line], critics: list[list[Line]], synthesizer: list[Line]
) -> tuple[CoordinateResult, list[int]]:
    """Answer with scripted models; return the result and how often each was asked."""
    models = [ScriptedModel(proposer), *map(ScriptedModel, critics), ScriptedModel(synthesizer)]

    @tool
    async def look(up: str) -> str:
        """Look something up."""
        return f"{up}: 330"

    result = await coordinate(
        "How high?",
        proposer=models[0],
        critics=models[1:-1],
        synthesizer=models[-1],
        worker_tools=[look],
        run_id="q1",
        ledger=place,
    )
    return result, [len(model.requests) for model in models]


async def test_roles_that_are_done_are_not_asked_again(tmp_path: Path) -> None:
    """The synthesizer was away: proposer and critics keep what they said, each in a run of its own."""
    place = str(tmp_path / "ledger.db")
    looks: list[Line] = [Call("look", {"up": "tower"}), PROPOSAL]
    with pytest.raises(RoleFailed, match="synthesizer"):
        await ask(place, looks, [[REVISE], [REVISE]], [Fail(401, "no key")])
    result, asked = await ask(place, [], [[], []], [FINAL])
    assert (result.answer, asked) == ("It is 330 metres high.", [0, 0, 0, 1])
    assert [str(call.status) for call in result.inner_tool_calls["proposer"]] == ["ok"]
    async with open_ledger(place) as ledger:
        names = {run.id for run in await ledger.runs()}
    assert names == {"q1/proposer/1", "q1/critic_1/1", "q1/critic_2/1", "q1/synthesizer/1"}


async def test_a_complete_answer_comes_back_without_a_call(tmp_path: Path) -> None:
    """The same name again: the same answer, and nobody is asked."""
    place = str(tmp_path / "ledger.db")
    first, _ = await ask(place, [PROPOSAL], [[REVISE]], [FINAL])
    again, asked = await ask(place, [], [[]], [])
    assert asked == [0, 0, 0]
    assert (again.synthesis, again.critiques, again.session) == (first.synthesis, first.critiques, first.session)
    assert msgspec.json.encode(again.usage) == msgspec.json.encode(first.usage)


async def test_two_processes_do_not_answer_at_once(tmp_path: Path) -> None:
    """A role that somebody else is at is not taken from them."""
    place, started = str(tmp_path / "ledger.db"), asyncio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        started.set()
        await asyncio.Event().wait()
        return ""

    async def answer(proposer: list[Line]) -> CoordinateResult:
        return await coordinate(
            "How high?",
            proposer=ScriptedModel(proposer),
            critics=[ScriptedModel([REVISE])],
            synthesizer=ScriptedModel([FINAL]),
            worker_tools=[hang],
            run_id="q1",
            ledger=place,
        )

    first = asyncio.create_task(answer([Call("hang"), PROPOSAL]))
    await started.wait()
    with pytest.raises(RunBusy):
        await answer([PROPOSAL])
    first.cancel()
    await asyncio.wait({first})
    result = await answer([PROPOSAL])
    assert result.answer is not None
    assert [str(call.status) for call in result.inner_tool_calls["proposer"]] == ["unknown"]
