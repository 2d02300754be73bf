"""README's Python runs as printed, against the demo it tells the reader to start."""

import re
from pathlib import Path
from typing import Any

import pytest

from mustcall.testing import ScriptedUpstream, demo_turn
from mustcall.testing.gateway import RunningGateway

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def test_readme_has_a_block_per_way_in() -> None:
    """Before and after, two for the gateway, two for the library."""
    assert len(BLOCKS) == 5


@pytest.mark.parametrize("block", BLOCKS, ids=["before and after", "openai", "anthropic", "agent", "testing"])
def test_readme_block(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each block runs and prints something."""
    with ScriptedUpstream(demo_turn) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        left: dict[str, Any] = {}
        exec(block.replace("http://127.0.0.1:8484", gateway.url), left)  # noqa: S102  our own README
        if "client" in left:
            left["client"].close()  # or its sockets are found unclosed some time later
    assert capsys.readouterr().out.strip()


def test_before_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    """The first block prints what README says it prints: prose without mustcall, the call with it."""
    printed = re.search(r"```text\n(before: .*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    exec(BLOCKS[0], {})  # noqa: S102  our own README
    assert printed is not None
    assert capsys.readouterr().out == printed[1]


def test_readme_names_real_commands_and_files() -> None:
    """What README points at exists."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (ROOT / target.partition("#")[0]).exists(), target
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in re.findall(r"^make (\w+)", text, re.MULTILINE):
        assert re.search(rf"^{command}:", makefile, re.MULTILINE)
