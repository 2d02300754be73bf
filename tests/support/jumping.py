"""An event loop whose time passes at once: what is waited for is there when it is due, and no test waits."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["run"]


class _Jump(selectors.DefaultSelector):
    """A selector that does not wait: the time it was to wait for passes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout:
            self.passed += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose time is the time its selector did not wait."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.passed


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Play a scene in no time."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(scene())
