"""A command that is forked from a process that has its imports is what a fresh one is."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from support import warm

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the system starts every command from nothing")

CONFIG = '[[upstream]]\nname = "a"\nwire = "chat"\nbase_url = "http://127.0.0.1:1"\napi_key_env = "A_KEY"\n'


def both(*arguments: str, cwd: Path, env: dict[str, str], said: str | None = None) -> list[tuple[int, str, str]]:
    """Run a command forked and from nothing; return its exit codes and what it printed."""
    pipe = subprocess.PIPE
    told: list[tuple[int, str, str]] = []
    for starting in (warm.start, warm.cold_start):
        with starting(*arguments, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe) as process:
            out, error = process.communicate(said, warm.PATIENCE)
            told.append((process.wait(), out, error))
    return told


@pytest.mark.parametrize("key", ["sk-a", ""])
def test_folder_environment_streams_and_exit_code(tmp_path: Path, key: str) -> None:
    """The same is printed of a file in its folder and a variable of its environment, and the exit code is the same."""
    (tmp_path / "mustcall.toml").write_text(CONFIG, encoding="utf-8")
    forked, fresh = both("config", "check", "mustcall.toml", cwd=tmp_path, env={**os.environ, "A_KEY": key})
    assert forked == fresh
    assert (forked[0] == 0, "A_KEY" in forked[2]) == (bool(key), not key)


def test_a_signal_ends_it() -> None:
    """It has a number of its own, ends by what it is sent, and is not there any more."""
    process = warm.start("serve", "--demo", "--port", "0", stdout=subprocess.PIPE)
    assert isinstance(process, warm.Forked)
    assert process.stdout is not None
    assert "listens" in process.stdout.readline()
    assert process.poll() is None
    process.kill()
    assert process.wait(warm.PATIENCE) == process.poll() == -signal.SIGKILL
    process.communicate(timeout=warm.PATIENCE)
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_an_environment_of_another_python_starts_from_nothing() -> None:
    """What Python reads when it starts cannot be forked."""
    process = warm.start("--version", stdout=subprocess.PIPE, env={**os.environ, "PYTHONIOENCODING": "latin-1"})
    assert isinstance(process, subprocess.Popen)
    assert process.communicate(timeout=warm.PATIENCE)[0].startswith("mustcall, version")


def test_a_shell_finds_it(tmp_path: Path) -> None:
    """In a shell line it reads and prints through the shell's files, and its exit code is the line's."""
    (tmp_path / "reply.txt").write_text('<tool_call>{"name": "look", "arguments": {}}</tool_call>', encoding="utf-8")
    line = "mustcall parse < reply.txt && mustcall config check gone.toml 2> said.txt"
    with warm.shell(line, cwd=tmp_path, env=os.environ) as process:
        out, error = process.communicate(timeout=warm.PATIENCE)
    assert (process.returncode, "look" in out, error) == (2, True, "")
    assert "gone.toml" in (tmp_path / "said.txt").read_text(encoding="utf-8")
