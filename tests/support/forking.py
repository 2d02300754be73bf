"""Tests in several processes that share one collection: it is made once, and each worker is forked from it.

`--workers N` runs the tests so. pytest-xdist gives each worker an interpreter of its own, which imports and collects
all tests again: about 25 CPU seconds for each worker of this project, and as much memory. A forked worker finds every
import, every collected test and all bytecode in place, so there may be as many workers as it takes to get a share of a
busy machine. Where processes cannot be forked safely (macOS, Windows), the same option starts pytest-xdist.

A worker is handed runs of neighbouring tests, large ones first, so that the tests of a module stay together. It tells
what became of each test; only this process reports. A worker that dies fails the test that it ran, and is replaced.
"""

import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import wait
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest

from support import misses

__all__ = ["Forking", "can_fork", "processors", "usual_workers"]

#: So many shares of what is left are handed out at a time: small enough that no worker ends long after the others.
_SHARES = 4
#: Seconds that workers have for the end of their fixtures after an interruption.
_PATIENCE = 30.0
_PHASES = ("setup", "call", "teardown")


def can_fork() -> bool:
    """Return whether a process that has imported this much can be forked: system libraries of macOS do not allow it."""
    return sys.platform == "linux"


def processors() -> int:
    """Return how many processors this process may use; it may be bound to fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usual_workers() -> int:
    """Return how many workers `auto` stands for.

    Some tests wait, for a process to start or a socket to speak, so there is a worker more than there are processors.
    Eight keep a machine of two processors at work where other programs run on it, too: the system divides the time by
    processes.
    """
    return max(processors() + 1, 8) if can_fork() else processors() + 1


def shares(count: int, workers: int, borders: set[int]) -> Iterator[range]:
    """Return runs of `count` tests, the first the longest; one ends at a border if there is one in its second half."""
    start = 0
    while start < count:
        length = max(1, (count - start) // (workers * _SHARES))
        end = start + length
        end = next((place for place in range(end, start + length // 2, -1) if place in borders), end)
        yield range(start, end)
        start = end


@dataclass
class _Worker:
    """A forked process and what it has been told to run."""

    number: int
    pid: int
    pipe: Any
    """A `Connection`; it has another class on Windows."""
    at: int | None = None
    """The test that it runs."""
    queue: deque[int] = field(default_factory=deque[int])
    """The tests that it was handed and has not begun."""


class Forking:
    """The plugin that runs the collected tests in forked workers."""

    def __init__(self, workers: int) -> None:
        self._wanted = workers
        self._running: dict[int, _Worker] = {}
        self._numbers = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests, unless there is nothing to gain from several processes."""
        config = session.config
        if config.option.collectonly or config.option.usepdb or session.testsfailed or len(session.items) < 2:
            return None
        assert threading.active_count() == 1, f"collecting has started threads: {threading.enumerate()}"
        _reporter(config).showfspath = False  # tests of several modules run at a time
        vars(config)["_tmp_path_factory"].getbasetemp()  # one for all, so that workers have theirs in it
        self._left = deque(self._shares(session))
        try:
            for _ in range(min(self._wanted, len(self._left))):
                self._fork(session)
            self._drive(session)
        except BaseException:
            self._stop(signal.SIGINT)
            raise
        finally:
            self._stop(None)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def _shares(self, session: pytest.Session) -> Iterator[range]:
        items = session.items
        borders = {at for at in range(1, len(items)) if items[at].path != items[at - 1].path} | {len(items)}
        return shares(len(items), self._wanted, borders)

    def _fork(self, session: pytest.Session) -> None:
        """Start a worker and hand it its first tests."""
        here, there = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        number, self._numbers = self._numbers, self._numbers + 1
        pid = os.fork()
        if pid == 0:
            here.close()
            for other in self._running.values():
                other.pipe.close()
            _work(session, number, there)  # does not return
        there.close()
        self._running[pid] = _Worker(number, pid, here)
        self._hand_out(self._running[pid])

    def _hand_out(self, worker: _Worker) -> None:
        """Give a worker more to run, or tell it that nothing is left."""
        share = self._left.popleft() if self._left else range(0)
        worker.queue.extend(share)
        _send(worker.pipe, (share.start, share.stop) if share else None)

    def _drive(self, session: pytest.Session) -> None:
        """Report what workers tell until all have ended."""
        told = False
        while self._running:
            pipes = {worker.pipe: worker for worker in self._running.values()}
            for pipe in wait(list(pipes)):
                self._hear(session, pipes[pipe])
            if not told and (session.shouldfail or session.shouldstop):
                told = True
                self._left.clear()
                for worker in self._running.values():
                    worker.queue.clear()
                    _send(worker.pipe, None)

    def _hear(self, session: pytest.Session, worker: _Worker) -> None:
        try:
            kind, content = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._bury(session, worker)
            return
        match kind:
            case "more":
                self._hand_out(worker)
            case "began":
                worker.at = content
                if worker.queue:  # not where everybody was told to stop
                    worker.queue.popleft()
            case "passed":
                _report_passed(session, worker.at, content)
            case "report":
                hook = session.config.hook
                report = hook.pytest_report_from_serializable(config=session.config, data=content)
                hook.pytest_runtest_logreport(report=report)
            case "warning":
                session.config.hook.pytest_warning_recorded.call_historic(kwargs=content)
            case _:
                worker.at = None
                misses.take_over(SimpleNamespace(workeroutput=content))

    def _bury(self, session: pytest.Session, worker: _Worker) -> None:
        """Take note of a worker's end; where it came too soon, fail the test it ran and have the others run."""
        _, status = os.waitpid(worker.pid, 0)
        worker.pipe.close()
        del self._running[worker.pid]
        code = os.waitstatus_to_exitcode(status)
        if code == 0 and worker.at is None:
            return
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if worker.at is None:
            raise RuntimeError(f"a worker ended with {how} before its first test")
        _report_death(session, session.items[worker.at], f"the worker ended with {how} while this test ran")
        self._left.extendleft(range(at, at + 1) for at in reversed(worker.queue))
        if self._left and not (session.shouldfail or session.shouldstop):
            self._fork(session)

    def _stop(self, sent: signal.Signals | None) -> None:
        """End all workers that still run, with time for their fixtures where they are asked by a signal."""
        if sent is not None:
            for worker in self._running.values():
                os.kill(worker.pid, sent)
            left = {worker.pipe for worker in self._running.values()}
            while left and (heard := wait(list(left), _PATIENCE)):
                for pipe in cast("list[Any]", heard):
                    try:
                        pipe.recv()
                    except (EOFError, ConnectionResetError):
                        left.discard(pipe)
        for worker in self._running.values():
            os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)
            worker.pipe.close()
        self._running.clear()


