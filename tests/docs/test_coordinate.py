"""docs/coordinate.md: every block runs, prints what the page says, and names everything there is."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from mustcall import coordinate
from mustcall.cli.asking.coordinate import command
from mustcall.core.errors import QuorumMissed, RoleFailed
from mustcall.engine.coordinating import (
    CoordinateResult,
    Critique,
    InnerStatus,
    Proposal,
    RoleFinished,
    RoleProgress,
    RoleRun,
    RoleStarted,
    Synthesis,
    WorkerTools,
)
from mustcall.toolkit.builtin.verify import FoundVerdict

PAGE = (Path(__file__).parents[2] / "docs" / "coordinate.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", PAGE, re.DOTALL)


def test_every_block_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The page is one program: each block prints what stands below it."""
    names: dict[str, Any] = {"__name__": "coordinate_page"}
    for code, printed in BLOCKS:
        exec(code, names)  # noqa: S102  our own page
        assert capsys.readouterr().out == printed
    assert len(BLOCKS) == 3


@pytest.mark.parametrize(
    "word",
    [
        *(name for kind in (CoordinateResult, RoleRun, WorkerTools) for name in kind.__struct_fields__),
        *(name for kind in (Proposal, Critique, Synthesis) for name in kind.__struct_fields__),
        *inspect.signature(coordinate).parameters,
        *InnerStatus,
        *FoundVerdict,
        *(kind.__name__ for kind in (RoleStarted, RoleProgress, RoleFinished)),
        *(kind.code for kind in (QuorumMissed, RoleFailed)),
        *(option.opts[0] for option in command.params if option.param_type_name == "option"),
    ],
)
def test_everything_is_named(word: str) -> None:
    """Rule 120: each field, setting, status, option and code stands on the page."""
    assert f"`{word}`" in PAGE
