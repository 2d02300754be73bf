"""`mustcall runs`, as a person uses it."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from mustcall import Agent, tool
from mustcall.cli import cli, main
from mustcall.cli.asking.importing import load_agent
from mustcall.core.errors import ConfigError, LedgerUnavailable
from mustcall.testing import Call
from mustcall.testing.model import ScriptedModel

AGENTS = """
from mustcall import Agent
from mustcall.testing.model import ScriptedModel
one = Agent(ScriptedModel(["Done."]))
def made():
    return Agent(ScriptedModel(["Made."]))
nothing = 7
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A ledger with a run that is over, one that waits in the queue, and one that was left in the middle."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    Path("agents_of_this_test.py").write_text(AGENTS)
    place = str(tmp_path / "ledger.db")
    asyncio.run(_fill(place))
    return place


async def _fill(place: str) -> None:
    started = asyncio.Event()

    @tool
    async def send(to: str) -> str:
        """Send it."""
        if to == "nobody":
            started.set()
            await asyncio.Event().wait()
        return f"sent to {to}"

    calls = ScriptedModel([Call("send", {"to": "a"}), "It is \x1b[31mdone."])
    await Agent(calls, tools=[send], ledger=place).run("Go.", run_id="over")
    left = Agent(ScriptedModel([Call("send", {"to": "nobody"})]), tools=[send], ledger=place)
    running = asyncio.create_task(left.run("Go.", run_id="left"))
    await started.wait()
    running.cancel()
    await asyncio.wait({running})
    await left.submit("Go.", run_id="queued")


def said(place: str, *arguments: str, code: int = 0) -> str:
    """Run a command on a ledger; return what it printed."""
    done = CliRunner().invoke(cli, ["runs", *arguments, "--ledger", place])
    assert done.exit_code == code, done.output
    return done.output


def test_list_shows_every_run(place: str) -> None:
    """One line each, and as JSON for programs; by status if asked."""
    lines = said(place, "list").splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["queued", "queued"], ["left", "waiting"], ["over", "done"]]
    shown: list[dict[str, Any]] = json.loads(said(place, "list", "--json"))
    assert [(run["id"], run["status"], run.get("stopped")) for run in shown] == [
        ("queued", "queued", None),
        ("left", "waiting", None),
        ("over", "done", "answered"),
    ]
    assert [run["id"] for run in json.loads(said(place, "list", "--status", "done", "--json"))] == ["over"]
    assert said(place, "list", "--status", "failed") == "no runs\n"


def test_show_tells_the_journal(place: str) -> None:
    """Each step with what was said and done; nothing in it can steer a terminal."""
    told = said(place, "show", "over")
    assert 'calls send({"to":"a"})' in told
    assert "send: sent to a" in told
    assert "\\x1b[31mdone." in told
    assert "\x1b" not in told
    shown = json.loads(said(place, "show", "over", "--json"))
    assert [(line["step"], line["kind"], line["status"]) for line in shown["journal"]] == [
        ("m0", "model", ""),
        ("m0/c0", "intent", ""),
        ("m0/c0", "result", "ok"),
        ("m1", "model", ""),
    ]


@pytest.mark.parametrize("width", [56, 80])
def test_show_fits_the_terminal(place: str, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """On a narrow terminal what was said is broken; times and states are not."""
    narrow = Console(force_terminal=True, width=width, color_system=None)
    monkeypatch.setattr("mustcall.cli.inspecting.runs.console", lambda: narrow)
    with narrow.capture() as captured:
        said(place, "show", "over")
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= width
    times = [found for line in lines if (found := re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", line))]
    assert len(times) == 1 + 4


def test_resume_goes_on_and_says_what_is_not_known(place: str) -> None:
    """The answer on standard output, what is in the dark on standard error; resumed again it is the same."""
    done = CliRunner().invoke(cli, ["runs", "resume", "left", "--agent", "agents_of_this_test:one", "--ledger", place])
    assert (done.exit_code, done.stdout) == (0, "Done.\n")
    assert done.stderr == "mustcall: whether send took effect is not known\n"
    again = said(place, "resume", "left", "--agent", "agents_of_this_test:one", "--json")
    result = json.loads(again)["result"]
    assert (result["text"], [call["status"] for call in result["calls"]]) == ("Done.", ["unknown"])
    assert said(place, "resume", "queued", "--agent", "agents_of_this_test:made") == "Made.\n"


def test_cancel_ends_a_run(place: str) -> None:
    """Once; a run that is over, or not there, is no longer cancelled."""
    assert said(place, "cancel", "queued") == "cancelled queued\n"
    assert "has ended" in said(place, "cancel", "queued", code=1)
    assert "is not there" in said(place, "cancel", "other", code=1)
    assert json.loads(said(place, "list", "--status", "cancelled", "--json"))[0]["id"] == "queued"


def test_a_run_that_is_not_there_is_said_so(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line and exit code 2, as for everything the caller can mend."""
    with pytest.raises(SystemExit) as ended:
        main(["runs", "show", "other", "--ledger", place])
    assert ended.value.code == 2
    assert "there is no run 'other'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("agents_of_this_test", "must be MODULE:ATTRIBUTE"),
        ("no_such_module_at_all:one", "there is no module"),
        ("agents_of_this_test:two", "has no 'two'"),
        ("agents_of_this_test:nothing", "is a int, not an Agent"),
    ],
)
def test_an_agent_that_cannot_be_had_is_said_so(place: str, path: str, problem: str) -> None:
    """The message names the path and what is wrong with it."""
    with pytest.raises(ConfigError, match=problem):
        load_agent(path, place)


def test_a_worker_needs_a_shared_database(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`mustcall worker` on a file says what to set."""
    with pytest.raises(SystemExit):
        main(["worker", "agents_of_this_test:one", "--ledger", place])
    assert "set DATABASE_URL=postgresql://" in capsys.readouterr().err


@pytest.mark.parametrize("command", [("runs", "list"), ("ledger", "check"), ("ledger", "prune", "--all")])
def test_a_ledger_that_is_not_there_is_not_made(command: tuple[str, ...], tmp_path: Path) -> None:
    """A typing error in a path is said, and leaves no file behind."""
    result = CliRunner().invoke(cli, [*command, "--ledger", str(tmp_path / "typo.db")])
    assert isinstance(result.exception, LedgerUnavailable)
    assert "there is no ledger at" in result.exception.message
    assert list(tmp_path.iterdir()) == []
