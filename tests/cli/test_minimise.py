"""`mustcall minimise` against upstreams that fail on purpose, on every wire."""

import json
import os
import random
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from mustcall.cli import cli, main
from mustcall.core.origin import Wire
from mustcall.replay import RecordedRequest as Sent
from mustcall.replay.costs import Announcement
from mustcall.replay.minimising import Minimising
from mustcall.replay.reducing import CONFIRMING
from mustcall.replay.reporting import curl_line, files_of
from mustcall.testing import Answer, Fail, Hang, Recorded, Say, ScriptedUpstream, Turn
from mustcall.upstream.endpoint import Endpoint
from support import warm
from support.compared import leave_all
from support.shrinking import CULPRIT, WORDS, large, names
from support.warm import PATIENCE

TALK = Turn(Say('<tool_call>{"name": "tool_7", "arguments": {}}</tool_call>'))
GOOD = Turn(Say("All is well."))


def fails(recorded: Recorded) -> bool:
    """Whether the tool and the message are together."""
    text = json.dumps(recorded.body)
    return f'"{CULPRIT}"' in json.dumps(recorded.body.get("tools", [])) and WORDS in text


def adversary(rate: float = 1.0, seed: int = 0) -> Callable[[Recorded], Answer]:
    """A model that writes its call as text when both are there, so often."""
    chance = random.Random(seed)
    return lambda recorded: TALK if fails(recorded) and chance.random() < rate else GOOD


def minimise(tmp_path: Path, upstream: ScriptedUpstream, wire: Wire, *more: str) -> Result:
    """Run the command on the large request."""
    file = tmp_path / "large.json"
    file.write_text(json.dumps(large(wire)), encoding="utf-8")
    to = f"{wire}={upstream.base_url}"
    return CliRunner().invoke(
        cli, ["minimise", str(file), "--to", to, "--wire", str(wire), "--out", str(tmp_path / "out"), *more]
    )


@pytest.mark.parametrize("wire", list(Wire))
def test_exactly_the_tool_and_the_message_are_found_within_the_budget(tmp_path: Path, wire: Wire) -> None:
    """Rule 118: of 31 tools and 58 messages one each is left, and every call that was made had been announced."""
    with ScriptedUpstream(adversary()) as upstream:
        told = minimise(tmp_path, upstream, wire)
        made = len(upstream.requests)
        last = upstream.requests[-CONFIRMING:]
    assert told.exit_code == 0, told.output
    assert made <= 120
    assert "announced: at most 120 upstream calls" in told.stderr
    left = json.loads((tmp_path / "out" / "request.json").read_text(encoding="utf-8"))
    talk = left["input" if wire is Wire.RESPONSES else "messages"]
    assert names(left) == [CULPRIT]
    assert len(talk) == 1
    assert WORDS in talk[0]["content"]
    assert not {"temperature", "top_p", "seed", "system", "instructions"}.intersection(left)
    assert all(one.body == left for one in last)
    line = told.stdout.splitlines()[0]
    assert line.startswith("31 tools → 1, 58 messages → 1, ")
    assert line.endswith(" kB, reproduces 10/10")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_failure_that_comes_six_times_of_ten_is_reduced_too(tmp_path: Path, seed: int) -> None:
    """The tool and the message are found; how often it fails is told, and that is not called confirmed."""
    with ScriptedUpstream(adversary(0.6, seed)) as upstream:
        told = minimise(tmp_path, upstream, Wire.CHAT, "--json", "--max-calls", "120")
        made = len(upstream.requests)
    found = json.loads(told.stdout)
    assert made == found["calls"] <= 120
    assert found["verdict"] == "text_call"
    assert names(found["request"]) == [CULPRIT]
    assert [WORDS in message["content"] for message in found["request"]["messages"]] == [True]
    hits, asked = found["confirmed"]
    assert asked == 10
    assert found["is_confirmed"] is (hits >= 8)
    assert told.exit_code == (0 if hits >= 8 else 1)
    if hits < 8:
        assert f"it fails now and then, in {hits} of 10 calls" in found["caveat"]


