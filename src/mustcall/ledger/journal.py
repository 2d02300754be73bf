"""Runs and their journal: who may act for a run, and what has been done for it.

The unique key of an event is the lock that makes a tool run at most once: whoever writes the intent acts. Every write
names the fence its owner was given, so an owner whose lease ran out while it slept writes nothing any more.
"""

from collections.abc import Mapping, Sequence

import msgspec

from mustcall.core.errors import AlreadyRecorded, FenceLost
from mustcall.ledger.redacting import keep
from mustcall.ledger.stores import statements as sql
from mustcall.ledger.stores.migrations import TABLES
from mustcall.ledger.stores.program import LedgerStatement, Program, Row, ask
from mustcall.ledger.values import Claim, ContentsKept, JournalEvent, NewEvent, RunEnd, RunStatus, StoredRun

__all__ = [
    "append_events",
    "cancel_run",
    "claim_free",
    "claim_run",
    "get_run",
    "list_events",
    "list_expired",
    "list_runs",
    "queue_run",
    "renew_lease",
    "start_run",
]


def _run(row: Row) -> StoredRun:
    named: Mapping[str, object] = dict(zip(TABLES["run"], row, strict=True))
    return msgspec.convert(named, StoredRun, strict=False)


def queue_run(run: str, kind: str, data: bytes) -> Program[StoredRun]:
    """Make a run that waits for an owner; a run of that name that is there already is returned as it is."""
    rows = yield from ask(sql.RUN_START, id=run, kind=kind, status="queued", owner=None, fence=0, lease=None, data=data)
    if not rows:
        rows = yield from ask(sql.RUN_GET, id=run)
    return _run(rows[0])


def start_run(run: str, kind: str, data: bytes, owner: str, lease: float, *, take: bool, again: bool) -> Program[Claim]:
    """Make a run and claim it in one statement; one that is there already is claimed if nobody holds it."""
    rows = yield from ask(
        sql.RUN_START, id=run, kind=kind, status="running", owner=owner, fence=1, lease=lease, data=data
    )
    if rows:
        return Claim(run=_run(rows[0]), won=True, created=True)
    claim = yield from claim_run(run, owner, lease, take=take, again=again)
    assert claim is not None, "a run that was in the way has gone"
    return claim


def claim_run(run: str, owner: str, lease: float, *, take: bool, again: bool, gone: str = "") -> Program[Claim | None]:
    """Claim a run that nobody holds (`take`: also one that somebody does); None if there is no such run.

    `gone` is an owner that is known to be dead: what it holds can be claimed before its lease is over.

    `again` says that the answer to the same claim was lost: what this owner already holds counts as won.
    """
    rows = yield from ask(sql.RUN_CLAIM, id=run, owner=owner, lease=lease, take=int(take), gone=gone)
    if rows:
        return Claim(run=_run(rows[0]), won=True)
    rows = yield from ask(sql.RUN_GET, id=run)
    if not rows:
        return None
    found = _run(rows[0])
    return Claim(run=found, won=again and found.owner == owner and found.status is RunStatus.RUNNING)


def claim_free(kind: str, owner: str, lease: float, most: int) -> Program[list[StoredRun]]:
    """Claim the oldest runs that wait for an owner or whose owner's lease has run out."""
    rows = yield from ask(sql.RUN_CLAIM_FREE, kind=kind, owner=owner, lease=lease, most=most)
    return sorted(map(_run, rows), key=lambda run: run.created)


def renew_lease(run: str, fence: int, lease: float) -> Program[bool]:
    """Hold a run for longer; False if it is no longer this owner's."""
    rows = yield from ask(sql.RUN_RENEW, id=run, fence=fence, lease=lease)
    return bool(rows)


def cancel_run(run: str, contents: ContentsKept) -> Program[StoredRun | None]:
    """End a run from outside. Its owner's next write is refused. None if there is no such run or it has ended."""
    rows = yield from ask(sql.RUN_CANCEL, id=run)
    if rows and contents is not ContentsKept.FULL:
        yield from _shred(run, contents)
    return (yield from get_run(run)) if rows else None


def get_run(run: str) -> Program[StoredRun | None]:
    """Return a run."""
    rows = yield from ask(sql.RUN_GET, id=run)
    return _run(rows[0]) if rows else None


