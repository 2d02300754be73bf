"""Processes of the matrix: each in a group of its own, ended with it, and all of them when the run is stopped."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from threading import Event

#: Set when the run is stopped: whatever is under way is ended at once.
STOPPING = Event()
_PAUSE = 0.05


class Stopped(Exception):
    """The run was stopped before this was over."""


def stop_on_signals() -> None:
    """Let Ctrl-C and SIGTERM stop the run: no exception rises anywhere, and a second one changes nothing."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: STOPPING.set())


def wait_until(over: Callable[[], bool], seconds: float) -> bool:
    """Wait for something; False after so many seconds. Raise `Stopped` when the run is."""
    until = time.monotonic() + seconds
    while not over():
        if STOPPING.is_set():
            raise Stopped
        if time.monotonic() >= until:
            return False
        time.sleep(_PAUSE)
    return True


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a process that was started in a session of its own, and all it started there."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            continue
