"""`mustcall coordinate`: several models on one question, as a person or a script uses it, on real loopback HTTP."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from mustcall.cli import main
from mustcall.cli.asking.panel_screen import PanelScreen
from mustcall.core.errors import ErrorInfo
from mustcall.core.parts import ToolCall
from mustcall.engine.agent.events import CallFinished, CallStarted
from mustcall.engine.coordinating import Proposal, RoleFinished, RoleKind, RoleProgress, RoleRun, RoleStarted
from mustcall.engine.tooling.outcomes import CallStatus
from mustcall.testing import Answer, Call, Fail, Hang, Recorded, Say, ScriptedUpstream, Turn
from support import warm
from support.warm import PATIENCE

Asked = tuple[int, str, str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Asked]:
    """The command, in a folder of its own and without an environment: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    for name in ("MUSTCALL_UPSTREAM", "MUSTCALL_CONFIG"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str, text: str = "") -> Asked:
        monkeypatch.setattr(sys, "stdin", StringIO(text))
        with pytest.raises(SystemExit) as ended:
            main(["coordinate", *arguments])
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return call


def players(recorded: Recorded) -> Answer:
    """A model that plays every role: it computes first if it may."""
    text = str(recorded.body)
    if "You propose" in text:
        if "calculator" in text and "'role': 'tool'" not in text:
            return Turn(Call("calculator", {"expression": "6*7"}))
        return Turn(Say('{"answer":"42","reasons":["computed"]}'))
    if "You check" in text:
        return Turn(Say('{"stance":"revise","problems":["says \\u001b[31m nothing"]}'))
    return Turn(Say('{"answer":"It is 42.","confidence":"high","open_points":["why"]}'))


def models(upstream: ScriptedUpstream) -> list[tuple[str, str]]:
    """Who was asked, and as which model."""
    roles = {"You propose": "proposer", "You check": "critic", "You write": "synthesizer"}
    return [
        (next(role for words, role in roles.items() if words in str(one.body)), one.body["model"])
        for one in upstream.requests
        if one.method == "POST"
    ]


def test_roles_and_tools(run: Callable[..., Asked]) -> None:
    """Each role has its model; the answer alone goes to standard output, what happened to standard error."""
    with ScriptedUpstream(players) as upstream:
        code, out, err = run(
            *("What is six times seven?", "--upstream", f"chat={upstream.base_url}"),
            *("--proposer", "big", "--critic", "a", "--critic", "b", "--synthesizer", "last"),
            *("--worker-tool", "calculator", "--worker-tool", "shell"),
        )
        asked = models(upstream)
    assert (code, out) == (0, "It is 42.\n")
    assert sorted(asked) == [
        ("critic", "a"),
        ("critic", "b"),
        ("proposer", "big"),
        ("proposer", "big"),
        ("synthesizer", "last"),
    ]
    assert '  proposer calls calculator {"expression":"6*7"}' in err
    assert "proposer (big): 42 (1 call)" in err
    assert "critic 2 (b): revise: says \\x1b[31m nothing" in err
    assert "not allowed as a tool: shell" in err
    assert "confidence: high" in err
    assert "1 round, 5 model calls, 125 tokens in and 60 out, cost not known, session ses_" in err


def test_addresses(run: Callable[..., Asked]) -> None:
    """A role may be an address with a model behind it, each on a wire of its own; no other upstream is needed then."""
    with ScriptedUpstream(players) as one, ScriptedUpstream(players) as other:
        here, there = f"chat={one.base_url}", f"messages={other.base_url}"
        code, out, _ = run("What?", "--proposer", f"{here}#big", "--critic", there, "--synthesizer", f"{there}#end")
        assert (models(one), models(other)) == ([("proposer", "big")], [("critic", "scripted"), ("synthesizer", "end")])
    assert (code, out) == (0, "It is 42.\n")


@pytest.mark.parametrize("named", [False, True], ids=["configured", "address"])
def test_hops_of_the_configuration(
    run: Callable[..., Asked], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, named: bool
) -> None:
    """Rules 82, 120: hops come from the file, the environment over it and the option over both."""
    (tmp_path / "mustcall.toml").write_text("[contract]\nhops = 4\n")
    with ScriptedUpstream(players) as upstream:
        here = f"chat={upstream.base_url}"
        who = ("--upstream", here)
        if named:
            who = ("--proposer", f"{here}#a", "--critic", f"{here}#a", "--synthesizer", f"{here}#a")
        common = ("What?", *who, "--json", "-q", "--worker-tool", "calculator")

        def hops(*more: str) -> int:
            return json.loads(run(*common, *more)[1])["worker_tools"]["hop_budget"]

        by_file = hops()
        monkeypatch.setenv("MUSTCALL_CONTRACT_HOPS", "3")
        assert (by_file, hops(), hops("--hops", "1")) == (4, 3, 1)


