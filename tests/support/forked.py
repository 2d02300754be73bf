"""A forked worker of the tests (`support.forking`): it runs what it is handed, tells what became of it, and ends."""

import json
import os
import pickle
import signal
import sys
import traceback
import warnings
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from mmap import mmap
from typing import Any, Literal

import pytest

from support import misses

__all__ = ["PHASES", "WorkerEnd", "new_place", "read_place", "send", "work"]

PHASES: tuple[Literal["setup", "call", "teardown"], ...] = ("setup", "call", "teardown")
#: The bytes of a worker's place, and what is there before the first test.
_PLACE, _NOWHERE = 8, -1
#: What every report has; one that has more says something that only the whole report tells.
_USUAL = frozenset(vars(pytest.TestReport("", ("", None, ""), {}, "passed", None, "call")))


@dataclass
class WorkerEnd:
    """What a worker tells last: what plugins have to hand over, why it stopped early, and what failed at its end."""

    output: dict[str, Any]
    stopped: str = ""
    exit_code: int | None = None
    """Of `pytest.exit`."""
    errors: list[str] = field(default_factory=list[str])


def send(pipe: Any, content: object) -> None:
    """Send, unless the other process has died: its end is noticed where it is read from."""
    with suppress(ConnectionError):
        pipe.send(content)


def new_place() -> mmap:
    """Return memory in which a worker says which test it has begun last: whatever ends it, that is known."""
    place = mmap(-1, _PLACE)
    _begin(place, _NOWHERE)
    return place


def read_place(place: mmap) -> int | None:
    """Return the test that was begun last, None before the first one."""
    at = int.from_bytes(place[:_PLACE], sys.byteorder, signed=True)
    return None if at == _NOWHERE else at


def _begin(place: mmap, at: int) -> None:
    place[:_PLACE] = at.to_bytes(_PLACE, sys.byteorder, signed=True)


class _Telling:
    """The plugin that tells the process that forked this one what became of each test."""

    def __init__(self, config: pytest.Config, pipe: Any, place: mmap) -> None:
        self._config = config
        self._pipe = pipe
        self._place = place
        self._kept: list[pytest.TestReport] = []
        self.listening = False
        """Whether warnings are new: a plugin is told all earlier ones when it is registered."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what passed until the last phase: most tests can be told in a few words."""
        self._kept.append(report)
        if report.when == "teardown" and self._plain():
            self._pipe.send(("passed", (read_place(self._place), [(kept.start, kept.stop) for kept in self._kept])))
            self._kept.clear()
        elif report.when == "teardown" or not report.passed:
            self._tell_all()

    def _plain(self) -> bool:
        return len(self._kept) == len(PHASES) and all(
            kept.passed and not kept.sections and not kept.user_properties and vars(kept).keys() <= _USUAL
            for kept in self._kept
        )

    def _tell_all(self) -> None:
        """Tell reports in full; what cannot be told of them is told by its text."""
        for kept in self._kept:
            data = self._config.hook.pytest_report_to_serializable(config=self._config, report=kept)
            if not _can_be_told(data):
                data = json.loads(json.dumps(data, default=str))
            self._pipe.send(("report", (read_place(self._place), data)))
        self._kept.clear()

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        """Tell a warning; one that cannot be told is told by its text."""
        if not self.listening:
            return
        warning_message.source = None
        content = {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location}
        if not _can_be_told(content):
            text = f"{warning_message.category.__name__}: {warning_message.message}"
            warning_message.message, warning_message.category = pytest.PytestWarning(text), pytest.PytestWarning
        self._pipe.send(("warning", content))


def _can_be_told(content: object) -> bool:
    try:
        pickle.loads(pickle.dumps(content))  # noqa: S301  what this line has written
    except Exception:  # noqa: BLE001  whatever classes of tests raise
        return False
    return True


def work(session: pytest.Session, number: int, pipe: Any, place: mmap) -> None:
    """Run what the other process hands out, in a process that ends here."""
    try:
        os.setpgid(0, 0)  # Ctrl-C in a terminal tells the first process only, and that one tells each worker once
        config = session.config
        _separate(config, number)
        telling = _Telling(config, pipe, place)
        config.pluginmanager.register(telling, "telling")
        telling.listening = True
        end = WorkerEnd(vars(config)["workeroutput"])
        try:
            _run(session, pipe, place)
            end.stopped = str(session.shouldstop or "")
        except pytest.exit.Exception as error:
            end.stopped, end.exit_code = str(error), error.returncode
        except KeyboardInterrupt:
            end.stopped = "KeyboardInterrupt"
        except (EOFError, ConnectionError):  # the other process died
            pass
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end is not to be interrupted
        end.errors += _finish(session)
        send(pipe, ("ended", end))
        status = 0
    except BaseException:  # noqa: BLE001  nothing may come back into the code of the process that was forked
        os.write(2, traceback.format_exc().encode())
        status = 1
    os._exit(status)


def _status(session: pytest.Session, errors: list[str]) -> pytest.ExitCode:
    """Tell plugins whether all of this worker's tests have passed: then their folders go."""
    bad = session.testsfailed or session.shouldstop or errors
    return pytest.ExitCode.TESTS_FAILED if bad else pytest.ExitCode.OK


def _finish(session: pytest.Session) -> list[str]:
    """End fixtures, then what plugins have, each whatever became of the one before; return what failed."""
    errors: list[str] = []
    for step in (
        lambda: vars(session)["_setupstate"].teardown_exact(None),  # before a plugin stops what fixtures use
        lambda: session.config.hook.pytest_sessionfinish(session=session, exitstatus=_status(session, errors)),
        lambda: vars(pytest.Config)["_ensure_unconfigure"](session.config),
    ):
        try:
            step()
        except BaseException:  # noqa: BLE001  whatever fixtures and plugins raise
            errors.append(traceback.format_exc())
    return errors


def _separate(config: pytest.Config, number: int) -> None:
    """Give the process what it must not share with the one that it was forked from."""
    vars(config)["workerinput"] = {"workerid": f"fork{number}"}  # as plugins know a worker of pytest-xdist
    vars(config)["workeroutput"] = {}
    misses.forget()
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)  # the terminal is not a worker's
    os.dup2(nothing, 1)  # the reporter of this process writes there
    os.close(nothing)
    capture.start_global_capturing()
    capture.suspend_global_capture()
    folders: Any = vars(config)["_tmp_path_factory"]
    own = folders.getbasetemp() / f"worker{number}"
    own.mkdir(mode=0o700)
    folders._basetemp = own  # where tests get their folders


def _run(session: pytest.Session, pipe: Any, place: mmap) -> None:
    """Run tests as they are handed out. The next one is known before a test ends: fixtures that both use stay."""
    queue: deque[int] = deque()
    more = True

    def ask() -> None:
        nonlocal more
        handed = pipe.recv()
        if handed is None:
            more = False
            return
        queue.extend(range(*handed))

    ask()
    while queue:
        at = queue.popleft()
        if more and not queue:
            pipe.send(("more", None))
            ask()
        _begin(place, at)
        item, following = session.items[at], session.items[queue[0]] if queue else None
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail or session.shouldstop or pipe.poll():  # told unasked: everybody is to stop
            return
