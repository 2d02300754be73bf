"""The picture: a PNG, and a clear word where it cannot be drawn."""

import struct
import sys
from pathlib import Path

import pytest

from mustcall.core.errors import ConfigError
from mustcall.evals.report.chart import check_drawable
from mustcall.evals.report.picture import draw_picture
from mustcall.evals.report.results import EvalResults
from support.evaluating import run_of, small_run


@pytest.mark.parametrize("run", [small_run(), small_run(planned=9), run_of()], ids=["whole", "partial", "empty"])
def test_a_picture_is_drawn(run: EvalResults, tmp_path: Path) -> None:
    """A PNG wide enough to read comes out, for any run."""
    file = tmp_path / "chart.png"
    draw_picture(run, file)
    data = file.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", data[16:24]) == (1440, 832)


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where matplotlib is absent the error names the extra to install."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install 'mustcall\[charts\]'"):
        check_drawable()
