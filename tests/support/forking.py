"""Tests in several processes that share one collection: it is made once, and each worker is forked from it.

`--workers N` runs the tests so. pytest-xdist gives each worker an interpreter of its own, which imports and collects
all tests again: 15 to 25 CPU seconds for each worker of this project, and as much memory. A forked worker finds every
import, every collected test and all bytecode in place, so there may be as many workers as it takes to get a share of a
busy machine. Where processes cannot be forked safely (macOS, Windows), the same option starts pytest-xdist.

A worker is handed runs of neighbouring tests, large ones first, so that the tests of a module stay together. It tells
what became of each test; only this process reports. A worker that dies fails the test that it ran, and is replaced.
With `--pdb`, `--trace`, `--setup-show` and `-s`, which need the terminal, everything runs in this process.
"""

import os
import selectors
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from mmap import mmap
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from support import misses
from support.forked import PHASES, WorkerEnd, new_place, read_place, send, work

__all__ = ["Forking", "can_fork", "processors", "usual_workers"]

#: So many shares of what is left are handed out at a time: small enough that no worker ends long after the others.
_SHARES = 4
#: Workers on a machine that others use, too: at least, at most, and for each process that runs or waits to run.
_AMONG_OTHERS, _AMONG_MANY, _FOR_EACH = 12, 20, 2
_SAMPLES = 11
#: Seconds that workers have for the end of their fixtures after an interruption.
_PATIENCE = 30.0


def can_fork() -> bool:
    """Return whether a process that has imported this much can be forked: system libraries of macOS do not allow it."""
    return sys.platform == "linux"