def _report_passed(session: pytest.Session, at: int | None, durations: list[tuple[float, float]]) -> None:
    """Report a test that passed in all three phases and said nothing."""
    assert at is not None
    item = session.items[at]
    keywords: dict[str, Literal[1]] = dict.fromkeys(item.keywords, 1)
    for phase, (start, stop) in zip(_PHASES, durations, strict=True):
        report = pytest.TestReport(
            item.nodeid, item.location, keywords, "passed", None, phase, duration=stop - start, start=start, stop=stop
        )
        session.config.hook.pytest_runtest_logreport(report=report)


def _report_death(session: pytest.Session, item: pytest.Item, words: str) -> None:
    report = pytest.TestReport(item.nodeid, item.location, {}, "failed", words, "call")
    session.config.hook.pytest_runtest_logreport(report=report)


def _send(pipe: Any, content: object) -> None:
    """Send, unless the other process has died: its end is noticed where it is read from."""
    with suppress(BrokenPipeError):
        pipe.send(content)


class _Telling:
    """The plugin that tells the process that forked this one what became of each test."""

    def __init__(self, config: pytest.Config, pipe: Any) -> None:
        self._config = config
        self._pipe = pipe
        self._passed: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what passed until the last phase: most tests can be told in a few words."""
        self._passed.append(report)
        if report.when == "teardown" and self._plain():
            self._pipe.send(("passed", [(kept.start, kept.stop) for kept in self._passed]))
            self._passed.clear()
        elif report.when == "teardown" or not report.passed:
            self.flush()

    def _plain(self) -> bool:
        return len(self._passed) == len(_PHASES) and all(
            kept.passed and not kept.sections and not kept.user_properties and not hasattr(kept, "wasxfail")
            for kept in self._passed
        )

    def flush(self) -> None:
        """Tell what was kept in full."""
        for kept in self._passed:
            data = self._config.hook.pytest_report_to_serializable(config=self._config, report=kept)
            self._pipe.send(("report", data))
        self._passed.clear()

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        """Tell a warning; one that cannot be pickled is told in its words."""
        try:
            pickle.dumps(warning_message)
        except Exception:  # noqa: BLE001  whatever the classes of a warning raise
            warning_message.message = UserWarning(str(warning_message.message))
            warning_message.source = None
        content = {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location}
        self._pipe.send(("warning", content))


def _work(session: pytest.Session, number: int, pipe: Any) -> None:
    """Run what the other process hands out, in a process that ends here."""
    status = 1
    try:
        config = session.config
        _separate(config, number)
        config.pluginmanager.register(_Telling(config, pipe), "telling")
        exit_status = pytest.ExitCode.OK
        try:
            _run(session, pipe)
        except (KeyboardInterrupt, session.Interrupted, EOFError, BrokenPipeError):  # the last two: the other one died
            signal.signal(
                signal.SIGINT, signal.SIG_IGN
            )  # Ctrl-C reaches a worker from the terminal and from its parent
            exit_status = pytest.ExitCode.INTERRUPTED
            _end_fixtures(session)
        config.hook.pytest_sessionfinish(session=session, exitstatus=exit_status)
        vars(pytest.Config)["_ensure_unconfigure"](config)  # as pytest itself ends a process
        _send(pipe, ("ended", vars(config)["workeroutput"]))
        status = 0
    except BaseException:  # noqa: BLE001  nothing may come back into the code of the process that was forked
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


def _separate(config: pytest.Config, number: int) -> None:
    """Give the process what it must not share with the one that it was forked from."""
    vars(config)["workerinput"] = {"workerid": f"fork{number}"}  # as plugins know a worker of pytest-xdist
    vars(config)["workeroutput"] = {}
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)  # the reporter of this process writes there
    os.close(nothing)
    capture.start_global_capturing()
    capture.suspend_global_capture()
    folders: Any = vars(config)["_tmp_path_factory"]
    own = folders.getbasetemp() / f"worker{number}"
    own.mkdir(mode=0o700)
    folders._basetemp = own


def _run(session: pytest.Session, pipe: Any) -> None:
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
        pipe.send(("began", at))
        item, following = session.items[at], session.items[queue[0]] if queue else None
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail or session.shouldstop or (more and pipe.poll()):  # told unasked: everybody is to stop
            _end_fixtures(session)
            return


def _end_fixtures(session: pytest.Session) -> None:
    """End what tests have left for a next one that does not come."""
    vars(session)["_setupstate"].teardown_exact(None)


def _reporter(config: pytest.Config) -> Any:
    return config.pluginmanager.getplugin("terminalreporter") or SimpleNamespace()
