"""docs/library.md: every block runs, prints what the page says, and names everything there is."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from mustcall import Agent, CallStatus, Options, RunResult, Stopped, ToolError, ToolRefused, ToolSettings
from mustcall.testing import ScriptedUpstream, demo_turn

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", PAGE, re.DOTALL)


def test_every_block_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The page is one program: each block prints what stands below it."""
    names: dict[str, Any] = {"__name__": "library"}
    with ScriptedUpstream(demo_turn) as upstream:
        for code, printed in BLOCKS:
            exec(code.replace("http://127.0.0.1:8484", upstream.url), names)  # noqa: S102  our own page
            out = capsys.readouterr().out
            assert not printed or out == printed
    assert len(BLOCKS) > 8


@pytest.mark.parametrize(
    "word",
    [
        *ToolSettings.__struct_fields__,
        *RunResult.__struct_fields__,
        *Options.__struct_fields__,
        *(name for name in inspect.signature(Agent).parameters),
        *CallStatus,
        *Stopped,
        ToolError.code,
        ToolRefused.code,
    ],
)
def test_everything_is_named(word: str) -> None:
    """Each setting, field, status and code stands on the page."""
    assert f"`{word}`" in PAGE
