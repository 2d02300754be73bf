"""Traces on their way to the ledger: a bounded queue that the hot path drops a value into and forgets.

What a trace looks like is worked out when it is written, in the writer's thread; until then a turn holds what it sent.
So the queue is bounded in turns and in bytes: it is written early when much waits, and drops traces and counts them
when it is full. A ledger that fails gets nothing for a while, and the log says so once. Nothing here fails or delays a
request.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from mustcall.core.errors import LedgerError
from mustcall.ledger.ledger import Ledger
from mustcall.ledger.notices import Notices
from mustcall.ledger.values import TurnTrace

__all__ = ["TraceQueue"]

T = TypeVar("T")

_WHAT = "storing traces failed"


class TraceQueue(Generic[T]):
    """At most `most` turns of at most `most_bytes`, written together every `every` seconds by `describe`.

    `weigh` tells the bytes that one holds while it waits. A quarter of the bound is written at once.
    """

    def __init__(
        self,
        ledger: Ledger,
        describe: Callable[[T], TurnTrace],
        notices: Notices,
        *,
        weigh: Callable[[T], int] = lambda _: 0,
        most: int = 1024,
        most_bytes: int = 64 * 1024 * 1024,
        every: float = 0.5,
        rest: float = 10.0,
    ) -> None:
        self._ledger = ledger
        self._describe = describe
        self._notices = notices
        self._weigh = weigh
        self._most = most
        self._most_bytes = most_bytes
        self._every = every
        self._rest = rest
        self._items: list[T] = []
        #: What waits, and what is being written.
        self._bytes = self._written = 0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._rests_until = 0.0
        #: Traces that were not written.
        self.dropped = 0

    def put(self, item: T) -> None:
        """Take an item; call from the loop."""
        items, size = self._items, self._weigh(item)
        held = self._bytes + self._written + size
        if len(items) >= self._most or (held > self._most_bytes and held > size):
            self.dropped += 1
            return
        items.append(item)
        self._bytes += size
        if self._bytes > self._most_bytes // 4 and (self._task is None or self._task.done()):
            if self._timer is not None:
                self._timer.cancel()
            self._begin()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._every, self._begin)

    async def flush(self) -> None:
        """Write everything that waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            await self._task
        await self._write()

    def _begin(self) -> None:
        self._timer = None
        if self._task is not None and not self._task.done():
            self._timer = asyncio.get_running_loop().call_later(self._every, self._begin)
            return
        self._task = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        items, self._items = self._items, []
        self._written, self._bytes = self._bytes, 0
        if not items:
            return
        now = asyncio.get_running_loop().time()
        if now < self._rests_until:
            self.dropped += len(items)
            self._written = 0
            return
        describe = self._describe
        try:
            await self._ledger.put_turns(lambda: [describe(item) for item in items])
        except LedgerError as error:
            self.dropped += len(items)
            self._rests_until = now + self._rest
            self._notices.failed(_WHAT, error)
        else:
            self._notices.over(_WHAT)
        finally:
            self._written = 0
