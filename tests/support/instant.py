"""A loop whose time passes only when nobody has anything to do, so that a test of minutes takes none."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["now", "run", "stall"]


class _InstantSelector(selectors.DefaultSelector):
    """Waits for nothing: the time it was to wait is added to the loop's."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Look once and say that the time has passed."""
        if timeout is None:
            raise RuntimeError("every task waits for something that will never happen")
        self.now += max(timeout, 0.0)
        return super().select(0)


class _InstantLoop(asyncio.SelectorEventLoop):
    """An event loop in which a second takes no time and exactly a second."""

    def __init__(self) -> None:
        self._instant = _InstantSelector()
        super().__init__(self._instant)

    def time(self) -> float:
        """Return the seconds that were waited for."""
        return self._instant.now

    def pass_by(self, seconds: float) -> None:
        """Move the time on."""
        self._instant.now += seconds


def stall(seconds: float) -> None:
    """Let time pass in which the loop does not run, as if the process had been stopped."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, _InstantLoop)
    loop.pass_by(seconds)


def run(main: Callable[[], Coroutine[Any, Any, float]]) -> float:
    """Run a scenario in its own time; return the second at which it ended."""
    with asyncio.Runner(loop_factory=_InstantLoop) as runner:
        return runner.run(main())


def now() -> float:
    """The scenario's time, rounded to what floats can promise."""
    return round(asyncio.get_running_loop().time(), 3)
