"""Something open that several users share: opened by the first of them, closed by the last, one for each event loop.

So a run that stands alone leaves nothing open, runs side by side share what they need, and who wants it open for longer
is one user more.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

__all__ = ["Shared"]

T = TypeVar("T")


class _Opened(Generic[T]):
    """What one event loop has open."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.stack = AsyncExitStack()
        self.value: T | None = None


class Shared(Generic[T]):
    """Opens with `opened`, which leaves on the stack it is given what has to be closed."""

    def __init__(self, opened: Callable[[AsyncExitStack], Awaitable[T]]) -> None:
        self._open = opened
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Opened[T]] = WeakKeyDictionary()

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[T]:
        """Yield it, open."""
        mine = self._by_loop.setdefault(asyncio.get_running_loop(), _Opened())
        async with mine.lock:
            if mine.value is None:
                async with AsyncExitStack() as stack:
                    mine.value = await self._open(stack)
                    mine.stack = stack.pop_all()
            value = mine.value
            mine.users += 1
        try:
            yield value
        finally:
            mine.users -= 1
            if mine.users == 0:
                async with mine.lock:
                    if mine.users == 0 and mine.value is not None:  # nobody came meanwhile
                        mine.value = None
                        await mine.stack.aclose()
