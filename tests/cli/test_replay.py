"""`mustcall replay` and `mustcall turns export`, as a person uses them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from mustcall.cli import cli, main
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.ledger import ContentsKept
from mustcall.testing import Answer, Call, Fail, Hang, Recorded, RunningGateway, Say, ScriptedUpstream, Turn
from support import warm
from support.http import post
from support.laddering import climbed
from support.terminal import CTRL_C, PseudoTerminal
from support.warm import PATIENCE

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASKED: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Oslo?"}],
    "tools": [TOOL],
    "tool_choice": "required",
}
CALL = Turn(Call("weather", {"city": "Oslo"}))
TALK = Turn(Say("Sure, I will look."))


def model(recorded: Recorded) -> Answer:
    """A model that ignores a forced choice and obeys a sentence."""
    asked = recorded.body
    return TALK if asked.get("tool_choice") == "required" else CALL


def keep_turn(place: Path, contents: ContentsKept = ContentsKept.FULL) -> str:
    """Let a gateway take one turn of two attempts, and return its id."""
    with ScriptedUpstream(model) as upstream:
        settings = settings_from_flags(f"up:chat={upstream.base_url}")
        ledger = LedgerSettings(place=str(place), contents=contents)
        with RunningGateway(settings=msgspec.structs.replace(settings, ledger=ledger)) as gateway:
            trace = post(gateway.url + "/v1/chat/completions", ASKED).headers["x-mustcall-trace"]
        assert [one.body for one in upstream.requests] == climbed("chat", ASKED)[:2]
        return trace


def run(*arguments: str) -> Result:
    """Run a command."""
    return CliRunner().invoke(cli, arguments, env={"COLUMNS": "200"})


def test_a_turn_of_the_ledger_is_replayed_both_ways(tmp_path: Path) -> None:
    """Rule 117: from the id in the answer's header to a recovery rate, with calls announced before they are made."""
    place = tmp_path / "l.db"
    turn = keep_turn(place)
    with ScriptedUpstream(model) as upstream:
        told = run("replay", turn, "--ledger", str(place), "--to", f"chat={upstream.base_url}", "--times", "3")
        bare, mustcall = [ASKED], climbed("chat", ASKED)[:2]
        asked = [*bare, *mustcall, *mustcall, *bare, *bare, *mustcall]  # which comes first takes turns
        assert [one.body for one in upstream.requests] == asked
    assert told.exit_code == 0, told.output
    assert "announced: 6 to 24 upstream calls; the price of the model is not known" in told.stderr
    lines = told.stdout.splitlines()
    assert any(line.startswith("bare") and "0 of 3" in line and "0% to 56%" in line for line in lines), told.stdout
    assert any(line.startswith("mustcall") and "3 of 3" in line and "44% to 100%" in line for line in lines)
    assert "recovered: 100% of turns whose first attempt failed (3 of 3; 95 % interval 44% to 100%)" in lines
    assert "served: 0 of 3 bare, 3 of 3 through mustcall" in lines


def test_an_exported_bundle_replays_without_the_ledger(tmp_path: Path) -> None:
    """The bundle holds all that a replay needs; `--json` tells every sample."""
    place, bundle = tmp_path / "l.db", tmp_path / "bad.json"
    turn = keep_turn(place)
    exported = run("turns", "export", turn, str(bundle), "--ledger", str(place))
    assert exported.exit_code == 0, exported.output
    place.unlink()
    with ScriptedUpstream(model) as upstream:
        told = run("replay", str(bundle), "--to", f"chat={upstream.base_url}", "--times", "2", "--json")
        mustcall = climbed("chat", ASKED)[:2]
        assert [one.body for one in upstream.requests] == [ASKED, *mustcall, *mustcall, ASKED]
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert [sample["verdicts"] for sample in found["samples"]] == [
        ["force_missed"],
        ["force_missed", "called"],
        ["force_missed", "called"],
        ["force_missed"],
    ]
    assert found["summary"]["recorded"] == ["force_missed", "called"]
    assert found["summary"]["recovered"]["hits"] == 2
    assert found["announced"]["most_calls"] == 16
    assert found["partial"] is False


@pytest.mark.parametrize(
    ("setting", "field", "value"),
    [
        ("tool_choice=auto", "tool_choice", "auto"),
        ("temperature=0.5", "temperature", 0.5),
        ("max_tokens=999", "max_completion_tokens", 999),
        ("reasoning=off", "reasoning_effort", "none"),
        ("stream=on", "stream", True),
        ("parallel=off", "parallel_tool_calls", False),
    ],
)
def test_settings_are_changed_before_the_request_is_sent(
    tmp_path: Path, setting: str, field: str, value: object
) -> None:
    """`--set` changes that field of the bare request and nothing else (a stream's usage apart)."""
    file = tmp_path / "request.json"
    file.write_text(json.dumps(ASKED), encoding="utf-8")
    with ScriptedUpstream(default=CALL) as upstream:
        told = run("replay", str(file), "--to", f"chat={upstream.base_url}", "--times", "1", "--set", setting)
        assert told.exit_code == 0, told.output
        sent = upstream.requests[0].body
    assert sent[field] == value
    others = {name: sent[name] for name in sent if name not in (field, "stream_options")}
    assert others == {name: ASKED[name] for name in ASKED if name != field}


