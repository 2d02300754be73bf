"""docs/durable.md: every block runs and prints what the page says."""

import re
from pathlib import Path
from typing import Any

import pytest

from mustcall.engine.tooling.definition import ToolSettings
from mustcall.ledger import RunStatus
from mustcall.policy.reply.unbacked_claims import _ACTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "durable.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


def test_every_block_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is one program: each block prints what stands below it."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "durable"}
    for code, printed in BLOCKS:
        exec(code, names)  # noqa: S102  our own page
        assert capsys.readouterr().out == printed
    assert len(BLOCKS) == PAGE.count("```python") == 4


def test_everything_is_named() -> None:
    """Each status a run can end with, and each act that can be claimed, stands on the page."""
    for status in RunStatus:
        assert not status.ended or f"`{status}`" in PAGE
    assert f"({', '.join(act.name for act in _ACTS)})" in PAGE
    assert ToolSettings().check is None
