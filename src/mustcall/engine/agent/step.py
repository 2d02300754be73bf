"""One turn of an agent's model: a request out, a reply in, taken by the same engine as the gateway's turns.

The request is written on the upstream's own wire and handed to `Turns.take`, which judges, retries and mends; what
comes back is read with the same wire's codec. No decision is made here.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, cast

import msgspec

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.assembler import Assembler
from mustcall.core.errors import (
    ErrorInfo,
    ModelError,
    MustcallError,
    UpstreamGarbage,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mustcall.core.events import Ended, Event, Failed
from mustcall.core.events import ReasoningDelta as ReasoningEvent
from mustcall.core.events import TextDelta as TextEvent
from mustcall.core.origin import JsonObject
from mustcall.core.parts import Reasoning, Refusal, Text
from mustcall.core.reply import Reply, Usage
from mustcall.core.request import Request
from mustcall.core.verdict import OutcomeKind
from mustcall.engine.agent.events import ReasoningDelta, TextDelta
from mustcall.engine.exchange import Inbound, StreamedReply, WholeReply
from mustcall.engine.metered import Metered
from mustcall.engine.records import Progress, TurnRecord
from mustcall.engine.spending import Purse
from mustcall.engine.turns import Turns
from mustcall.policy.controls import Controls
from mustcall.policy.remedy import ERRORS
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.retry import Clock
from mustcall.wire.codec import Provenance, Target
from mustcall.wire.registry import codec_for
from mustcall.wire.sse import SseDecoder

__all__ = ["Say", "Step"]

#: A model error says its own name first, on every wire.
_MODEL_ERRORS: dict[str, type[ModelError]] = {kind.__name__: kind for kind in (*ERRORS.values(), ModelError)}
_UPSTREAM_ERRORS: dict[str, type[MustcallError]] = {
    kind.code: kind for kind in (UpstreamUnavailable, UpstreamTimeout, UpstreamGarbage)
}

Say = Callable[[TextDelta | ReasoningDelta], Awaitable[None]]


class Step:
    """One turn. `record` and `usage` can be read at any time, also after a failure."""

    def __init__(
        self,
        turns: Turns,
        endpoint: Endpoint,
        clock: Clock,
        *,
        timeout: float,
        extra: Mapping[str, Any] | None = None,
        purse: Purse | None = None,
        number: int = 1,
    ) -> None:
        self._turns = turns
        self._endpoint = endpoint
        self._clock = clock
        self._timeout = timeout
        self._extra = extra or {}
        self._purse = purse
        self._number = number
        self._metered: Metered | None = None
        self._codec = codec_for(endpoint.wire)
        self._token = os.urandom(12).hex()
        self._progress = Progress()
        self._reply: Reply | None = None
        self._issuer = endpoint.issuer("")

    @property
    def record(self) -> TurnRecord | None:
        """The record of the turn, once it has begun."""
        return self._progress.record

    @property
    def usage(self) -> Usage:
        """The tokens of all attempts so far (rule 114)."""
        record = self._progress.record
        total = Usage()
        if record is not None and record.attempts:
            for attempt in record.attempts:
                total += attempt.usage or Usage()
        elif self._reply is not None and self._reply.usage is not None:
            total += self._reply.usage
        return total

    async def take(self, request: Request, controls: Controls, say: Say) -> Reply:
        """Take the turn and return its reply; raise `MustcallError`. Text is said as it may be seen."""
        self._issuer = self._endpoint.issuer(request.model)
        inbound = self._inbound(request)
        if self._purse is not None:
            self._metered = self._turns.charged(
                self._purse, self._endpoint, request.model, progress=self._progress, step=str(self._number)
            )
        metered = self._metered
        taking = self._turns.take(
            inbound,
            self._endpoint,
            None,
            asked=request.model,
            controls=controls,
            progress=self._progress,
            deadline=self._clock.monotonic() + self._timeout,
            metered=metered,
        )
        taken = await (taking if metered is None else metered.follow(taking))
        if isinstance(taken, StreamedReply):
            self._reply = await self._read_stream(taken, say)
        else:
            self._reply = await self._read_whole(taken, say)
        return self._reply

    def _inbound(self, request: Request) -> Inbound:
        target = Target(issuer=self._issuer, default_max_tokens=self._endpoint.default_max_tokens)
        # What the wire cannot carry is left out here exactly as for a caller of another wire.
        body = {**self._codec.encode_request(request, target, AdaptationLog()), **self._extra}
        return Inbound(
            wire=self._endpoint.wire,
            body=_encoded(body),
            headers={},
            query="",
            stream=request.stream,
            token=self._token,
            request_id=f"req_{self._token}",
        )

    @property
    def _provenance(self) -> Provenance:
        return Provenance(issuer=self._issuer, token=self._token)

    async def _read_whole(self, whole: WholeReply, say: Say) -> Reply:
        if whole.status >= 400:
            raise UpstreamRejected(self._codec.decode_error(whole.status, whole.body))
        reply = self._codec.decode_reply(whole.body, self._provenance)
        for part in reply.parts:
            match part:
                case Text(text=text) | Refusal(text=text) if text:
                    await say(TextDelta(text))
                case Reasoning(text=text, summary=summary) if text or summary:
                    await say(ReasoningDelta(text or "\n\n".join(summary)))
                case _:
                    pass
        return reply

    async def _read_stream(self, streamed: StreamedReply, say: Say) -> Reply:
        sse = SseDecoder()
        decoder = self._codec.stream_decoder(self._provenance)
        assembler = Assembler()

        async def take(events: list[Event]) -> bool:
            for event in events:
                assembler.feed(event)
                match event:
                    case TextEvent(text=text) if text:
                        await say(TextDelta(text))
                    case ReasoningEvent(text=text) if text:
                        await say(ReasoningDelta(text))
                    case Failed(error=error):
                        raise self._failure(error)
                    case Ended():
                        return True
                    case _:
                        pass
            return False

        async with aclosing(streamed.chunks) as chunks:
            ended = await take(decoder.feed_all(sse.feed(streamed.first)))
            async for chunk in chunks:
                if not ended:
                    ended = await take(decoder.feed_all(sse.feed(chunk)))
        if not ended:
            await take(decoder.feed_all(sse.close()) + decoder.close())
        if not assembler.ended:
            raise UpstreamUnavailable("the upstream's stream ended before the reply was complete")
        return assembler.reply()

    def _failure(self, error: ErrorInfo) -> MustcallError:
        """Return a stream's error event as the typed error it was before it was written down."""
        if self._metered is not None and self._metered.refusal is not None:
            return self._metered.refusal
        record = self._progress.record
        if record is not None and record.outcome is OutcomeKind.FAILURE:
            own = _MODEL_ERRORS.get(error.message.partition(":")[0])
            if own is not None:
                return own(error.message, details={"attempts": [attempt.summary() for attempt in record.attempts]})
            # Not every wire's error has a place for our code; the record has it.
            code = record.attempts[-1].error if record.attempts else None
            broken = _UPSTREAM_ERRORS.get(code or error.code)
            if broken is not None:
                return broken(error.message)
        return UpstreamRejected(error)


def _encoded(body: JsonObject) -> bytes:
    """Return a body's bytes. Half a character, as in a file name that is no UTF-8, is replaced: no wire carries it."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(_whole(body))


def _whole(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            items = cast("JsonObject", value).items()  # a body to be
            return {_whole(name): _whole(item) for name, item in items}
        case list() | tuple():
            return [_whole(item) for item in cast("list[Any]", value)]
        case _:
            return value
