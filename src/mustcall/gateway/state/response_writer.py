"""Writes responses into the ledger, before their last bytes go out where that takes no time worth speaking of.

Whoever has a response's id may go on from it at once, so a reply waits for its own write: for up to a second. A ledger
that takes longer is written to behind the replies for ten seconds, and then waited for again. Writes that wait are
bounded; what is beyond that is not stored, and counted with the failures.
"""

import asyncio
from time import monotonic

from mustcall.core.errors import LedgerUnavailable, MustcallError
from mustcall.ledger import Ledger, StoredResponse
from mustcall.ledger.notices import Notices

__all__ = ["ResponseWriter"]

_FAILED = "storing a response failed"


class ResponseWriter:
    """The writes of one gateway. A reply waits for `patience` seconds, and not at all for `rest` seconds after that."""

    def __init__(
        self, ledger: Ledger, notices: Notices, *, patience: float = 1.0, rest: float = 10.0, most: int = 256
    ) -> None:
        self._ledger = ledger
        self._notices = notices
        self._patience = patience
        self._rest = rest
        self._most = most
        self._rests_until = 0.0
        #: The writes under way: a loop keeps no strong reference to its tasks.
        self._writes: set[asyncio.Task[None]] = set()

    async def put(self, response: StoredResponse) -> None:
        """Store a response; one that takes too long, or that fails, is no failure of its reply."""
        if len(self._writes) >= self._most:
            self._notices.failed(_FAILED, LedgerUnavailable(f"{self._most} responses already wait for the ledger"))
            return
        write = asyncio.get_running_loop().create_task(self._write(response))
        self._writes.add(write)
        write.add_done_callback(self._writes.discard)
        if monotonic() < self._rests_until:
            return
        _, late = await asyncio.wait({write}, timeout=self._patience)
        if late:
            self._rests_until = monotonic() + self._rest

    async def close(self) -> None:
        """Wait for what is being written; the ledger itself bounds how long a write takes."""
        if self._writes:
            await asyncio.wait(self._writes)

    async def _write(self, response: StoredResponse) -> None:
        try:
            await self._ledger.put_response(response)
        except MustcallError as error:
            self._rests_until = monotonic() + self._rest
            self._notices.failed(_FAILED, error)
