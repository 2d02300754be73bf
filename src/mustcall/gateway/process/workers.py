"""Runs a gateway as several processes that share one listening socket: starts them, replaces the dead, stops all.

The parent serves nothing. It passes the operator's signals on, so that each worker ends as a gateway of one process
does; a worker whose parent is gone ends by itself. On SIGHUP it reads the settings once and hands them to every
worker. What a process keeps (limits, breakers, what it learnt) is each worker's own.
"""

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import FrameType

from mustcall.core.errors import ConfigError
from mustcall.gateway.config.reloading import Reloader
from mustcall.gateway.config.settings import Settings
from mustcall.gateway.process.server import say_stopping, serve
from mustcall.telemetry.console import log_to_stderr
from mustcall.telemetry.logs import log_of
from mustcall.telemetry.sharing import VARIABLE, SharedDirectory, make_directory
from mustcall.upstream.embedded.store import is_embedded

__all__ = ["check_workers", "serve_workers"]

_log = log_of("mustcall.gateway")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: What a worker says once it answers, with an open ledger and without; any other number is how many requests it had
#: when it was told to stop.
_READY, _READY_WITHOUT_LEDGER = -1, -2
#: Seconds a worker may take to end after its grace period.
_LEEWAY = 5.0
#: Seconds before a worker that never got to answer is replaced, doubled each time.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0


def check_workers(settings: Settings, count: int) -> None:
    """Raise `ConfigError` where several processes cannot serve these settings."""
    if count == 1:
        return
    if sys.platform == "win32":
        raise ConfigError("--workers needs a system with POSIX signals; leave it out on Windows")
    embedded = [one.name for one in settings.endpoints if is_embedded(one.base_url)]
    if embedded:
        raise ConfigError(
            f"--workers {count} cannot serve the embedded model ({embedded[0]}): there is one model per process, and "
            "each worker would load its own; leave --workers out, or name an --upstream that serves it"
        )


def serve_workers(
    settings: Settings,
    listener: socket.socket,
    announce: Callable[[bool], None],
    *,
    count: int,
    reloader: Reloader | None = None,
) -> None:
    """Serve with so many processes until told to stop (SIGINT, SIGTERM); announce once all of them answer.

    `announce` is told whether all of them have an open ledger. SIGHUP makes all of them go on with what `reloader`
    reads, if it is given.
    """
    crew = _Crew(settings, listener, announce, count, reloader)
    with contextlib.suppress(KeyboardInterrupt):  # as after a gateway of one process
        crew.run()


class _Worker:
    """One worker as its parent sees it."""

    def __init__(self, process: SpawnProcess, line: Connection, settings: Settings) -> None:
        self.process = process
        self.line = line
        #: What it was told to serve by.
        self.settings = settings
        self.ready = False
        self.running: int | None = None


