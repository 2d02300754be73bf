"""The ledger: one interface over one store. What each operation does is said where its program is written.

Every operation has a time limit and raises a `LedgerError` when it cannot be carried out; none hangs. `contents` says
what is kept of what was said, in traces and in the journals of runs that have ended; a journal that is still needed,
and a response that its caller asked to be stored, are kept as they are.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, Self

from mustcall.ledger import accounts, journal, keeping, responses, shared, traces
from mustcall.ledger.encrypting import PLAIN, Cipher
from mustcall.ledger.stores.migrations import MIGRATIONS, TABLES
from mustcall.ledger.stores.store import LedgerStore
from mustcall.ledger.values import (
    BreakerRow,
    Claim,
    ContentsKept,
    FactRow,
    Health,
    JournalEvent,
    MeasuredRow,
    NewEvent,
    Pruned,
    RunEnd,
    RunStatus,
    StoredResponse,
    StoredRun,
    TallyRow,
    TurnFilter,
    TurnSums,
    TurnTrace,
)
from mustcall.policy.limits.budget import Caps, Charge, ChargeKey, Spending, Trip

__all__ = ["Ledger"]

#: Seconds an operation may take, and seconds for those that go through the whole ledger.
LIMIT = 5.0
LONG_LIMIT = 600.0
#: Later than any time.
_ALWAYS = 1e18
_ANY = TurnFilter()
_IMPORT_GROUP = 500


class Ledger:
    """The store of runs, responses, turns, budgets, breakers and facts. It is a context manager that opens it."""

    def __init__(
        self,
        store: LedgerStore,
        *,
        contents: ContentsKept = ContentsKept.FULL,
        limit: float = LIMIT,
        cipher: Cipher = PLAIN,
    ) -> None:
        self.store = store
        self._cipher = cipher
        self.contents = contents
        self._limit = limit

    @property
    def limit(self) -> float:
        """The seconds that an operation may take."""
        return self._limit

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the store and bring its tables up to date; raise `LedgerMismatch` for one that is newer."""
        await self.store.open()

    async def close(self) -> None:
        """Finish what is under way and close the store."""
        await self.store.close()

    async def check(self) -> Health:
        """Look at the whole ledger and say what was found."""
        rows = await self.store.read(lambda _: keeping.count_rows(), limit=LONG_LIMIT)
        stored = await self.store.read(lambda _: keeping.measure(), limit=LONG_LIMIT)
        return Health(
            store=self.store.kind,
            place=self.store.place,
            migrations=tuple(step.name for step in MIGRATIONS),
            rows=rows,
            stored_bytes=stored,
            problems=tuple(await self.store.problems()),
        )

    # Runs and their journal.

    async def start_run(
        self, run: str, data: bytes, *, owner: str, lease: float, kind: str = "agent", take: bool = False
    ) -> Claim:
        """Make a run and hold it for `lease` seconds, in one commit. One that is there already is claimed if it can be.

        `owner` is unique to a process. `take` also takes a run whose owner's lease still lasts.
        """
        return await self.store.write(
            lambda again: journal.start_run(run, kind, data, owner, lease, take=take, again=again), limit=self._limit
        )

    async def queue_run(self, run: str, data: bytes, *, kind: str = "agent") -> StoredRun:
        """Make a run that waits for an owner; one that is there already is returned as it is."""
        return await self.store.write(lambda _: journal.queue_run(run, kind, data), limit=self._limit)

    async def claim_run(
        self, run: str, *, owner: str, lease: float, take: bool = False, gone: str = ""
    ) -> Claim | None:
        """Hold a run that nobody holds, or that only the owner `gone` does; None if there is no such run."""
        return await self.store.write(
            lambda again: journal.claim_run(run, owner, lease, take=take, again=again, gone=gone), limit=self._limit
        )

    async def claim_expired(self, *, owner: str, lease: float, most: int = 1, kind: str = "agent") -> list[StoredRun]:
        """Hold up to `most` runs that are queued or whose owner's lease has run out, the oldest first."""
        return await self.store.write(lambda _: journal.claim_free(kind, owner, lease, most), limit=self._limit)

    async def renew_lease(self, run: str, fence: int, *, lease: float) -> bool:
        """Hold a run for `lease` seconds from now; False if it is no longer this owner's."""
        return await self.store.write(lambda _: journal.renew_lease(run, fence, lease), limit=self._limit)

    async def append(
        self, run: str, fence: int, events: Sequence[NewEvent], *, end: RunEnd | None = None, again: bool = False
    ) -> None:
        """Write events, and the end of the run with them, in one commit: all or nothing.

        Raise `FenceLost` if the run is no longer this owner's, `AlreadyRecorded` if a step was written before. After a
        `LedgerUnavailable` the same call may be made `again`: what was written then is accepted as it stands.
        """
        await self.store.write(
            lambda lost: journal.append_events(run, fence, events, end, self.contents, again=again or lost),
            limit=self._limit,
        )

    async def end_run(self, run: str, fence: int, end: RunEnd, *, again: bool = False) -> None:
        """End a run, or park it (`waiting`, `queued`); raise `FenceLost`."""
        await self.append(run, fence, (), end=end, again=again)

    async def cancel_run(self, run: str) -> StoredRun | None:
        """End a run from outside; its owner's next write raises `FenceLost`. None if there is nothing to cancel."""
        return await self.store.write(lambda _: journal.cancel_run(run, self.contents), limit=self._limit)

    async def get_run(self, run: str) -> StoredRun | None:
        """Return a run."""
        return await self.store.read(lambda _: journal.get_run(run), limit=self._limit)

    async def runs(
        self, *, status: RunStatus | None = None, kind: str = "", before: float = _ALWAYS, most: int = 100
    ) -> list[StoredRun]:
        """Return runs, the newest first."""
        return await self.store.read(
            lambda _: journal.list_runs(str(status or ""), kind, before, most), limit=self._limit
        )

    async def expired_runs(self, *, kind: str = "agent", most: int = 100) -> list[StoredRun]:
        """Return runs whose owner's lease has run out by the database's clock, the oldest first."""
        return await self.store.read(lambda _: journal.list_expired(kind, most), limit=self._limit)

    async def events(self, run: str, *, after: int = 0) -> list[JournalEvent]:
        """Return a run's journal in the order it was written, from behind the event `after`."""
        return await self.store.read(lambda _: journal.list_events(run, after), limit=self._limit)

    # Responses.

    async def put_response(self, response: StoredResponse) -> None:
        """Store a response; raise `AlreadyRecorded` if another one is stored under its id."""
        await self.store.write(lambda _: responses.put_response(response, self._cipher), limit=self._limit)

    async def get_response(self, response: str, tenant: str) -> StoredResponse | None:
        """Return a response."""
        return await self.store.read(
            lambda _: responses.get_response(response, tenant, self._cipher), limit=self._limit
        )

    async def delete_response(self, response: str, tenant: str) -> bool:
        """Delete a response; False if there is none."""
        return await self.store.write(lambda _: responses.delete_response(response, tenant), limit=self._limit)

    async def chain(self, response: str, tenant: str) -> list[StoredResponse] | None:
        """Return a response and all before it, the first one first; None if one of them is not there."""
        return await self.store.read(lambda _: responses.chain_of(response, tenant, self._cipher), limit=self._limit)

    async def find_items(self, items: Sequence[str], tenant: str) -> dict[str, StoredResponse]:
        """Return, for each item id that is known, the newest response that has it."""
        if not items:
            return {}
        return await self.store.read(
            lambda _: responses.find_items(tuple(items), tenant, self._cipher), limit=self._limit
        )

    async def hold(self, identifiers: Sequence[str], tenant: str) -> None:
        """Note whose a response is that is kept elsewhere, and its items."""
        await self.store.write(lambda _: responses.hold(identifiers, tenant), limit=self._limit)

    async def are_held(self, identifiers: Sequence[str], tenant: str) -> bool:
        """Tell whether all these ids were noted as this tenant's."""
        named = [one for one in identifiers if "\0" not in one]
        return len(named) == len(identifiers) and await self.store.read(
            lambda _: responses.are_held(named, tenant), limit=self._limit
        )

    # Turns.

    async def put_turns(self, turns: Sequence[TurnTrace] | Callable[[], Sequence[TurnTrace]]) -> None:
        """Write turns with their attempts. What makes them is called off the loop."""
        if callable(turns) and not self.store.threaded:
            turns = await asyncio.to_thread(turns)
        made = turns
        await self.store.write(
            lambda _: traces.put_turns(made() if callable(made) else made, self.contents), limit=self._limit
        )

    async def turns(
        self, wanted: TurnFilter = _ANY, *, before: float = _ALWAYS, before_id: str = "", most: int = 100
    ) -> list[TurnTrace]:
        """Return turns, the newest first, with their attempts; no contents. The next page is `before` the last one."""
        return await self.store.read(lambda _: traces.list_turns(wanted, before, before_id, most), limit=self._limit)

    async def sum_turns(self, *, since: float = 0.0, tenant: str = "") -> TurnSums:
        """Return what the turns since a time came to."""
        return await self.store.read(lambda _: traces.sum_turns(since, tenant), limit=self._limit)

    async def get_turn(self, turn: str) -> TurnTrace | None:
        """Return one turn with its attempts."""
        return await self.store.read(lambda _: traces.get_turn(turn), limit=self._limit)

    # Accounts: what `engine.spending.metering.Meter` asks for.

    async def reserve(self, session: str, key: ChargeKey, expected: Charge, caps: Caps) -> Trip | None:
        """Count a call that is about to start, or return the cap that is reached and count nothing."""
        try:
            await self.store.write(lambda _: accounts.reserve(session, key, expected, caps), limit=self._limit)
        except accounts.CapReached as refused:
            return refused.trip
        return None

    async def settle(self, session: str, key: ChargeKey, actual: Charge) -> None:
        """End a reserved call with what it cost; a key that is settled already changes nothing."""
        await self.store.write(lambda _: accounts.settle(session, key, actual), limit=self._limit)

    async def release(self, session: str, key: ChargeKey) -> None:
        """End a reserved call that cost nothing."""
        await self.store.write(lambda _: accounts.release(session, key), limit=self._limit)

    async def visit(self, session: str, host: str, most: int) -> bool:
        """Tell whether a tool may call a host, and count it."""
        return await self.store.write(lambda _: accounts.visit(session, host, most), limit=self._limit)

    async def spending(self, session: str) -> Spending:
        """Return a session's account as it stands."""
        return await self.store.read(lambda _: accounts.get_spending(session), limit=self._limit)

    async def accounts(self, *, most: int = 20) -> list[tuple[str, Spending, float]]:
        """Return the sessions that were used last, with their accounts and the time by the database's clock."""
        return await self.store.read(lambda _: accounts.list_spending(most), limit=self._limit)

    async def write_off(self, *, age: float) -> int:
        """Count as spent what was reserved more than `age` seconds ago and never settled; return how many."""
        return await self.store.write(lambda _: accounts.write_off(age), limit=self._limit)

    # Breakers and facts.

    async def breaker(self, name: str) -> BreakerRow:
        """Return a breaker; one that nobody wrote is closed."""
        return await self.store.read(lambda _: shared.get_breaker(name), limit=self._limit)

    async def breakers(self) -> list[BreakerRow]:
        """Return every breaker that was ever written."""
        return await self.store.read(lambda _: shared.list_breakers(), limit=self._limit)

    async def move_breaker(self, breaker: BreakerRow) -> bool:
        """Write a breaker over the version it was read with; False if somebody was faster."""
        return await self.store.write(lambda _: shared.move_breaker(breaker), limit=self._limit)

    async def put_facts(self, facts: Sequence[FactRow]) -> None:
        """Write learnt facts over what was known."""
        await self.store.write(lambda _: shared.put_facts(facts), limit=self._limit)

    async def facts(self, *, since: float = 0.0) -> list[FactRow]:
        """Return learnt facts."""
        return await self.store.read(lambda _: shared.list_facts(since), limit=self._limit)

    async def add_tallies(self, tallies: Sequence[TallyRow], *, before: float = 0.0) -> None:
        """Add counts of what made demanded calls to those that were added to since `before`; others start anew."""
        await self.store.write(lambda _: shared.add_tallies(tallies, before), limit=self._limit)

    async def tallies(self, *, since: float = 0.0) -> list[TallyRow]:
        """Return those counts."""
        return await self.store.read(lambda _: shared.list_tallies(since), limit=self._limit)

    async def forget_learnt(self, upstream: str = "", model: str = "", tenant: str = "") -> int:
        """Remove a tenant's facts and counts of an upstream's model, all where a name is empty; return how many."""
        return await self.store.write(lambda _: shared.forget_learnt(upstream, model, tenant), limit=self._limit)

    async def expire_learnt(self, *, before: float) -> None:
        """Remove facts and counts that nothing was added to since a time."""
        await self.store.write(lambda _: shared.expire_learnt(before), limit=self._limit)

    async def put_measured(self, row: MeasuredRow) -> None:
        """Write what a probe measured of a model, for all replicas."""
        await self.store.write(lambda _: shared.put_measured(row), limit=self._limit)

    async def measured(self) -> list[MeasuredRow]:
        """Return what probes measured."""
        return await self.store.read(lambda _: shared.list_measured(), limit=self._limit)

    async def claim_measuring(self, row: MeasuredRow, *, every: float) -> bool:
        """Take on the next measurement of a model; False if a replica did within `every` seconds."""
        return await self.store.write(lambda _: shared.claim_measuring(row, every), limit=self._limit)

    async def forget_measured(self, upstream: str = "", model: str = "") -> int:
        """Remove what was measured of an upstream's model, all where a name is empty; return how many."""
        return await self.store.write(lambda _: shared.forget_measured(upstream, model), limit=self._limit)

    # Keeping.

    async def prune(
        self, *, age: float | None = None, size: int | None = None, accounts: float | None = None
    ) -> Pruned:
        """Remove what is older than `age` seconds, then the oldest until about `size` bytes are left.

        Accounts, and the charges they are made of, go only when nobody has used them for `accounts` seconds.
        """
        pruned = Pruned()
        if age is not None:
            pruned = await self._prune(age)
        if size is not None:
            pruned = _sum(pruned, await self._prune_to(size))
        if accounts is not None:
            while await self.store.write(lambda _: keeping.prune_accounts(accounts), limit=LONG_LIMIT):
                pass
        await self.store.shrink()
        return pruned

    async def _prune(self, age: float) -> Pruned:
        pruned, more = Pruned(), True
        while more:
            some, more = await self.store.write(lambda _: keeping.prune_older(age), limit=LONG_LIMIT)
            pruned = _sum(pruned, some)
        return pruned

    async def _prune_to(self, size: int) -> Pruned:
        """Remove the oldest tenth of the time covered, again and again, until the rest is small enough."""
        pruned = Pruned()
        while await self.store.read(lambda _: keeping.measure(), limit=LONG_LIMIT) > size:
            oldest = await self.store.read(lambda _: keeping.oldest_age(), limit=LONG_LIMIT)
            if oldest is None:
                break
            pruned = _sum(pruned, await self._prune(max(0.0, oldest * 0.9)))
        return pruned

    async def export(self, contents: ContentsKept = ContentsKept.REDACTED) -> AsyncGenerator[bytes]:
        """Yield the whole ledger as lines of JSON, redacted unless it is asked for otherwise (rule 136)."""
        for table in TABLES:
            after: Sequence[Any] | None = None
            while True:
                rows, after = await self.store.read(
                    lambda _, table=table, after=after: keeping.export_page(table, after), limit=LONG_LIMIT
                )
                for row in rows:
                    yield keeping.write_line(table, row, contents)
                if after is None:
                    break

    async def import_lines(self, lines: Iterable[bytes]) -> int:
        """Write exported lines; what is there already stays. Return how many lines were read."""
        asks = iter(keeping.read_lines(lines))
        count = 0
        while batch := tuple(islice(asks, _IMPORT_GROUP)):
            await self.store.write(lambda _, batch=batch: keeping.put_rows(batch), limit=LONG_LIMIT)
            count += len(batch)
        return count


def _sum(one: Pruned, other: Pruned) -> Pruned:
    return Pruned(turns=one.turns + other.turns, responses=one.responses + other.responses, runs=one.runs + other.runs)
