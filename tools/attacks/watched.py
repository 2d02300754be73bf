"""Run a command of Python (`-m mustcall serve …`) with a probe on its event loop: how long other callbacks had to wait.

    python watched.py FILE mustcall serve …

Every few milliseconds a timer of the loop is due. The processor time of the loop's thread between two of its runs is
how long one callback, or several in one round, kept all others waiting. It is processor time, so that it does not grow
on a busy machine. The longest is kept in FILE, a number that the reader sets back to zero. With MUSTCALL_WATCH_STACKS
set, FILE.stacks gets the stacks that were seen in each round over 20 ms, the most frequent ones first.
"""

import asyncio
import mmap
import os
import runpy
import signal
import struct
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["Lag", "main"]

_TICK = 0.004
_LONG = 0.02
_SAMPLE = 0.002
_FORM = struct.Struct("d")


class Lag:
    """The longest round of a loop, in a file that two processes share."""

    def __init__(self, path: Path) -> None:
        if not path.exists() or path.stat().st_size < _FORM.size:
            path.write_bytes(bytes(_FORM.size))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _FORM.size)

    @property
    def longest(self) -> float:
        """Seconds of processor time."""
        return _FORM.unpack(self._shared[:])[0]

    @longest.setter
    def longest(self, seconds: float) -> None:
        self._shared[:] = _FORM.pack(seconds)


class _Probe:
    def __init__(self, path: Path) -> None:
        self._lag = Lag(path)
        self._last = 0.0
        self._stacks = path.with_suffix(".stacks") if os.environ.get("MUSTCALL_WATCH_STACKS") else None
        self._seen: Counter[str] = Counter()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._last = time.thread_time()
        loop.call_later(_TICK, self._tick, loop)
        if self._stacks is not None:
            signal.signal(signal.SIGPROF, self._sample)
            signal.setitimer(signal.ITIMER_PROF, _SAMPLE, _SAMPLE)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = time.thread_time()
        spent = now - self._last
        self._lag.longest = max(self._lag.longest, spent)
        if spent > _LONG and self._stacks is not None:
            with self._stacks.open("a", encoding="utf-8") as file:
                file.write(f"=== {spent:.3f} s\n")
                file.writelines(f"{count:5d} {stack}\n" for stack, count in self._seen.most_common(8))
        self._seen.clear()
        self._last = time.thread_time()
        loop.call_later(_TICK, self._tick, loop)

    def _sample(self, _signal: int, frame: FrameType | None) -> None:
        found = traceback.extract_stack(frame)[-7:]
        self._seen[" > ".join(f"{Path(one.filename).name}:{one.lineno} {one.name}" for one in found)] += 1


def main() -> None:
    """Run the command."""
    import uvicorn  # noqa: PLC0415  the process that reads `Lag` needs no server

    path, module, *words = sys.argv[1:]
    probe = _Probe(Path(path))
    startup = uvicorn.Server.startup

    async def watched(self: uvicorn.Server, *args: Any, **kwargs: Any) -> None:
        await startup(self, *args, **kwargs)
        probe.start(asyncio.get_running_loop())

    uvicorn.Server.startup = watched
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
