"""One line in the log for each request: what was asked, what it came to, and how it got there. Never contents or keys.

Lines wait in memory and are written together in a thread: whoever reads them slowly, or not at all, delays no request.
What does not fit is counted and said with the next line that does.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from queue import SimpleQueue
from typing import Literal

import msgspec

__all__ = ["LogFormat", "RequestLine", "RequestLog", "as_json", "as_text", "stamp"]

LogFormat = Literal["auto", "text", "json"]

_encode = msgspec.json.Encoder().encode

#: Seconds that lines wait for others, and how many wait at most.
_EVERY = 0.1
_MOST = 10_000
#: Seconds that the last lines may take when the gateway stops.
_LAST = 2.0
#: Characters of a name that callers chose.
_LONGEST = 100


class RequestLine(msgspec.Struct, frozen=True, gc=False):
    """What is said of one request. `verdicts` are those of its attempts, in order."""

    at: float
    request_id: str
    route: str
    status: int
    seconds: float
    outcome: str = ""
    model: str = ""
    upstream: str = ""
    #: Upstream calls, transport retries included.
    calls: int = 0
    verdicts: tuple[str, ...] = ()
    force: str = "none"
    input_tokens: int = 0
    output_tokens: int = 0
    #: What was changed, by kind.
    adaptations: tuple[str, ...] = ()
    error: str = ""


class _Told(RequestLine, frozen=True, tag_field="event", tag="request"):
    """A line as programs read it."""

    at: str  # pyrefly: ignore[bad-override]  as people write it


def as_json(line: RequestLine) -> str:
    """Return a line for programs."""
    # Made for every request, so by position.
    told = _Told(
        stamp(line.at),
        line.request_id,
        line.route,
        line.status,
        round(line.seconds, 4),
        line.outcome,
        line.model[:_LONGEST],
        line.upstream,
        line.calls,
        line.verdicts,
        line.force,
        line.input_tokens,
        line.output_tokens,
        line.adaptations,
        line.error,
    )
    return _encode(told).decode()


def as_text(line: RequestLine) -> str:
    """Return a line for people."""
    words = [_local_second(int(line.at)), str(line.status or "gone"), line.route]
    if line.model:
        words.append(f"{_name(line.model)} at {line.upstream}" if line.upstream else _name(line.model))
    if line.outcome or line.error:
        words.append(" ".join(word for word in (line.outcome, line.error) if word))
    if line.calls > 1 or len(line.verdicts) > 1:
        words.append(f"{line.calls} calls: {' → '.join(line.verdicts)}")
    if line.force != "none":
        words.append(f"force {line.force}")
    if line.input_tokens or line.output_tokens:
        words.append(f"{line.input_tokens}+{line.output_tokens} tokens")
    words += [f"{line.seconds:.3f} s", line.request_id]
    return "  ".join(words)


class RequestLog:
    """Takes lines from the loop; a thread that nobody has to wait for writes them."""

    def __init__(self, form: Callable[[RequestLine], str], write: Callable[[str], object]) -> None:
        self._form = form
        self._write = write
        self._lines: list[RequestLine] = []
        self._timer: asyncio.TimerHandle | None = None
        self._batches: SimpleQueue[list[RequestLine] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._busy = False
        self._unfit = 0
        self._failed = 0
        self._said = 0

    @property
    def dropped(self) -> int:
        """Lines that were not written."""
        return self._unfit + self._failed

    def put(self, line: RequestLine) -> None:
        """Take a line; call from the loop."""
        if len(self._lines) >= _MOST:
            self._unfit += 1
            return
        self._lines.append(line)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_EVERY, self._begin)

    async def close(self) -> None:
        """Write what waits, unless that takes long."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._hand_over()
        thread = self._thread
        if thread is not None:
            self._batches.put(None)
            await asyncio.to_thread(thread.join, _LAST)

    def _begin(self) -> None:
        self._timer = None
        if self._busy:
            self._timer = asyncio.get_running_loop().call_later(_EVERY, self._begin)
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        lines, self._lines = self._lines, []
        if not lines:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="mustcall-requests", daemon=True)
            self._thread.start()
        self._busy = True
        self._batches.put(lines)

    def _work(self) -> None:
        for lines in iter(self._batches.get, None):
            try:
                self._write("".join(f"{line}\n" for line in self._told(lines)))
            except (OSError, ValueError):  # nobody reads, or the disk is full: no request fails for it
                self._failed += len(lines)
            self._busy = False

    def _told(self, lines: list[RequestLine]) -> list[str]:
        told = [self._form(line) for line in lines]
        unsaid, self._said = self.dropped - self._said, self.dropped
        if unsaid:
            told.append(f"{unsaid} requests have no line in this log: it could not be written fast enough")
        return told


def _name(text: str) -> str:
    """Return a name of a caller's choice as it may stand on a terminal."""
    return "".join(sign if sign.isprintable() and sign != " " else "_" for sign in text[:_LONGEST])


def stamp(seconds: float) -> str:
    """Return a time for programs."""
    return f"{_second(int(seconds))}.{int(seconds % 1 * 1000):03d}Z"


@lru_cache(maxsize=4)
def _local_second(seconds: int) -> str:
    """Return a time of day where the terminal is."""
    return time.strftime("%H:%M:%S", time.localtime(seconds))


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    """Return a time to the second: many lines are of the same one."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
