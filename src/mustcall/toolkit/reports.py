"""What was changed in the arguments of calls before they were run, by the call: adapt freely, never invisibly."""

from mustcall.core.adaptation import Adaptation

__all__ = ["ChangeReports"]

_MOST = 1000


class ChangeReports:
    """The changes of the latest calls, each under its call's id."""

    def __init__(self) -> None:
        self._changes: dict[str, tuple[Adaptation, ...]] = {}

    def add(self, call_id: str, changes: tuple[Adaptation, ...]) -> None:
        """Note what was changed for a call."""
        while len(self._changes) >= _MOST:
            del self._changes[next(iter(self._changes))]
        self._changes[call_id] = changes

    def of(self, call_id: str) -> tuple[Adaptation, ...]:
        """Return what was changed for a call."""
        return self._changes.get(call_id, ())
