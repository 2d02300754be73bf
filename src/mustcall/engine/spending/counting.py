"""The calls a turn makes beyond its first: counted in one place, under one ceiling (rule 96)."""

from mustcall.engine.turn_context import TurnContext

__all__ = ["Counting"]


class Counting:
    """Counts the further calls of one turn. It knows nothing of the turn itself, which so ends with its last use."""

    __slots__ = ("_progress", "_streams", "_turn_state")

    def __init__(self, context: TurnContext) -> None:
        self._turn_state = context.turn_state
        self._progress = context.progress
        self._streams = context.inbound.stream

    def may(self) -> bool:
        """Tell whether another call is allowed."""
        return self._turn_state.may_call

    def note(self) -> None:
        """Count one more; from here on a caller of a stream needs signs of life (rule 113)."""
        self._turn_state.count_call()
        self._progress.holding = self._streams
