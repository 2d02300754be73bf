"""The process that commands are forked from: it has imported the command line, and waits for what to run.

`support.warm` starts it and says what it promises. Each message on the socket that it inherits as standard input names
the arguments, the folder and the environment of a command and brings four files: the command's three standard streams
and a pipe. Into the pipe go the number of the new process and, when it has ended, how; with each of the two the CPU
seconds spent since: of this process, and of the new one.
"""

import atexit
import gc
import io
import json
import os
import selectors
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_LONGEST = 1 << 20
_FILES = 4


def _load() -> None:
    """Import every command, and what commands import later on."""
    from importlib import import_module  # noqa: PLC0415  not wanted by the commands

    from mustcall.cli import COMMANDS  # noqa: PLC0415  as above

    for module, _ in COMMANDS.values():
        import_module(module)
    for module in ("mustcall.engine", "mustcall.gateway.app", "mustcall.gateway.process.server", "uvicorn.loops.auto"):
        import_module(module)


def _wait_for_order() -> dict[str, Any]:
    """Serve as the parent for ever; return in each child, with what it is to do."""
    orders = socket.socket(fileno=os.dup(0))
    watched = selectors.DefaultSelector()
    watched.register(orders, selectors.EVENT_READ)
    told_before = 0.0
    while True:
        for key, _ in watched.select():
            if key.fileobj is orders:
                message, files, _, _ = socket.recv_fds(orders, _LONGEST, _FILES)
                if not message:
                    sys.exit(0)
                child = os.fork()
                if not child:
                    watched.close()
                    orders.close()
                    for place, file in enumerate(files[:3]):
                        os.dup2(file, place)
                    for file in files:
                        os.close(file)
                    return json.loads(message)
                seconds, told_before = time.process_time() - told_before, time.process_time()
                os.write(files[3], f"{child} {seconds}\n".encode())
                for file in files[:3]:
                    os.close(file)
                watched.register(os.pidfd_open(child), selectors.EVENT_READ, (child, files[3]))
            else:
                child, told = key.data
                watched.unregister(key.fileobj)
                os.close(key.fd)
                _, status, used = os.wait4(child, 0)
                seconds = used.ru_utime + used.ru_stime
                with suppress(BrokenPipeError):  # nobody asks any more
                    os.write(told, f"{os.waitstatus_to_exitcode(status)} {seconds}\n".encode())
                os.close(told)


def _become(order: dict[str, Any]) -> None:
    """Take over what a fresh process would have been given."""
    if order["session"]:
        os.setsid()
    if order["terminal"]:
        import fcntl  # noqa: PLC0415  no command needs it
        import termios  # noqa: PLC0415  as above

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = ["mustcall", *order["arguments"]]
    sys.path.insert(0, str(Path.cwd()))  # as for `python -m`
    errors = "surrogateescape" if order["lenient"] else "strict"
    sys.stdin = os.fdopen(0, encoding="utf-8", errors=errors, closefd=False)
    sys.stdout = _output(1, errors)
    sys.stderr = _output(2, "backslashreplace", write_through=True)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _output(file: int, errors: str, *, write_through: bool = False) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        os.fdopen(file, "wb", closefd=False),
        encoding="utf-8",
        errors=errors,
        line_buffering=os.isatty(file),
        write_through=write_through,
    )


def _end(code: int) -> None:
    """End as the interpreter does, but for taking the modules apart: that touches all that was imported before.

    Where the output cannot be written, return: the interpreter has its own words and exit code for that.
    """
    threading._shutdown()  # pyrefly: ignore[missing-attribute]
    atexit._run_exitfuncs()
    gc.collect()  # what is left of this command, and says so when it goes; the imports stay frozen
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    os._exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the tests
    _load()
    gc.collect()
    gc.freeze()
    _become(_wait_for_order())

    from mustcall.cli import main

    try:
        main()
    except SystemExit as ended:
        if isinstance(ended.code, int | None):
            _end(ended.code or 0)
        raise
