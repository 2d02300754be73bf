"""`mustcall` in a process of its own, without the time that importing it takes.

One process has imported the command line, and each command is forked from it (`warm_process.py`). What runs is a real
process: its own number, standard streams, folder, environment, signals, terminal and exit code; its threads are waited
for and its exit handlers run. Only the imports are not its own, and when it ends they are not taken apart one by one.
So a test of starting or importing, of limits, or of workers (which start from the program's file) uses `subprocess`.
`start` does as well where the system cannot fork in this way, and for an environment with other variables that Python
reads when it starts.
"""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Self

__all__ = ["PATIENCE", "SPENT", "Forked", "Process", "cold_start", "run", "shell", "start", "warm_process"]

#: No test depends on speed; this only ends one that hangs.
PATIENCE = 180.0
#: The CPU seconds of what was forked, which is not a child of this process: `tools/costs.py` adds them up.
SPENT: list[float] = []
_PROGRAM = Path(__file__).parent / "warm_process.py"
_SHELL = Path(__file__).parent / "warm_shell.py"
_PIPE, _STDOUT, _DEVNULL = subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL


class Forked:
    """A process that another one waits for: that one tells here how it ended."""

    def __init__(
        self,
        order: Mapping[str, object],
        stdin: int | IO[bytes] | None,
        stdout: int | IO[bytes] | None,
        stderr: int | IO[bytes] | None,
    ) -> None:
        self.returncode: int | None = None
        self.stdin: IO[str] | None = None
        self.stdout: IO[str] | None = None
        self.stderr: IO[str] | None = None
        self._readers: list[threading.Thread] = []
        theirs: list[int] = []
        given: list[int] = []
        with Path(os.devnull).open("r+b", buffering=0) as nothing:
            for place, asked in enumerate((stdin, stdout, stderr)):
                if asked == _PIPE:
                    reads, writes = os.pipe()
                    here, there = (writes, reads) if place == 0 else (reads, writes)
                    theirs.append(there)
                    stream = os.fdopen(here, "w" if place == 0 else "r", 1, "utf-8")
                    setattr(self, ("stdin", "stdout", "stderr")[place], stream)
                    given.append(there)
                elif asked == _STDOUT:
                    given.append(given[1])
                elif asked == _DEVNULL:
                    given.append(nothing.fileno())
                else:
                    given.append(place if asked is None else asked if isinstance(asked, int) else asked.fileno())
            self._told, tells = os.pipe()
            socket.send_fds(warm_process(), [json.dumps(order).encode()], [*given, tells])
        for file in (*theirs, tells):
            os.close(file)
        self._heard = b""
        self.pid = self._number(None) or 0

    def _number(self, timeout: float | None) -> int | None:
        """Return the next number told of the process, None if none came in time."""
        while b"\n" not in self._heard:
            if not select.select([self._told], [], [], timeout)[0]:
                return None
            more = os.read(self._told, 100)
            if not more:
                raise AssertionError("the process that commands are forked from has ended")
            self._heard += more
        line, _, self._heard = self._heard.partition(b"\n")
        number, seconds = line.split()
        SPENT.append(float(seconds))
        return int(number)

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        if self.returncode is None and (code := self._number(0)) is not None:
            self.returncode = code
            os.close(self._told)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return the exit code."""
        if self.returncode is None and not select.select([self._told], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("mustcall", timeout or 0)
        while (code := self.poll()) is None:
            select.select([self._told], [], [])
        return code

    def send_signal(self, sig: int, /) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:  # noqa: A002  as `subprocess` has it
        """Say this, read everything to the end and wait for the exit code."""
        read = ["", ""]

        def read_all(place: int, file: IO[str]) -> None:
            read[place] = file.read()

        self._readers = [
            threading.Thread(target=read_all, args=(place, file), daemon=True)
            for place, file in enumerate((self.stdout, self.stderr))
            if file is not None and not file.closed
        ]
        for reader in self._readers:
            reader.start()
        if self.stdin is not None and not self.stdin.closed:
            with suppress(BrokenPipeError):  # it has heard enough
                self.stdin.write(input or "")
                self.stdin.close()
        for reader in self._readers:
            reader.join(timeout)
            if reader.is_alive():
                raise subprocess.TimeoutExpired("mustcall", timeout or 0)
        self._readers = []
        self.wait(timeout)
        for file in (self.stdout, self.stderr):
            if file is not None:
                file.close()
        return read[0], read[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for its end; after an error, which may have left it waiting, end it."""
        if kind is not None:
            self.kill()
        if self.stdin is not None:
            with suppress(BrokenPipeError):
                self.stdin.close()
        self.wait()
        for file in (self.stdout, self.stderr):
            if file is not None and not self._readers:
                file.close()


