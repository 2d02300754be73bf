"""docs/guides/ai-sdk.md: its program runs with the real packages, where `MUSTCALL_AI_SDK` names their folder."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mustcall.testing import Recorded, RunningGateway, Say, ScriptedUpstream, Turn

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "ai-sdk.md").read_text(encoding="utf-8")
PROGRAM, PRINTED, BARE = re.findall(r"```(?:js|text)\n(.*?)```", PAGE, re.DOTALL)
FOLDER = os.environ.get("MUSTCALL_AI_SDK", "")
NODE = shutil.which("node") or ""
MARKUP = '<tool_call>{"name": "price", "arguments": {"item": "hat"}}</tool_call>'


def _answer(request: Recorded) -> Turn:
    """Be a model that writes its calls as text."""
    return Turn(Say("A hat costs 12 euros." if "12 euros" in str(request.body["messages"]) else MARKUP))


def _run(url: str) -> str:
    """Run the page's program in the folder that has its packages."""
    program = Path(FOLDER) / "guide.mjs"
    program.write_text(PROGRAM, encoding="utf-8")
    env = {**os.environ, "MUSTCALL_URL": url}
    done = subprocess.run([NODE, program.name], cwd=FOLDER, env=env, check=True, capture_output=True, text=True)  # noqa: S603  our own page
    return done.stdout


@pytest.mark.skipif(not (FOLDER and NODE), reason="MUSTCALL_AI_SDK names no folder with the packages of npm")
def test_the_program_runs() -> None:
    """The page's program prints what the page says, through the gateway and without it."""
    with ScriptedUpstream(_answer) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        assert _run(gateway.base_url) == PRINTED
        assert len(upstream.requests) == 4
    with ScriptedUpstream(_answer) as upstream:
        assert _run(upstream.base_url) == BARE * 2


def test_the_page_names_its_parts() -> None:
    """The program imports the packages that the page installs, and no other."""
    installed = re.search(r"npm install (.*)", PAGE)
    assert installed is not None
    assert sorted(re.findall(r'from "(.*?)"', PROGRAM)) == sorted(installed.group(1).split())
