"""One turn of an agent's model: a request out, a reply in, taken by the same engine as the gateway's turns.

The request is written on the upstream's own wire; what comes back are the turn's own events, its reply and the error
it ended in. No decision is made here.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, cast

import msgspec

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import ErrorInfo, ModelError, MustcallError, UpstreamRejected
from mustcall.core.origin import JsonObject
from mustcall.core.parts import Reasoning, Refusal, Text
from mustcall.core.reply import Reply, Usage
from mustcall.core.request import Request
from mustcall.core.streams.assembler import Assembler
from mustcall.core.streams.events import Event
from mustcall.core.streams.events import PartReasoningDelta as ReasoningEvent
from mustcall.core.streams.events import PartTextDelta as TextEvent
from mustcall.engine.agent.events import ReasoningDelta, TextDelta
from mustcall.engine.attempts.refusals import UpstreamRefused
from mustcall.engine.exchange import Inbound
from mustcall.engine.records import TurnProgress, TurnRecord
from mustcall.engine.replies.outlets import Heard
from mustcall.engine.spending.budget_account import BudgetAccount
from mustcall.engine.spending.metered import Metered
from mustcall.engine.turn import EngineTurn
from mustcall.engine.turn_events import turn_ended
from mustcall.engine.turns import Turns
from mustcall.policy.facts.controls import Controls
from mustcall.telemetry.context import TraceContext
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.retry import Clock
from mustcall.wire.codec import Target
from mustcall.wire.registry import codec_for

__all__ = ["Say", "Step"]

Say = Callable[[TextDelta | ReasoningDelta], Awaitable[None]]

#: The errors of a model, by what a gateway calls them.
_BY_CODE: dict[str, type[ModelError]] = {kind.code: kind for kind in ModelError.__subclasses__()}


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
        account: BudgetAccount | None = None,
        number: int = 1,
        trace: TraceContext | None = None,
    ) -> None:
        self._turns = turns
        self._endpoint = endpoint
        self._clock = clock
        self._timeout = timeout
        self._extra = extra or {}
        self._account = account
        self._number = number
        self._metered: Metered | None = None
        self._codec = codec_for(endpoint.wire)
        self._token = os.urandom(12).hex()
        self._progress = TurnProgress()
        self._progress.trace = trace
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
        """Take the turn and return its reply; raise `MustcallError` as it does. Text is said as it may be seen."""
        began, error = self._clock.monotonic(), ""
        try:
            return await self._take(request, controls, say)
        except MustcallError as failed:
            error = failed.code
            raise
        finally:
            if self._turns.events.listening:
                self._tell(request.model, self._clock.monotonic() - began, error)

    def _tell(self, model: str, seconds: float, error: str) -> None:
        progress = self._progress
        progress.model, progress.upstream = model, self._endpoint.name
        ended = turn_ended(
            progress,
            at=self._clock.now(),
            request_id=f"req_{self._token}",
            wire=self._endpoint.wire,
            seconds=seconds,
            error=error,
        )
        self._turns.events.emit(ended)

    async def _take(self, request: Request, controls: Controls, say: Say) -> Reply:
        self._issuer = self._endpoint.issuer(request.model)
        inbound = self._inbound(request)
        if self._account is not None:
            self._metered = self._turns.charged(
                self._account, self._endpoint, request.model, progress=self._progress, step=str(self._number)
            )
        metered = self._metered
        turn = await self._turns.begin(
            inbound,
            self._endpoint,
            None,
            asked=request.model,
            controls=controls,
            progress=self._progress,
            deadline=self._clock.monotonic() + self._timeout,
            metered=metered,
        )
        try:
            self._reply = await (self._streamed(turn, say) if request.stream else self._whole(turn, say))
        except UpstreamRefused as refused:
            raise _error_of(refused.told) from None
        finally:
            if metered is not None:
                await metered.finish()
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
            trace=self._progress.trace,
        )

    async def _whole(self, turn: EngineTurn, say: Say) -> Reply:
        reply = await turn.reply()
        for part in reply.parts:
            match part:
                case Text(text=text) | Refusal(text=text) if text:
                    await say(TextDelta(text))
                case Reasoning(text=text, summary=summary) if text or summary:
                    await say(ReasoningDelta(text or "\n\n".join(summary)))
                case _:
                    pass
        return reply

    async def _streamed(self, turn: EngineTurn, say: Say) -> Reply:
        """Say what the turn lets out as it comes, and return all of it: also what attempts before the last showed."""
        assembler = Assembler()
        async with aclosing(turn.pieces(Heard())) as pieces:
            heard: tuple[Event, ...] | None = await turn.first(pieces)
            while heard is not None:
                for event in heard:
                    assembler.feed(event)
                    match event:
                        case TextEvent(text=text) if text:
                            await say(TextDelta(text))
                        case ReasoningEvent(text=text) if text:
                            await say(ReasoningDelta(text))
                        case _:
                            pass
                heard = await anext(pieces, None)
        return assembler.reply()


def _error_of(told: ErrorInfo) -> MustcallError:
    """Return the error that an upstream answered with; behind a gateway of ours it is the model's, and of its class."""
    kind = _BY_CODE.get(told.code)
    if kind is None or not told.message.startswith(f"{kind.__name__}: "):
        return UpstreamRejected(told)
    return kind(told.message, details=told.details)


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
