"""`mustcall chat` in a real terminal: keys are pressed, and the screen is read."""

import json
import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mustcall.testing import Answer, Call, Fail, Hang, Recorded, Say, ScriptedUpstream, Turn
from support import warm
from support.talking import talker, users_words, was_told
from support.terminal import CTRL_C, CTRL_D, PATIENCE, TERMINALS, UP, PseudoTerminal, Terminal

SERVER = Path(__file__).parents[1] / "toolkit" / "servers" / "plain" / "mcp_server.py"
CHAT = [sys.executable, "-m", "mustcall", "chat"]


class Room:
    """A folder to talk in: files, a home, and a state folder of its own."""

    def __init__(self, path: Path) -> None:
        self.here = path / "here"
        self.state = path / "state"
        home = path / "home"
        for each in (self.here, home):
            each.mkdir()
        (self.here / "readme.txt").write_text("All is well.")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MUSTCALL_", "XDG_"))}
        self.environment = {**kept, "HOME": str(home), "MUSTCALL_STATE": str(self.state), "LC_ALL": "C.UTF-8"}

    def open(self, kind: type[Terminal], upstream: ScriptedUpstream, *arguments: str, wire: str = "chat") -> Terminal:
        """Start a conversation in a terminal."""
        command = [*CHAT, "--upstream", f"{wire}={upstream.base_url}", "-m", "m", *arguments]
        return kind(command, self.environment, self.here)


@pytest.fixture
def room(tmp_path: Path) -> Room:
    """A room for one test."""
    return Room(tmp_path)


@pytest.mark.parametrize("kind", TERMINALS)
def test_a_question_in_a_terminal(room: Room, kind: type[Terminal]) -> None:
    """Typed is a question, seen are the tool being called, its result, and the answer; `/exit` leaves with 0."""
    with ScriptedUpstream(talker) as upstream, room.open(kind, upstream) as terminal:
        terminal.wait_for("you>")
        terminal.type("List the files in this folder")
        terminal.wait_for("→ list_directory(path=", "✓", "readme.txt (12 bytes)", "The tool said: readme.txt", "you>")
        terminal.type("/exit")
        assert terminal.wait_for_end() == 0
        assert "Traceback" not in terminal.screen()
    told = was_told(upstream.requests[1])
    assert told is not None
    assert "readme.txt (12 bytes)" in told


@pytest.mark.parametrize("kind", TERMINALS)
def test_ctrl_c_stops_the_answer_and_not_the_program(room: Room, kind: type[Terminal]) -> None:
    """Rule 116: Ctrl-C in the middle of an answer cuts the upstream off, and the next question is answered."""

    def slow(recorded: Recorded) -> Answer:
        if "again" in users_words(recorded):
            return Turn(Say("Here I am."))
        return Hang(Turn(Say("Once upon a time " * 50)), after=1500)

    with ScriptedUpstream(slow) as upstream, room.open(kind, upstream) as terminal:
        terminal.wait_for("you>")
        terminal.type("Tell me a story")
        terminal.wait_for("Once upon a time")
        terminal.press(CTRL_C)
        terminal.wait_for("Once upon a time", "(stopped)", "you>")
        terminal.type("And again")
        terminal.wait_for("Here I am.", "you>")
        terminal.press(CTRL_D)
        assert terminal.wait_for_end() == 0
        assert "Traceback" not in terminal.screen()
    assert len(upstream.requests) == 2
    assert "Once upon a time" in str(upstream.requests[1].body)


def test_ctrl_c_before_anything_was_said(room: Room) -> None:
    """A question stopped before anything came of it is forgotten, so that it can be asked again."""

    def silent(recorded: Recorded) -> Answer:
        return Hang(Turn(Say("x"))) if "Fortytwo" in users_words(recorded) else Turn(Say("Second."))

    with ScriptedUpstream(silent) as upstream, room.open(PseudoTerminal, upstream) as terminal:
        terminal.wait_for("you>")
        terminal.type("Fortytwo?")
        upstream.wait_for_requests(1, PATIENCE)
        terminal.press(CTRL_C)
        terminal.wait_for("(stopped)", "you>")
        terminal.type("second")
        terminal.wait_for("Second.")
    assert "Fortytwo" not in str(upstream.requests[1].body)


@pytest.mark.parametrize("kind", TERMINALS)
def test_leaving(room: Room, kind: type[Terminal]) -> None:
    """At the prompt Ctrl-C twice leaves; once does not, and anything typed in between starts the count anew."""
    with ScriptedUpstream(talker) as upstream, room.open(kind, upstream) as terminal:
        terminal.wait_for("you>")
        terminal.press(CTRL_C)
        terminal.wait_for("Ctrl-C again", "you>")
        terminal.type("hi")
        terminal.wait_for("Hello there.", "you>")
        terminal.press(CTRL_C)
        terminal.wait_for("Hello there.", "Ctrl-C again", "you>")
        terminal.press(CTRL_C)
        assert terminal.wait_for_end() == 0


