"""A run's journal as it was written, laid together into where the run stands. Nothing is run and nothing decided.

Steps are paths: `m0` is the first step, `m0/t0` a model's turn in the middle of it, `m0/c1` its second call. A run
inside another one has the other's path before its own (`p/m0`).
"""

from collections.abc import Iterable

import msgspec

from mustcall.engine.durable.documents import decode
from mustcall.engine.run_records.checkpoints import Checkpoint, ModelTurn, Recovered
from mustcall.engine.tooling.running import Executed
from mustcall.ledger import JournalEvent

__all__ = ["INTENT", "MODEL", "RESULT", "TAKEN", "FoldedJournal", "call_path", "fold", "step_path", "taken_path"]

#: The kinds of events.
MODEL = "model"  # a step whose model has spoken
TAKEN = "taken"  # a model's turn in the middle of a step
INTENT = "intent"
RESULT = "result"


class FoldedJournal(msgspec.Struct, frozen=True, kw_only=True):
    """A journal, read. `attempts` counts the intents of each path."""

    recovered: Recovered
    taken: dict[str, ModelTurn]
    attempts: dict[str, int]
    #: How many steps there are.
    steps: int = 0


def step_path(prefix: str, number: int) -> str:
    """Return the path of a step; steps are counted from 1, paths from 0."""
    return f"{prefix}m{number - 1}"


def taken_path(prefix: str, number: int, turn: int) -> str:
    """Return the path of a model's turn in the middle of a step."""
    return f"{step_path(prefix, number)}/t{turn}"


def call_path(prefix: str, number: int, index: int) -> str:
    """Return the path of a step's call."""
    return f"{step_path(prefix, number)}/c{index}"


def fold(events: Iterable[JournalEvent], prefix: str, run_id: str) -> FoldedJournal:
    """Lay a journal's events together; those of other paths are left out."""
    moments: list[Checkpoint] = []
    taken: dict[str, ModelTurn] = {}
    results: dict[str, Executed] = {}
    attempts: dict[str, int] = {}
    for event in events:
        if not event.step.startswith(f"{prefix}m"):
            continue
        match event.kind:
            case "model":
                moments.append(decode(event.data, Checkpoint, run_id))
            case "taken":
                taken[event.step] = decode(event.data, ModelTurn, run_id)
            case "intent":
                attempts[event.step] = max(attempts.get(event.step, 0), event.attempt + 1)
            case "result":
                results[event.step] = decode(event.data, Executed, run_id)
            case _:
                pass
    recovered = Recovered(moments=tuple(moments))
    if moments and moments[-1].pending:
        last = moments[-1]
        paths = {call_path(prefix, last.standing.number, index): index for index in range(len(last.pending))}
        recovered = Recovered(
            moments=tuple(moments),
            done={paths[path]: executed for path, executed in results.items() if path in paths},
            begun=frozenset(index for path, index in paths.items() if path in attempts),
        )
    return FoldedJournal(recovered=recovered, taken=taken, attempts=attempts, steps=len(moments))
