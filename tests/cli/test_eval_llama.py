"""`mustcall eval --llama` on a real server, with a model that is made for tests: structure, not wording."""

from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from mustcall.cli import main
from mustcall.evals.report.summary import Column, EvalSummary
from support.tiny import tiny_model


def test_a_server_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server is started for the run; its port is not part of the circumstances, so that the run can go on."""
    model = tiny_model(tmp_path)
    monkeypatch.chdir(tmp_path)
    arguments = ["eval", "builtin", "--llama", str(model), "--choice", "auto", "--limit", "1", "--max-tokens", "16"]
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--via", "gateway", "--out", "r.jsonl", "--json", "r.json"])
        assert not ended.value.code, capsys.readouterr().err
    summary = msgspec.json.decode(Path("r.json").read_bytes(), type=EvalSummary)
    assert summary.facts.address.startswith("llama.cpp")
    assert summary.facts.model == "tiny"
    assert summary.facts.weights == sha256(model.read_bytes()).hexdigest()
    assert f"weights {summary.facts.weights[:12]}…" in capsys.readouterr().out
    for each in summary.graded:
        assert each.row.fault is None or each.column is Column.MUSTCALL
        assert each.row.seconds > 0
    assert Path("r.jsonl").read_bytes().count(b"\n") == 1 + 2


def test_a_model_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A file that is not there, and one that is no model, are one line each with exit code 2."""
    (tmp_path / "broken.gguf").write_bytes(b"GGUF and nothing else")
    for name, words in (("gone.gguf", "there is no model file"), ("broken.gguf", "could not serve broken")):
        with pytest.raises(SystemExit) as ended:
            main(["eval", "builtin", "--llama", str(tmp_path / name), "--limit", "1"])
        err = capsys.readouterr().err.strip()
        assert ended.value.code == 2
        assert words in err
        assert err.count("\n") == 0