def list_runs(status: str, kind: str, before: float, most: int) -> Program[list[StoredRun]]:
    """Return runs, the newest first."""
    rows = yield from ask(sql.RUN_LIST, status=status, kind=kind, before=before, most=most)
    return list(map(_run, rows))


def list_expired(kind: str, most: int) -> Program[list[StoredRun]]:
    """Return runs whose owner's lease has run out by the database's clock, the oldest first."""
    rows = yield from ask(sql.RUN_EXPIRED, kind=kind, most=most)
    return list(map(_run, rows))


def list_events(run: str, after: int) -> Program[list[JournalEvent]]:
    """Return a run's journal in the order it was written."""
    rows = yield from ask(sql.EVENT_LIST, run=run, after=after)
    return [
        JournalEvent(
            seq=row[0],
            run=row[1],
            step=row[2],
            attempt=row[3],
            kind=row[4],
            fence=row[5],
            data=bytes(row[6]),
            at=row[7],
        )
        for row in rows
    ]


def append_events(
    run: str, fence: int, events: Sequence[NewEvent], end: RunEnd | None, contents: ContentsKept, *, again: bool
) -> Program[None]:
    """Write events, and the run's end with them, all or nothing; raise `FenceLost` or `AlreadyRecorded`.

    `again` says that the answer to the same write was lost: what stands there with this fence and these bytes is ours,
    and so is an end with this outcome, whatever of the events was kept behind it.
    """
    batch = [LedgerStatement(sql.EVENT_ADD, _values(run, fence, event)) for event in events]
    if end is not None:
        values = {"id": run, "fence": fence, "status": str(end.status), "outcome": end.outcome}
        batch.append(LedgerStatement(sql.RUN_END, values))
    if not batch:
        return
    answers = yield batch
    refused = [event for event, rows in zip(events, answers, strict=False) if not rows]
    if refused or not answers[-1]:
        before = end if end is not None and not answers[-1] else None
        yield from _explain(run, fence, events, refused, end, before=before, again=again)
    if end is not None and end.status.ended and contents is not ContentsKept.FULL:
        yield from _shred(run, contents)


def _values(run: str, fence: int, event: NewEvent) -> dict[str, object]:
    return {
        "run": run,
        "fence": fence,
        "step": event.step,
        "attempt": event.attempt,
        "kind": event.kind,
        "data": event.data,
    }


def _explain(
    run: str,
    fence: int,
    events: Sequence[NewEvent],
    refused: Sequence[NewEvent],
    end: RunEnd | None,
    *,
    before: RunEnd | None,
    again: bool,
) -> Program[None]:
    """Raise for a write that was refused, unless it was our own from before. `before` is an end that was not taken."""
    found = yield from get_run(run)
    if again and found is not None and found.fence == fence:
        wanted = found.status is (end.status if end is not None else RunStatus.RUNNING)
        if before is not None:
            wanted = wanted and found.outcome == before.outcome
            if wanted and before.status.ended:
                return  # of the events there is what the operator wants kept
        answers = yield [LedgerStatement(sql.EVENT_GET, _values(run, fence, event)) for event in events] or [
            _nothing(run)
        ]
        ours = all(
            rows and rows[0][0] == fence and bytes(rows[0][1]) == event.data
            for event, rows in zip(events, answers, strict=False)
        )
        if wanted and ours:
            return
    if found is None or found.fence != fence or found.status is not RunStatus.RUNNING or not refused:
        state = "is unknown" if found is None else f"is {found.status} under fence {found.fence}"
        raise FenceLost(f"the run {run!r} {state}; what was to be written under fence {fence} is refused")
    first = refused[0]
    raise AlreadyRecorded(
        f"the run {run!r} already has {first.kind!r} of step {first.step!r} (attempt {first.attempt})"
    )


def _nothing(run: str) -> LedgerStatement:
    return LedgerStatement(sql.RUN_GET, {"id": run})


def _shred(run: str, contents: ContentsKept) -> Program[None]:
    """Take from a finished run's journal what the operator does not want kept."""
    found = yield from get_run(run)
    events = yield from list_events(run, 0)
    batch = [
        LedgerStatement(sql.EVENT_SHRED, {"seq": event.seq, "data": keep(event.data, contents)}) for event in events
    ]
    if found is not None:
        batch.append(LedgerStatement(sql.RUN_SHRED, {"id": run, "data": keep(found.data, contents)}))
    if batch:
        yield batch
