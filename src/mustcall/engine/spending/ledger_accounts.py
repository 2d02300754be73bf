"""Accounts and breakers in the ledger, where replicas share them: `engine.spending.metering` for many processes.

Every reservation asks the ledger, because a cap holds for all replicas together; what is told at a call's end is handed
over and not waited for longer than its caller lives. A breaker is asked of this process alone: its own failures open
it at once, and what other replicas did to theirs is taken over a moment later. If the ledger is away, breakers go on
alone, and accounts do as the operator says: `closed` refuses, `open` lets calls through uncounted.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from mustcall.core.errors import LedgerError
from mustcall.engine.spending.accounts import MemoryBreakers
from mustcall.ledger import BreakerRow, Ledger
from mustcall.ledger.notices import Notices
from mustcall.policy.failures.breaker import Breaker, BreakerRule, BreakerState
from mustcall.policy.failures.breaker_classes import FailureClass
from mustcall.policy.limits.budget import BudgetKind, Caps, Charge, ChargeKey, Spending, Trip
from mustcall.telemetry.stream import PROCESS, EventStream
from mustcall.upstream.retry import Clock

__all__ = ["LedgerBreakers", "LedgerMeter", "OpeningMeter", "WhenAway"]

#: Seconds between the tries to release what a refused call may have reserved.
_AGAIN = (0.5, 1.0, 2.0)
_NOT_COUNTED = "counting spending failed"
_NOT_SHARED = "sharing breaker states failed"
_T = TypeVar("_T")


class WhenAway(StrEnum):
    """What a cap does while the ledger cannot be asked."""

    CLOSED = "closed"  # refuse: nothing is spent that cannot be counted
    OPEN = "open"  # let calls through


class _Errands:
    """Work that goes on when the task that asked for it is cancelled."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin the work and wait for it; being cancelled ends the waiting only."""
        await asyncio.shield(self.begin(work))

    def begin(self, work: Coroutine[Any, Any, _T]) -> "asyncio.Task[_T]":
        """Begin the work."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self) -> None:
        """Wait for all that was begun."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)


class LedgerMeter:
    """A `Meter` in the ledger."""

    def __init__(self, ledger: Ledger, notices: Notices, away: WhenAway = WhenAway.CLOSED) -> None:
        self._ledger = ledger
        self._notices = notices
        self._away = away
        self._errands = _Errands()
        #: Whether anything was ever held against a cap.
        self._capped = False

    async def reserve(self, session: str, key: ChargeKey, expected: Charge, caps: Caps) -> Trip | None:
        """Count a call that is about to start, or return the cap that is reached.

        Where there is no cap nobody waits for the ledger: what is spent is counted at the call's end, beside it.
        """
        if caps == Caps():
            return None
        self._capped = True
        asked = self._errands.begin(self._ledger.reserve(session, key, expected, caps))
        try:
            trip = await asyncio.shield(asked)
        except asyncio.CancelledError:
            self._errands.begin(self._undo(asked, session, key))
            raise
        except LedgerError as error:
            self._notices.failed(_NOT_COUNTED, error)
            if self._away is WhenAway.OPEN:
                return None
            self._errands.begin(self._let_go(session, key))  # it may have been written all the same
            return _away(error)
        self._notices.over(_NOT_COUNTED)
        return trip

    async def _let_go(self, session: str, key: ChargeKey) -> None:
        """Release what a refused call may have reserved; what stays so is written off as spent later."""
        for wait in _AGAIN:
            with contextlib.suppress(LedgerError):
                return await self._ledger.release(session, key)
            await asyncio.sleep(wait)
        return None

    async def _tell(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except LedgerError as error:
            self._notices.failed(_NOT_COUNTED, error)

    async def settle(self, session: str, key: ChargeKey, actual: Charge) -> None:
        """End a reserved call with what it really cost."""
        if self._capped:
            await self._errands.run(self._ledger.settle(session, key, actual))
        else:
            self._errands.begin(self._tell(self._ledger.settle(session, key, actual)))

    async def release(self, session: str, key: ChargeKey) -> None:
        """End a reserved call that cost nothing."""
        if self._capped:  # nothing was reserved without a cap
            await self._errands.run(self._ledger.release(session, key))

    async def _undo(self, asked: "asyncio.Task[Trip | None]", session: str, key: ChargeKey) -> None:
        """Free what was reserved for a call that nobody makes any more, once the ledger has counted it."""
        try:
            if await asked is None:
                await self._ledger.release(session, key)
        except LedgerError as error:
            self._notices.failed(_NOT_COUNTED, error)

    async def visit(self, session: str, host: str, most: int) -> bool:
        """Tell whether a tool may call a host."""
        return await self._ledger.visit(session, host, most)

    async def spending(self, session: str) -> Spending:
        """Return a session's account as it stands."""
        return await self._ledger.spending(session)

    async def finish(self) -> None:
        """Wait until everything that was told is written."""
        await self._errands.finish()


class OpeningMeter:
    """A `Meter` in a ledger that is opened when it is asked; `opened` yields it, and closes it if nobody else uses it.

    While the ledger cannot be asked, caps refuse.
    """

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[Ledger]]) -> None:
        self._opened = opened
        self._notices = Notices()
        self._errands = _Errands()

    async def reserve(self, session: str, key: ChargeKey, expected: Charge, caps: Caps) -> Trip | None:
        """Count a call that is about to start, or return the cap that is reached."""
        try:
            async with self._opened() as ledger:
                return await LedgerMeter(ledger, self._notices).reserve(session, key, expected, caps)
        except LedgerError as error:  # it cannot be opened
            return _away(error) if caps != Caps() else None

    async def settle(self, session: str, key: ChargeKey, actual: Charge) -> None:
        """End a reserved call with what it really cost."""

        async def tell() -> None:
            async with self._opened() as ledger:
                await ledger.settle(session, key, actual)

        await self._errands.run(tell())

    async def release(self, session: str, key: ChargeKey) -> None:
        """End a reserved call that cost nothing."""

        async def tell() -> None:
            async with self._opened() as ledger:
                await ledger.release(session, key)

        await self._errands.run(tell())

    async def visit(self, session: str, host: str, most: int) -> bool:
        """Tell whether a tool may call a host."""
        async with self._opened() as ledger:
            return await ledger.visit(session, host, most)

    async def spending(self, session: str) -> Spending:
        """Return a session's account as it stands."""
        async with self._opened() as ledger:
            return await ledger.spending(session)


