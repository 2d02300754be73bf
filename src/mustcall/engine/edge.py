"""The gateway's edge of a turn: its outcome in the bytes of the caller's wire, in one piece or as a stream.

What the upstream sent goes out as it came where the turn allows that. Nothing is decided here.
"""

from collections.abc import AsyncGenerator

import msgspec

from mustcall.core.errors import ErrorInfo, MustcallError, UpstreamGarbage, UpstreamRejected
from mustcall.core.reply import Reply
from mustcall.engine.attempts.refusals import UpstreamRefused
from mustcall.engine.exchange import StreamedReply, WholeReply, no_more
from mustcall.engine.off_loop import heavily
from mustcall.engine.records import TurnProgress
from mustcall.engine.replies.delivery import Delivery
from mustcall.engine.turn import EngineTurn
from mustcall.wire.caching.encode_cache import write_body
from mustcall.wire.registry import codec_for

__all__ = ["Edge"]


class Edge:
    """One caller's end of one turn. `created` is the time of its reply, `metadata` adds the record to a whole one."""

    def __init__(self, turn: EngineTurn, progress: TurnProgress, *, created: int, metadata: bool) -> None:
        self._turn = turn
        self._inbound = turn.context.inbound
        self._request = turn.context.request
        self._progress = progress
        self._metadata = metadata
        self._created = created

    async def take(self) -> WholeReply | StreamedReply:
        """Take the turn as its caller asked: a stream is returned once its first bytes are there."""
        turn = self._turn
        try:
            if self._inbound.stream:
                return await self._stream()
            reply = await turn.reply()
            if turn.raw is not None:
                noted = turn.context.record.adaptations
                return WholeReply(status=200, body=turn.raw, upstream_headers=turn.headers, adaptations=noted)
            return self._answer(200, await heavily(self._encoded, reply) if turn.heavy else self._encoded(reply))
        except UpstreamRefused as refused:
            return self._refusal(refused)

    async def _stream(self) -> StreamedReply:
        delivery = self._progress.delivery = self._delivery()
        self._progress.waiting = True
        chunks = self._turn.pieces(delivery)
        return self._streamed(await self._turn.first(chunks), chunks)

    def _delivery(self) -> Delivery:
        context = self._turn.context
        id_follows = context.turn_state.stored and not self._inbound.stored
        stamp = self._inbound.stamp(self._created)
        return Delivery(
            codec_for(self._inbound.wire),
            self._request,
            stamp,
            context.log,
            id_follows=id_follows,
            shared=context.same_wire,
        )

    def _refusal(self, refused: UpstreamRefused) -> WholeReply | StreamedReply:
        """Return an upstream's error status: as it is where it may go out so, in the caller's shape otherwise."""
        told = refused.told
        if refused.body is not None:
            return self._answer(refused.status, refused.body, told)
        delivery = self._delivery()
        if self._inbound.stream and delivery.tells(told):
            return self._streamed(delivery.fail(UpstreamRejected(told)), no_more())
        body = msgspec.json.encode(codec_for(self._inbound.wire).encode_error(told, self._inbound.request_id))
        return self._answer(refused.status, body, told)

    def _encoded(self, reply: Reply) -> bytes:
        """Write a reply for the caller."""
        turn, inbound = self._turn, self._inbound
        try:
            stamp = inbound.stamp(self._created)
            body = codec_for(inbound.wire).encode_reply(reply, self._request, stamp, turn.context.log)
            if self._metadata:
                turn.context.record.adaptations = turn.context.adaptations
                body["mustcall"] = turn.context.record.summary()
            return write_body(body)
        except RecursionError:
            raise turn.failed(UpstreamGarbage("the upstream's reply is nested too deeply")) from None
        except MustcallError as error:
            raise turn.failed(error) from None

    def _answer(self, status: int, body: bytes, error: ErrorInfo | None = None) -> WholeReply:
        headers, noted = self._turn.headers, self._turn.context.adaptations
        return WholeReply(status=status, body=body, upstream_headers=headers, adaptations=noted, error=error)

    def _streamed(self, first: bytes, chunks: AsyncGenerator[bytes]) -> StreamedReply:
        turn = self._turn
        return StreamedReply(
            status=200, first=first, chunks=chunks, upstream_headers=turn.headers, adaptations=turn.context.adaptations
        )
