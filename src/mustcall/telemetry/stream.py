"""The one stream of events of a process or a gateway, and those who read it. Telling never fails and never waits.

Two ways to read it. A *listener* is called at once, on the thread that tells: it must be quick, and what it raises is
counted and goes no further. A *subscription* is a bounded queue that is read when its reader has time; what does not
fit pushes the oldest out and is counted (`dropped`). While nobody reads, telling costs one look at an empty tuple, and
those who tell build no event (`listening`).
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Self

from mustcall.telemetry.events import Event, TurnEnded, unfold

__all__ = ["PROCESS", "EventStream", "Listener", "Subscription"]

Listener = Callable[[Event], None]

_MOST = 1024


class EventStream:
    """What happens, for whoever wants to know."""

    def __init__(self) -> None:
        self._listeners: tuple[Listener, ...] = ()
        #: Events that a listener failed on.
        self.failed = 0

    @property
    def listening(self) -> bool:
        """Whether anybody reads: if not, no event needs to be built."""
        return bool(self._listeners)

    def emit(self, event: Event) -> None:
        """Tell everybody who reads."""
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:  # noqa: BLE001  whoever reads: no request fails for it
                self.failed += 1

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every event from now on; return what ends that."""
        self._listeners = (*self._listeners, listener)

        def stop() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not listener)

        return stop

    def subscribe(self, most: int = _MOST, *, whole: bool = False) -> "Subscription":
        """Return a queue of the events from now on; close it, or use it in a `with`.

        A finished turn comes with an event before it for each thing that happened on its way; with `whole` alone.
        """
        return Subscription(self, most, whole=whole)


class Subscription:
    """A bounded queue of events for one reader: an event loop (`async for`), or a thread (`take`)."""

    def __init__(self, stream: EventStream, most: int, *, whole: bool) -> None:
        self._waiting: deque[Event] = deque()
        self._most = max(1, most)
        self._whole = whole
        self._lock = threading.Lock()
        self._wake: Callable[[], None] | None = None
        self._closed = False
        #: Events that were pushed out because the reader was slow.
        self.dropped = 0
        self._stop = stream.listen(self._put)

    def close(self) -> None:
        """Take no more events, and end the reading."""
        self._stop()
        with self._lock:
            self._closed = True
            wake, self._wake = self._wake, None
        if wake is not None:
            wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def take(self, timeout: float | None = 0.0) -> list[Event]:
        """Return all that waits, for a thread: at once, or when there is something or the time is over."""
        with self._lock:
            if not self._waiting and not self._closed and timeout != 0:
                arrived = threading.Event()
                self._wake = arrived.set
            else:
                arrived = None
        if arrived is not None:
            arrived.wait(timeout)
        return self._taken()

    async def __aiter__(self) -> AsyncGenerator[Event]:
        """Yield events as they come, until the subscription is closed."""
        loop = asyncio.get_running_loop()
        while True:
            arrived: asyncio.Event | None = None
            with self._lock:
                if not self._waiting:
                    if self._closed:
                        return
                    arrived = asyncio.Event()
                    self._wake = _waking(loop, arrived)
            if arrived is not None:
                await arrived.wait()
            for event in self._taken():
                yield event

    def _taken(self) -> list[Event]:
        with self._lock:
            self._wake = None
            taken = list(self._waiting)
            self._waiting.clear()
        return taken

    def _put(self, event: Event) -> None:
        if self._whole or not isinstance(event, TurnEnded):
            self._add(event)
        else:
            for one in unfold(event):
                self._add(one)

    def _add(self, event: Event) -> None:
        with self._lock:
            if len(self._waiting) >= self._most:
                self._waiting.popleft()
                self.dropped += 1
            self._waiting.append(event)
            wake, self._wake = self._wake, None
        if wake is not None:
            wake()


def _waking(loop: asyncio.AbstractEventLoop, arrived: asyncio.Event) -> Callable[[], None]:
    def wake() -> None:
        if not loop.is_closed():  # its reader went away with it
            loop.call_soon_threadsafe(arrived.set)

    return wake


#: The stream of those who have none of their own: agents in a program. A gateway has its own.
PROCESS = EventStream()