def test_a_request_that_works_is_said_to_work_after_seven_calls(tmp_path: Path) -> None:
    """Nothing is written about what does not fail."""
    with ScriptedUpstream(default=GOOD) as upstream:
        told = minimise(tmp_path, upstream, Wire.CHAT)
        assert len(upstream.requests) == 7
    assert told.exit_code == 1
    assert "the request does not fail: 0 of 7 replies" in told.stdout
    assert not (tmp_path / "out").exists()


def test_an_upstream_that_stops_failing_on_the_way_is_said_to_have_stopped(tmp_path: Path) -> None:
    """The confirmation is what counts, and its words say what happened."""
    left = iter([TALK] * 30)
    with ScriptedUpstream(lambda recorded: next(left, GOOD) if fails(recorded) else GOOD) as upstream:
        told = minimise(tmp_path, upstream, Wire.CHAT)
        assert len(upstream.requests) <= 120
    assert told.exit_code == 1
    assert "reproduces 0/10" in told.stdout
    assert "the upstream has stopped failing in this way" in told.stdout


def test_a_small_budget_is_kept_and_what_was_found_is_reported(tmp_path: Path) -> None:
    """Never more calls than announced: the smallest candidate so far is confirmed with what is left."""
    with ScriptedUpstream(adversary()) as upstream:
        told = minimise(tmp_path, upstream, Wire.CHAT, "--max-calls", "40", "--json")
        assert 40 - 5 <= len(upstream.requests) <= 40  # the five calls that are kept for trials may not be needed
    found = json.loads(told.stdout)
    assert found["spent"] is True
    assert found["confirmed"] == [10, 10]
    assert CULPRIT in names(found["request"])
    assert found["after"]["bytes"] < found["before"]["bytes"]


