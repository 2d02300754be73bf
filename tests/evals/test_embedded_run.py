"""One short run on the real embedded model: structure, not wording."""

import json
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from mustcall.cli import main
from mustcall.evals.asking.rows import Arm, Ending, Form
from mustcall.evals.report.figures import Measure, add_up
from mustcall.evals.report.results import EvalResults
from support.answered import kept_answers
from support.embedded import BASE_URL, NAME, readied


@pytest.fixture(scope="module", autouse=True)
def _kept() -> Generator[None]:
    """What the model was asked before is answered from its kept answers."""
    with kept_answers():
        yield


def test_three_prompts_on_the_embedded_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With nothing configured the embedded model is measured: every demanded call is valid, every reply counted.

    Its chat template has no place for tools, so the bare arm gets them in words.
    """
    readied()
    monkeypatch.chdir(tmp_path)
    for name in ("MUSTCALL_CONFIG", "MUSTCALL_UPSTREAM"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--model", NAME, "--prompts", "3", "--max-tokens", "64", "--json", "r.json", "--html", "r.html"])
    assert not ended.value.code
    run = msgspec.convert(json.loads((tmp_path / "r.json").read_bytes())["run"], EvalResults)
    figures = add_up(run)
    assert run.circumstances.address == BASE_URL
    assert len(run.pairs) == 3
    assert run.circumstances.form is Form.WORDS
    assert not figures.unread
    assert figures.shares[Arm.MUSTCALL][Measure.VALID].hits == 3
    assert figures.cost[Arm.BARE].calls == 3
    for pair in run.pairs:
        assert pair.mustcall.ending is Ending.CALLED
        for trial in (pair.bare, pair.mustcall):
            assert trial.seconds > 0
            assert trial.output_tokens > 0
    assert "3 of 3 through mustcall" in capsys.readouterr().out
    assert "3 of 3 through mustcall" in (tmp_path / "r.html").read_text(encoding="utf-8")
