"""`tools/record.py`: records from the replies that `mustcall eval` keeps."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mustcall.core.origin import Wire
from mustcall.evals.asking.client_requests import Sampling
from mustcall.evals.asking.journal import ReplyJournal, RunFacts
from mustcall.evals.asking.rows import Arm, EvalRow, Form, MadeCall
from mustcall.evals.builtin import BuiltinSuite
from mustcall.evals.questions import AskedCall

SCHEMAS: dict[str, Any] = {
    "add": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    "stop": {"type": "object", "properties": {}},
}
ADD = '{"name": "add", "arguments": {"a": 1}}'
CALLED: dict[str, Any] = {"outcome": "call", "calls": [{"name": "add", "arguments": {"a": 1}}]}


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """Import the script."""
    path = Path(__file__).parents[2] / "tools" / "record.py"
    spec = importlib.util.spec_from_file_location("tools_record", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "choice", "expected"),
    [
        (ADD, "auto", CALLED),
        (f"```json\n{ADD}\n```\n\n", "auto", CALLED),
        (f"[{ADD}, {ADD}]", "auto", {"outcome": "call", "calls": CALLED["calls"] * 2}),
        ("One and one is two.", "auto", {"outcome": "answer"}),
        ('{"name": "add", "arguments": {"a": "x"}}', "auto", {"outcome": "unfit"}),
        ('{"name": "sub", "arguments": {}}', "auto", {"outcome": "unfit"}),
        ('{"sum": 2}', "auto", None),
        (f"```json\n{ADD}\n```\nThis adds one.", "auto", None),
        (f"I will add.\n{ADD}", "auto", None),
        (f"```json\n{ADD}\n```\nYou can", "required", CALLED),
        (ADD, "add", CALLED),
        (ADD, "stop", {"outcome": "climb"}),
        ("I cannot.", "required", {"outcome": "climb"}),
        (f"I will add.\n{ADD}", "required", None),
    ],
)
def test_plain_reading(tool: ModuleType, text: str, choice: str, expected: dict[str, Any] | None) -> None:
    """What stands alone is read, what does not is left to a person."""
    assert tool.expect(text, choice, SCHEMAS) == expected


def test_records_of_a_run(tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rule 63: bare replies become records with the request they answered; others are left out, or named."""
    suite = BuiltinSuite()
    questions = suite.questions("auto", None)[:3]
    facts = RunFacts(
        suite=suite.name,
        data=suite.version,
        sets=("auto",),
        limit=3,
        seed=0,
        choice=None,
        model="m",
        upstream="up",
        address="http://127.0.0.1:1/v1",
        upstream_wire=Wire.CHAT,
        wire=Wire.CHAT,
        stream=False,
        via="engine",
        form=Form.NATIVE,
        sampling=Sampling(max_tokens=64),
        planned=6,
        version="0",
        started="2026-01-01T00:00:00Z",
    )
    journal, corpus = tmp_path / "replies.jsonl", tmp_path / "corpus.jsonl"
    kept = ReplyJournal(journal, facts)
    texts = ["Hello.", f"I will add.\n{ADD}", ""]
    for question, text in zip(questions, texts, strict=True):
        for arm in Arm:
            calls = () if text else (MadeCall("add", "{}"),)
            kept.add(
                EvalRow(
                    id=question.id,
                    set="auto",
                    arm=arm,
                    wire=Wire.CHAT,
                    choice=AskedCall.AUTO,
                    request_id="r",
                    text=text,
                    calls=calls,
                    finish="stop",
                )
            )
    kept.close()
    tool.main([str(journal), str(corpus)])
    (record,) = [json.loads(line) for line in corpus.read_text(encoding="utf-8").splitlines()]
    assert record["text"] == "Hello."
    assert record["expected"] == {"outcome": "answer"}
    assert record["request"]["messages"][-1]["content"] == suite.words(questions[0].id)
    assert [each["name"] for each in record["request"]["tools"]] == [each.name for each in questions[0].tools]
    said = capsys.readouterr()
    assert said.err == f"left out, decide by hand: {questions[1].id}\n"


def test_wrong_file(tool: ModuleType, tmp_path: Path) -> None:
    """A file that holds no replies is one sentence, and nothing is written."""
    (tmp_path / "other.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="is not a file of replies"):
        tool.main([str(tmp_path / "other.jsonl"), str(tmp_path / "corpus.jsonl")])
    assert not (tmp_path / "corpus.jsonl").exists()