def _away(error: LedgerError) -> Trip:
    return Trip(
        error=f"spending cannot be counted: {error.info().message}",
        error_code="budget_unavailable",
        error_kind=BudgetKind.COST,
        operator_hint='bring the ledger back, or let calls through meanwhile with `when_away = "open"` in [ledger]',
        transient=True,
    )


class LedgerBreakers(MemoryBreakers):
    """`Breakers` that tell the ledger when one opens or closes, and hear it of the others with `listen`."""

    def __init__(self, ledger: Ledger, notices: Notices, clock: Clock, events: EventStream = PROCESS) -> None:
        super().__init__(clock, events)
        self._ledger = ledger
        self._notices = notices
        self._time = clock
        self._errands = _Errands()
        #: What was last seen in the ledger.
        self._seen: dict[str, BreakerRow] = {}

    async def report(self, upstream: str, rule: BreakerRule, failure: FailureClass | None) -> None:
        """Take note of how an allowed call ended; share what changed."""
        before = self.state(upstream)
        await super().report(upstream, rule, failure)
        after = self.state(upstream)
        for each in {*before, *after}:
            was, now = before.get(each, Breaker()), after.get(each, Breaker())
            if was.state is not now.state:
                self._errands.begin(self._share(upstream, each, now))

    async def listen(self, every: float = 1.0) -> None:
        """Take over what other replicas share, again and again until cancelled."""
        while True:
            try:
                await self.refresh()
            except LedgerError as error:
                self._notices.failed(_NOT_SHARED, error)
            else:
                self._notices.over(_NOT_SHARED)
            await asyncio.sleep(every)

    async def refresh(self) -> None:
        """Take over what other replicas have shared since the last time."""
        for row in await self._ledger.breakers():
            known = self._seen.get(row.name)
            self._seen[row.name] = row
            if known is not None and known.version >= row.version:
                continue
            upstream, _, word = row.name.rpartition("/")
            if word in list(FailureClass):
                since = self._time.monotonic() - max(0.0, row.now - row.since)
                breaker = Breaker(state=BreakerState(row.state), failures=row.failures, since=since)
                self.adopt(upstream, FailureClass(word), breaker if row.state != BreakerState.CLOSED else Breaker())

    async def finish(self) -> None:
        """Wait until everything that changed is shared."""
        await self._errands.finish()

    async def _share(self, upstream: str, failure: FailureClass, breaker: Breaker) -> None:
        name = f"{upstream}/{failure}"
        try:
            row = await self._ledger.breaker(name)
            if row.state == breaker.state:
                return
            changed: BreakerRow = msgspec.structs.replace(
                row, state=str(breaker.state), failures=breaker.failures, since=row.now
            )
            if await self._ledger.move_breaker(changed):  # who was faster knows better
                self._seen[name] = msgspec.structs.replace(changed, version=row.version + 1)
        except LedgerError as error:
            self._notices.failed(_NOT_SHARED, error)
