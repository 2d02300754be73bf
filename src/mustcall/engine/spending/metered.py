"""The calls of one turn, metered: a transport that checks the account before each call and charges it afterwards.

Because it stands where every upstream call passes, retries of any kind are checked and counted like first tries
(rules 93, 94), in every turn and in what is only passed through. What a reply cost is told by the turn (`heard`) or,
where nothing judges it, read from the bytes on their way. A reply that breaks off, or that nobody waits for any more,
costs what came of it; a request that was sent and not answered in time costs its input (rule 98: `estimated`).
"""

from collections.abc import AsyncGenerator, Awaitable, Iterable
from contextlib import aclosing, suppress

import msgspec

from mustcall.core.errors import BreakerOpen, BudgetSpent, ErrorInfo, MustcallError, UpstreamTimeout
from mustcall.core.parts import Part, Reasoning, Refusal, Text, ToolCall
from mustcall.core.reply import Reply, Usage
from mustcall.core.streams.assembler import Assembler
from mustcall.core.streams.events import Failed
from mustcall.engine.exchange import StreamedReply, WholeReply, is_event_stream
from mustcall.engine.records import AttemptRecord, TurnProgress
from mustcall.engine.spending.budget_account import BudgetAccount
from mustcall.policy.failures.breaker_classes import failure_of, is_healthy
from mustcall.policy.limits.budget import Charge, ChargeKey, charge_for
from mustcall.telemetry.events import BudgetTripped
from mustcall.telemetry.stream import PROCESS, EventStream
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.seam import Transport, UpstreamCall, UpstreamReply
from mustcall.wire.codec import Codec, Provenance
from mustcall.wire.registry import codec_for
from mustcall.wire.sse import SseDecoder

__all__ = ["Metered", "breaker_name"]

#: Bytes of a body, and characters of a reply, that come to a token where nobody counted.
_PER_TOKEN = 4
#: No more input than this is reserved or guessed: a picture is many bytes and few tokens.
_MOST_GUESSED = 100_000
#: Bytes of a stream that are held unread; a longer one is read on its way, so that no stream is held for long.
_MOST_HELD = 512 * 1024


def breaker_name(endpoint: Endpoint) -> str:
    """Return what an endpoint's breakers are kept under: its name and its address, without what may be secret in it.

    A name alone is not enough: outside of a gateway nobody sees to it that two servers have two names.
    """
    place = endpoint.base_url.partition("?")[0].partition("://")[2] or endpoint.base_url
    host, slash, path = place.partition("/")
    return f"{endpoint.name}@{host.rpartition('@')[2]}{slash}{path}"