def test_what_cannot_be_replayed_is_said_and_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown id, contents that were not kept, an unknown setting, a file that is not there."""
    place = tmp_path / "l.db"
    turn = keep_turn(place, ContentsKept.NONE)
    file = tmp_path / "request.json"
    file.write_text(json.dumps(ASKED), encoding="utf-8")
    cases = {
        ("replay", turn, "--ledger", str(place)): '[ledger] contents = "full"',
        ("turns", "export", turn, str(tmp_path / "b.json"), "--ledger", str(place)): '[ledger] contents = "full"',
        ("replay", "req_none", "--ledger", str(place)): "there is no turn 'req_none' in the ledger",
        ("replay", str(file), "--set", "volume=11"): "what can be set: reasoning",
        ("replay", str(file), "--set", "stream=maybe"): "stream cannot be 'maybe'; it takes on or off",
        ("replay", str(tmp_path / "no.json")): "cannot read",
    }
    for arguments, words in cases.items():
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2, arguments
        assert words in capsys.readouterr().err
    assert not (tmp_path / "b.json").exists()


def test_an_upstream_that_is_down_is_exit_code_3_after_two_samples(tmp_path: Path) -> None:
    """Twenty samples of a server that is not there tell no more than two."""
    file = tmp_path / "request.json"
    file.write_text(json.dumps(ASKED), encoding="utf-8")
    with ScriptedUpstream() as gone:
        pass
    told = run("replay", str(file), "--to", f"chat={gone.base_url}", "--json")
    assert told.exit_code == 3
    assert "the upstream cannot be reached" in told.stderr
    assert len(json.loads(told.stdout)["samples"]) == 2


def test_a_refusing_upstream_is_measured(tmp_path: Path) -> None:
    """A refusal is an answer: the run goes on and ends well."""
    file = tmp_path / "request.json"
    file.write_text(json.dumps(ASKED), encoding="utf-8")
    with ScriptedUpstream(default=Fail(400, "no such model")) as upstream:
        told = run("replay", str(file), "--to", f"chat={upstream.base_url}", "--times", "2")
    assert told.exit_code == 0
    assert "rejected" in told.stdout


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    """The samples that are there are reported, and the exit code says that it was stopped."""
    file = tmp_path / "request.json"
    file.write_text(json.dumps(ASKED), encoding="utf-8")
    script: list[Answer] = [CALL, CALL, Hang(CALL)]
    with ScriptedUpstream(script) as upstream:
        arguments = ("replay", str(file), "--to", f"chat={upstream.base_url}", "--json")
        environment = {**os.environ, "HOME": str(tmp_path)}
        process = warm.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        upstream.wait_for_requests(3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    told = json.loads(out)
    assert told["partial"] is True
    assert [sample["verdicts"] for sample in told["samples"]] == [["called"], ["called"]]
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", [("replay",), ("minimise", "--max-calls", "31")])
def test_progress_is_shown_in_a_terminal(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """A bar with the last verdict while it asks; Ctrl-C ends it with a report and code 130."""
    file = tmp_path / "request.json"
    file.write_text(json.dumps(ASKED), encoding="utf-8")
    with ScriptedUpstream([TALK, TALK, TALK], default=Hang(CALL)) as upstream:
        name, *more = arguments
        command = [sys.executable, "-m", "mustcall", name, str(file), "--to", f"chat={upstream.base_url}", *more]
        environment = {**os.environ, "HOME": str(tmp_path), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        with PseudoTerminal(command, environment, tmp_path) as terminal:
            terminal.wait_for("announced:", "force_missed")
            upstream.wait_for_requests(4)
            terminal.press(CTRL_C)
            assert terminal.wait_for_end() == 130
            assert "Traceback" not in terminal.screen()


def test_an_export_can_mask_secrets(tmp_path: Path) -> None:
    """Rule 136: `--redact` masks what the ledger keeps in full."""
    place, bundle = tmp_path / "l.db", tmp_path / "b.json"
    key = "sk-" + "a1B2" * 8
    with ScriptedUpstream(default=CALL) as upstream:
        settings = settings_from_flags(f"up:chat={upstream.base_url}")
        ledger = LedgerSettings(place=str(place), contents=ContentsKept.FULL)
        with RunningGateway(settings=msgspec.structs.replace(settings, ledger=ledger)) as gateway:
            asked = ASKED | {"messages": [{"role": "user", "content": f"My key is {key}."}]}
            turn = post(gateway.url + "/v1/chat/completions", asked).headers["x-mustcall-trace"]
    run("turns", "export", turn, str(bundle), "--ledger", str(place))
    assert key in bundle.read_text(encoding="utf-8")
    run("turns", "export", turn, str(bundle), "--ledger", str(place), "--redact", "--force")
    assert key not in bundle.read_text(encoding="utf-8")
    with ScriptedUpstream(default=CALL) as upstream:
        told = run("replay", str(bundle), "--to", f"chat={upstream.base_url}", "--times", "1")
    assert "kept redacted" in told.stderr
    assert told.exit_code == 0


def test_an_export_is_its_owners_and_replaces_nothing_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rule 136: only the owner reads what was said; a file that is there stays unless --force is given."""
    place, file = tmp_path / "l.db", tmp_path / "b.json"
    turn = keep_turn(place)
    file.write_text("mine", encoding="utf-8")
    file.chmod(0o644)
    words = ["turns", "export", turn, str(file), "--ledger", str(place)]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert f"{file} is there already and was left as it is; --force replaces it" in capsys.readouterr().err
    assert file.read_text(encoding="utf-8") == "mine"
    assert run(*words, "--force").exit_code == 0
    assert "mustcall_bundle" in file.read_text(encoding="utf-8")
    assert file.stat().st_mode & 0o777 == 0o600
