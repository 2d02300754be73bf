"""docs/replay.md: its commands run as printed, and its tables are those of the code."""

import asyncio
import json
import os
import re
from pathlib import Path

import click
import pytest

from mustcall.cli import cli
from mustcall.ledger import AttemptTrace, ContentsKept, TurnTrace, open_ledger
from mustcall.replay.changes import SETTINGS
from mustcall.replay.reducing import CONFIRMED, CONFIRMING, NEEDED, TRIALS
from mustcall.testing import Say, ScriptedUpstream, Turn
from support import warm

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "replay.md").read_text(encoding="utf-8")
TURN = "req_4ee896e54012b5188b38077c"
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Weather?"}], "tools": [TOOL]}
#: What a command must print, and what it ends with where that is not 0.
PRINTS = {
    "mustcall turns export": "wrote bad.json",
    "mustcall replay req_": "recovered: 0% of turns whose first attempt failed",
    "mustcall replay bad.json": "served",
    "mustcall replay request.json": '"samples"',
    "mustcall minimise req_": "1 tool → 1, 1 message → 1",
    "mustcall minimise bad.json": "reproduces 10/10",
}


def commands() -> list[str]:
    """Every line of the page's shell blocks."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


async def fill(place: Path) -> None:
    """Keep the turn that the page speaks of."""
    attempt = AttemptTrace(
        number=1, rung="plain", verdict="unknown_tool", remedy="fail", digest="d", seconds=0.1, sends=1
    )
    turn = TurnTrace(
        id=TURN,
        at=1_800_000_000.0,
        wire="chat",
        model="m",
        upstream="chat",
        protocol="hybrid",
        force="none",
        outcome="failure",
        status=422,
        seconds=0.1,
        attempts=(attempt,),
        request=json.dumps(ASKED).encode(),
    )
    async with open_ledger(place, contents=ContentsKept.FULL) as ledger:
        await ledger.put_turns([turn])


@pytest.mark.parametrize("command", commands())
def test_a_command_runs_as_printed(command: str, tmp_path: Path) -> None:
    """The shell takes the line as it stands on the page, the port of the example apart."""
    place = tmp_path / "ledger.db"
    asyncio.run(fill(place))
    (tmp_path / "request.json").write_text(json.dumps(ASKED), encoding="utf-8")
    if not command.startswith("mustcall turns export"):  # which writes it
        (tmp_path / "bad.json").write_text(json.dumps(ASKED), encoding="utf-8")
    # A call in text whose arguments are no object: it fails each time, bare and through mustcall.
    reply = Turn(Say('<tool_call>{"name": "get_weather", "arguments": 5}</tool_call>'))
    with ScriptedUpstream(default=reply) as upstream:
        line = command.replace("http://127.0.0.1:9000/v1", upstream.base_url)
        environment = {
            **os.environ,
            "HOME": str(tmp_path),
            "MUSTCALL_UPSTREAM": f"chat={upstream.base_url}",
            "MUSTCALL_LEDGER": str(place),
        }
        with warm.shell(f"exec {line}", cwd=tmp_path, env=environment) as process:
            out, error = process.communicate(timeout=warm.PATIENCE)
    assert process.returncode == 0, out + error
    assert "Traceback" not in error
    words = next(words for start, words in PRINTS.items() if command.startswith(start))
    assert words in out


def test_the_tables_are_those_of_the_code() -> None:
    """Settings, thresholds and options are named as they are."""
    for name, (values, _) in SETTINGS.items():
        assert f"| `{name}` | {values} |" in PAGE
    assert f"{NEEDED} of {TRIALS} calls in a row" in PAGE
    assert f"asked {CONFIRMING} times and is confirmed at {CONFIRMED}" in PAGE
    for name in ("replay", "minimise"):
        found = cli.get_command(click.Context(cli), name)
        assert found is not None
        for parameter in found.params:
            if isinstance(parameter, click.Option):
                assert parameter.opts[0] in PAGE
