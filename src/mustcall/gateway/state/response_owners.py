"""Whose response it is, where the upstream keeps it and knows only the operator's key.

With several client keys every caller's request goes out under the same key, so the upstream would show, delete and go
on from any of them for anybody. So the ids it gave are noted with the caller they went to, the
response's when it is first seen and its items' when it ends, and a caller reaches its own only. What was never noted is
nobody's.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from mustcall.core.errors import InvalidRequest, LedgerError, UnknownState
from mustcall.engine.exchange import StreamedReply, WholeReply
from mustcall.engine.off_loop import LARGE, heavily
from mustcall.gateway.state.references import may_refer, references
from mustcall.ledger import Ledger
from mustcall.ledger.notices import Notices
from mustcall.wire.sse import SseDecoder

__all__ = ["Holders", "OwnedReply"]

#: Fields that refer to something the upstream keeps, or say whether it shall: a cheap test beside `may_refer`.
_SIGNS = re.compile(rb'"(?:previous_response_id|conversation|store)"')
_ENDS = (b"response.completed", b"response.incomplete", b"response.failed")
_LOST = "response owner not recorded; it cannot be continued"


class _Item(msgspec.Struct):
    id: str | None = None


class _Response(msgspec.Struct):
    id: str | None = None
    output: list[_Item] = []


class _Event(msgspec.Struct):
    response: _Response | None = None


class _Asked(msgspec.Struct):
    previous_response_id: Any = None
    conversation: Any = None
    input: Any = None
    store: Any = None


class Holders:
    """The callers of responses that are kept elsewhere. Without a ledger nothing is known, and nothing reached."""

    def __init__(self, ledger: Ledger | None, notices: Notices) -> None:
        self._ledger = ledger
        self._notices = notices

    async def check(self, identifier: str, tenant: str) -> None:
        """Raise `UnknownState` unless a response is this caller's."""
        if not await self._are_of(tenant, (identifier,)):
            raise UnknownState(f"Response with id '{identifier}' not found.")

    async def check_body(self, body: bytes, tenant: str) -> "OwnedReply | None":
        """Raise `UnknownState` if a request goes on from another's response; return what notes its own."""
        if _SIGNS.search(body) is None and not may_refer(body):
            return self._held(tenant)
        asked = await heavily(_asked, body) if len(body) > LARGE else _asked(body)
        previous = asked.previous_response_id
        if isinstance(previous, str) and previous and not await self._are_of(tenant, (previous,)):
            raise UnknownState(
                f"Previous response with id '{previous}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        if asked.conversation is not None:
            raise UnknownState("Conversation not found: none can be made through this gateway.", param="conversation")
        referred = references(asked.input)
        if referred and not await self._are_of(tenant, referred):
            raise UnknownState(f"Item with id '{referred[0]}' not found.", param="input")
        return None if asked.store is False else self._held(tenant)

    def _held(self, tenant: str) -> "OwnedReply | None":
        return None if self._ledger is None else OwnedReply(self._ledger, self._notices, tenant)

    async def _are_of(self, tenant: str, identifiers: Sequence[str]) -> bool:
        return self._ledger is not None and await self._ledger.are_held(identifiers, tenant)


class OwnedReply:
    """One reply on its way to its caller."""

    def __init__(self, ledger: Ledger, notices: Notices, tenant: str) -> None:
        self._ledger = ledger
        self._notices = notices
        self._tenant = tenant
        self._noting: asyncio.Task[None] | None = None

    async def keep(self, reply: WholeReply | StreamedReply) -> WholeReply | StreamedReply:
        """Return the reply, noted before its end reaches the caller. A ledger that fails does not fail the reply."""
        if reply.status != 200:
            return reply
        if isinstance(reply, WholeReply):
            await self._note(_names(reply.body, _Response))
            return reply
        await self._hear(reply.first)
        return msgspec.structs.replace(reply, chunks=self._listen(reply.chunks))

    async def _listen(self, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        try:
            async with aclosing(chunks):
                async for chunk in chunks:
                    await self._hear(chunk)
                    yield chunk
        finally:
            if self._noting is not None:
                await asyncio.shield(self._noting)

    async def _hear(self, chunk: bytes) -> None:
        """Note the response beside the stream as soon as it has an id, and wait for that where the stream ends."""
        ends = any(sign in chunk for sign in _ENDS)
        if self._noting is None and b'"response"' in chunk:
            names = _of_events(chunk)
            if names:
                self._noting = asyncio.get_running_loop().create_task(self._note(names))
        if ends:
            if self._noting is not None:
                await asyncio.shield(self._noting)
            await self._note(_of_events(chunk))

    async def _note(self, names: Sequence[str]) -> None:
        if not names:
            return
        try:
            await self._ledger.hold(names, self._tenant)
        except LedgerError as error:
            self._notices.failed(_LOST, error)


def _asked(body: bytes) -> _Asked:
    try:
        return msgspec.json.decode(body, type=_Asked)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"the body is not a JSON object: {error}") from None


def _of_events(chunk: bytes) -> tuple[str, ...]:
    return tuple(name for event in SseDecoder().feed(chunk) for name in _names(event.data, _Event))


def _names(data: bytes, kind: type[_Response | _Event]) -> tuple[str, ...]:
    """Return the ids of a response and its items."""
    try:
        read = msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ()
    response = read.response if isinstance(read, _Event) else read
    if response is None or not response.id:
        return ()
    named = (response.id, *(item.id for item in response.output if item.id))
    return tuple(dict.fromkeys(name for name in named if "\0" not in name))
