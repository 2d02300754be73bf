"""What durable runs leave behind: a result that can be read, and no more of what was said than is wanted."""

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from mustcall import Agent, Stopped, tool
from mustcall.core.errors import ConfigError, FenceLost, InvalidRequest
from mustcall.ledger import open_ledger
from mustcall.testing import Call
from mustcall.testing.model import ScriptedModel


class Bill(BaseModel):
    """An answer whose fields have other names outside."""

    total: int = Field(alias="totalAmount")


@dataclass
class Total:
    """The same as a plain dataclass."""

    total: Annotated[int, Field(alias="totalAmount")]


@pytest.mark.parametrize(
    ("output", "said", "value"),
    [
        (Bill, '{"totalAmount": 3}', Bill(totalAmount=3)),
        (Total, '{"totalAmount": 3}', Total(3)),
        (list[Bill], '{"value": [{"totalAmount": 3}]}', [Bill(totalAmount=3)]),
        (list[Total], '{"value": [{"totalAmount": 3}]}', [Total(3)]),
        (Total | None, '{"value": {"totalAmount": 3}}', Total(3)),
    ],
)
async def test_an_answer_with_names_of_its_own_is_read_back(place: str, output: Any, said: str, value: Any) -> None:
    """A finished run's answer is stored by the names it was asked for with."""
    first = await Agent(ScriptedModel([said]), ledger=place).run("Go.", run_id="r", output=output)
    again = await Agent(ScriptedModel([]), ledger=place).resume("r", output=output)
    assert first.output == again.output == value


@pytest.mark.parametrize("way", ["option", "environment"])
async def test_an_agent_keeps_what_it_is_told_to(place: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 136: an agent's ledger, and so a worker's, keeps what the option or MUSTCALL_LEDGER_CONTENTS says."""
    settings: dict[str, Any] = {"contents": "none"} if way == "option" else {}
    if way == "environment":
        monkeypatch.setenv("MUSTCALL_LEDGER_CONTENTS", "none")
    one = Agent(ScriptedModel(["Done."]), ledger=place, **settings)
    await one.run("My secret.", run_id="r")
    assert (await one.runs.find("r")).data == b""
    async with open_ledger(place) as ledger:
        assert {event.data for event in await ledger.events("r")} == {b""}
    assert (await one.resume("r")).text == (await one.run("My secret.", run_id="r")).text == "Done."


@pytest.mark.parametrize("contents", ["full", "redacted", "none"])
async def test_a_cancelled_run_is_told_of_whatever_is_kept(place: str, contents: str) -> None:
    """Ended from outside, a run is cancelled whoever asks; its name still stands for its question."""
    started = asyncio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        started.set()
        await asyncio.Event().wait()
        return ""

    one = Agent(ScriptedModel([Call("hang")]), tools=[hang], ledger=place, contents=contents, lease=0.3)
    running = asyncio.create_task(one.run("Write to ann@example.com.", run_id="r"))
    await started.wait()
    async with one.runs.ledger() as ledger:
        assert await ledger.cancel_run("r") is not None
    with pytest.raises(FenceLost):
        await running
    assert (await one.resume("r")).stopped is Stopped.CANCELLED
    assert (await one.run("Write to ann@example.com.", run_id="r")).stopped is Stopped.CANCELLED
    if contents == "full":
        with pytest.raises(InvalidRequest):
            await one.run("Something else.", run_id="r")


async def test_what_contents_cannot_mean_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that is none of them is refused with those that are, and so is a second say over one ledger."""
    with pytest.raises(ConfigError, match="must be one of full, redacted, none, got 'some'"):
        await Agent(ScriptedModel([]), contents="some").resume("r")
    with pytest.raises(ConfigError, match="belongs to the ledger"):
        await Agent(ScriptedModel([]), ledger=open_ledger("x.db"), contents="none").resume("r")
    monkeypatch.setenv("MUSTCALL_LEDGER_CONTENTS", "some")
    with pytest.raises(ConfigError, match="MUSTCALL_LEDGER_CONTENTS must be one of"):
        open_ledger("x.db")
