"""The store of runs, responses, turns, budgets, breakers and learnt facts: SQLite in a file, PostgreSQL for many.

It knows values and statements. What a run means, when a turn is recorded and who may spend what is decided above it.
"""

from mustcall.ledger.ledger import Ledger
from mustcall.ledger.opening import OFF, default_contents, default_place, open_ledger, read_contents, shown_place
from mustcall.ledger.values import (
    AttemptTrace,
    BreakerRow,
    Claim,
    ContentsKept,
    FactRow,
    Health,
    JournalEvent,
    MeasuredRow,
    NewEvent,
    Pruned,
    RetryTrace,
    RunEnd,
    RunStatus,
    StoredResponse,
    StoredRun,
    TallyRow,
    TurnFilter,
    TurnGroup,
    TurnSums,
    TurnTrace,
)

__all__ = [
    "OFF",
    "AttemptTrace",
    "BreakerRow",
    "Claim",
    "ContentsKept",
    "FactRow",
    "Health",
    "JournalEvent",
    "Ledger",
    "MeasuredRow",
    "NewEvent",
    "Pruned",
    "RetryTrace",
    "RunEnd",
    "RunStatus",
    "StoredResponse",
    "StoredRun",
    "TallyRow",
    "TurnFilter",
    "TurnGroup",
    "TurnSums",
    "TurnTrace",
    "default_contents",
    "default_place",
    "open_ledger",
    "read_contents",
    "shown_place",
]