def test_history_is_kept_and_private(room: Room) -> None:
    """What was typed is there in the next run, in a file that only its owner can read."""
    with ScriptedUpstream(talker) as upstream:
        with room.open(PseudoTerminal, upstream) as terminal:
            terminal.wait_for("you>")
            terminal.type("hello from yesterday")
            terminal.wait_for("Hello there.", "you>")
            terminal.press(CTRL_D)
            terminal.wait_for_end()
        kept = room.state / "history"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert stat.S_IMODE(room.state.stat().st_mode) == 0o700
        with room.open(PseudoTerminal, upstream) as terminal:
            terminal.wait_for("you>")
            terminal.press(UP)
            terminal.wait_for("hello from yesterday")


def test_commands(room: Room) -> None:
    """/help, /tools, /model, /trace, /clear and unknown commands say what they should."""
    with ScriptedUpstream(talker) as upstream, room.open(PseudoTerminal, upstream) as terminal:
        terminal.wait_for("m with 4 tools", "you>")
        terminal.type("/help")
        terminal.wait_for("/tools", "/trace", "/model", "/save", "/clear", "/exit")
        terminal.type("/trace")
        terminal.wait_for("nothing was asked yet")
        terminal.type("/tools")
        terminal.wait_for("list_directory  (built in)", "calculator", f"read in {room.here}")
        terminal.type("What files are in ~/x?")
        terminal.wait_for("arguments_expanded list_directory.path: ~", "✗ failed", "you>")
        terminal.type("/trace")
        terminal.wait_for("step 1: calls", "attempt 1: ", "called", "changed: arguments_expanded", "step 2: answer")
        terminal.type("/model other")
        terminal.wait_for(f"other at {upstream.base_url} (chat)")
        terminal.type("/clear")
        terminal.wait_for("forgotten")
        terminal.type("/nonsense")
        terminal.wait_for("there is no command /nonsense")
        terminal.type("hi")
        terminal.wait_for("Hello there.", "you>")
    last = upstream.requests[-1].body
    assert last["model"] == "other"
    assert "files" not in str(last["messages"])