def processors() -> int:
    """Return how many processors this process may use; it may be bound to fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usual_workers() -> int:
    """Return how many workers `auto` stands for.

    Some tests wait, for a process to start or a socket to speak, so there are two workers more than there are
    processors. Where other programs keep the processors busy there are more, because the system divides the time by
    processes; otherwise so many would only get in each other's way (a tenth more CPU time).
    """
    usual = processors() + 2
    if not can_fork() or (others := runnable()) <= 1.5 * processors():
        return usual
    return max(usual, _AMONG_OTHERS, min(_AMONG_MANY, _FOR_EACH * others))


def runnable() -> int:
    """Return how many threads besides this one run or wait to run now; an average would tell of what is over, too."""
    seen: list[int] = []
    for _ in range(_SAMPLES):
        now = Path("/proc/loadavg").read_text(encoding="ascii").split()[3]
        seen.append(int(now.partition("/")[0]) - 1)
        time.sleep(0.02)
    return sorted(seen)[_SAMPLES // 2]


def shares(count: int, workers: int, borders: set[int], alone: int = 0) -> Iterator[range]:
    """Return runs of `count` tests, the longest first; one ends at a border if there is one in its second half.

    What is between two borders in the first `alone` tests is a run of its own.
    """
    edges = [0, *sorted(at for at in borders if 0 < at < alone), alone]
    yield from (range(start, end) for start, end in pairwise(edges) if end > start)
    start = alone
    while start < count:
        length = max(1, (count - start) // (workers * _SHARES))
        end = start + length
        end = next((place for place in range(end, start + length // 2, -1) if place in borders), end)
        yield range(start, end)
        start = end


@dataclass(eq=False)
class _Worker:
    """A forked process and what it has been told to run."""

    pid: int
    alive: int
    """A file that can be read once the process has ended, whoever else has its pipe."""
    pipe: Any
    """A `Connection`; it has another class on Windows."""
    place: mmap
    """Memory of both processes: where the worker is."""
    reported: int | None = None
    """The test that was reported to its end last."""
    queue: deque[int] = field(default_factory=deque[int])
    """The tests that it was handed and that are not reported to their end."""

    @property
    def at(self) -> int | None:
        """The test that it runs, or ran last."""
        return read_place(self.place)

    def end(self, at: int) -> None:
        """Note that a test was reported to its end."""
        self.reported = at
        if self.queue:  # not where everybody was told to stop
            self.queue.popleft()


class Forking:
    """The plugin that runs the collected tests in forked workers."""

    def __init__(
        self,
        workers: int | None,
        prepare: Callable[[], None] = lambda: None,
        is_long: Callable[[pytest.Item], bool] = lambda _: False,
    ) -> None:
        """Run the tests in so many processes, None for as many as are usual when they start.

        `prepare` does once, before they are forked, what each would do. Of the tests at the beginning that are long,
        each file is for another worker.
        """
        self._is_long = is_long
        self._asked = workers
        self._wanted = 0
        self._prepare = prepare
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, _Worker] = {}
        self._numbers = 0
        self._left: deque[range] = deque()
        self._exit: tuple[str, int] | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests, unless somebody wants to watch or there is nothing to gain from several processes."""
        option = session.config.option
        watched = option.usepdb or option.trace or option.setupshow or option.capture == "no"
        if watched or option.collectonly or session.testsfailed or len(session.items) < 2:
            return None
        if len(list(Path("/proc/self/task").iterdir())) > 1:
            raise pytest.UsageError("collecting the tests has started threads, which a forked process would not have")
        reporter: Any = session.config.pluginmanager.getplugin("terminalreporter") or SimpleNamespace()
        reporter.showfspath = False  # tests of several modules run at a time
        vars(session.config)["_tmp_path_factory"].getbasetemp()  # one for all, so that workers have theirs in it
        self._prepare()
        self._wanted = self._asked or usual_workers()
        self._left.extend(self._shares(session))
        try:
            for _ in range(min(self._wanted, len(self._left))):
                self._fork(session)
            self._drive(session)
        except BaseException:
            self._interrupt()
            raise
        finally:
            self._kill()
        if self._exit is not None:
            pytest.exit(*self._exit)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def _shares(self, session: pytest.Session) -> Iterator[range]:
        items = session.items
        borders = {at for at in range(1, len(items)) if items[at].path != items[at - 1].path} | {len(items)}
        alone = next((at for at, item in enumerate(items) if not self._is_long(item)), len(items))
        return shares(len(items), self._wanted, borders, alone)

    def _fork(self, session: pytest.Session) -> None:
        """Start a worker and hand it its first tests."""
        here, there = Pipe()
        place = new_place()
        sys.stdout.flush()
        sys.stderr.flush()
        number, self._numbers = self._numbers, self._numbers + 1
        pid = os.fork()
        if pid == 0:
            here.close()
            self._selector.close()
            for other in self._running.values():
                other.pipe.close()
                os.close(other.alive)
            work(session, number, there, place)  # does not return
        there.close()
        worker = self._running[pid] = _Worker(pid, os.pidfd_open(pid), here, place)
        for end in (worker.pipe, worker.alive):
            self._selector.register(end, selectors.EVENT_READ)
        self._hand_out(worker)

    def _hand_out(self, worker: _Worker) -> None:
        """Give a worker more to run, or tell it that nothing is left."""
        share = self._left.popleft() if self._left else range(0)
        worker.queue.extend(share)
        send(worker.pipe, (share.start, share.stop) if share else None)

    def _drive(self, session: pytest.Session) -> None:
        """Report what workers tell until all have ended."""
        stopped = False
        while self._running:
            ready = {key.fileobj for key, _ in self._selector.select()}
            for worker in list(self._running.values()):
                if worker.pipe in ready:
                    self._receive(session, worker)
                elif worker.alive in ready:  # nothing more can be received
                    self._replace(session, worker)
            if not stopped and (session.shouldfail or session.shouldstop):
                stopped = True
                self._left.clear()
                for worker in self._running.values():
                    worker.queue.clear()
                    send(worker.pipe, None)

    def _receive(self, session: pytest.Session, worker: _Worker) -> None:
        try:
            kind, content = worker.pipe.recv()
        except Exception:  # noqa: BLE001  the end of its pipe, or half of a message
            os.kill(worker.pid, signal.SIGKILL)
            self._replace(session, worker)
            return
        hook = session.config.hook
        match kind:
            case "more":
                self._hand_out(worker)
            case "passed":
                at, durations = content
                worker.end(at)
                _report_passed(session, at, durations)
            case "report":
                at, data = content
                report = hook.pytest_report_from_serializable(config=session.config, data=data)
                if report.when == "teardown":
                    worker.end(at)
                hook.pytest_runtest_logreport(report=report)
            case "warning":
                hook.pytest_warning_recorded.call_historic(kwargs=content)
            case _:
                self._end(session, worker, content)

    def _end(self, session: pytest.Session, worker: _Worker, end: WorkerEnd) -> None:
        """Take what a worker tells last."""
        misses.take_over(SimpleNamespace(workeroutput=end.output))
        for error in end.errors:
            self._report_error(session, worker, f"the worker failed at its end:\n{error}")
        if end.exit_code is not None:
            self._exit = end.stopped, end.exit_code
        session.shouldstop = session.shouldstop or end.stopped
        self._remove(worker)

    def _replace(self, session: pytest.Session, worker: _Worker) -> None:
        """Fail the test of a worker that has died, and have another one run what that was handed besides."""
        code = self._remove(worker)
        names = {one.value: one.name for one in signal.Signals}
        how = f"signal {names.get(-code, -code)}" if code < 0 else f"exit code {code}"
        last = worker.at
        if last is None:
            raise RuntimeError(f"a worker ended with {how} before its first test")
        self._report_error(
            session, worker, f"the worker ended with {how} {'after' if worker.reported == last else 'in'} this test"
        )
        self._left.extendleft(range(at, at + 1) for at in reversed(worker.queue) if at != last)
        if self._left and not (session.shouldfail or session.shouldstop):
            self._fork(session)

    @staticmethod
    def _report_error(session: pytest.Session, worker: _Worker, words: str) -> None:
        """Report a failure of a worker as its test's; as an error where the test itself had ended."""
        item = session.items[worker.at or 0]
        when: Literal["call", "teardown"] = "teardown" if worker.reported == worker.at else "call"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", words, when)
        session.config.hook.pytest_runtest_logreport(report=report)

    def _remove(self, worker: _Worker) -> int:
        """Wait for the end of a worker's process, which comes at once; return its exit code."""
        del self._running[worker.pid]
        for end in (worker.pipe, worker.alive):
            self._selector.unregister(end)
        worker.pipe.close()
        os.close(worker.alive)
        _, status = os.waitpid(worker.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def _interrupt(self) -> None:
        """Have all workers end their fixtures, and give them time for it."""
        for worker in self._running.values():
            send(worker.pipe, None)  # where a test takes the signal for itself, the worker stops after it
            os.kill(worker.pid, signal.SIGINT)
        until = time.monotonic() + _PATIENCE
        waiting = dict.fromkeys(self._running.values())
        while waiting and time.monotonic() < until:
            for ready in wait(
                [place for one in waiting for place in (one.pipe, one.alive)], max(0.0, until - time.monotonic())
            ):
                worker = next(one for one in waiting if ready in (one.pipe, one.alive))
                if ready == worker.alive or not _drained(worker):
                    del waiting[worker]
                    break

    def _kill(self) -> None:
        """End all workers that still run."""
        for worker in list(self._running.values()):
            os.kill(worker.pid, signal.SIGKILL)
            self._remove(worker)


def _drained(worker: _Worker) -> bool:
    """Read what a worker wrote, so that it need not wait for room; return whether it may write more."""
    with suppress(OSError):
        return bool(os.read(worker.pipe.fileno(), 65_536))
    return False


def _report_passed(session: pytest.Session, at: int, durations: list[tuple[float, float]]) -> None:
    """Report a test that passed in all three phases and said nothing."""
    item = session.items[at]
    keywords: dict[str, Literal[1]] = dict.fromkeys(item.keywords, 1)
    for phase, (start, stop) in zip(PHASES, durations, strict=True):
        report = pytest.TestReport(
            item.nodeid, item.location, keywords, "passed", None, phase, duration=stop - start, start=start, stop=stop
        )
        session.config.hook.pytest_runtest_logreport(report=report)
