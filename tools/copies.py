"""Runs tests on changed sources: temporary copies of the repository, one change at a time, each test's outcome.

The working tree is only read. `with Copies(root, count) as copies` makes the copies and removes them, and ends the
tests that still run when the block is left early (Ctrl-C). `tools/mutate.py` and `tools/breaks.py` decide what to
change and what an outcome means; this file knows neither.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Self, TypeVar

T = TypeVar("T")
R = TypeVar("R")

SOURCES = Path("src") / "mustcall"
_LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", ".hypothesis", ".pytest_cache", ".ruff_cache", "__pycache__", "dist", "build"
)


@dataclass(frozen=True)
class Outcome:
    """One phase of one test that did not pass, or a test that passed or was skipped."""

    test: str
    """Its id, relative to the repository."""
    result: str
    """`passed`, `skipped`, `failed` (an assertion), `raised` (another exception), `error` (outside of the test)."""
    said: str
    """The first line of the exception."""


@dataclass(frozen=True)
class Run:
    """What became of one run of tests."""

    status: int | None
    """The exit status of pytest; `None` when the time was up."""
    outcomes: tuple[Outcome, ...]
    output: str


class Copies:
    """Temporary copies of a repository, one for each run that goes on at the same time."""

    def __init__(self, root: Path, count: int = 1) -> None:
        self._free: SimpleQueue[Path] = SimpleQueue()
        self._root, self._count = root, count
        self._folder = tempfile.TemporaryDirectory(prefix="mustcall-copies-")
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        try:
            for number in range(self._count):
                place = Path(self._folder.name) / f"copy{number}"
                shutil.copytree(self._root, place, ignore=_LEFT_OUT, symlinks=True)
                self._free.put(place)
        except BaseException:
            self._folder.cleanup()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        for _number in range(self._count):  # a run that was ended puts its copy back
            self._free.get()
        self._folder.cleanup()

    @contextmanager
    def place(self) -> Iterator[Path]:
        """Lend a copy."""
        place = self._free.get()
        try:
            yield place
        finally:
            self._free.put(place)

    def each(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Do the work for each item, as many at a time as there are copies; yield the results in order."""
        with ThreadPoolExecutor(self._count) as pool:
            futures = [pool.submit(work, item) for item in items]
            try:
                for future in futures:
                    yield future.result()
            except BaseException:  # left early: what waits is not begun, what runs is ended
                pool.shutdown(wait=False, cancel_futures=True)
                self._end()
                raise

    def _end(self) -> None:
        with self._lock:
            self._closed = True
            for process in self._running:
                _kill(process)

    def run(self, place: Path, tests: list[str], limit: float, *, stop: bool = True) -> Run:
        """Run tests in a copy, up to the first that fails unless `stop` is off; end them after `limit` seconds."""
        report = place / "outcomes.jsonl"
        report.unlink(missing_ok=True)
        options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-p", "outcomes", *(["-x"] if stop else [])]
        paths = [str(place / "src"), str(Path(__file__).resolve().parent)]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONDONTWRITEBYTECODE": "",
            "OUTCOMES": str(report),
        }
        with self._lock:
            if self._closed:
                raise RuntimeError("the copies are closed")
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "pytest", *options, *tests],
                cwd=place,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running.add(process)
        status: int | None = None
        output = b""
        try:
            output, _ = process.communicate(timeout=limit)
            status = process.returncode
        except subprocess.TimeoutExpired:
            pass
        finally:
            if process.poll() is None:
                _kill(process)
            with self._lock:
                self._running.discard(process)
        lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
        return Run(status, tuple(Outcome(**json.loads(line)) for line in lines), output.decode(errors="replace"))


@contextmanager
def swapped(target: Path, text: str) -> Iterator[None]:
    """Put another text into a file of a copy, and the old one back."""
    kept, stamp = target.read_bytes(), target.stat()
    try:
        target.write_text(text, encoding="utf-8")
        yield
    finally:
        target.write_bytes(kept)
        os.utime(target, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        for compiled in target.parent.glob(f"__pycache__/{target.stem}.*.pyc"):  # of the changed text
            compiled.unlink()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a run with the processes it started."""
    try:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, 9)
        else:
            process.kill()
    except ProcessLookupError:
        pass
    process.wait()
