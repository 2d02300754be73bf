"""Durable runs that are cut off: a ledger that stops a run at a moment, and the world its tools act on."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from mustcall import Agent, FunctionTool, tool
from mustcall.ledger import Ledger, NewEvent, RunEnd, open_ledger
from mustcall.testing import Call, Turn
from mustcall.testing.model import Line, ScriptedModel
from support.agents import ask_body, offer

SENDS = Turn(Call("send", {"to": "a"}), Call("send", {"to": "b"}))


SEND_SCHEMA = {
    "type": "object",
    "properties": {"to": {"type": "string"}},
    "required": ["to"],
    "additionalProperties": False,
}


def sends(turns: list[dict[str, Any]], tools: Sequence[dict[str, Any]] | None = None) -> dict[str, Any]:
    """A request of an agent that can send."""
    offered = [offer("chat", "send", "Send it.", SEND_SCHEMA)] if tools is None else tools
    return ask_body("chat", turns, tools=offered, model="scripted")


class Cut(BaseException):
    """The process is gone."""


class Cutting(Ledger):
    """A ledger whose process dies right before or right after it writes what is looked for."""

    before: str = ""
    after: str = ""
    dead: bool = False

    async def append(
        self, run: str, fence: int, events: Sequence[NewEvent], *, end: RunEnd | None = None, again: bool = False
    ) -> None:
        """Write, or die."""
        told = " ".join([*(f"{event.kind}:{event.step}" for event in events), *([str(end.status)] if end else [])])
        self.dead = self.dead or bool(self.before and self.before in told)
        if self.dead:
            raise Cut
        await super().append(run, fence, events, end=end, again=again)
        self.dead = bool(self.after and self.after in told)
        if self.dead:
            raise Cut


class World:
    """What tools did."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def tools(self, **settings: Any) -> list[FunctionTool]:
        """A tool that acts."""

        @tool(**settings)
        async def send(to: str) -> str:
            """Send it."""
            self.sent.append(to)
            return f"sent to {to}"

        return [send]


def agent(model: ScriptedModel, place: Any, world: World | None = None, **settings: Any) -> Agent:
    """An agent that keeps its runs."""
    settings.setdefault("tools", (world or World()).tools())
    return Agent(model, ledger=place, **settings)


async def cut_off(place: str, script: Sequence[Line], world: World, *, before: str = "", after: str = "") -> None:
    """Run until the process dies, and leave nothing behind but the ledger."""
    opened = open_ledger(place)
    ledger = Cutting(opened.store)
    ledger.before, ledger.after = before, after
    async with ledger:
        one = agent(ScriptedModel(script), ledger, world, lease=0.05)
        with pytest.raises((Cut, BaseExceptionGroup)):
            await one.run("Go.", run_id="r")
    await asyncio.sleep(0.06)  # its lease
