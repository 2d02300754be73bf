"""`mustcall run`: one question, as a person or a script uses it, against a scripted model on real loopback HTTP."""

import io
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from mustcall.cli import main
from mustcall.cli.asking.session import Flags, opened
from mustcall.testing import Answer, Call, Fail, Hang, Recorded, Say, ScriptedUpstream, Turn
from mustcall.toolkit.mcp import McpServer
from support import warm
from support.compared import leave
from support.talking import talker, was_told
from support.warm import PATIENCE

SERVER = Path(__file__).parents[1] / "toolkit" / "servers" / "plain" / "mcp_server.py"
WIRES = ["chat", "responses", "messages"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the command runs, with a file in it; it is the home, too."""
    home = tmp_path / "home"
    (home / "notes").mkdir(parents=True)
    (home / "notes" / "plan.txt").write_text("Buy milk.\nCall Ada.\n")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "readme.txt").write_text("All is well.")
    return tmp_path


class Done(NamedTuple):
    """What a command did."""

    returncode: int
    stdout: str
    stderr: str


class Caller:
    """Runs the command in a folder of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch = monkeypatch
        self._capsys = capsys

    def run(self, *arguments: str, text: str = "") -> Done:
        """Run the command to its end."""
        self._patch.setattr(sys, "stdin", io.StringIO(text))
        with pytest.raises(SystemExit) as ended:
            main(["run", *arguments])
        shown = self._capsys.readouterr()
        return Done(int(ended.value.code or 0), shown.out, shown.err)

    def ask(
        self, answer: Callable[[Recorded], Answer], *arguments: str, wire: str = "chat", text: str = ""
    ) -> tuple[Done, list[Recorded]]:
        """Run the command against a script; return what it did and the requests it made."""
        with ScriptedUpstream(answer) as upstream:
            leave(upstream, "what an agent sends rung by rung is compared in tests/engine/agent")
            done = self.run(*arguments, "--upstream", f"{wire}={upstream.base_url}", "-m", "m", text=text)
            return done, list(upstream.requests)


@pytest.fixture
def caller(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Caller:
    """The command, in a folder with a file and a home beside it."""
    for name in os.environ:
        if name.startswith("MUSTCALL_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(folder / "here")
    monkeypatch.setenv("HOME", str(folder / "home"))
    return Caller(monkeypatch, capsys)


@pytest.mark.parametrize("wire", WIRES)
def test_question_call_answer(caller: Caller, wire: str) -> None:
    """Rules 79, 80: on every wire the tool is called, `$HOME` expanded, the result sent back and the answer printed."""
    done, requests = caller.ask(talker, "What files are in $HOME/notes?", wire=wire)
    assert (done.returncode, done.stdout) == (0, "The tool said: plan.txt\n"), done.stderr
    assert '→ list_directory(path="$HOME/notes")' in done.stderr
    assert "arguments_expanded list_directory.path: $HOME" in done.stderr
    assert "plan.txt (20 bytes)" in done.stderr
    assert len(requests) == 2
    told = was_told(requests[1])
    assert told is not None
    assert "plan.txt (20 bytes)" in told


def test_json(caller: Caller) -> None:
    """With --json standard output is one object: answer, calls with what was changed, attempts, usage."""
    done, _ = caller.ask(talker, "What files are in ~/notes?", "--json", "--quiet")
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told["answer"] == "The tool said: plan.txt"
    assert (told["stopped"], told["model"], told["upstream"]) == ("answered", "m", "chat")
    call = told["calls"][0]
    assert (call["name"], call["arguments"], call["status"]) == ("list_directory", {"path": "~/notes"}, "ok")
    assert call["adaptations"] == [{"kind": "arguments_expanded", "subject": "list_directory.path", "detail": "~"}]
    assert [attempt["verdict"] for attempt in told["attempts"]] == ["called", "answered"]
    assert told["usage"] == {"input_tokens": 50, "output_tokens": 24}


def test_the_answer_alone_goes_to_standard_output(caller: Caller) -> None:
    """What the model says before a call, and everything about calls, is not the answer."""
    done, _ = caller.ask(talker, "Which files are here?")
    assert done.stdout == "The tool said: readme.txt\n"
    assert "Let me look." not in done.stdout


def test_question_from_standard_input(caller: Caller) -> None:
    """`-` reads the question; an empty one is refused."""
    done, requests = caller.ask(talker, "-", text="Hello,\nyou.\n")
    assert done.stdout == "Hello there.\n"
    assert "Hello,\\nyou." in str(requests[0].body).replace("\n", "\\n")
    done, requests = caller.ask(talker, "-", text=" \n")
    assert (done.returncode, done.stderr, requests) == (2, "mustcall: the question is empty\n", [])


def test_a_forced_tool_is_called(caller: Caller) -> None:
    """Rule 9: with --force a model that would rather chat calls the tool; only --tool's tools are on offer."""

    def chatty(recorded: Recorded) -> Turn:
        if was_told(recorded):
            return Turn(Say("It is 12."))
        if "call it now" in str(recorded.body):
            return Turn(Call("calculator", {"expression": "3*4"}))
        return Turn(Say("About twelve."))

    done, requests = caller.ask(chatty, "Three times four?", "--force", "calculator", "--tool", "calculator")
    assert (done.returncode, done.stdout) == (0, "It is 12.\n")
    names = [tool["function"]["name"] for tool in requests[0].body["tools"]]
    assert names == ["calculator"]
    told = was_told(requests[-1])
    assert told is not None
    assert "12" in told


def test_a_force_that_stays_unmet(caller: Caller) -> None:
    """Rule 27: the answer is printed nevertheless, and the exit code says that the tool was not called."""
    done, requests = caller.ask(lambda _: Turn(Say("No.")), "Three times four?", "--force", "calculator")
    assert (done.returncode, done.stdout) == (3, "No.\n")
    assert "not called" in done.stderr
    assert len(requests) > 1


def test_a_rule_grounds_the_question(caller: Caller) -> None:
    """Rule 12: a question about files is answered by looking, also by a model that would rather guess."""

    def guesser(recorded: Recorded) -> Turn:
        if (told := was_told(recorded)) is not None:
            return Turn(Say("I looked." if "readme.txt" in told else "Nothing."))
        if "list_directory` for this" in str(recorded.body):
            return Turn(Call("list_directory", {"path": "."}))
        return Turn(Say("Probably a.txt and b.txt."))

    done, _ = caller.ask(guesser, "List the files in this folder")
    assert done.stdout == "I looked.\n"
    done, requests = caller.ask(guesser, "List the files in this folder", "--no-ground")
    assert (done.stdout, len(requests)) == ("Probably a.txt and b.txt.\n", 1)


def test_what_is_outside_stays_outside(caller: Caller, folder: Path) -> None:
    """A path out of the roots is refused to the model, whatever the form; nothing of it is read."""
    secret = folder / "home" / "secret.txt"
    secret.write_text("swordfish")
    asked = iter([str(secret), "../home/secret.txt", "$HOME/secret.txt"])

    def reader(_: Recorded) -> Turn:
        path = next(asked, None)
        return Turn(Call("read_file", {"path": path})) if path else Turn(Say("Not allowed."))

    done, requests = caller.ask(reader, "Tell me the secret")
    assert done.stdout == "Not allowed.\n"
    assert "swordfish" not in str([request.body for request in requests]) + done.stderr
    assert done.stderr.count("✗ refused") == 3


def test_chosen_roots_and_documents(caller: Caller, folder: Path) -> None:
    """--root opens a folder for reading, --docs adds the search."""
    steps = iter(
        [
            Turn(Call("read_file", {"path": "plan.txt"}), Call("search_docs", {"query": "milk"})),
            Turn(Say("Done.")),
        ]
    )
    notes = str(folder / "home" / "notes")
    done, requests = caller.ask(lambda _: next(steps), "Plan?", "--root", notes, "--docs", notes)
    assert done.stdout == "Done.\n", done.stderr
    assert str(requests[1].body).count("Buy milk.") == 2


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server has as long to start as a busy machine needs."""
    usual = McpServer.__init__.__kwdefaults__
    assert usual is not None
    assert usual["start"] < PATIENCE
    monkeypatch.setitem(usual, "start", PATIENCE)


@pytest.mark.usefixtures("_patient")
def test_an_mcp_server(caller: Caller) -> None:
    """Rule 79: tools of an MCP server are offered and called; its chatter stays off the terminal."""
    steps = iter([Turn(Call("add", {"a": 2, "b": 3})), Turn(Say("Five."))])
    command = shlex.join([sys.executable, str(SERVER)])
    done, requests = caller.ask(lambda _: next(steps), "2 and 3?", "--mcp", command)
    assert (done.returncode, done.stdout) == (0, "Five.\n"), done.stderr
    assert "standard error" not in done.stderr
    names = [tool["function"]["name"] for tool in requests[0].body["tools"]]
    assert {"add", "calculator", "mcp_server_calculator"} <= set(names)


@pytest.mark.usefixtures("_patient")
def test_an_mcp_server_that_dies(caller: Caller) -> None:
    """A server that ends in a call is a failed call; the run goes on to its answer."""
    steps = iter([Turn(Call("die", {})), Turn(Say("It died."))])
    command = shlex.join([sys.executable, str(SERVER)])
    done, requests = caller.ask(lambda _: next(steps), "Die.", "--mcp", command)
    assert (done.returncode, done.stdout) == (0, "It died.\n"), done.stderr
    assert "The tool `die` failed" in str(requests[1].body)


def test_an_upstream_that_fails(caller: Caller) -> None:
    """A failure is one line on standard error, exit code 1, and an error in the JSON."""
    done, _ = caller.ask(lambda _: Fail(401, "bad key"), "Hello", "--json")
    assert done.returncode == 1
    assert "mustcall: bad key" in done.stderr
    assert json.loads(done.stdout)["error"]["message"] == "bad key"
    assert "Traceback" not in done.stderr


def test_the_step_cap(caller: Caller) -> None:
    """Rule 109: at the last step nothing may be called, and the run ends with an answer."""
    done, requests = caller.ask(
        lambda recorded: Turn(Say("Enough.")) if len(recorded.body["messages"]) > 5 else talker_again(),
        "Loop over files",
        "--max-steps",
        "3",
        "--no-ground",
    )
    assert (done.returncode, done.stdout) == (0, "Enough.\n"), done.stderr
    assert len(requests) == 3
    assert requests[-1].body["tool_choice"] == "none"
    assert "most steps" in done.stderr


def talker_again() -> Turn:
    """Another look at the folder."""
    return Turn(Call("list_directory", {"path": "."}))


def test_the_first_listed_model_is_asked(caller: Caller) -> None:
    """Without --model the upstream's first one is taken; one that lists none is an error with the fix."""
    done = caller.run("Hello", "--upstream", "chat=http://127.0.0.1:9/v1")
    assert done.returncode == 2
    assert "--model" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--root", "gone"], "gone"),
        (["--docs", "gone"], "gone"),
        (["--tool", "nope"], "list_directory"),
        (["--mcp", "no-such-program"], "no-such-program"),
        (["--key-env", "NO_SUCH_KEY"], "NO_SUCH_KEY"),
        (["--force", "nope"], "nope"),
    ],
)
def test_mistakes_are_one_line(caller: Caller, arguments: list[str], word: str) -> None:
    """What cannot be done is said in one line that names it, with exit code 2, before anything is sent."""
    done, requests = caller.ask(talker, "Hello", *arguments)
    assert done.returncode == 2, done.stderr
    assert word in done.stderr
    assert done.stderr.count("\n") == 1
    assert requests == []


def test_keys_come_from_the_environment(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """--key-env names the variable; a provider's own key goes to that provider and nowhere else."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-theirs")
    monkeypatch.setenv("MINE", "sk-mine")
    _, first = caller.ask(lambda _: Turn(Say("Hi.")), "Hello")
    _, second = caller.ask(lambda _: Turn(Say("Hi.")), "Hello", "--key-env", "MINE")
    assert [request.headers.get("authorization") for request in (*first, *second)] == [None, "Bearer sk-mine"]


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://api.openai.com/v1", "sk-theirs"),
        ("http://api.openai.com/v1", None),
        ("https://api.openai.com.example/v1", None),
        ("https://api.anthropic.com/v1", None),
    ],
)
def test_a_providers_key_goes_to_that_provider(url: str, key: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """OPENAI_API_KEY goes to OpenAI's own host, over TLS, and to nobody else. Nothing is sent here."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-theirs")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with opened(Flags(upstreams=(f"chat={url}",), model="m")) as session:
        assert session.conversation.upstream.endpoint.api_key == key


def test_ctrl_c(folder: Path) -> None:
    """Rule 116: Ctrl-C ends the run with 130 and one line, and cuts the upstream off."""
    with ScriptedUpstream(lambda _: Hang(Turn(Say("never")))) as upstream:
        arguments = ("run", "Hello", "--upstream", f"chat={upstream.base_url}", "-m", "m")
        process = warm.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder / "here")
        upstream.wait_for_requests(1, 180)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, errors) == (130, "", "mustcall: stopped\n")
    assert len(upstream.requests) == 1
