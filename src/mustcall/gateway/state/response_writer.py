"""Writes responses into the ledger, before their last bytes go out where that takes no time worth speaking of.

Whoever has a response's id may continue it at once, so a reply waits for its own write: for up to a second. After a
write that took longer, replies wait only briefly for ten seconds. What is delivered before it is stored is known
here, and whoever asks for it waits for its write. Waiting writes are bounded in number and in bytes; what is beyond
that is not stored, and counted with the failures.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from time import monotonic

from mustcall.core.errors import LedgerUnavailable, MustcallError
from mustcall.ledger import Ledger, StoredResponse
from mustcall.ledger.notices import Notices

__all__ = ["ResponseWriter"]

_FAILED = "storing a response failed"
_MIB = 1024 * 1024

#: A write under way; it ends in whether the response is stored.
_Write = asyncio.Task[bool]
#: A tenant, and the id of a response or of one of its items.
_Name = tuple[str, str]


class ResponseWriter:
    """The writes of one gateway.

    A reply waits for `patience` seconds. One that is late begins a rest of `rest` seconds, in which a reply waits for
    `brief` seconds. At most `most` responses of `most_bytes` together wait; a larger one is written alone.
    """

    def __init__(
        self,
        ledger: Ledger,
        notices: Notices,
        *,
        patience: float = 1.0,
        brief: float = 0.05,
        rest: float = 10.0,
        most: int = 256,
        most_bytes: int = 64 * _MIB,
    ) -> None:
        self._ledger = ledger
        self._notices = notices
        self._patience = patience
        self._brief = brief
        self._rest = rest
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._rests_until = 0.0
        #: The writes under way: a loop keeps no strong reference to its tasks.
        self._writes: set[_Write] = set()
        self._named: dict[_Name, _Write] = {}

    async def put(self, response: StoredResponse) -> None:
        """Store a response; one that takes too long, or that fails, is no failure of its reply."""
        size = len(response.input) + len(response.body) + len(response.settings)
        waiting = len(self._writes)
        if waiting and (waiting >= self._most or self._bytes + size > self._most_bytes):
            held = f"{waiting} responses of {self._bytes / _MIB:.1f} MiB already wait for the ledger"
            self._notices.failed(_FAILED, LedgerUnavailable(held))
            return
        write = asyncio.get_running_loop().create_task(self._write(response))
        names = tuple((response.tenant, name) for name in (response.id, *response.items))
        self._writes.add(write)
        self._bytes += size
        self._named.update(dict.fromkeys(names, write))
        write.add_done_callback(partial(self._ended, names, size))
        rests = monotonic() < self._rests_until
        _, late = await asyncio.wait({write}, timeout=self._brief if rests else self._patience)
        if late and not rests:
            self._rests_until = monotonic() + self._rest

    async def settle(self, tenant: str, identifiers: Iterable[str]) -> None:
        """Wait until no response with one of these ids, or with an item of them, is being written.

        Raise `LedgerUnavailable` if a write fails meanwhile, or does not end within the ledger's own limit.
        """
        if not self._named:
            return
        writes = {write for name in identifiers if (write := self._named.get((tenant, name))) is not None}
        if not writes:
            return
        _, late = await asyncio.wait(writes, timeout=self._ledger.limit)
        if late:
            raise LedgerUnavailable(f"a response was not stored within {self._ledger.limit:g} s of being asked for")
        if not all(write.result() for write in writes):
            raise LedgerUnavailable("a response that is asked for could not be stored")

    async def close(self) -> None:
        """Wait for what is being written; the ledger itself bounds how long a write takes."""
        if self._writes:
            await asyncio.wait(self._writes)

    async def _write(self, response: StoredResponse) -> bool:
        try:
            await self._ledger.put_response(response)
        except MustcallError as error:
            self._notices.failed(_FAILED, error)
            return False
        return True

    def _ended(self, names: Iterable[_Name], size: int, write: _Write) -> None:
        self._writes.discard(write)
        self._bytes -= size
        for name in names:
            if self._named.get(name) is write:
                del self._named[name]
