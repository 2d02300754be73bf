"""What a step says, passed on or kept back until it is known whether it is the answer."""

from collections.abc import Awaitable, Callable
from enum import Enum

from mustcall.engine.agent.events import ReasoningDelta, TextDelta

__all__ = ["WithheldWords", "Withholding"]

#: How JSON begins, bare or in a code fence.
_JSON = ("{", "`")


class Withholding(Enum):
    """How much of what a step says waits for its end."""

    NOTHING = "nothing"
    JSON = "json"
    ALL = "all"


class WithheldWords:
    """The words of one step. Those that wait go out by `release`, or never."""

    def __init__(self, withholding: Withholding, tell: Callable[[TextDelta | ReasoningDelta], Awaitable[None]]) -> None:
        self._tell = tell
        self._waits = withholding is not Withholding.NOTHING
        self._open = withholding is Withholding.JSON
        self._deltas: list[TextDelta | ReasoningDelta] = []

    async def say(self, delta: TextDelta | ReasoningDelta) -> None:
        """Pass words on, or keep them."""
        if not self._waits:
            await self._tell(delta)
            return
        self._deltas.append(delta)
        if self._open and isinstance(delta, TextDelta) and (said := delta.text.lstrip()):
            self._open = False
            if not said.startswith(_JSON):
                await self.release()

    async def release(self) -> None:
        """Pass on what was kept; what follows is not kept."""
        self._waits = False
        for delta in self._deltas:
            await self._tell(delta)
        self._deltas = []
