"""A text form of one's own, told in the configuration: gateway, profiles and agents know it (rules 43, 57)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mustcall import Agent, Controls, Upstream
from mustcall.core.errors import ConfigError
from mustcall.core.parts import Text
from mustcall.core.tools import Tool
from mustcall.dialects import find_dialect, forget
from mustcall.gateway.config.settings import load_settings
from mustcall.policy.facts.profile import Protocol
from mustcall.policy.scanning.reply_scanner import ReplyScanner, ScanTargets
from mustcall.testing import Say, ScriptedUpstream, Turn
from support.agents import get_weather
from support.replaying import CHUNKINGS, Outcome, ReplyText, chat_body, replay
from support.values import replied

FILE = """
[[upstream]]
name = "up"
wire = "chat"
base_url = "http://127.0.0.1:9/v1"

[[dialect]]
name = "house"
open = "@@call"
close = "@@end"
body = "python"
standing = "named"

[[profile]]
models = ["*"]
dialects = ["auto", "house", "xlam"]
prompt_dialect = "house"
"""
CALL = '@@call\nget_weather(city="Paris")\n@@end'
TOOL: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALLED = (("get_weather", {"city": "Paris"}),)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """What a file made known is forgotten."""
    yield
    forget("house")
    forget("other")


def write(folder: Path, text: str) -> Path:
    """Return a configuration file."""
    file = folder / "mustcall.toml"
    file.write_text(text)
    return file


def test_a_file_that_names_it(tmp_path: Path) -> None:
    """Rule 57: the file makes the form known before its profiles are read, and keeps every form they name."""
    settings = load_settings(write(tmp_path, FILE), environment={})
    assert find_dialect("house").openers[0].marker == "@@call"
    [override] = settings.operator.overrides
    assert json.dumps(repr(override)).count("xlam")


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    """Rule 120: an error names the dialect, the value and the fix."""
    with pytest.raises(ConfigError, match=r"dialect 'house': open must be .* got 'call'"):
        load_settings(write(tmp_path, FILE.replace("@@call", "call")), environment={})
    with pytest.raises(ConfigError, match="known dialects"):
        load_settings(write(tmp_path, FILE.replace('name = "house"', 'name = "other"')), environment={})


@pytest.mark.parametrize("cut", [None, "1", "lines"])
async def test_a_turn(tmp_path: Path, cut: str | None) -> None:
    """Rule 57: one that is always looked for is a call in a reply, whole and streamed, in one upstream request."""
    load_settings(write(tmp_path, FILE.replace('"named"', '"auto"')), environment={})
    outcome = await replay(
        chat_body([{"role": "user", "content": "Weather in Paris?"}], [TOOL]),
        ReplyText(f"Let me look.\n{CALL}"),
        chunking=None if cut is None else CHUNKINGS[cut],
    )
    assert outcome == Outcome(calls=CALLED, text="Let me look.\n", finish="tool_calls", requests=1)


def test_an_agent(tmp_path: Path) -> None:
    """Rule 57: an agent's tools are rendered in it, its calls are read and their results are shown in its way."""
    settings = load_settings(write(tmp_path, FILE), environment={})
    with ScriptedUpstream([Turn(Say(CALL)), Turn(Say("Sunny."))]) as upstream:
        where = Upstream(f"chat={upstream.base_url}", model="m", api_key="k", overrides=settings.operator.overrides)
        result = Agent(where, tools=[get_weather], controls=Controls(protocol=Protocol.PROMPT)).run_sync(
            "Weather in Paris?"
        )
        bodies = [request.body for request in upstream.requests]
    assert result.text == "Sunny."
    assert len(bodies) == 2
    assert "@@call" in bodies[0]["messages"][0]["content"]
    assert "get_weather(city='Paris')" in bodies[1]["messages"][-2]["content"]


@pytest.mark.parametrize("dialects", [("auto", "xlam"), ("xlam", "auto")])
def test_a_named_form_beside_auto(dialects: tuple[str, ...]) -> None:
    """Rule 57: `auto` beside a name keeps the name."""
    tools = (Tool(name="get_weather", parameters=TOOL["parameters"]),)
    fence = '```json\n[{"name": "get_weather", "arguments": {"city": "Paris"}}]\n```'
    text = f"An example of JSON:\n{fence}\nAnd more words follow here."
    found = ReplyScanner(ScanTargets(tools=tools, dialects=dialects), "t").read(replied(Text(text=text)))
    assert [call.dialect for call in found.calls] == ["xlam"]
    assert not ReplyScanner(ScanTargets(tools=tools), "t").read(replied(Text(text=text))).calls
