"""Asks one question one way: bare, through mustcall's engine, or through a gateway over HTTP.

Bare sends the client's own body over the transport once and takes what the server itself returns as calls: nothing is
mended or asked again; only transport failures are tried again, as SDKs do, by the same rule in every arm. A model whose
server has no place for tools is asked in words, and the JSON form those words ask for is read back. mustcall takes a
turn with the full contract. No file and no terminal is known here, and nothing is judged.
"""

import contextlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

import msgspec

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import ErrorInfo, ModelError, MustcallError
from mustcall.core.origin import Wire
from mustcall.core.reply import Reply, Usage
from mustcall.engine.exchange import Inbound, WholeReply, is_event_stream
from mustcall.engine.records import TurnProgress
from mustcall.engine.turns import Turns
from mustcall.evals.asking.client_requests import Sampling, ask, greet
from mustcall.evals.asking.reading import read_stream, read_whole, text_of
from mustcall.evals.asking.rows import Arm, EvalRow, Form, MadeCall, ReplyError
from mustcall.evals.plain import read_plainly
from mustcall.evals.questions import Question
from mustcall.policy.failures.rejection import Rejection, classify_rejection
from mustcall.upstream.endpoint import Endpoint, request_headers
from mustcall.upstream.retry import Clock, Tries, send_patiently
from mustcall.upstream.seam import Transport, UpstreamCall, UpstreamReply
from mustcall.wire.registry import codec_for

__all__ = [
    "Asker",
    "EvalSubject",
    "GatewayPath",
    "ask_bare",
    "ask_engine",
    "ask_gateway",
    "make_askers",
    "settle_form",
    "warm_up",
]

#: How much of an error's message is kept.
_LONGEST = 400

Asker = Callable[[Question, int], Awaitable[EvalRow]]


class EvalSubject(msgspec.Struct, frozen=True, kw_only=True):
    """Who is measured and by what means.

    `wire` is the caller's for the mustcall arm, the upstream's own if None. `form` is how the bare arm gets its tools.
    `patience` is the seconds one question may take in one arm.
    """

    endpoint: Endpoint
    model: str
    turns: Turns
    transport: Transport
    clock: Clock
    sampling: Sampling
    wire: Wire | None = None
    stream: bool = False
    form: Form = Form.NATIVE
    patience: float = 900.0

    @property
    def caller_wire(self) -> Wire:
        """The wire of the mustcall arm's caller."""
        return self.wire or self.endpoint.wire


