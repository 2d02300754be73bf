"""A program in a real terminal, driven by keys and read off the screen.

Two kinds: a pseudo-terminal of the operating system, which is always there, and tmux, which is a whole terminal of its
own and is used as well where it is installed. Both wait for what must appear; nothing sleeps for a fixed time.
"""

import contextlib
import fcntl
import os
import re
import secrets
import shlex
import shutil
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from support import warm
from support.warm import PATIENCE

__all__ = ["PATIENCE", "TERMINALS", "PseudoTerminal", "Terminal", "Tmux"]

_WIDTH, _HEIGHT = 150, 50
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z\\-_=>])|[\x01\x02]")

CTRL_C, CTRL_D, UP = "C-c", "C-d", "Up"
_KEYS = {CTRL_C: b"\x03", CTRL_D: b"\x04", UP: b"\x1b[A"}


class Terminal(Protocol):
    """A program in a terminal."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def type(self, text: str) -> None:
        """Type a line and the enter key."""
        ...

    def press(self, key: str) -> None:
        """Press a key that is no character."""
        ...

    def screen(self) -> str:
        """Return everything that was shown, as text."""
        ...

    def wait_for(self, *texts: str) -> str:
        """Wait until these stand on the screen one after the other; return the screen."""
        ...

    def wait_for_end(self) -> int:
        """Wait until the program has ended; return its exit code."""
        ...


def _wait(reached: Callable[[], bool], what: str, screen: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come about; the screen was:\n{screen()}")
        time.sleep(0.02)


def _in_order(texts: Sequence[str], screen: str) -> bool:
    position = 0
    for text in texts:
        position = screen.find(text, position)
        if position < 0:
            return False
        position += len(text)
    return True


class PseudoTerminal:
    """A pseudo-terminal with `mustcall` in a session of its own, as a terminal window would have it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _HEIGHT, _WIDTH, 0, 0))
        self._shown = bytearray()
        assert command[:3] == [sys.executable, "-m", "mustcall"]
        shell = {**environment, "TERM": "xterm-256color"}
        self._process = warm.start(
            *command[3:], stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=shell, terminal=True
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join(5)
        os.close(self._master)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            while data := os.read(self._master, 65536):
                self._shown += data

    def type(self, text: str) -> None:
        """Type a line and the enter key."""
        os.write(self._master, text.encode() + b"\r")

    def press(self, key: str) -> None:
        """Press a key that is no character, as a person does: once the program waits.

        A signal that arrives between the question and the wait for its answer is seen only with the next key.
        """
        _wait(lambda: not self._runs(), "a wait for a key", self.screen)
        os.write(self._master, _KEYS[key])

    def _runs(self) -> bool:
        """Return whether the program neither waits nor has ended, where the system tells."""
        try:
            state = Path(f"/proc/{self._process.pid}/stat").read_text()
        except OSError:
            return False
        return state.rpartition(")")[2].split()[0] in "RD"

    @property
    def written(self) -> bytes:
        """Everything the terminal was told, as it came."""
        return bytes(self._shown)

    def screen(self) -> str:
        """Return everything that was written, without what moves the cursor."""
        return _ESCAPES.sub("", bytes(self._shown).decode("utf-8", "replace")).replace("\r\n", "\n")

    def wait_for(self, *texts: str) -> str:
        """Wait until these stand on the screen one after the other; return the screen."""
        _wait(lambda: _in_order(texts, self.screen()), repr(texts), self.screen)
        return self.screen()

    def wait_for_end(self) -> int:
        """Wait until the program has ended and what it wrote last is on the screen; return its exit code."""
        code = self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)  # it ends with the last process that has the terminal open
        return code


class Tmux:
    """A tmux server of its own with one window."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self._socket = f"mustcall-{secrets.token_hex(6)}"
        self._code = folder / f".{self._socket}"
        line = f"{shlex.join(command)}; echo $? > {shlex.quote(str(self._code))}; sleep 600"
        self._program = shutil.which("tmux") or "tmux"
        self._line = line
        self._environment = dict(environment)
        self._folder = folder

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(  # noqa: S603  a program of the tests' own choosing
            [self._program, "-L", self._socket, "-f", "/dev/null", *arguments],
            capture_output=True,
            text=True,
            timeout=180,
            check=True,
            env=self._environment,
        )
        return done.stdout

    def __enter__(self) -> Self:
        size = ("-x", str(_WIDTH), "-y", str(_HEIGHT))
        self._tmux("new-session", "-d", "-s", "test", *size, "-c", str(self._folder), self._line)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(subprocess.SubprocessError):
            self._tmux("kill-server")

    def type(self, text: str) -> None:
        """Type a line and the enter key."""
        self._tmux("send-keys", "-t", "test", "-l", text)
        self._tmux("send-keys", "-t", "test", "Enter")

    def press(self, key: str) -> None:
        """Press a key that is no character."""
        self._tmux("send-keys", "-t", "test", key)

    def screen(self) -> str:
        """Return the window with what scrolled out of it, lines that were wrapped joined again."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-", "-t", "test")

    def wait_for(self, *texts: str) -> str:
        """Wait until these stand on the screen one after the other; return the screen."""
        _wait(lambda: _in_order(texts, self.screen()), repr(texts), self.screen)
        return self.screen()

    def wait_for_end(self) -> int:
        """Wait until the program has ended; return its exit code."""
        _wait(lambda: self._code.exists() and bool(self._code.read_text().strip()), "its end", self.screen)
        return int(self._code.read_text())


#: What the tests run in: the pseudo-terminal always, tmux where it is.
TERMINALS: tuple[type[Terminal], ...] = (PseudoTerminal, *((Tmux,) if shutil.which("tmux") else ()))
