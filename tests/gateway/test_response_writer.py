"""Responses are stored before their replies end where the ledger is quick, and behind them where it is not."""

import asyncio
from typing import cast

import msgspec

from mustcall.core.errors import LedgerUnavailable
from mustcall.gateway.state.response_writer import ResponseWriter
from mustcall.ledger import Ledger, StoredResponse
from mustcall.ledger.notices import Notices


def _response(number: int) -> StoredResponse:
    given = {"id": f"resp_{number}", "conversation": "c", "parent": None, "depth": 0, "wire": "responses", "model": "m"}
    return msgspec.convert({**given, "tenant": "", "input": b"[]", "body": b"{}"}, StoredResponse)


class _Ledger:
    """Takes responses while it is open; `error` is what it raises for each."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.stored: list[str] = []
        self.error: LedgerUnavailable | None = None

    async def put_response(self, response: StoredResponse) -> None:
        await self.open.wait()
        if self.error is not None:
            raise self.error
        self.stored.append(response.id)


def _writer(ledger: _Ledger, notices: Notices, *, patience: float, most: int = 256) -> ResponseWriter:
    return ResponseWriter(cast("Ledger", ledger), notices, patience=patience, rest=1000.0, most=most)


async def test_a_reply_waits_for_its_own_write() -> None:
    """Rule 78: whoever has the id can go on from it at once."""
    ledger = _Ledger()
    writer = _writer(ledger, Notices(), patience=1000.0)
    ledger.open.clear()
    waiting = asyncio.create_task(writer.put(_response(1)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    ledger.open.set()
    await waiting
    assert ledger.stored == ["resp_1"]


async def test_a_ledger_that_is_late_delays_one_reply_and_stores_all() -> None:
    """Rule 98: after the first wait that was too long, replies go out at once; what they left is stored in the end."""
    ledger, notices = _Ledger(), Notices()
    writer = _writer(ledger, notices, patience=0.0)
    ledger.open.clear()
    await writer.put(_response(1))
    writer._patience = 1000.0  # who waited now would wait too long for this test
    await writer.put(_response(2))
    await writer.put(_response(3))
    assert ledger.stored == []
    ledger.open.set()
    await writer.close()
    assert (sorted(ledger.stored), notices.count) == (["resp_1", "resp_2", "resp_3"], 0)


async def test_a_refused_write_is_counted_and_fails_no_reply() -> None:
    """Rule 98: the failure is told once, and the replies behind it wait for nothing."""
    ledger, notices = _Ledger(), Notices()
    writer = _writer(ledger, notices, patience=1000.0)
    ledger.error = LedgerUnavailable("the ledger is locked")
    await writer.put(_response(1))
    assert notices.count == 1
    ledger.open.clear()
    await writer.put(_response(2))
    ledger.open.set()
    await writer.close()
    assert (ledger.stored, notices.count) == ([], 2)


async def test_writes_that_wait_are_bounded() -> None:
    """Rule 98: a ledger that never answers holds so many responses and no more."""
    ledger, notices = _Ledger(), Notices()
    writer = _writer(ledger, notices, patience=0.0, most=2)
    ledger.open.clear()
    for number in range(5):
        await writer.put(_response(number))
    assert notices.count == 3
    ledger.open.set()
    await writer.close()
    assert sorted(ledger.stored) == ["resp_0", "resp_1"]


async def test_a_cancelled_reply_leaves_its_write_alone() -> None:
    """Rule 116: a caller who goes away takes nothing from the ledger that is being written."""
    ledger = _Ledger()
    writer = _writer(ledger, Notices(), patience=1000.0)
    ledger.open.clear()
    waiting = asyncio.create_task(writer.put(_response(1)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    ledger.open.set()
    await writer.close()
    assert ledger.stored == ["resp_1"]
