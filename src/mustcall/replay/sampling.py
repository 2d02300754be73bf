"""Sends a recorded request again: bare, or through the engine that the gateway runs, one sample at a time.

Bare is one upstream call, never more: what a client without mustcall sends and gets. Through mustcall is one turn with
the full contract, in this process. Samples do not learn from each other: each turn starts with what `learnt` makes, by
default nothing. Nothing is printed, counted or kept here.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Any

import msgspec

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import ErrorInfo, InvalidRequest, MustcallError, UpstreamRejected
from mustcall.core.limits import DEFAULTS, GatewayLimits
from mustcall.core.reply import Reply, Usage
from mustcall.core.request import Request
from mustcall.core.verdict import OutcomeKind, Verdict
from mustcall.engine.exchange import Inbound, WholeReply, is_event_stream
from mustcall.engine.records import TurnProgress
from mustcall.engine.replies.restoring import restored
from mustcall.engine.turns import OperatorSettings, Turns
from mustcall.evals.asking.reading import read_stream, read_whole, text_of
from mustcall.evals.asking.rows import Arm, MadeCall
from mustcall.policy.facts.controls import Controls
from mustcall.policy.history.names import UNCHANGED
from mustcall.policy.limits.budget import charge_for
from mustcall.policy.turn.remedy import ACCEPTED
from mustcall.profiles import Learnt
from mustcall.profiles.prices import Prices
from mustcall.replay.bare import judge_bare
from mustcall.replay.recorded import RecordedRequest
from mustcall.upstream.endpoint import Endpoint, request_headers
from mustcall.upstream.retry import Clock
from mustcall.upstream.seam import Transport, UpstreamCall, UpstreamReply
from mustcall.wire.codec import Target
from mustcall.wire.crossing.binding import Binding
from mustcall.wire.outline import rename_model
from mustcall.wire.registry import codec_for

__all__ = [
    "HEALTHY",
    "RawAnswer",
    "ReplaySample",
    "ReplaySubject",
    "is_unreachable",
    "replay",
    "sample_bare",
    "sample_through",
]

#: Verdicts of a bare reply that a client can work with.
HEALTHY = ACCEPTED | {Verdict.LOOPING}
#: How much of a text and of an error's message a sample keeps.
_LONGEST = 2_000
#: Bytes of an upstream's answer that are kept.
_MOST_KEPT = 65_536


class ReplaySubject(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to ask, under which name, and by what means.

    `controls` are the turn's settings (the operator's, with what the request itself asked for). `patience` is the
    seconds one sample may take. `learnt` makes what a turn knows of the upstream before it starts.
    """

    endpoint: Endpoint
    model: str
    transport: Transport
    clock: Clock
    operator: OperatorSettings = OperatorSettings()
    controls: Controls = Controls()
    patience: float = 600.0
    limits: GatewayLimits = DEFAULTS
    learnt: Callable[[], Learnt] = Learnt

    @property
    def prices(self) -> Prices:
        """What models cost: the operator's own prices, then the known ones."""
        return Prices(self.operator.budget.prices if self.operator.budget is not None else ())


class RawAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An upstream's answer as it came; `body` is empty for one that is too long to keep."""

    status: int
    body: bytes
    streamed: bool


class ReplaySample(msgspec.Struct, frozen=True, kw_only=True):
    """One reply to the recorded request.

    `verdicts` are those of its attempts, one for a bare reply; `ok` says that the caller was given calls or an answer
    as demanded. `reached` is false where the upstream could not be asked at all. `problem` is what was wrong with the
    last attempt.
    """

    arm: Arm
    number: int
    verdicts: tuple[str, ...]
    ok: bool
    outcome: OutcomeKind
    sends: int = 1
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    estimated: bool = False
    reached: bool = True
    error: str = ""
    message: str = ""
    problem: str = ""
    text: str = ""
    calls: tuple[MadeCall, ...] = ()
    rungs: tuple[str, ...] = ()
    adaptations: tuple[str, ...] = ()
    #: The upstream's own answer to a bare call, for tests that repeat it; None for a turn.
    answer: RawAnswer | None = None

    @property
    def verdict(self) -> str:
        """The verdict of the last attempt."""
        return self.verdicts[-1] if self.verdicts else ""


def is_unreachable(samples: Sequence[ReplaySample]) -> bool:
    """Tell whether the upstream is not there: it was asked both ways, and none of the samples found it."""
    return len(samples) >= len(Arm) and not any(sample.reached for sample in samples)