def test_saving(room: Room) -> None:
    """/save writes the conversation for programs or people, privately, and never over a file that was there before."""
    with ScriptedUpstream(talker) as upstream, room.open(PseudoTerminal, upstream) as terminal:
        terminal.wait_for("you>")
        terminal.type("Which files are here?")
        terminal.wait_for("The tool said: readme.txt", "you>")
        terminal.type("/save talk.json")
        terminal.wait_for("saved 4 messages to talk.json")
        terminal.type("/save talk.json")
        terminal.wait_for("saved 4 messages", "saved 4 messages")
        terminal.type("/save talk.md")
        terminal.wait_for("saved 4 messages to talk.md")
        terminal.type("/save readme.txt")
        terminal.wait_for("readme.txt is there already")
        terminal.type("/save")
        terminal.wait_for("needs a file")
    saved = json.loads((room.here / "talk.json").read_bytes())
    assert [message["role"] for message in saved["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert stat.S_IMODE((room.here / "talk.json").stat().st_mode) == 0o600
    assert "## You\n\nWhich files are here?" in (room.here / "talk.md").read_text()
    assert (room.here / "readme.txt").read_text() == "All is well."


def test_errors_do_not_end_the_conversation(room: Room) -> None:
    """A failed answer is one line; the question is forgotten and the next one is answered."""

    def failing(recorded: Recorded) -> Answer:
        return Fail(400, "no such model") if "bad" in users_words(recorded) else Turn(Say("Better."))

    with ScriptedUpstream(failing) as upstream, room.open(PseudoTerminal, upstream) as terminal:
        terminal.wait_for("you>")
        terminal.type("bad")
        terminal.wait_for("mustcall: no such model", "you>")
        terminal.type("good")
        terminal.wait_for("Better.", "you>")
        assert "Traceback" not in terminal.screen()
    assert "bad" not in str(upstream.requests[-1].body["messages"])


def test_text_cannot_steer_the_terminal(room: Room) -> None:
    """Escapes in what a model or a tool says are shown as such and never obeyed."""

    def hostile(recorded: Recorded) -> Turn:
        if was_told(recorded):
            return Turn(Say("\x1b]0;owned\x07\x1b[2Jbye"))
        return Turn(Call("calculator", {"expression": "\x1b[31m"}))

    with ScriptedUpstream(hostile) as upstream, room.open(PseudoTerminal, upstream) as terminal:
        terminal.wait_for("you>")
        terminal.type("hi")
        terminal.wait_for("\\x1b]0;owned\\x07\\x1b[2Jbye")
        assert isinstance(terminal, PseudoTerminal)
        assert not any(told in terminal.written for told in (b"\x1b]0;owned", b"\x1b[2Jbye"))


def test_through_a_pipe(room: Room) -> None:
    """Neither end a terminal: lines in, answers out, no prompt, no colour, and 0 at the end of the input."""
    talks: Callable[[Recorded], Answer] = talker
    with ScriptedUpstream(talks) as upstream:
        done = warm.run(
            *("chat", "--upstream", f"messages={upstream.base_url}", "-m", "m"),
            said="hello\nList the files in this folder\n/exit\nnever\n",
            cwd=room.here,
            env=room.environment,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Hello there.\n")
    assert "→ list_directory(path=" in done.stdout
    assert "The tool said: readme.txt\n" in done.stdout
    assert "\x1b" not in done.stdout
    assert "you>" not in done.stdout
    assert "never" not in str([request.body for request in upstream.requests])


def test_other_encodings(room: Room, tmp_path: Path) -> None:
    """A question that is no UTF-8 is asked all the same, and an answer is shown where its characters cannot be."""
    saved = tmp_path / "talk.json"
    with ScriptedUpstream(lambda _: Turn(Say("Z\u00fcrich \u2192 \u6771\u4eac"))) as upstream:
        done = subprocess.run(  # noqa: S603  our own command
            [*CHAT, "--upstream", f"chat={upstream.base_url}", "-m", "m"],
            input=b"a caf\xe9 in Z\xfcrich\n/save " + os.fsencode(saved) + b"\n",
            capture_output=True,
            timeout=PATIENCE,
            check=False,
            cwd=room.here,
            env={**room.environment, "PYTHONIOENCODING": "ascii:surrogateescape"},
        )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"Z?rich ? ??")
    assert "a caf\ufffd in Z\ufffdrich" in str(upstream.requests[0].body)
    assert "a caf\ufffd in" in saved.read_text(encoding="utf-8")


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
def test_a_conversation_goes_on(room: Room, wire: str) -> None:
    """Rule 79: the second question carries the first, its calls and its answer, on every wire."""
    room.environment["A_KEY"] = "any"
    with (
        ScriptedUpstream(talker, strict=True) as upstream,
        room.open(PseudoTerminal, upstream, "--key-env", "A_KEY", wire=wire) as terminal,
    ):
        terminal.wait_for("you>")
        terminal.type("List the files in this folder")
        terminal.wait_for("The tool said: readme.txt", "you>")
        terminal.type("Thank you")
        terminal.wait_for("readme.txt", "Thank you", "you>")
        terminal.type("/exit")
        assert terminal.wait_for_end() == 0
    last = str(upstream.requests[-1].body)
    assert "The tool said: readme.txt" in last
    assert last.count("list_directory") >= 2
    assert [request.refused_by for request in upstream.requests] == [None] * len(upstream.requests)


def test_an_mcp_server_lives_as_long_as_the_conversation(room: Room) -> None:
    """A server is started once, keeps running through Ctrl-C and another model, and ends with the conversation."""
    steps = iter([Turn(Call("add", {"a": 2, "b": 3})), Turn(Say("Five.")), Turn(Call("add", {"a": 1, "b": 1}))])
    pid = room.here / "pid"
    server = f"{shlex.quote(sys.executable)} {shlex.quote(str(SERVER))} --pid {shlex.quote(str(pid))}"
    with (
        ScriptedUpstream(lambda _: next(steps, Turn(Say("Two.")))) as upstream,
        room.open(PseudoTerminal, upstream, "--mcp", server) as terminal,
    ):
        terminal.wait_for("m with 8 tools", "you>")
        started = int(pid.read_text())
        terminal.type("2 and 3?")
        terminal.wait_for("→ add(a=2, b=3)", "│ 5", "Five.", "you>")
        terminal.press(CTRL_C)
        terminal.wait_for("Ctrl-C again")
        terminal.type("/model other")
        terminal.wait_for("other at")
        terminal.type("1 and 1?")
        terminal.wait_for("→ add(a=1, b=1)", "│ 2", "Two.", "you>")
        assert int(pid.read_text()) == started
        os.kill(started, 0)
        terminal.press(CTRL_D)
        assert terminal.wait_for_end() == 0
        with pytest.raises(ProcessLookupError):
            os.kill(started, 0)
        assert "standard error" not in terminal.screen()
