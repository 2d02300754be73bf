"""A long run is sent shortened: its history stays whole, pins stay in sight, a resumed run sends the same."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mustcall import Agent, Compaction, ConfigError, Message, Role, Text, Upstream, tool
from mustcall.testing import Call, Recorded, ScriptedModel

PINNED = Message(role=Role.USER, parts=(Text(text="Always answer in euros."),), pinned=True)
QUESTION = Message(role=Role.USER, parts=(Text(text="What do they cost?"),))
LONG = "1234567890" * 100


@tool
def price(article: str) -> str:
    """Look up a price."""
    return f"{article}: {LONG}"


def script() -> list[Any]:
    """Three look-ups and the answer."""
    return [*(Call("price", {"article": name}) for name in "abc"), "Much."]


async def test_a_long_run_is_sent_shortened() -> None:
    """Older results give way, the record says so, the pin stays; the history has everything."""
    model = ScriptedModel(script())
    agent = Agent(model, tools=[price], compaction=Compaction(max_tokens=500, keep_rounds=1))
    result = await agent.run([PINNED, QUESTION])
    results = [
        [message["content"] for message in one.body["messages"] if message["role"] == "tool"] for one in model.requests
    ]
    assert [len(each) for each in results] == [0, 1, 2, 3]
    assert [sum(LONG in text for text in each) for each in results] == [0, 1, 1, 1]
    assert all(LONG in each[-1] for each in results[1:])
    assert [one.body["messages"][0]["content"] for one in model.requests] == ["Always answer in euros."] * 4
    notes = [[note.detail for note in step.adaptations if note.subject == "messages"] for step in result.steps]
    assert notes == [
        [],
        [],
        ["0 messages and 1 results left out: the conversation is too long"],
        ["0 messages and 2 results left out: the conversation is too long"],
    ]
    kept = [
        part.text for each in result.messages for one in each.results for part in one.content if isinstance(part, Text)
    ]
    assert sum(LONG in text for text in kept) == 3


async def test_a_long_conversation_loses_its_oldest_messages() -> None:
    """Earlier questions and answers go, with a note in their place; pinned ones stay."""
    history = [PINNED, *(Message(role=role, parts=(Text(text=LONG),)) for role in (Role.USER, Role.ASSISTANT) * 3)]
    model = ScriptedModel(["Much."])
    await Agent(model, compaction=Compaction(max_tokens=200)).run([*history, QUESTION])
    assert [message["content"] for message in model.requests[0].body["messages"]] == [
        "(6 earlier messages of this conversation are left out.)",
        "Always answer in euros.",
        "What do they cost?",
    ]


async def test_pins_survive_plain_data() -> None:
    """A pin is part of a history as plain data, and absent where there is none."""
    model = ScriptedModel(["Much."])
    result = await Agent(model).run([PINNED, QUESTION])
    assert [each.get("pinned") for each in result.history] == [True, None, None]
    assert "pinned" not in str(model.requests[0].body)


async def test_a_run_that_goes_on_sends_the_same(tmp_path: Path) -> None:
    """Compaction depends on the messages alone: a resumed run sends what the uninterrupted one sent."""
    whole = ScriptedModel(script())
    place, compaction = str(tmp_path / "runs.db"), Compaction(max_tokens=500, keep_rounds=1)
    await Agent(whole, tools=[price], compaction=compaction).run([PINNED, QUESTION])

    def interrupted(recorded: Recorded) -> Any:
        if recorded.number == 2:
            raise asyncio.CancelledError
        return script()[recorded.number]

    def agent(model: ScriptedModel) -> Agent:
        return Agent(model, tools=[price], compaction=compaction, ledger=place)

    with pytest.raises(asyncio.CancelledError):
        await agent(ScriptedModel(interrupted)).run([PINNED, QUESTION], run_id="r")
    rest = ScriptedModel(script()[2:])
    await agent(rest).resume("r")
    assert [len(one.body["messages"]) for one in rest.requests] == [
        len(one.body["messages"]) for one in whole.requests[2:]
    ]
    assert [str(one.body).count(LONG) for one in rest.requests] == [1, 1]


def test_what_cannot_be_compacted() -> None:
    """An upstream that keeps the conversation cannot be sent a shorter one."""
    where = Upstream("responses=http://127.0.0.1:9/v1", model="m", stateful=True)
    with pytest.raises(ConfigError, match="compaction cannot be used with stateful"):
        Agent(where, compaction=Compaction(max_tokens=100))
    with pytest.raises(ConfigError, match="max_tokens must be 1 or more, got 0"):
        Agent("embedded:", compaction=Compaction(max_tokens=0))
