"""docs/testing.md: every block runs, one after the other, and everything public in `mustcall.testing` is named."""

import re
from pathlib import Path
from typing import Any

import pytest

from mustcall.testing import ScriptedModel
from support.compared import leave_all
from support.embedded import readied

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
WORDS = [
    *ScriptedModel.__init__.__annotations__,
    "requests",
    "ScriptedUpstream",
    "RunningGateway",
    "FakeClock",
    "LlamaServer",
]


def test_every_block_runs() -> None:
    """The page is one program, and its assertions hold."""
    leave_all("a page shows what comes of a request, not what is sent")
    readied()
    names: dict[str, Any] = {"__name__": "testing"}
    for block in BLOCKS:
        exec(block, names)  # noqa: S102  our own page
    assert len(BLOCKS) == 10
    assert names["result"].force_satisfied is True


@pytest.mark.parametrize("word", [word for word in WORDS if word != "return"])
def test_every_setting_is_named(word: str) -> None:
    """Each parameter of the scripted model, and what goes with it, stands on the page."""
    assert f"`{word}`" in PAGE