async def replay(
    recorded: RecordedRequest, subject: ReplaySubject, *, times: int = 20, arms: Iterable[Arm] = tuple(Arm)
) -> AsyncGenerator[ReplaySample]:
    """Send a recorded request so often each way, in turns, and yield what came of each as it comes.

    Raise `CallerError` for a request that cannot be sent at all. Close the generator to stop early.
    """
    ways = {Arm.BARE: sample_bare, Arm.MUSTCALL: sample_through}
    order = tuple(arms)
    for number in range(1, times + 1):
        # Whoever is asked first may find the prompt unread: each way is first as often as the other.
        for arm in order if number % 2 else reversed(order):
            yield await ways[arm](recorded, subject, number)


async def sample_bare(recorded: RecordedRequest, subject: ReplaySubject, number: int = 1) -> ReplaySample:
    """Make one upstream call with the caller's request as it is, and judge what comes back."""
    endpoint, clock, began = subject.endpoint, subject.clock, subject.clock.monotonic()
    request = codec_for(recorded.wire).decode_request(recorded.body)
    body = _bare_body(recorded, request, subject)
    token = f"bare{number}"
    reply: Reply | None = None
    failed: MustcallError | None = None
    kept = _Kept()
    try:
        answer = await subject.transport.send(_call(subject, body, stream=request.stream))
        reply = await _read(answer, endpoint, token, kept)
    except MustcallError as error:
        failed = error
    seconds = clock.monotonic() - began
    if reply is None:
        assert failed is not None, "a call gives a reply or fails"
        rejected = isinstance(failed, UpstreamRejected) and failed.info().status < 500 and failed.info().status != 429
        return ReplaySample(
            arm=Arm.BARE,
            number=number,
            verdicts=(str(Verdict.REJECTED if rejected else Verdict.UNAVAILABLE),),
            ok=False,
            outcome=OutcomeKind.FAILURE,
            seconds=seconds,
            estimated=not rejected,
            reached=isinstance(failed, UpstreamRejected) or kept.answer is not None,
            answer=kept.answer,
            **_told(failed.info()),
        )
    own = restored(reply, Binding(request, endpoint.wire), UNCHANGED)
    judged = judge_bare(request, own, written=len(body), operator=subject.operator, controls=subject.controls)
    charge = charge_for(reply.usage, subject.prices.of(subject.model, endpoint.base_url))
    usage = reply.usage or Usage()
    return ReplaySample(
        arm=Arm.BARE,
        number=number,
        verdicts=(str(judged.verdict),),
        ok=judged.verdict in HEALTHY,
        outcome=OutcomeKind.CALLS if own.calls else OutcomeKind.ANSWER,
        seconds=seconds,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=charge.cost_usd,
        estimated=charge.estimated,
        problem=judged.problem,
        answer=kept.answer,
        **_said(own),
    )


async def sample_through(recorded: RecordedRequest, subject: ReplaySubject, number: int = 1) -> ReplaySample:
    """Take one turn with the full contract, as the gateway does."""
    clock, wire, began = subject.clock, recorded.wire, subject.clock.monotonic()
    turns = Turns(subject.transport, clock, subject.operator, subject.learnt(), subject.limits)
    progress, token = TurnProgress(), f"replay{number}"
    seen = codec_for(wire).peek(recorded.body)
    inbound = Inbound(
        wire=wire,
        body=recorded.body,
        headers={},
        query="",
        stream=seen.stream,
        token=token,
        request_id=f"req_{token}",
    )
    reply: Reply | None = None
    failed: ErrorInfo | None = None
    reached = True
    try:
        taken = await turns.take(
            inbound,
            subject.endpoint,
            subject.model if subject.model != seen.model else None,
            asked=seen.model,
            controls=subject.controls,
            progress=progress,
            deadline=began + subject.patience,
        )
        if not isinstance(taken, WholeReply):
            reply = await read_stream(wire, _after(taken.first, taken.chunks), token)
        elif taken.status >= 400:
            failed = codec_for(wire).decode_error(taken.status, taken.body)
        else:
            reply = read_whole(wire, taken.body, token)
    except MustcallError as error:
        failed = error.info()
        reached = not error.code.startswith("upstream_") or isinstance(error, UpstreamRejected)
    record = progress.record
    attempts = record.attempts if record is not None else []
    usage = (record.usage if record is not None else None) or Usage()
    price = subject.prices.of(subject.model, subject.endpoint.base_url)
    charges = [charge_for(attempt.usage, price) for attempt in attempts]
    met = record is None or record.force != "unmet"
    made = OutcomeKind.CALLS if reply is not None and reply.calls else OutcomeKind.ANSWER
    return ReplaySample(
        arm=Arm.MUSTCALL,
        number=number,
        verdicts=tuple(str(attempt.verdict or attempt.error or "") for attempt in attempts),
        ok=reply is not None and met,
        outcome=made if reply is not None else OutcomeKind.FAILURE,
        sends=sum(attempt.sends for attempt in attempts),
        seconds=clock.monotonic() - began,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=sum(charge.cost_usd for charge in charges),
        estimated=any(charge.estimated for charge in charges),
        reached=reached,
        problem=attempts[-1].problem if attempts else "",
        rungs=tuple(str(attempt.rung.kind) for attempt in attempts),
        adaptations=tuple(f"{one.kind}:{one.subject}" for one in record.adaptations) if record is not None else (),
        **(_said(reply) if reply is not None else {}),
        **(_told(failed) if failed is not None else {}),
    )