#: What is started: a process whose imports were there, or one from nothing.
Process = Forked | subprocess.Popen[str]


def start(
    *arguments: str,
    stdin: int | IO[bytes] | None = None,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    start_new_session: bool = False,
    terminal: bool = False,
) -> Process:
    """Start `mustcall` with these arguments; `terminal`: standard input is the terminal of its new session."""
    environment = dict(os.environ if env is None else env)
    if _forks(environment):
        order = {
            "arguments": arguments,
            "folder": str((cwd or Path()).resolve()),
            "environment": environment,
            "session": start_new_session or terminal,
            "terminal": terminal,
            "lenient": _locale(environment) in {"", "C", "POSIX", "C.UTF-8"},
        }
        return Forked(order, stdin, stdout, stderr)
    return cold_start(
        *arguments,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        env=env,
        start_new_session=start_new_session,
        terminal=terminal,
    )


def cold_start(
    *arguments: str,
    stdin: int | IO[bytes] | None = None,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    start_new_session: bool = False,
    terminal: bool = False,
) -> subprocess.Popen[str]:
    """Start `mustcall` as `start` does, from the program's file."""
    return subprocess.Popen(  # noqa: S603  our own command
        [sys.executable, "-m", "mustcall", *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        env=env,
        text=True,
        encoding="utf-8",
        start_new_session=start_new_session or terminal,
        preexec_fn=_take_terminal if terminal else None,  # noqa: PLW1509  the terminal of its session
    )


def run(
    *arguments: str, said: str | None = None, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with `said` as its standard input."""
    stdin = None if said is None else _PIPE
    with start(*arguments, stdin=stdin, stdout=_PIPE, stderr=_PIPE, cwd=cwd, env=env) as process:
        try:
            out, error = process.communicate(said, PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(arguments, process.wait(), out, error)


@contextmanager
def shell(
    line: str, *, cwd: Path, env: Mapping[str, str], stdin: int | None = None, stderr: int = _PIPE
) -> Generator[subprocess.Popen[str]]:
    """Start a line in a shell that finds `mustcall` on its path; its output is a pipe."""
    told, tells = os.pipe()
    with tempfile.TemporaryDirectory() as programs:
        program, passed = f'exec {sys.executable} -m mustcall "$@"', ()
        if _forks(env):
            passed = (warm_process().fileno(), tells)
            program = f'exec {sys.executable} -I -S {_SHELL} {passed[0]} {tells} "$@"'
        file = Path(programs) / "mustcall"
        file.write_text(f"#!/bin/sh\n{program}\n", encoding="utf-8")
        file.chmod(0o755)
        try:
            yield subprocess.Popen(  # noqa: S603  a line of our own
                ["bash", "-c", line],  # noqa: S607
                cwd=cwd,
                env={**env, "PATH": f"{programs}{os.pathsep}{env['PATH']}"},
                stdin=stdin,
                stdout=_PIPE,
                stderr=stderr,
                text=True,
                pass_fds=passed,
            )
        finally:
            os.close(tells)
            with os.fdopen(told, encoding="ascii") as spent:
                SPENT.extend(map(float, spent))


def _forks(environment: Mapping[str, str]) -> bool:
    """Whether a process that was forked is what a fresh one would be."""
    read = {name for name in {*environment, *os.environ} if name.startswith("PYTHON")}
    same = all(environment.get(name) == os.environ.get(name) for name in read)
    plain = _locale(environment) in {"", "C", "POSIX"} or _locale(environment).upper().endswith(("UTF-8", "UTF8"))
    return sys.platform == "linux" and same and plain


def _locale(environment: Mapping[str, str]) -> str:
    return next((environment[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environment.get(name)), "")


def _take_terminal() -> None:
    import fcntl  # noqa: PLC0415  not everywhere
    import termios  # noqa: PLC0415  as above

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@cache
def warm_process() -> socket.socket:
    """Start the process that commands are forked from, once; it ends when this one does.

    Started before the tests' own processes are forked, it serves all of them.
    """
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with there:
        started = subprocess.Popen([sys.executable, "-P", str(_PROGRAM)], stdin=there.fileno(), start_new_session=True)  # noqa: S603
    atexit.register(lambda: (here.close(), started.wait()))
    return here
