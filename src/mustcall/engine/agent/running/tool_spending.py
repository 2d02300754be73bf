"""What tools spend on models of their own: told to whoever had the work done, beside what the run itself cost.

A tool that asks a model (`verify`) has a run of its own, which is in no step of the run that called it. Who wants the
whole sum listens for the length of a run; where nobody does, nothing is kept. It knows no prices and no caps.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from mustcall.core.reply import Usage
from mustcall.engine.run_records.results import RunResult

__all__ = ["Beside", "listening", "tell"]


class Beside:
    """What was spent beside a run, by all the tools it called."""

    def __init__(self) -> None:
        self.attempts = 0
        self.usage = Usage()
        self.cost_usd = 0.0
        self.estimated = False

    def add(self, result: RunResult[Any]) -> None:
        """Count a run of a tool's."""
        self.attempts += sum(step.calls for step in result.steps)
        self.usage += result.usage
        self.cost_usd += result.cost_usd
        self.estimated = self.estimated or result.estimated


_listener: ContextVar[Beside | None] = ContextVar("mustcall_beside", default=None)


@contextmanager
def listening() -> Generator[Beside]:
    """Yield what the tools spend that are called from here, and in the tasks begun from here."""
    beside = Beside()
    token = _listener.set(beside)
    try:
        yield beside
    finally:
        _listener.reset(token)


def tell(result: RunResult[Any]) -> None:
    """Say what a run of a tool's came to."""
    beside = _listener.get()
    if beside is not None:
        beside.add(result)