def _bare_body(recorded: RecordedRequest, request: Request, subject: ReplaySubject) -> bytes:
    """Return the bytes a client of the upstream would send: the caller's own on the same wire, else translated."""
    endpoint = subject.endpoint
    if recorded.wire is endpoint.wire:
        return recorded.body if request.model == subject.model else rename_model(recorded.body, subject.model)
    target = Target(issuer=endpoint.issuer(subject.model), default_max_tokens=endpoint.default_max_tokens)
    outgoing = request.evolve(model=subject.model)
    try:
        return msgspec.json.encode(codec_for(endpoint.wire).encode_request(outgoing, target, AdaptationLog()))
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None


def _call(subject: ReplaySubject, body: bytes, *, stream: bool) -> UpstreamCall:
    endpoint = subject.endpoint
    timeouts = endpoint.timeouts
    if timeouts.read > subject.patience:
        timeouts = msgspec.structs.replace(timeouts, read=subject.patience)
    return UpstreamCall(
        url=endpoint.base_url + codec_for(endpoint.wire).path,
        headers=request_headers(endpoint, {}, same_wire=True, stream=stream),
        body=body,
        timeouts=timeouts,
    )


class _Kept:
    """What is kept of an upstream's answer while it is read."""

    def __init__(self) -> None:
        self._body = b""
        self._whole = True
        self.answer: RawAnswer | None = None

    def note(self, answer: UpstreamReply, piece: bytes) -> bytes:
        """Keep a piece, as long as there is room for it, and hand it on."""
        self._whole = self._whole and len(self._body) + len(piece) <= _MOST_KEPT
        self._body = self._body + piece if self._whole else b""
        self.answer = RawAnswer(status=answer.status, body=self._body, streamed=is_event_stream(answer.headers))
        return piece

    async def pieces(self, answer: UpstreamReply) -> AsyncGenerator[bytes]:
        """Yield a stream, and keep it."""
        async with contextlib.aclosing(answer.chunks()) as chunks:
            async for chunk in chunks:
                yield self.note(answer, chunk)


async def _read(answer: UpstreamReply, endpoint: Endpoint, token: str, kept: _Kept) -> Reply:
    """Return the reply of an answer; raise `UpstreamRejected` for an error status."""
    try:
        if answer.status < 400 and is_event_stream(answer.headers):
            return await read_stream(endpoint.wire, kept.pieces(answer), token)
        body = kept.note(answer, await answer.read())
        if answer.status >= 400:
            raise UpstreamRejected(codec_for(endpoint.wire).decode_error(answer.status, body))
        return read_whole(endpoint.wire, body, token)
    finally:
        await answer.close()


def _said(reply: Reply) -> dict[str, Any]:
    calls = tuple(MadeCall(call.name, call.arguments_json) for call in reply.calls)
    return {"text": text_of(reply)[:_LONGEST], "calls": calls}


def _told(error: ErrorInfo) -> dict[str, Any]:
    return {"error": error.code, "message": error.message[:_LONGEST]}


async def _after(first: bytes, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Yield a stream with its first bytes."""
    async with contextlib.aclosing(chunks):
        yield first
        async for chunk in chunks:
            yield chunk
