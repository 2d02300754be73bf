"""A run, held: its lease renewed for as long as it is worked on, and every write made under its fence.

The database's clock says when a lease is over; the clock here only says when to ask. What cannot be written is tried
again for a while, told as such: what the database kept of a try whose answer was lost is accepted.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from mustcall.core.errors import FenceLost, LedgerError, LedgerUnavailable
from mustcall.ledger import Ledger, NewEvent, RunEnd, StoredRun
from mustcall.telemetry.logs import log_of

__all__ = ["Hold"]

_logger = log_of("mustcall.runs")

#: Seconds for which a write is tried again while the ledger does not answer, at the least.
_PATIENCE = 15.0
_PAUSES = (0.1, 0.3, 0.6, 1.0)
#: Seconds for which what the database said of a run is taken to be so; it may be taken or ended from outside.
_FRESH = 0.25
#: A lease is renewed so many times before it would be over.
_RENEWALS = 3
#: Seconds a renewal under way is waited for when the run is over.
_GRACE = 5.0


class Hold:
    """The claim on one run, asked for at `since`. `lost` is why it is over, if it is."""

    def __init__(self, ledger: Ledger, run: StoredRun, lease: float, since: float) -> None:
        self.run_id = run.id
        self._ledger = ledger
        self._fence = run.fence
        self._lease = lease
        self._until = since + lease
        self.lost: LedgerError | None = None
        self._ending = False
        self._over = asyncio.Event()

    async def write(self, events: Sequence[NewEvent], end: RunEnd | None = None, *, again: bool = False) -> None:
        """Write events, and the end with them, all or nothing; raise `FenceLost` if the run is another's now.

        `again` says that some of it may have been written before, by a try that was given up.
        """
        self._ending = self._ending or end is not None
        give_up = time.monotonic() + max(self._lease, _PATIENCE)
        tries = 0
        while True:
            try:
                return await self._ledger.append(self.run_id, self._fence, events, end=end, again=again or tries > 0)
            except LedgerUnavailable:
                pause = _PAUSES[min(tries, len(_PAUSES) - 1)]
                if time.monotonic() + pause > give_up:
                    raise
                tries += 1
                await asyncio.sleep(pause)

    async def ensure(self, since: float) -> None:
        """Return if the run is still ours: who slept past the lease, or since it last wrote, asks before it acts."""
        now = time.monotonic()
        if now >= self._until or now >= since + _FRESH:
            await self._renew()

    @asynccontextmanager
    async def kept(self) -> AsyncGenerator[None]:
        """Renew the lease while the block goes on; if it is lost, the block is cancelled and `FenceLost` raised."""
        working = asyncio.current_task()
        assert working is not None, "durable runs are driven by a task"
        renewing = asyncio.create_task(self._keep(working))
        try:
            yield
        except asyncio.CancelledError:
            if self.lost is None:
                raise
            working.uncancel()
            raise self.lost from None
        finally:
            self._over.set()  # rather than cancelled in the middle of a statement, which drivers take badly
            await asyncio.wait({renewing}, timeout=_GRACE)
            renewing.cancel()

    async def _keep(self, working: "asyncio.Task[object]") -> None:
        while not await self._over_within(self._lease / _RENEWALS):
            try:
                await self._renew()
            except FenceLost as lost:
                if not self._ending and not self._over.is_set():  # a run that ends is no longer held: no loss
                    self.lost = lost
                    working.cancel()
                return
            except LedgerError as error:  # it may be back before the lease is over, and nobody can claim meanwhile
                _logger.warning("renewing the lease of run %s failed: %s", self.run_id, error.message)

    async def _over_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()
        return self._over.is_set()

    async def _renew(self) -> None:
        asked = time.monotonic()
        if not await self._ledger.renew_lease(self.run_id, self._fence, lease=self._lease):
            raise FenceLost(f"the run {self.run_id!r} is another's now, or was ended from outside")
        self._until = asked + self._lease
