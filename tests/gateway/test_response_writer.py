"""Responses are stored before their replies end where the ledger is quick, and behind them where it is not.

Whoever continues a response that this process still writes gets it, or is told to try again; never that it is unknown.
"""

import asyncio
import json
import sqlite3
import threading
from collections.abc import AsyncGenerator, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from mustcall.core.errors import LedgerUnavailable, UnknownState
from mustcall.core.origin import Wire
from mustcall.engine.exchange import StreamedReply, WholeReply
from mustcall.gateway.state import conversation_state
from mustcall.gateway.state.conversation_state import Memory, Remembering
from mustcall.gateway.state.response_writer import ResponseWriter
from mustcall.gateway.state.stored_responses import serve_stored
from mustcall.ledger import Ledger, StoredResponse
from mustcall.ledger.notices import Notices
from mustcall.testing import Say, ScriptedUpstream, Turn
from mustcall.testing.render import Stamp, stream_reply
from mustcall.upstream.seam import Transport
from support.http import call, post
from support.remembering import gateway_with_ledger

_OUTPUT = {"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}


def _response(number: int, **fields: Any) -> StoredResponse:
    given = {"id": f"resp_{number}", "conversation": "c", "parent": None, "depth": 0, "wire": "responses", "model": "m"}
    return msgspec.convert({**given, "tenant": "", "input": b"[]", "body": b"{}", **fields}, StoredResponse)


class _Ledger:
    """Takes responses while it is open; `error` is what it raises for each."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.stored: list[str] = []
        self.bodies: list[bytes] = []
        self.error: LedgerUnavailable | None = None
        self.limit = 1000.0
        self._held: dict[tuple[str, str], StoredResponse] = {}

    async def put_response(self, response: StoredResponse) -> None:
        await self.open.wait()
        if self.error is not None:
            raise self.error
        self.stored.append(response.id)
        self.bodies.append(response.body)
        self._held[response.tenant, response.id] = response

    async def get_response(self, response: str, tenant: str) -> StoredResponse | None:
        return self._held.get((tenant, response))

    async def delete_response(self, response: str, tenant: str) -> bool:
        return self._held.pop((tenant, response), None) is not None

    async def chain(self, response: str, tenant: str) -> list[StoredResponse] | None:
        found = self._held.get((tenant, response))
        return None if found is None else [found]

    async def find_items(self, items: Sequence[str], tenant: str) -> dict[str, StoredResponse]:
        held = [one for (owner, _), one in self._held.items() if owner == tenant]
        return {item: one for item in items for one in held if item in one.items}


def _writer(
    ledger: _Ledger, notices: Notices, *, patience: float, brief: float = 0.0, most: int = 256, most_bytes: int = 9999
) -> ResponseWriter:
    kept = cast("Ledger", ledger)
    return ResponseWriter(kept, notices, patience=patience, brief=brief, rest=1000.0, most=most, most_bytes=most_bytes)


def _memory(ledger: _Ledger) -> Memory:
    """Return a memory whose replies wait for no write."""
    memory = Memory(cast("Ledger", ledger), Notices())
    memory._writer = _writer(ledger, Notices(), patience=0.0)
    return memory


async def _turns(number: int = 5) -> None:
    """Let the loop go round."""
    for _ in range(number):
        await asyncio.sleep(0)


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
    await _turns()
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


async def test_in_the_rest_a_reply_waits_briefly() -> None:
    """Rule 78: a ledger that is quick again stores replies before they end, also before the rest is over."""
    ledger, notices = _Ledger(), Notices()
    writer = _writer(ledger, notices, patience=0.0, brief=1000.0)
    ledger.open.clear()
    await writer.put(_response(1))
    waiting = asyncio.create_task(writer.put(_response(2)))
    await _turns()
    assert not waiting.done()
    ledger.open.set()
    await waiting
    assert ledger.stored == ["resp_1", "resp_2"]


async def test_a_refused_write_is_counted_and_fails_no_reply() -> None:
    """Rule 98: one response that the ledger refuses is counted, and the reply behind it still waits for its own."""
    ledger, notices = _Ledger(), Notices()
    writer = _writer(ledger, notices, patience=1000.0)
    ledger.error = LedgerUnavailable("the ledger is locked")
    await writer.put(_response(1))
    assert notices.count == 1
    ledger.error = None
    ledger.open.clear()
    waiting = asyncio.create_task(writer.put(_response(2)))
    await _turns()
    assert not waiting.done()
    ledger.open.set()
    await waiting
    assert (ledger.stored, notices.count) == (["resp_2"], 1)


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


async def test_the_bytes_that_wait_are_bounded() -> None:
    """Rule 98: input, body and settings count; what has been stored makes room, and a large one alone is stored."""
    ledger, notices = _Ledger(), Notices()
    writer = _writer(ledger, notices, patience=0.0, most_bytes=100)
    ledger.open.clear()
    await writer.put(_response(1, input=b"i" * 20, body=b"b" * 20, settings=b"s" * 20))
    await writer.put(_response(2, input=b"i" * 41, body=b""))
    await writer.put(_response(3, input=b"i" * 40, body=b""))
    await writer.put(_response(4, input=b"i", body=b""))
    assert notices.count == 2
    ledger.open.set()
    await writer.close()
    await writer.put(_response(5, body=b"b" * 1000))
    await writer.close()
    ledger.open.clear()
    await writer.put(_response(6, body=b"b" * 50))
    await writer.put(_response(7, body=b"b" * 40))
    ledger.open.set()
    await writer.close()
    assert (ledger.stored, notices.count) == (["resp_1", "resp_3", "resp_5", "resp_6", "resp_7"], 2)


#: The ways to ask for a response, and for an item of it.
ASKS = ("previous", "item", "get", "items", "delete")


def _ask(way: str, memory: Memory, tenant: str = "t") -> Coroutine[Any, Any, object]:
    match way:
        case "previous":
            body = {"model": "m", "input": "And?", "previous_response_id": "resp_1"}
        case "item":
            body = {"model": "m", "input": [{"type": "item_reference", "id": "msg_1"}]}
        case _:
            path, method = "/responses/resp_1", "DELETE" if way == "delete" else "GET"
            path += "/input_items" if way == "items" else ""
            away = cast("Transport", None)
            return serve_stored(method, path, "", {}, tenant, memory=memory, holders=None, endpoints=(), transport=away)
    return memory.recall_response(json.dumps(body).encode(), tenant, "tok")


async def _late(memory: Memory, ledger: _Ledger) -> None:
    """Deliver a response that is not stored yet."""
    ledger.open.clear()
    body = json.dumps({"id": "resp_1", "output": [_OUTPUT]}).encode()
    await memory._writer.put(_response(1, tenant="t", body=body, items=["msg_1"]))


@pytest.mark.parametrize("way", ASKS)
async def test_whoever_asks_waits_for_the_write(way: str) -> None:
    """Rule 78: a response that was delivered before it was stored is waited for, and then found."""
    ledger = _Ledger()
    memory = _memory(ledger)
    await _late(memory, ledger)
    asked = asyncio.create_task(_ask(way, memory))
    await _turns()
    assert not asked.done()
    ledger.open.set()
    found = await asked
    if isinstance(found, WholeReply):
        assert found.status == 200
    else:
        _, body = cast("tuple[Remembering, bytes]", found)
        assert _OUTPUT in json.loads(body)["input"]
    assert (await ledger.get_response("resp_1", "t") is None) == (way == "delete")


@pytest.mark.parametrize("way", ASKS)
async def test_a_write_that_fails_or_does_not_end_is_503(way: str) -> None:
    """Rule 98: while a delivered response is written it is never unknown; it is once its write has failed."""
    ledger = _Ledger()
    memory = _memory(ledger)
    await _late(memory, ledger)
    ledger.limit = 0.001
    with pytest.raises(LedgerUnavailable, match=r"not stored within 0\.001 s"):
        await _ask(way, memory)
    ledger.limit = 1000.0
    asked = asyncio.create_task(_ask(way, memory))
    await _turns()
    ledger.error = LedgerUnavailable("the ledger is locked")
    ledger.open.set()
    with pytest.raises(LedgerUnavailable, match="could not be stored"):
        await asked
    with pytest.raises(UnknownState):  # it is lost, and asking again does not help
        await _ask(way, memory)


@pytest.mark.parametrize("way", ASKS)
async def test_the_write_of_another_caller_is_not_waited_for(way: str) -> None:
    """Rule 78: nobody learns, not even by the time it takes, that another caller's response exists."""
    ledger = _Ledger()
    memory = _memory(ledger)
    await _late(memory, ledger)
    with pytest.raises(UnknownState):
        await asyncio.wait_for(_ask(way, memory, "other"), 1.0)
    ledger.open.set()
    await memory.close()


async def test_a_thread_waits_for_its_write() -> None:
    """Rule 78: a thread of Messages is continued like a response; one that cannot be stored is sent again whole."""
    ledger = _Ledger()
    memory = _memory(ledger)
    asked = json.dumps({"model": "m", "thread": {"type": "continue", "previous_message_id": "msg_a"}}).encode()
    for error in (None, LedgerUnavailable("the ledger is locked")):
        ledger.open.clear()
        ledger.error = error
        body = {"id": "msg_a", "content": [{"type": "text", "text": "Hi."}]}
        settings = b"{}"
        given = {"id": "msg_a", "wire": str(Wire.MESSAGES), "tenant": "t", "body": json.dumps(body).encode()}
        await memory._writer.put(_response(1, settings=settings, **given))
        going_on = asyncio.create_task(memory.recall_thread(asked, "t", "tok"))
        await _turns()
        assert not going_on.done()
        ledger.open.set()
        if error is None:
            assert json.loads((await going_on)[1])["messages"] == [{"role": "assistant", "content": body["content"]}]
        else:
            with pytest.raises(UnknownState, match="no thread is held"):
                await going_on


def test_a_locked_ledger_loses_no_conversation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 78: while another process holds the ledger, replies go out, and who continues one waits for its write."""
    hasty = partial(ResponseWriter, patience=0.01, brief=0.01)
    monkeypatch.setattr(conversation_state, "ResponseWriter", hasty)
    with (
        ScriptedUpstream(lambda _: Turn(Say("Hi."))) as upstream,
        gateway_with_ledger(tmp_path / "l.db", f"chat={upstream.base_url}") as gateway,
    ):

        def ask(text: str, previous: str | None = None) -> str:
            asked = {"model": "m", "input": text, **({"previous_response_id": previous} if previous else {})}
            reply = post(f"{gateway.base_url}/responses", asked)
            assert reply.status == 200, reply.body
            return json.loads(reply.body)["id"]

        ask("One.")
        other = sqlite3.connect(tmp_path / "l.db", isolation_level=None, check_same_thread=False)
        for way in ("continue", "delete"):
            other.execute("BEGIN IMMEDIATE")
            late = ask("Two.")
            freeing = threading.Timer(0.05, other.execute, ("ROLLBACK",))
            freeing.start()
            if way == "continue":
                ask("Three.", late)
                said = [message["content"] for message in upstream.requests[-1].body["messages"]]
                assert said == ["Two.", "Hi.", "Three."]
            else:
                assert call("DELETE", f"{gateway.base_url}/responses/{late}").status == 200
                assert call("GET", f"{gateway.base_url}/responses/{late}").status == 404
            freeing.join()
        other.close()


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
