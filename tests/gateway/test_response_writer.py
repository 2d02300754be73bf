"""Responses are stored before their replies end where the ledger is quick, and behind them where it is not."""

import asyncio
from collections.abc import AsyncGenerator
from typing import cast

import msgspec

from mustcall.core.errors import LedgerUnavailable
from mustcall.core.origin import Wire
from mustcall.engine.exchange import StreamedReply
from mustcall.gateway.state.conversation_state import Remembering
from mustcall.gateway.state.response_writer import ResponseWriter
from mustcall.ledger import Ledger, StoredResponse
from mustcall.ledger.notices import Notices
from mustcall.testing import Say, Turn
from mustcall.testing.render import Stamp, stream_reply


def _response(number: int) -> StoredResponse:
    given = {"id": f"resp_{number}", "conversation": "c", "parent": None, "depth": 0, "wire": "responses", "model": "m"}
    return msgspec.convert({**given, "tenant": "", "input": b"[]", "body": b"{}"}, StoredResponse)


class _Ledger:
    """Takes responses while it is open; `error` is what it raises for each."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.stored: list[str] = []
        self.bodies: list[bytes] = []
        self.error: LedgerUnavailable | None = None

    async def put_response(self, response: StoredResponse) -> None:
        await self.open.wait()
        if self.error is not None:
            raise self.error
        self.stored.append(response.id)
        self.bodies.append(response.body)


def _writer(ledger: _Ledger, notices: Notices, *, patience: float, most: int = 256) -> ResponseWriter:
    return ResponseWriter(cast("Ledger", ledger), notices, patience=patience, rest=1000.0, most=most)


async def test_a_thread_is_stored_where_its_stream_ends() -> None:
    """Rule 78: a text that names `message_stop` does not end the message, and what follows its end stores nothing."""
    words = "It ends with message_stop, and the number is 42."
    frames = stream_reply(Turn(Say(words)), Wire.MESSAGES, {"model": "m", "stream": True}, Stamp(0))
    ledger = _Ledger()
    writer = _writer(ledger, Notices(), patience=1000.0)
    thread = Remembering(
        writer=writer, wire=Wire.MESSAGES, tenant="", token="tok", stores=True, parent=None, input=b"[]"
    )

    async def chunks() -> AsyncGenerator[bytes]:
        for frame in [*frames[1:], b"event: ping\ndata: {}\n\n"]:
            yield frame

    reply = await thread.keep(StreamedReply(status=200, first=frames[0], chunks=chunks(), upstream_headers={}))
    assert isinstance(reply, StreamedReply)
    seen = [chunk async for chunk in reply.chunks]
    assert sum(b"message_stop" in chunk for chunk in seen) > 1
    assert ledger.stored == ["msg_tok"]
    assert words.encode() in ledger.bodies[0]


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