def test_the_written_test_runs_and_passes(tmp_path: Path) -> None:
    """The test stands by itself: another process, no upstream, and it passes."""
    with ScriptedUpstream(adversary()) as upstream:
        told = minimise(tmp_path, upstream, Wire.CHAT)
    assert told.exit_code == 0
    out = tmp_path / "out"
    assert sorted(one.name for one in out.iterdir()) == ["curl.sh", "issue.md", "request.json", "test_request.py"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_request.py"],
        cwd=out,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # whoever runs it may have no plugins
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout


def test_the_issue_has_versions_and_the_curl_line_sends_the_request(tmp_path: Path) -> None:
    """What is written is enough to see the failure elsewhere; no key is in it."""
    leave_all("minimising sends what it pleases; what is written is looked at")
    with ScriptedUpstream(adversary()) as upstream:
        minimise(tmp_path, upstream, Wire.CHAT)
        out = tmp_path / "out"
        issue = (out / "issue.md").read_text(encoding="utf-8")
        sent = len(upstream.requests)
        ran = subprocess.run(
            ["bash", "curl.sh"],  # noqa: S607
            cwd=out,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            env={**os.environ, "API_KEY": "k", "no_proxy": "127.0.0.1"},
        )
        assert ran.returncode == 0, ran.stderr
        assert upstream.requests[sent].body == json.loads((out / "request.json").read_text(encoding="utf-8"))
    assert "tool_call" in ran.stdout
    for words in ("# `text_call` from m", "| mustcall | ", "| python | ", "31 tools → 1", WORDS):
        assert words in issue


def test_masked_requests_keep_lengths_and_names_and_are_what_is_confirmed(tmp_path: Path) -> None:
    """Rule 136: with `--redact` no word of the conversation is written; the figure is that of the masked request."""

    def by_tool(recorded: Recorded) -> Answer:
        return TALK if CULPRIT in names(recorded.body) else GOOD

    with ScriptedUpstream(by_tool) as upstream:
        told = minimise(tmp_path, upstream, Wire.CHAT, "--redact")
    assert told.exit_code == 0, told.output
    out = tmp_path / "out"
    written = "".join(one.read_text(encoding="utf-8") for one in out.iterdir())
    assert "heron" not in written
    assert "Please" not in written
    assert CULPRIT in written
    assert not (out / "test_request.py").exists()
    assert "reproduces 10/10" in told.stdout


def test_an_upstream_that_goes_away_is_exit_code_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fault on the way is not a verdict of the model."""
    file = tmp_path / "large.json"
    file.write_text(json.dumps(large(Wire.CHAT)), encoding="utf-8")
    with ScriptedUpstream() as gone:
        pass
    with pytest.raises(SystemExit) as ended:
        main(["minimise", str(file), "--to", f"chat={gone.base_url}"])
    assert ended.value.code == 3
    assert "the upstream cannot be reached" in capsys.readouterr().err


def test_a_refusal_can_be_minimised(tmp_path: Path) -> None:
    """A 400 is a verdict as well; the tool it is about is found."""

    def refuse(recorded: Recorded) -> Answer:
        return Fail(400, "schema refused") if CULPRIT in names(recorded.body) else GOOD

    with ScriptedUpstream(refuse) as upstream:
        told = minimise(tmp_path, upstream, Wire.MESSAGES, "--json")
    found = json.loads(told.stdout)
    assert found["verdict"] == "rejected"
    assert names(found["request"]) == [CULPRIT]
    assert told.exit_code == 0


def test_ctrl_c_keeps_the_smallest_request_so_far(tmp_path: Path) -> None:
    """What counted before the stop is written and said not to be confirmed."""
    file = tmp_path / "large.json"
    file.write_text(json.dumps(large(Wire.CHAT)), encoding="utf-8")
    answer = adversary()

    def script(recorded: Recorded) -> Answer:
        return Hang(GOOD) if recorded.number == 30 else answer(recorded)

    with ScriptedUpstream(script) as upstream:
        arguments = ("minimise", str(file), "--to", f"chat={upstream.base_url}")
        home = {**os.environ, "HOME": str(tmp_path)}
        process = warm.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, env=home)
        upstream.wait_for_requests(31)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "the search was stopped" in out
    assert "Traceback" not in err
    left = json.loads((tmp_path / "minimised" / "request.json").read_text(encoding="utf-8"))
    assert CULPRIT in names(left)
    assert len(names(left)) < 31


def test_ctrl_c_before_the_first_reply_concludes_nothing(tmp_path: Path) -> None:
    """Nothing was measured, and that is what is said: not that the request does not fail."""
    file = tmp_path / "large.json"
    file.write_text(json.dumps(large(Wire.CHAT)), encoding="utf-8")
    with ScriptedUpstream(lambda _: Hang(GOOD)) as upstream:
        arguments = ("minimise", str(file), "--to", f"chat={upstream.base_url}", "--json")
        process = warm.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
        upstream.wait_for_requests(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, ""), err
    assert err.rstrip().endswith("mustcall: stopped before anything was measured")
    assert not (tmp_path / "minimised").exists()


def test_the_script_finds_the_request_from_any_directory(tmp_path: Path) -> None:
    """The request is beside the script, not where it is started."""
    leave_all("minimising sends what it pleases; what is written is looked at")
    with ScriptedUpstream(adversary()) as upstream:
        minimise(tmp_path, upstream, Wire.CHAT)
        sent = len(upstream.requests)
        ran = subprocess.run(
            ["sh", "out/curl.sh"],  # noqa: S607
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            env={**os.environ, "API_KEY": "k", "no_proxy": "127.0.0.1", "CDPATH": "/"},
        )
        assert ran.returncode == 0, ran.stderr
        body = json.loads((tmp_path / "out" / "request.json").read_text(encoding="utf-8"))
        assert [one.body for one in upstream.requests[sent:]] == [body]


def test_files_are_the_owners_and_none_of_an_earlier_run_is_left(tmp_path: Path) -> None:
    """Rule 136: what was said is readable by its owner only; a masked report has no plain test of an earlier one."""

    def by_tool(recorded: Recorded) -> Answer:
        return TALK if CULPRIT in names(recorded.body) else GOOD

    out = tmp_path / "out"
    with ScriptedUpstream(by_tool) as upstream:
        minimise(tmp_path, upstream, Wire.CHAT)
        assert {one.name: one.stat().st_mode & 0o777 for one in out.iterdir()} == dict.fromkeys(
            ["curl.sh", "issue.md", "request.json", "test_request.py"], 0o600
        )
        (out / "notes.txt").write_text("mine", encoding="utf-8")
        minimise(tmp_path, upstream, Wire.CHAT, "--redact")
    assert sorted(one.name for one in out.iterdir()) == ["curl.sh", "issue.md", "notes.txt", "request.json"]


def test_masking_that_removes_the_cause_is_said(tmp_path: Path) -> None:
    """The upstream fails at the words themselves: the masked request works, and the upstream has not changed."""
    with ScriptedUpstream(adversary()) as upstream:
        told = minimise(tmp_path, upstream, Wire.CHAT, "--redact")
    assert told.exit_code == 1
    assert "the masked request does not fail; without --redact it does" in told.stdout
    assert "stopped failing" not in told.stdout


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (("text_call", "called"), "does not fail any more:"),
        (("called",), "does not fail:"),
        ((), "does not fail:"),
    ],
)
def test_only_what_failed_before_does_not_fail_any_more(verdicts: tuple[str, ...], said: str) -> None:
    """The words claim no failure that nobody recorded."""
    recorded = Sent(wire=Wire.CHAT, body=b'{"messages":[]}', source="it", model="m", verdicts=verdicts)
    search = Minimising(recorded, max_calls=120)
    assert f"the request {said}" in search.result().words


def test_one_tool_and_one_message_are_told_in_the_singular(tmp_path: Path) -> None:
    """The result and the progress of a request of one tool and one message."""
    leave_all("minimising sends what it pleases; what is printed is looked at")
    file = tmp_path / "small.json"
    tool = next(tool for tool in large(Wire.CHAT)["tools"] if tool["function"]["name"] == CULPRIT)
    body = {"model": "m", "messages": [{"role": "user", "content": WORDS}], "tools": [tool]}
    file.write_text(json.dumps(body), encoding="utf-8")
    with ScriptedUpstream(adversary()) as upstream:
        arguments = ["minimise", str(file), "--to", f"chat={upstream.base_url}", "--out", str(tmp_path / "out")]
        told = CliRunner().invoke(cli, arguments)
    assert told.stdout.startswith("1 tool → 1, 1 message → 1, "), told.output
    assert " calls; text_call: 1 tool, 1 message, " in told.stderr


@pytest.mark.parametrize(
    ("dollars", "words"),
    [(None, "the price of the model is not known"), (0.0, "no cost"), (0.01234, "about $0.0123 at most")],
)
def test_a_model_that_costs_nothing_is_said_to(dollars: float | None, words: str) -> None:
    """No price is not a price of nothing, and nothing is not written as a sum."""
    assert Announcement(least_calls=1, most_calls=9, most_usd=dollars).cost_words == words


def test_a_model_inside_the_process_is_asked_through_a_gateway_that_is_started_first() -> None:
    """An `embedded:` address says nothing to curl: the gateway's port is asked, on the wire the request has."""
    endpoint = Endpoint(name="local", wire=Wire.CHAT, base_url="embedded:/my models/a.gguf")
    line = curl_line(Wire.MESSAGES, endpoint, "http://127.0.0.1:8484")
    *notes, command = line.splitlines()
    assert shlex.split(command)[:3] == ["curl", "-sS", "http://127.0.0.1:8484/v1/messages"]
    assert all(note.startswith("# ") for note in notes)
    assert "mustcall serve --upstream 'chat=embedded:/my models/a.gguf'" in notes[1]
    assert "mustcall replay request.json --wire messages --to 'chat=embedded:/my models/a.gguf'" in notes[0]
    assert "API_KEY" not in line


def test_the_gateway_is_the_one_that_serve_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address in what is written is where `mustcall serve` listens without options."""
    leave_all("minimising sends what it pleases; what is written is looked at")
    named: list[str] = []
    inside: dict[str, str] = {}

    def noted(found: Any, endpoint: Endpoint, *given: Any, gateway: str) -> dict[str, str]:
        named.append(gateway)
        file = msgspec.structs.replace(endpoint, base_url="embedded:/home/me/a.gguf")
        inside.update(files_of(found, file, *given, gateway=gateway))
        return files_of(found, endpoint, *given, gateway=gateway)

    monkeypatch.setattr("mustcall.cli.inspecting.minimise.files_of", noted)
    with ScriptedUpstream(adversary()) as upstream:
        minimise(tmp_path, upstream, Wire.CHAT)
    assert named == ["http://127.0.0.1:8484"]
    assert "embedded:/home/me/a.gguf" in inside["curl.sh"]
    assert "embedded:a.gguf" in inside["issue.md"]  # it is for others: no folder of this machine
    assert "/home" not in inside["issue.md"]