class GatewayPath(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway to send the mustcall arm to. `sent` counts the upstream calls it has made, where that can be seen."""

    base_url: str
    model: str
    key: str | None = None
    sent: Callable[[], int] | None = None


class _Got(msgspec.Struct, kw_only=True):
    """What an arm found out; a row is made of it."""

    reply: Reply | None = None
    fault: ReplyError | None = None
    usage: Usage | None = None
    sends: int = 0
    verdicts: tuple[str, ...] = ()
    rungs: tuple[str, ...] = ()


def make_askers(subject: EvalSubject, path: GatewayPath | None = None) -> dict[Arm, Asker]:
    """Return how each arm is asked; mustcall over HTTP where there is a gateway, else in this process."""

    async def bare(question: Question, turn: int) -> EvalRow:
        return await ask_bare(subject, question, turn)

    async def engine(question: Question, turn: int) -> EvalRow:
        if path is None:
            return await ask_engine(subject, question, turn)
        return await ask_gateway(subject, path, question, turn)

    return {Arm.BARE: bare, Arm.MUSTCALL: engine}


async def warm_up(subject: EvalSubject) -> None:
    """Make the server load its model before anything is timed; what comes of it the first question will tell."""
    endpoint = subject.endpoint
    body = msgspec.json.encode(greet(endpoint.wire, subject.model))
    with contextlib.suppress(MustcallError):
        reply = await subject.transport.send(_call(endpoint, body, stream=False))
        await _read(reply)


async def settle_form(subject: EvalSubject, question: Question) -> Form:
    """Tell how a model in this process gets its tools: in words if its chat template has no place for them.

    An HTTP server documents the `tools` of its wire, so it is not asked.
    """
    wire = subject.endpoint.wire
    body = msgspec.json.encode(ask(question, wire, subject.model, Sampling(max_tokens=1)))
    try:
        reply = await subject.transport.send(_call(subject.endpoint, body, stream=False))
        answer = await _read(reply)
    except MustcallError:
        return Form.NATIVE  # the first question will tell what is wrong
    if reply.status < 400:
        return Form.NATIVE
    refused = classify_rejection(codec_for(wire).decode_error(reply.status, answer))
    return Form.WORDS if refused is Rejection.TOOLS_UNSUPPORTED else Form.NATIVE


async def ask_bare(subject: EvalSubject, question: Question, turn: int = 1) -> EvalRow:
    """Ask the upstream itself, once."""
    endpoint, clock = subject.endpoint, subject.clock
    codec, tries, began = codec_for(endpoint.wire), Tries(), clock.monotonic()
    body = ask(question, endpoint.wire, subject.model, subject.sampling, stream=subject.stream, form=subject.form)
    got = _Got()
    try:
        answer = await send_patiently(
            subject.transport,
            _call(endpoint, msgspec.json.encode(body), stream=subject.stream),
            endpoint.backoff,
            codec.decode_error,
            clock=clock,
            deadline=began + subject.patience,
            log=AdaptationLog(),
            tries=tries,
        )
        if answer.error_body is not None:
            got.fault = _fault(codec.decode_error(answer.reply.status, answer.error_body))
        else:
            got.reply = await _decode(answer.reply, endpoint.wire, question.id)
            got.usage = got.reply.usage
    except MustcallError as error:
        got.fault = _fault(error.info())
    got.sends = 1 + tries.used
    row = _row(subject, question, Arm.BARE, endpoint.wire, got, seconds=clock.monotonic() - began, turn=turn)
    if subject.form is Form.WORDS and not row.calls:
        return msgspec.structs.replace(row, form=Form.WORDS, calls=read_plainly(row.text))
    return row


async def ask_engine(subject: EvalSubject, question: Question, turn: int = 1) -> EvalRow:
    """Take a turn with the full contract, in this process."""
    clock, turns, wire = subject.clock, subject.turns, subject.caller_wire
    codec, progress, began = codec_for(wire), TurnProgress(), clock.monotonic()
    body = ask(question, wire, subject.model, subject.sampling, stream=subject.stream)
    inbound = Inbound(
        wire=wire,
        body=msgspec.json.encode(body),
        headers={},
        query="",
        stream=subject.stream,
        token=question.id,
        request_id=f"req_{question.id}",
    )
    got = _Got()
    try:
        taken = await turns.take(
            inbound,
            subject.endpoint,
            None,
            asked=subject.model,
            controls=turns.operator.controls,
            progress=progress,
            deadline=began + subject.patience,
        )
        if not isinstance(taken, WholeReply):
            got.reply = await read_stream(wire, _after(taken.first, taken.chunks), question.id)
        elif taken.status >= 400:
            got.fault = _fault(codec.decode_error(taken.status, taken.body))
        else:
            got.reply = read_whole(wire, taken.body, question.id)
    except MustcallError as error:
        got.fault = _fault(error.info())
    attempts = progress.record.attempts if progress.record is not None else []
    got.sends = sum(attempt.sends for attempt in attempts)
    got.usage = sum((attempt.usage for attempt in attempts if attempt.usage is not None), start=Usage())
    got.verdicts = tuple(str(attempt.verdict) for attempt in attempts if attempt.verdict is not None)
    got.rungs = tuple(str(attempt.rung.kind) for attempt in attempts)
    return _row(subject, question, Arm.MUSTCALL, wire, got, seconds=clock.monotonic() - began, turn=turn)


async def ask_gateway(subject: EvalSubject, path: GatewayPath, question: Question, turn: int = 1) -> EvalRow:
    """Send a question to a gateway over HTTP, and read of its headers what it tells of the turn."""
    clock, wire = subject.clock, subject.caller_wire
    codec, began = codec_for(wire), clock.monotonic()
    # A question that is asked again is one more sample of the model, not a client's retry.
    headers = {"x-mustcall-remember-failures": "0"}
    endpoint = Endpoint(name="gateway", wire=wire, base_url=path.base_url, api_key=path.key, headers=headers)
    body = msgspec.json.encode(ask(question, wire, path.model, subject.sampling, stream=subject.stream))
    before = path.sent() if path.sent is not None else 0
    got, request_id = _Got(), None
    try:
        reply = await subject.transport.send(_call(endpoint, body, stream=subject.stream, patience=subject.patience))
        request_id = reply.headers.get("x-mustcall-request-id")
        if reply.status >= 400:
            got.fault = _fault(codec.decode_error(reply.status, await _read(reply)))
        else:
            got.reply = await _decode(reply, wire, question.id)
            got.usage = _total(reply.headers) or got.reply.usage
        got.verdicts, got.sends = _told(reply.headers, stream=subject.stream)
    except MustcallError as error:
        got.fault = _fault(error.info())
    if path.sent is not None:
        got.sends = path.sent() - before
    row = _row(subject, question, Arm.MUSTCALL, wire, got, seconds=clock.monotonic() - began, turn=turn)
    return row if request_id is None else msgspec.structs.replace(row, request_id=request_id)


def _total(headers: Mapping[str, str]) -> Usage | None:
    """Return what all attempts of a turn took; None where that was not known when the answer began."""
    found = re.fullmatch(r"input=(\d{1,15}), output=(\d{1,15})", headers.get("x-mustcall-usage-total", ""))
    return None if found is None else Usage(input_tokens=int(found[1]), output_tokens=int(found[2]))


def _told(headers: Mapping[str, str], *, stream: bool) -> tuple[tuple[str, ...], int]:
    """Return verdicts and upstream calls of a turn; the headers of a stream leave before it ends and tell neither."""
    if stream:
        return (), 0
    verdicts = tuple(word for word in headers.get("x-mustcall-verdicts", "").split(",") if word)
    calls = headers.get("x-mustcall-attempts", "")
    return verdicts, int(calls) if calls.isdecimal() else 0


def _call(endpoint: Endpoint, body: bytes, *, stream: bool, patience: float | None = None) -> UpstreamCall:
    """Return the call a client would make."""
    timeouts = endpoint.timeouts
    if patience is not None:
        timeouts = msgspec.structs.replace(timeouts, read=patience, idle=patience)
    return UpstreamCall(
        url=endpoint.base_url + codec_for(endpoint.wire).path,
        headers=request_headers(endpoint, {}, same_wire=True, stream=stream),
        body=body,
        timeouts=timeouts,
    )


async def _read(reply: UpstreamReply) -> bytes:
    try:
        return await reply.read()
    finally:
        await reply.close()


async def _decode(reply: UpstreamReply, wire: Wire, token: str) -> Reply:
    """Read an answer in the way its headers say it came."""
    if not is_event_stream(reply.headers):
        return read_whole(wire, await _read(reply), token)
    try:
        return await read_stream(wire, reply.chunks(), token)
    finally:
        await reply.close()


async def _after(first: bytes, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Yield a stream with its first bytes."""
    async with contextlib.aclosing(chunks):
        yield first
        async for chunk in chunks:
            yield chunk


def _row(
    subject: EvalSubject, question: Question, arm: Arm, wire: Wire, got: _Got, *, seconds: float, turn: int
) -> EvalRow:
    usage, reply = got.usage or Usage(), got.reply
    return EvalRow(
        id=question.id,
        set=question.set,
        arm=arm,
        wire=wire,
        choice=question.demand,
        request_id=f"req_{question.id}",
        stream=subject.stream,
        text=text_of(reply) if reply is not None else "",
        calls=tuple(MadeCall(call.name, call.arguments_json) for call in reply.calls) if reply is not None else (),
        finish=str(reply.finish) if reply is not None else None,
        fault=got.fault,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        sends=got.sends,
        seconds=round(seconds, 3),
        verdicts=got.verdicts,
        rungs=got.rungs,
        turn=turn,
    )


def _leaves(kind: type[ModelError]) -> frozenset[str]:
    below = kind.__subclasses__()
    return frozenset({kind.code}).union(*(_leaves(each) for each in below))


def _fault(info: ErrorInfo) -> ReplyError:
    message = info.message.splitlines()[0] if info.message else info.code
    return ReplyError(code=info.code, message=message[:_LONGEST], upstream=info.code not in _leaves(ModelError))