class _Crew:
    """All workers, and the loop that watches them."""

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        announce: Callable[[bool], None],
        count: int,
        reloader: Reloader | None = None,
    ) -> None:
        self._reloader = reloader
        self._hangups = 0
        self._settings = settings
        self._listener = listener
        self._announce = announce
        self._count = count
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[_Worker] = []
        self._signals: list[int] = []
        self._passed = 0
        self._announced = False
        #: Whether every worker that answers has an open ledger.
        self._keeps = True
        #: Where the workers keep their counts together.
        self._counts = make_directory() if settings.server.metrics != "off" else None
        self._said = False
        self._pause = _FIRST_PAUSE
        self._due: list[float] = []
        self._deadline = float("inf")

    def run(self) -> None:
        """Keep the workers going; return when they have ended, raising the signals that ended them again."""
        with self._listening_to_signals() as wake:
            try:
                for _ in range(self._count):
                    self._start()
                while self._workers or self._due:
                    self._watch(wake)
            finally:
                for worker in self._workers:
                    worker.process.kill()
                    worker.process.join()
                if self._counts is not None:
                    self._counts.remove()
        for one in reversed(self._signals):
            signal.raise_signal(one)

    @contextlib.contextmanager
    def _listening_to_signals(self) -> Generator[int]:
        """Note signals, and yield what to wait on besides the workers: a pipe that has a byte for each signal."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        heard = _SIGNALS if self._reloader is None else (*_SIGNALS, signal.SIGHUP)
        earlier = {one: signal.signal(one, self._note) for one in heard}
        waking = signal.set_wakeup_fd(writing)
        try:
            yield reading
        finally:
            signal.set_wakeup_fd(waking)
            for one, handler in earlier.items():
                signal.signal(one, handler)
            os.close(reading)
            os.close(writing)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._hangups += 1
        else:
            self._signals.append(number)

    def _start(self) -> None:
        try:
            process, line = self._started()
        except OSError as error:
            if not self._announced:
                raise
            self._start_later(f"a worker could not be started ({error.strerror})")
        else:
            self._workers.append(_Worker(process, line, self._settings))

    def _started(self) -> tuple[SpawnProcess, Connection]:
        """Start a process; return it and our end of the line to it. Raise `OSError` where the system gives none."""
        ours, theirs = _pipe()
        process = self._context.Process(
            target=_work, args=(self._settings, self._listener, theirs, self._counts), name="mustcall worker"
        )
        # A Ctrl-C goes to everyone at the terminal: none may reach a worker before it has left that group.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_SIGNALS, signal.SIGHUP))
        try:
            # Starting flushes the standard streams, and fails where they cannot be written: the log on a full disk.
            with contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
                process.start()
        except OSError:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        return process, ours

    def _start_later(self, why: str) -> None:
        """Start a worker after a pause, which doubles until one answers."""
        _log.warning("%s; starting another in %g s", why, self._pause)
        self._due.append(time.monotonic() + self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def _watch(self, wake: int) -> None:
        """Wait for the next thing to happen, and act on it."""
        until = min([self._deadline, *self._due])
        lines = [worker.line for worker in self._workers if not worker.line.closed]
        ends = [worker.process.sentinel for worker in self._workers]
        wait([wake, *lines, *ends], None if until == float("inf") else max(0.0, until - time.monotonic()))
        with contextlib.suppress(BlockingIOError):
            os.read(wake, 64)
        for worker in self._workers:
            self._listen(worker)
        self._read_again()
        self._pass_signals_on()
        for worker in [one for one in self._workers if one.process.exitcode is not None]:
            self._bury(worker)
        self._say()
        now = time.monotonic()
        for due in [one for one in self._due if one <= now]:
            self._due.remove(due)
            self._start()
        if now > self._deadline:
            for worker in self._workers:
                worker.process.kill()

    def _listen(self, worker: _Worker) -> None:
        """Take what a worker has said."""
        try:
            while not worker.line.closed and worker.line.poll():
                said: int = worker.line.recv()
                if said in (_READY, _READY_WITHOUT_LEDGER):
                    worker.ready, self._pause = True, _FIRST_PAUSE
                    self._keeps = self._keeps and said == _READY
                    if self._passed:  # one that was starting when all were told to stop has not heard of it
                        _signal(worker, self._signals[-1])
                else:
                    worker.running = said
        except (EOFError, OSError):
            worker.line.close()

    def _read_again(self) -> None:
        """Read the settings if that was asked for, and hand them to every worker that answers."""
        if self._hangups and self._reloader is not None and not self._signals:
            self._hangups = 0
            if self._reloader.hung_up:
                self._signals.append(signal.SIGTERM)
                return
            new = self._reloader.read(self._settings)
            if new is not None:
                self._settings = new
        for worker in self._workers:
            if worker.ready and worker.settings is not self._settings:
                worker.settings = self._settings
                with contextlib.suppress(OSError):  # it has ended, and its successor starts with these
                    worker.line.send(self._settings)

    def _pass_signals_on(self) -> None:
        """Tell the workers what the operator told us; the first time, stop listening."""
        new, self._passed = self._signals[self._passed :], len(self._signals)
        if not new:
            return
        if self._deadline == float("inf"):
            self._deadline = time.monotonic() + max(1.0, self._settings.server.shutdown_grace) + _LEEWAY
            self._due.clear()
            self._listener.close()
        for one in new:
            for worker in self._workers:
                _signal(worker, one)

    def _bury(self, worker: _Worker) -> None:
        """Replace a worker that has ended, unless all are to end."""
        self._workers.remove(worker)
        worker.process.join()
        worker.line.close()
        if self._counts is not None and worker.process.pid is not None:
            self._counts.bury(worker.process.pid)
        if self._signals:
            return
        how = f"exit code {worker.process.exitcode}"
        if not self._announced and not worker.ready:
            raise ConfigError(f"a worker ended before it could answer ({how}); what it printed says why")
        if worker.ready:
            _log.warning("worker %s exited (%s); starting a replacement", worker.process.pid, how)
            self._start()
        else:
            self._start_later(f"worker {worker.process.pid} exited ({how})")

    def _say(self) -> None:
        """Say once that all answer, and once that all are stopping, in the words of a gateway of one process."""
        if not self._announced and not self._signals and all(worker.ready for worker in self._workers):
            self._announced = True
            self._announce(self._keeps)
        if self._signals and not self._said and all(worker.running is not None for worker in self._workers):
            self._said = True
            say_stopping(sum(worker.running or 0 for worker in self._workers), self._settings.server)


def _signal(worker: _Worker, number: int) -> None:
    """Send a worker a signal, unless it has ended."""
    if worker.process.pid is not None and worker.process.exitcode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.process.pid, number)


def _pipe() -> tuple[Connection, Connection]:
    """Return the two ends of a line to a worker."""
    ours, theirs = socket.socketpair()
    return Connection(ours.detach()), Connection(theirs.detach())


def _work(settings: Settings, listener: socket.socket, line: Connection, counts: SharedDirectory | None) -> None:
    """Be a worker: serve until a signal comes from the parent, or the parent is gone."""
    os.setpgrp()
    # What was sent to the whole group meanwhile is the parent's to pass on.
    signals = (*_SIGNALS, signal.SIGHUP)
    for one in signals:
        signal.signal(one, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    for one in _SIGNALS:
        signal.signal(one, signal.SIG_DFL)
    log_to_stderr(settings.server.log_level, settings.server.log_format)
    os.environ.pop(VARIABLE, None)
    if counts is not None and counts.prepare(os.getpid()):
        os.environ[VARIABLE] = str(counts.path)  # read when the client of Prometheus is imported, by the gateway
    os.environ.pop("NOTIFY_SOCKET", None)  # the parent speaks for all
    news = [settings]
    threading.Thread(target=_obey, args=(line, news), daemon=True).start()
    serve(
        settings,
        listener,
        lambda keeps: _tell(line, _READY if keeps else _READY_WITHOUT_LEDGER),
        lambda running, _: _tell(line, running),
        Reloader(lambda: news[-1], quiet=True),
    )


def _tell(line: Connection, number: int) -> None:
    with contextlib.suppress(OSError):  # there is nobody left to tell
        line.send(number)


def _obey(line: Connection, news: list[Settings]) -> None:
    """Take over settings the parent sends; stop gracefully when its end of the line closes, which only its end does."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            news.append(line.recv())
            os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGTERM)
