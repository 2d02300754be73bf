"""The durable runs of an agent: claimed by one process at a time, gone on with, and told again once they have ended.

It decides who may drive a run and what a name that is used again means. What a run does is the loop's, what is written
of it the journal's.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from mustcall.core.errors import (
    ConfigError,
    InvalidRequest,
    LedgerBroken,
    LedgerError,
    MustcallError,
    RunBusy,
    UnknownRun,
)
from mustcall.engine.answers.answering import Answering
from mustcall.engine.durable.documents import RunOutcome, Start, decode, encode, error_from, result_from
from mustcall.engine.durable.folding import fold
from mustcall.engine.durable.holding import Hold
from mustcall.engine.durable.journal import RunJournal
from mustcall.engine.durable.owners import is_gone, new_owner
from mustcall.engine.run_records.checkpoints import Recovered, RunKeeper
from mustcall.engine.run_records.results import RunResult
from mustcall.engine.sharing import Shared
from mustcall.engine.spending.ledger_accounts import OpeningMeter
from mustcall.ledger import Claim, ContentsKept, Ledger, RunEnd, RunStatus, open_ledger, read_contents
from mustcall.ledger import StoredRun as Row
from mustcall.ledger.redacting import keep
from mustcall.policy.facts.checking import check_kind

__all__ = ["KIND", "Place", "Runs"]

#: What the runs of an agent are called in the ledger.
KIND = "agent"

Place = Ledger | str | Path
"""Where runs are kept: a ledger, or the path or URL of one."""

Drive = Callable[[], Awaitable[RunResult[Any]]]


class DurableRun(Protocol):
    """A run as its ledger sees it: `AgentRun` is one."""

    keeper: RunKeeper | None

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        ...

    def result(self) -> RunResult[Any]:
        """Return the run as it stands."""
        ...

    def store(self, result: RunResult[Any]) -> None:
        """Mark the run as ended with this result."""
        ...

    def pay_as(self, name: str) -> None:
        """Take the name that accounts know the run by."""
        ...

    def restore(self, recovered: Recovered) -> None:
        """Go on from where the run was interrupted."""
        ...


class Runs:
    """The runs in one ledger. `lease` are the seconds for which a process that says nothing is thought alive.

    `contents` is what is kept of a run that has ended, besides its result; None leaves it to the environment.
    """

    def __init__(self, place: Place | None, lease: float, contents: str | None = None) -> None:
        if lease <= 0:
            raise ConfigError(f"lease must be above 0 seconds, got {lease}")
        if contents is not None and isinstance(place, Ledger):
            raise ConfigError("contents= belongs to the ledger: open_ledger(…, contents=…), or pass its place instead")
        self._contents = None if contents is None else read_contents(contents)
        self.place = place
        self.lease = lease
        #: How a run is left that was given up in the middle.
        self.released = RunStatus.WAITING
        self._ledgers = Shared(self._open)
        #: The accounts of sessions, in the same ledger.
        self.meter = OpeningMeter(self.ledger)

    @asynccontextmanager
    async def ledger(self) -> AsyncGenerator[Ledger]:
        """Yield the ledger, open."""
        async with self._ledgers.use() as ledger:
            yield ledger

    async def queue(self, run_id: str, start: Start) -> Row:
        """Write a run down for a worker to take; one that is there already is returned as it is."""
        _check_name(run_id)
        async with self.ledger() as ledger:
            row = await ledger.queue_run(run_id, encode(start), kind=KIND)
            _check_same(row, start)
            return row

    async def find(self, run_id: str) -> Row:
        """Return a run; raise `UnknownRun`."""
        check_kind("run_id", run_id, str)
        async with self.ledger() as ledger:
            row = await ledger.get_run(run_id)
        if row is None:
            raise UnknownRun(f"there is no run {run_id!r} in the ledger at {ledger.store.place}")
        if row.kind != KIND:
            raise UnknownRun(f"the run {run_id!r} is a {row.kind}, not one of an agent's")
        return row

    async def drive(
        self,
        run_id: str,
        run: DurableRun,
        start: Start,
        drive: Drive,
        *,
        answering: Answering | None,
        take: bool = False,
    ) -> RunResult[Any]:
        """Claim a run and drive it from where it stands; return the stored result of one that has ended.

        Raise what the run failed with, `RunBusy` where another process is at it, `FenceLost` where one came over it.
        """
        _check_name(run_id)
        async with self.ledger() as ledger:
            since = time.monotonic()
            claim = await self._claim(ledger, run_id, start, take=take)
            _check_same(claim.run, start)
            if claim.run.status.ended:
                return await _told(ledger, claim.run, run, answering)
            if not claim.won:
                raise RunBusy(f"the run {run_id!r} is carried out by {claim.run.owner}; its lease lasts")
            try:
                folded = fold(() if claim.created else await ledger.events(run_id), "", run_id)
            except LedgerBroken:  # nobody can go on with it, so nobody holds it
                await ledger.end_run(run_id, claim.run.fence, RunEnd(status=RunStatus.WAITING))
                raise
            hold = Hold(ledger, claim.run, self.lease, since)
            journal = RunJournal(hold, folded, asked=_digest(start), answering=answering, released=self.released)
            run.keeper = journal
            run.pay_as(f"{run_id}#{claim.run.fence}")
            run.restore(folded.recovered)
            try:
                async with hold.kept():
                    return await drive()
            except BaseException as error:
                # What failed by itself has its end in the journal, and what cannot be written is not written now.
                if not isinstance(error, LedgerError) and not (isinstance(error, MustcallError) and run.over):
                    await asyncio.shield(journal.leave())
                raise

    async def put(self, run_id: str, status: RunStatus) -> None:
        """Put a run that nobody holds elsewhere: among those that wait for a worker, or for somebody to look."""
        async with self.ledger() as ledger:
            claim = await ledger.claim_run(run_id, owner=self._owner(), lease=self.lease)
            if claim is not None and claim.won:
                await ledger.end_run(run_id, claim.run.fence, RunEnd(status=status))

    async def tell(self, row: Row, run: DurableRun, answering: Answering | None) -> RunResult[Any]:
        """Tell how a run ended, without asking a model; raise what it failed with."""
        async with self.ledger() as ledger:
            return await _told(ledger, row, run, answering)

    async def _claim(self, ledger: Ledger, run_id: str, start: Start, *, take: bool) -> Claim:
        claim = await ledger.start_run(
            run_id, encode(start), owner=self._owner(), lease=self.lease, kind=KIND, take=take
        )
        holder = claim.run.owner
        if not claim.won and not claim.run.status.ended and holder is not None and is_gone(holder):
            again = await ledger.claim_run(run_id, owner=self._owner(), lease=self.lease, gone=holder)
            claim = again or claim
        return claim

    def _owner(self) -> str:
        return new_owner(worker=self.released is RunStatus.QUEUED)

    async def _open(self, stack: AsyncExitStack) -> Ledger:
        place = self.place
        if isinstance(place, Ledger):
            await place.open()  # who made it closes it
            return place
        return await stack.enter_async_context(open_ledger(place, contents=self._contents))


async def _told(ledger: Ledger, row: Row, run: DurableRun, answering: Answering | None) -> RunResult[Any]:
    """Tell how a run ended once more, without asking a model; raise what it failed with."""
    if row.outcome is None:  # cancelled from outside
        kept = [event for event in await ledger.events(row.id) if event.data]
        run.restore(fold(kept, "", row.id).recovered)
        result = run.result()
    else:
        result = result_from(row.outcome, answering, row.id)
    run.store(result)
    if row.status is RunStatus.FAILED and result.error is not None:
        raise error_from(result.error)
    return result


def _check_name(run_id: str) -> None:
    check_kind("run_id", run_id, str)
    if not run_id or len(run_id) > 200 or not run_id.isprintable():
        raise InvalidRequest(f"a run cannot be called {run_id!r}: 1 to 200 characters that can be seen", param="run_id")


def _check_same(row: Row, start: Start) -> None:
    """Raise `InvalidRequest` where a name was used for another question."""
    if row.outcome is not None:
        same = decode(row.outcome, RunOutcome, row.id).asked == _digest(start)
    elif row.status.ended:  # cancelled from outside: of what it was started with there is what may be kept
        same = row.data in {keep(encode(start), contents) for contents in ContentsKept}
    else:
        same = row.data == encode(start)
    if not same:
        raise InvalidRequest(
            f"the run {row.id!r} was started with another prompt or other settings; give this one a name of its own",
            param="run_id",
        )


def _digest(start: Start) -> str:
    return hashlib.sha256(encode(start)).hexdigest()[:32]