def test_json(run: Callable[..., Asked]) -> None:
    """With --json standard output is one object; what is said of tools is there only if some were asked for."""
    with ScriptedUpstream(players) as upstream:
        common = ("What?", "--upstream", f"chat={upstream.base_url}", "--json", "-q", "--session", "s1")
        _, out, err = run(*common, "--worker-tool", "calculator", "--rounds", "2")
        told: dict[str, Any] = json.loads(out)
        _, out, _ = run(*common)
    assert err == ""
    assert (told["answer"], told["rounds"], told["session"], told["estimated"]) == ("It is 42.", 2, "s1", True)
    assert told["worker_tools"] == {
        "accepted": ["calculator"],
        "rejected": [],
        "hop_budget": 2,
        "applies_to": ["proposer", "critic"],
    }
    first = told["roles"][0]
    assert (first["name"], first["model"], first["attempts"]) == ("proposer", "scripted", 2)
    assert first["inner_tool_calls"] == [{"hop": 1, "name": "calculator", "status": "ok"}]
    assert first["output"] == {"answer": "42", "reasons": ["computed"], "unsure": []}
    plain: dict[str, Any] = json.loads(out)
    assert "worker_tools" not in plain
    assert all("inner_tool_calls" not in role for role in plain["roles"])


def test_fetch_is_denied_unless_listed(run: Callable[..., Asked]) -> None:
    """Rules 89, 99: without --allow a page is refused; with it, an address inside still is."""

    def curious(recorded: Recorded) -> Answer:
        if "You propose" in str(recorded.body) and "'role': 'tool'" not in str(recorded.body):
            return Turn(Call("fetch", {"url": "http://127.0.0.1:9/"}))
        return players(recorded)

    with ScriptedUpstream(curious) as upstream:
        common = ("What?", "--upstream", f"chat={upstream.base_url}", "--worker-tool", "fetch")
        code, _, err = run(*common)
        assert (code, "not on the list" in err) == (0, True)
        code, out, err = run(*common, "--allow", "*:9", "--json")
    assert "not public" in err
    assert json.loads(out)["roles"][0]["inner_tool_calls"] == [{"hop": 1, "name": "fetch", "status": "refused"}]


def test_failures(run: Callable[..., Asked]) -> None:
    """A failing role is exit code 1 and its line; what cannot be meant is 2; the rest of the record is in the JSON."""
    with ScriptedUpstream(lambda _: Fail(400, "no such model")) as upstream:
        where = ("--upstream", f"chat={upstream.base_url}")
        code, out, err = run("What?", *where, "--json")
        assert code == 1
        assert "mustcall: the proposer (scripted) gave no usable answer: no such model" in err
        assert json.loads(out)["error"]["code"] == "role_failed"
        assert run("What?", *where, "--quorum", "3")[::2] == (
            2,
            "mustcall: quorum must be between 0 and the number of critics (2), got 3\n",
        )
        assert run("What?", *where, "--allow", "ftp://x")[0] == 2
        assert run(" ", *where)[::2] == (2, "mustcall: the question is empty\n")
        assert run("-", *where, text="What?")[0] == 1


def test_a_cap_on_cost(run: Callable[..., Asked]) -> None:
    """Rule 94: --max-cost bounds the session; models whose price is not known cost nothing."""
    with ScriptedUpstream(players) as upstream:
        code, _, _ = run("What?", "--upstream", f"chat={upstream.base_url}", "--max-cost", "0.5")
        assert code == 0
        code, _, err = run("What?", "--upstream", f"chat={upstream.base_url}", "--max-cost", "-1")
    assert code == 2
    assert "max-cost" in err


def test_interrupt(tmp_path: Path) -> None:
    """Ctrl-C stops every role and cuts their upstreams off; exit code 130, and one line."""
    with ScriptedUpstream([Hang(Turn(Say("never")))]) as upstream:
        command = ["coordinate", "What?", "--upstream", f"chat={upstream.base_url}", "--proposer", "m"]
        process = warm.start(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
        upstream.wait_for_requests(1, PATIENCE)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=PATIENCE) == ("", "mustcall: stopped\n")
        assert process.returncode == 130
        upstream.wait_for_connections(0)


def test_the_screen_is_redrawn() -> None:
    """At a terminal each role has a line that changes; a failed one is marked, and no text steers the terminal."""
    written = StringIO()
    console = Console(file=written, force_terminal=True, width=100, highlight=False)
    call = ToolCall(id="c", name="fetch", arguments_json='{"url":"https://a.test/"}')
    run = RoleRun(role=RoleKind.PROPOSER, name="proposer", upstream="u", model="m", output=Proposal(answer="\x1b[2J42"))
    broken = RoleRun(
        role=RoleKind.CRITIC,
        name="critic_1",
        upstream="u",
        model="m",
        round=2,
        error=ErrorInfo(message="gone", status=502, code="x"),
    )
    with PanelScreen(console) as screen:
        screen.show(RoleStarted(RoleKind.PROPOSER, "proposer", "m", 1))
        screen.show(RoleProgress("proposer", 1, CallStarted(call)))
        screen.show(
            RoleProgress("proposer", 1, CallFinished(call, "no", ok=False, seconds=0, status=CallStatus.REFUSED))
        )
        screen.show(RoleFinished(run))
        screen.show(RoleStarted(RoleKind.CRITIC, "critic_1", "m", 2))
        screen.show(RoleFinished(broken))
    text = written.getvalue()
    assert "\x1b[2J" not in text
    assert "\\x1b[2J42" in text
    assert "critic 1, round 2" in text
    assert "failed: gone" in text