class Metered:
    """One turn's calls to one endpoint. `model` is the name that is sent.

    `lent` says that callers bring their own keys: one that is throttled says nothing of the upstream then.
    """

    def __init__(
        self,
        account: BudgetAccount,
        transport: Transport,
        endpoint: Endpoint,
        model: str,
        progress: TurnProgress,
        *,
        step: str = "",
        lent: bool = False,
        events: EventStream = PROCESS,
    ) -> None:
        self._account = account
        self._model = model
        self._events = events
        self._transport = transport
        self._endpoint = endpoint
        self._progress = progress
        self._step = step
        self._lent = lent
        self._upstream = breaker_name(endpoint)
        self._price = account.price(model, endpoint.base_url)
        self._codec = codec_for(endpoint.wire)
        self._count = 0
        self._key: ChargeKey | None = None
        self._guess = 0
        self._watched: _Watched | None = None
        self._charge: Charge | None = None
        #: The attempt the call under way belongs to, and what its earlier calls cost.
        self._attempt: AttemptRecord | None = None
        self._before = Charge()
        #: Why the last call was not made, where it was not.
        self.refusal: BudgetSpent | BreakerOpen | None = None

    # --- a transport -------------------------------------------------------------------------------------------------

    async def send(self, call: UpstreamCall) -> UpstreamReply:
        """Make one call if the caps and the upstream's breakers let it; raise `BudgetSpent` or `BreakerOpen`."""
        await self._end()
        account = self._account
        self._charge = self._watched = None
        self._count += 1
        self._begin()
        key = ChargeKey(account.turn, self._step, self._count)
        self._guess = min(_MOST_GUESSED, len(call.body or b"") // _PER_TOKEN)
        expected = Usage(input_tokens=self._guess, output_tokens=account.metering.budget.expected_output_tokens)
        noted = len(account.notes)
        try:
            await account.allow(self._upstream, self._endpoint.name)
            try:
                await account.reserve(key, msgspec.structs.replace(charge_for(expected, self._price), calls=1))
            except BaseException as error:
                if not isinstance(error, BudgetSpent):  # cancelled: it may be counted, and is not made
                    await account.release(key)
                await account.forgo(self._upstream)
                raise
        except (BudgetSpent, BreakerOpen) as refusal:
            self.refusal = refusal
            if isinstance(refusal, BudgetSpent):
                code = (refusal.details or {}).get("error_code")
                self._tripped(str(code or refusal.code), enforced=True)
            raise
        for note in list(account.notes)[noted:]:
            self._tripped(note.subject, enforced=False)
        self._key = key
        try:
            reply = await self._transport.send(call)
        except MustcallError as error:
            late = isinstance(error, UpstreamTimeout)
            hasty = late and call.timeouts.read < self._endpoint.timeouts.read
            await self._fail(None if hasty else error.info(), sent=isinstance(error, UpstreamTimeout) and error.sent)
            raise
        tap = _Tap(self._codec, self._endpoint.name, holds=self._attempt is not None)
        self._watched = _Watched(reply, self, tap)
        return self._watched

    async def close(self) -> None:
        """Leave the connections to whom they belong."""

    def _tripped(self, code: str, *, enforced: bool) -> None:
        if not self._events.listening:
            return
        record = self._progress.record
        event = BudgetTripped(
            at=self._account.metering.clock.now(),
            request_id=f"req_{self._account.turn}",
            session=self._account.session,
            upstream=self._endpoint.name,
            model=self._model,
            wire=str(self._endpoint.wire),
            attempt=len(record.attempts) if record is not None else 0,
            class_=code,
            enforced=enforced,
        )
        self._events.emit(event)

    # --- what a turn tells -------------------------------------------------------------------------------------------

    def heard(self, reply: Reply) -> None:
        """Take note of the reply that the call under way gave."""
        if self._key is None:  # it came inside an error: nobody says what it cost
            return
        usage = reply.usage
        charge = charge_for(usage or self._guessed(reply), self._price)
        self._charge = msgspec.structs.replace(charge, calls=1, estimated=charge.estimated or usage is None)
        self._record(self._charge)

    def adopt(self) -> None:
        """Count the call under way, and those passed through before it, for the attempt that its answer is read in."""
        before = self._before
        self._begin()
        self._before += before

    async def settle_refusal(self, refusal: "_Watched") -> None:
        """Settle a call that was answered with an error, once that is read."""
        if refusal is self._watched:
            await self._end()

    async def follow(self, taking: Awaitable[WholeReply | StreamedReply]) -> WholeReply | StreamedReply:
        """Take the turn that sends through this; every call is settled when it is over."""
        try:
            taken = await taking
        except BaseException:
            await self.finish()
            raise
        if isinstance(taken, StreamedReply):
            chunks = self._followed(taken.chunks)
            await anext(chunks)  # one that never began could not be closed, and its call never settled
            noted = (*taken.adaptations, *self._account.notes)
            return msgspec.structs.replace(taken, chunks=chunks, adaptations=noted)
        await self.finish()
        noted = tuple(dict.fromkeys((*taken.adaptations, *self._account.notes)))
        return msgspec.structs.replace(taken, adaptations=noted)

    async def _followed(self, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
        try:
            async with aclosing(chunks) as pieces:
                yield b""
                async for piece in pieces:
                    yield piece
        finally:
            await self.finish()

    async def finish(self) -> None:
        """Settle the last call and complete the turn's record: a call that was refused was not made."""
        await self._end()
        record = self._progress.record
        if record is None:
            return
        if self.refusal is not None and record.attempts:
            last = record.attempts[-1]
            last.sends -= 1
            if not last.sends:
                record.attempts.pop()
        record.cost_cap = self._account.cost_cap
        record.adaptations = tuple(dict.fromkeys((*record.adaptations, *self._account.notes)))

    # --- ends --------------------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        """Settle the call under way, if there is one, by what is known of it."""
        if self._key is None:
            return
        watched = self._watched
        if watched is None:  # cancelled while it was sent: what was read of it is not known
            await self._fail(None, sent=True)
        elif watched.status >= 400:
            await self._fail(self._codec.decode_error(watched.status, watched.body))
        else:
            await self._answered(watched)

    async def _answered(self, watched: "_Watched") -> None:
        """Settle a call that was answered: wholly, in part, or with an error for its last words."""
        failure = watched.failure or (self._attempt.failure if self._attempt is not None else None)
        if self._charge is None:
            reply = watched.tap.reply()
            failure = failure or watched.tap.failure
            if reply is not None and failure is None:
                self.heard(reply)
        if self._charge is None:
            await self._settle(self._estimate(watched.tap), answered=True)
            await self._report(failure, healthy=False)
            return
        await self._settle(self._charge, answered=True)
        await self._report(None, healthy=True)

    async def _fail(self, error: ErrorInfo | None, *, sent: bool = False) -> None:
        """Settle a call that got no reply; None where that was not the upstream's doing.

        `sent` says that the upstream may be at work on it all the same.
        """
        await self._settle(self._estimate(None) if sent else Charge(calls=1), answered=False)
        await self._report(error, healthy=error is not None and is_healthy(error))

    async def _settle(self, charge: Charge, *, answered: bool) -> None:
        key, self._key = self._key, None
        if key is not None:
            await self._account.settle(key, charge, answered=answered)

    async def _report(self, error: ErrorInfo | None, *, healthy: bool) -> None:
        failure = failure_of(error) if error is not None else None
        throttled = error is not None and error.status == 429
        if healthy:
            await self._account.report(self._upstream, None)
        elif failure is None or (throttled and self._lent):
            await self._account.forgo(self._upstream)
        else:
            await self._account.report(self._upstream, failure)

    def _begin(self) -> None:
        """Take note of the attempt that a call is made for; what is only passed through has none."""
        record = self._progress.record
        attempt = self._attempt = record.attempts[-1] if record is not None and record.attempts else None
        if attempt is None:  # it may get one (`adopt`)
            return
        self._before = Charge()
        if attempt.cost_usd is not None:
            self._before = Charge(cost_usd=attempt.cost_usd, estimated=attempt.estimated)

    def _record(self, charge: Charge) -> None:
        """Write into the attempt's record what its calls cost."""
        total = self._before + charge
        if self._attempt is None:
            self._before = total
        else:
            self._attempt.cost_usd, self._attempt.estimated = total.cost_usd, total.estimated

    def _guessed(self, reply: Reply) -> Usage:
        """Return the tokens a reply without usage may have cost."""
        return Usage(input_tokens=self._guess, output_tokens=_written(reply.parts) // _PER_TOKEN)

    def _estimate(self, tap: "_Tap | None") -> Charge:
        """Return, and record, what a call cost whose end nobody has seen: its input, and what came."""
        seen, written = (None, 0) if tap is None else tap.so_far()
        usage = seen or Usage()
        usage = msgspec.structs.replace(
            usage,
            input_tokens=usage.input_tokens or self._guess,
            output_tokens=max(usage.output_tokens, written // _PER_TOKEN),
        )
        charge = msgspec.structs.replace(charge_for(usage, self._price), calls=1, estimated=True)
        self._record(charge)
        return charge


def _written(parts: Iterable[Part]) -> int:
    """Return how much a model has written, in characters."""
    written = 0
    for part in parts:
        match part:
            case Text(text=text) | Refusal(text=text) | Reasoning(text=text):
                written += len(text or "")
            case ToolCall(arguments_json=arguments):
                written += len(arguments)
            case _:
                pass
    return written


class _Watched:
    """An answer on its way to the turn: how it broke off, what an error says, and the bytes for a tap."""

    def __init__(self, reply: UpstreamReply, metered: Metered, tap: "_Tap") -> None:
        self._reply = reply
        self._metered = metered
        self.tap = tap
        self.body = b""
        self.failure: ErrorInfo | None = None
        self.status = reply.status
        self.headers = reply.headers

    @property
    def arrived(self) -> bool:
        """Whether the whole body is here."""
        return self._reply.arrived

    async def read(self) -> bytes:
        """Return the whole body."""
        try:
            body = await self._reply.read()
        except MustcallError as error:
            self.failure = error.info()
            raise
        if self.status >= 400:
            self.body = body
        else:
            self.tap.whole(body, stream=is_event_stream(self.headers))
        return body

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Return the body piece by piece."""
        try:
            async with aclosing(self._reply.chunks()) as pieces:
                async for piece in pieces:
                    self.tap.feed(piece)
                    yield piece
        except MustcallError as error:
            self.failure = error.info()
            raise

    async def close(self) -> None:
        """Free the connection; an error's account is settled at once, before anybody waits to try again."""
        await self._reply.close()
        if self.status >= 400:
            await self._metered.settle_refusal(self)


class _Tap:
    """Reads a reply on its way. What it cannot read it leaves alone (rule 98).

    One that `holds` has a turn that reads the same bytes: it keeps them, and reads only what the turn does not account
    for.
    """

    def __init__(self, codec: Codec, issuer: str, *, holds: bool) -> None:
        self._codec = codec
        self._provenance = Provenance(issuer=issuer, token="tap")  # noqa: S106  no secret
        self._sse = SseDecoder()
        self._decoder = codec.stream_decoder(self._provenance)
        self._assembler = Assembler()
        self._reply: Reply | None = None
        self._holds = holds
        self._held: list[bytes] = []
        self._size = 0
        self._whole = b""
        self.failure: ErrorInfo | None = None

    def whole(self, body: bytes, *, stream: bool) -> None:
        """Take a body in one piece."""
        if stream:
            self.feed(body)
        else:
            self._whole = body

    def feed(self, piece: bytes) -> None:
        """Take a piece of a stream."""
        self._held.append(piece)
        self._size += len(piece)
        if not self._holds or self._size > _MOST_HELD:
            self._read()

    def _read(self) -> None:
        """Read what is held."""
        piece = b"".join(self._held)
        self._held.clear()
        self._size = 0
        with suppress(Exception):
            for event in self._decoder.feed_all(self._sse.feed(piece)):
                self._assembler.feed(event)
                if isinstance(event, Failed):
                    self.failure = event.error

    def reply(self) -> Reply | None:
        """Return what came, None if it was no reply or not all of one."""
        if self._reply is None and self._whole:
            with suppress(Exception):
                self._reply = self._codec.decode_reply(self._whole, self._provenance)
        elif self._reply is None:
            self._read()
            with suppress(Exception):
                for event in self._decoder.feed_all(self._sse.close()):
                    self._assembler.feed(event)
                self._reply = self._assembler.reply() if self._assembler.ended else None
        return self._reply

    def so_far(self) -> tuple[Usage | None, int]:
        """Return what a stream that did not end told of its tokens, and how many characters of it came."""
        self._read()
        return self._assembler.usage, _written(self._assembler.parts())
