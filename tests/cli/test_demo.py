"""`mustcall demo` as a person runs it: on a scripted upstream, with files, mistakes, and Ctrl-C in the middle."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from mustcall.cli import main
from mustcall.evals.asking.rows import Arm
from mustcall.evals.prompts import load_prompts
from mustcall.evals.questions import AskedCall
from mustcall.evals.report.figures import Measure, add_up
from mustcall.evals.report.results import EvalResults
from mustcall.testing import Answer, Call, Hang, Recorded, Say, ScriptedUpstream, Turn
from support import warm
from support.compared import leave
from support.evaluating import right_arguments
from support.warm import PATIENCE

#: Why the bodies of a run of many questions are not written out here.
ASKED_ELSEWHERE = "how a question is asked on each arm is compared in tests/evals"
BY_WORDS = {prompt.says: prompt for prompt in load_prompts()}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration and no weights but the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MUSTCALL_CACHE", str(tmp_path / "cache"))
    for name in ("MUSTCALL_CONFIG", "MUSTCALL_UPSTREAM"):
        monkeypatch.delenv(name, raising=False)


def obedient(request: Recorded) -> Answer:
    """A model that calls when it is asked softly, and chats when it is forced: most local servers."""
    body = json.loads(request.raw)
    if body.get("tool_choice") != "auto":
        return Turn(Say("I would rather talk."))
    prompt = BY_WORDS[body["messages"][0]["content"]]
    return Turn(Call(prompt.wants, right_arguments(prompt)))


def demo(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run the command; return its exit code and what it printed."""
    with pytest.raises(SystemExit) as ended:
        main(["demo", *arguments])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def test_a_run_with_every_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Table, page, picture and data come of one run, and all of them have its numbers."""
    with ScriptedUpstream(obedient) as upstream:
        leave(upstream, ASKED_ELSEWHERE)
        files = ["--html", "r.html", "--png", "r.png", "--json", "r.json"]
        code, out, _ = demo(capsys, "--upstream", f"chat={upstream.base_url}", "--model", "m", "--prompts", "8", *files)
    assert code == 0
    data = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    run = msgspec.convert(data["run"], EvalResults)
    figures = add_up(run)
    assert len(run.pairs) == 8
    assert json.loads(msgspec.json.encode(figures)) == data["figures"]
    sentence = "Valid tool calls: 2 of 8 bare, 8 of 8 through mustcall"
    assert sentence in out
    assert sentence in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    assert figures.by_demand[AskedCall.AUTO][Arm.BARE][Measure.VALID].hits == 2
    assert sum(figures.cost[arm].calls for arm in Arm) == len(upstream.requests) - 1  # the greeting
    for file in ("r.html", "r.png", "r.json"):
        assert f"wrote {file}" in out
    assert "Partial" not in out


def test_the_terminal_has_table_and_bars(capsys: pytest.CaptureFixture[str]) -> None:
    """Shares with their intervals, bars as long as the shares, calls and demands are printed."""
    with ScriptedUpstream(obedient) as upstream:
        leave(upstream, ASKED_ELSEWHERE)
        _, out, _ = demo(capsys, "--upstream", f"chat={upstream.base_url}", "--model", "m", "--prompts", "4")
    lines = out.splitlines()
    assert any("valid call" in line and "1 of 4  25 %  (5–70 %)" in line and "4 of 4  100 %" in line for line in lines)  # noqa: RUF001  as printed
    bars = [line.count("█") for line in lines if "·" in line or "█" in line]
    assert bars == [7, 30] * 3
    # The first demanded call climbs to the rung that works; the later ones begin there.
    assert any(line.split() == ["upstream", "calls", "4", "7", "+3"] for line in lines)
    assert any(line.split()[:2] == ["named", "bare"] for line in lines)


def test_the_model_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """A model that is alone is taken; among several one must be named, and the names are told."""
    with ScriptedUpstream(obedient) as upstream:
        leave(upstream, ASKED_ELSEWHERE)
        code, out, _ = demo(capsys, "--upstream", f"chat={upstream.base_url}", "--prompts", "1")
        assert code == 0
        assert out.splitlines()[1].startswith("scripted at ")
    with ScriptedUpstream(obedient, models=("one", "two")) as upstream:
        code, _, err = demo(capsys, "--upstream", f"chat={upstream.base_url}")
    assert code == 2
    assert "--model: one, two" in err


def test_the_key_comes_from_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is sent on both arms and shown nowhere; a variable that is not set is named."""
    monkeypatch.setenv("A_KEY", "sk-secret")
    with ScriptedUpstream(obedient) as upstream:
        leave(upstream, ASKED_ELSEWHERE)
        flags = ["--upstream", f"chat={upstream.base_url}", "--model", "m", "--prompts", "1", "--json", "r.json"]
        _, out, err = demo(capsys, *flags, "--key-env", "A_KEY")
        keys = {request.headers["authorization"] for request in upstream.requests}
        code, _, missing = demo(capsys, *flags, "--key-env", "ANOTHER_KEY")
    assert keys == {"Bearer sk-secret"}
    assert "sk-secret" not in out + err + Path("r.json").read_text(encoding="utf-8")
    assert code == 2
    assert "ANOTHER_KEY" in missing


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--prompts", "0"], "1 to 40"),
        (["--html", "gone/r.html", "--upstream", "chat=http://127.0.0.1:9/v1"], "no directory"),
        (["--temperature", "hot", "--upstream", "chat=http://127.0.0.1:9/v1"], "--temperature"),
        (["--upstream", "nonsense"], "wire=URL"),
        (["--upstream", "chat=http://127.0.0.1:9/v1"], "--model"),
        (["--upstream", "chat=http://127.0.0.1:9/v1", "--model", "m"], "answered neither arm"),
        (["--gguf", "gone.gguf"], "gone.gguf"),
        ([], "mustcall models pull"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be done is said in one line, with exit code 2, before anything is measured."""
    code, out, err = demo(capsys, *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.strip().count("\n") == 0


def test_a_picture_without_matplotlib(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`--png` without the extra is refused before the run, not after it."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with ScriptedUpstream(obedient) as upstream:
        leave(upstream, ASKED_ELSEWHERE)
        code, _, err = demo(capsys, "--upstream", f"chat={upstream.base_url}", "--model", "m", "--png", "r.png")
    assert code == 2
    assert "pip install 'mustcall[charts]'" in err
    assert upstream.requests == []


def test_ctrl_c_reports_what_was_measured(tmp_path: Path) -> None:
    """Ctrl-C in the third prompt prints and writes the first two, marked partial, and ends with 130."""
    count = 0

    def script(request: Recorded) -> Answer:
        nonlocal count
        count += request.method == "POST"
        return Hang(Turn(Say("…"))) if count > 6 else Turn(Say("No."))

    never = {**os.environ, "MUSTCALL_CONFIG": ""}
    with ScriptedUpstream(script) as upstream:
        arguments = [
            "--upstream",
            f"chat={upstream.base_url}",
            "--model",
            "m",
            "--html",
            "r.html",
            "--config",
            "m.toml",
        ]
        (tmp_path / "m.toml").write_text('[contract]\nprotocol = "off"\n', encoding="utf-8")
        process = warm.start("demo", *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=never)
        upstream.wait_for_requests(7)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "Partial: stopped after 2 of 40 prompts." in out
    assert "0 of 2" in out
    assert "Partial: stopped after 2 of 40" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Traceback" not in err


def test_ctrl_c_before_anything(tmp_path: Path) -> None:
    """Ctrl-C before the first prompt is done says that there is nothing, and ends with 130."""
    with ScriptedUpstream(lambda _: Hang(Turn(Say("…")))) as upstream:
        arguments = ("demo", "--upstream", f"chat={upstream.base_url}", "--model", "m")
        process = warm.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
        upstream.wait_for_requests(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert out == ""
    assert "stopped before anything was measured" in err
    assert "Traceback" not in err
