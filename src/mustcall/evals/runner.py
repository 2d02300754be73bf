"""Asks every prompt both ways and scores what comes back.

Both arms get the same bytes, as a client of the upstream's own wire would write them. **Bare** sends them over the
transport and takes what the server itself returns as tool calls: nothing is added, read from text, mended or asked
again; only transport failures are tried again, as SDKs do, by the same rule on both arms. **mustcall** takes a turn
with the full contract. It knows no file, no terminal and no particular upstream.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import ConfigError, ErrorInfo, ModelError, MustcallError, UpstreamGarbage
from mustcall.core.parts import Refusal, Text
from mustcall.core.reply import Reply, Usage
from mustcall.core.tools import Tool
from mustcall.dialects import parse
from mustcall.engine.exchange import Inbound, WholeReply
from mustcall.engine.records import Progress
from mustcall.engine.turns import Turns
from mustcall.evals.asking import ask, greet
from mustcall.evals.prompts import Prompt, describe_wanted
from mustcall.evals.results import Ending, Fault, Pair, Sampling, Arm, Trial
from mustcall.evals.scoring import MadeCall, Score, score
from mustcall.upstream.endpoint import Endpoint, request_headers
from mustcall.upstream.retry import Clock, Tries, send_patiently
from mustcall.upstream.seam import Transport, UpstreamCall
from mustcall.wire.codec import Provenance
from mustcall.wire.registry import codec_for

__all__ = ["Subject", "compare", "try_bare", "try_mustcall", "warm_up"]

#: How much of a reply's text is kept for the report.
_LONGEST = 400


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Who is measured and by what means; `patience` is the seconds one prompt may take on one arm."""

    endpoint: Endpoint
    model: str
    turns: Turns
    transport: Transport
    clock: Clock
    sampling: Sampling
    patience: float = 900.0


async def compare(
    subject: Subject, prompts: Sequence[Prompt], note: Callable[[Arm, Trial], None] | None = None
) -> AsyncGenerator[Pair]:
    """Yield each prompt's pair as soon as both its arms are there; `note` is told of each arm.

    The arms take turns in going first, so that neither gains from what the other left in a cache. An upstream that
    answers neither arm of the first prompt is an error: forty more tries would say the same.
    """
    ways = {Arm.BARE: try_bare, Arm.MUSTCALL: try_mustcall}
    for number, prompt in enumerate(prompts):
        order = (Arm.BARE, Arm.MUSTCALL) if number % 2 == 0 else (Arm.MUSTCALL, Arm.BARE)
        trials: dict[Arm, Trial] = {}
        for arm in order:
            trials[arm] = await ways[arm](subject, prompt)
            if note is not None:
                note(arm, trials[arm])
        if number == 0:
            _check_alive(subject, trials)
        yield Pair(
            prompt=prompt.id,
            says=prompt.says,
            demand=prompt.demand,
            wanted=describe_wanted(prompt),
            characters=len(prompt.says) + sum(map(_length, prompt.tools)),
            bare=trials[Arm.BARE],
            mustcall=trials[Arm.MUSTCALL],
        )


def _check_alive(subject: Subject, trials: dict[Arm, Trial]) -> None:
    faults = [trial.fault for trial in trials.values() if trial.fault is not None and trial.fault.upstream]
    if len(faults) == len(trials):
        raise ConfigError(
            f"the upstream {subject.endpoint.name!r} answered neither arm of the first prompt: {faults[0].message}; "
            "check its address, the model's name and the key"
        )


async def warm_up(subject: Subject) -> None:
    """Make the server load its model before anything is timed; what comes of it the first prompt will tell."""
    endpoint = subject.endpoint
    with contextlib.suppress(MustcallError):
        reply = await subject.transport.send(_call(endpoint, msgspec.json.encode(greet(endpoint.wire, subject.model))))
        try:
            await reply.read()
        finally:
            await reply.close()


def _call(endpoint: Endpoint, body: bytes) -> UpstreamCall:
    """Return the call a client would make."""
    return UpstreamCall(
        url=endpoint.base_url + codec_for(endpoint.wire).path,
        headers=request_headers(endpoint, {}, same_wire=True, stream=False),
        body=body,
        timeouts=endpoint.timeouts,
    )


async def try_bare(subject: Subject, prompt: Prompt) -> Trial:
    """Ask the upstream itself, once."""
    endpoint, clock = subject.endpoint, subject.clock
    codec, tries, began = codec_for(endpoint.wire), Tries(), clock.monotonic()
    reply: Reply | None = None
    fault: Fault | None = None
    try:
        answer = await send_patiently(
            subject.transport,
            _call(endpoint, _body(subject, prompt)),
            endpoint.backoff,
            codec.decode_error,
            clock=clock,
            deadline=began + subject.patience,
            log=AdaptationLog(),
            tries=tries,
        )
        if answer.error_body is not None:
            fault = _fault(codec.decode_error(answer.reply.status, answer.error_body), upstream=True)
        else:
            try:
                reply = codec.decode_reply(await answer.reply.read(), Provenance(issuer=endpoint.name, token=prompt.id))
            finally:
                await answer.reply.close()
    except MustcallError as error:
        fault = _fault(error.info(), upstream=True)
    usage = reply.usage if reply is not None else None
    return _trial(prompt, reply, fault, sends=1 + tries.used, seconds=clock.monotonic() - began, usage=usage)


async def try_mustcall(subject: Subject, prompt: Prompt) -> Trial:
    """Take a turn with the full contract."""
    endpoint, clock, turns = subject.endpoint, subject.clock, subject.turns
    codec, progress, began = codec_for(endpoint.wire), Progress(), clock.monotonic()
    inbound = Inbound(
        wire=endpoint.wire,
        body=_body(subject, prompt),
        headers={},
        query="",
        stream=False,
        token=prompt.id,
        request_id=f"req_{prompt.id}",
    )
    reply: Reply | None = None
    fault: Fault | None = None
    try:
        taken = await turns.take(
            inbound,
            endpoint,
            None,
            asked=subject.model,
            controls=turns.house.controls,
            progress=progress,
            deadline=began + subject.patience,
        )
        if not isinstance(taken, WholeReply):
            await taken.chunks.aclose()
            raise UpstreamGarbage("the turn streamed although a whole reply was asked for")
        if taken.status >= 400:
            fault = _fault(codec.decode_error(taken.status, taken.body), upstream=True)
        else:
            reply = codec.decode_reply(taken.body, Provenance(issuer="mustcall", token=prompt.id))
    except MustcallError as error:
        fault = _fault(error.info(), upstream=not isinstance(error, ModelError))
    attempts = progress.record.attempts if progress.record is not None else []
    usages = [attempt.usage for attempt in attempts if attempt.usage is not None]
    trial = _trial(
        prompt,
        reply,
        fault,
        sends=sum(attempt.sends for attempt in attempts),
        seconds=clock.monotonic() - began,
        usage=sum(usages, start=Usage()),
    )
    return msgspec.structs.replace(
        trial,
        verdicts=tuple(str(attempt.verdict) for attempt in attempts if attempt.verdict is not None),
        rungs=tuple(str(attempt.rung.kind) for attempt in attempts),
    )


def _body(subject: Subject, prompt: Prompt) -> bytes:
    """Return the request's bytes; they do not depend on the arm."""
    return msgspec.json.encode(ask(prompt, subject.endpoint.wire, subject.model, subject.sampling))


def _trial(
    prompt: Prompt, reply: Reply | None, fault: Fault | None, *, sends: int, seconds: float, usage: Usage | None
) -> Trial:
    spent = usage or Usage()
    if reply is None:
        return Trial(
            ending=Ending.FAILED,
            score=Score(),
            fault=fault,
            sends=sends,
            seconds=seconds,
            input_tokens=spent.input_tokens,
            output_tokens=spent.output_tokens,
        )
    calls = tuple(MadeCall(call.name, call.arguments) for call in reply.calls)
    text = "".join(part.text for part in reply.parts if isinstance(part, Text | Refusal))
    return Trial(
        ending=Ending.CALLED if calls else Ending.ANSWERED,
        score=score(prompt, calls),
        calls=calls,
        text=text if len(text) <= _LONGEST else text[:_LONGEST] + "…",
        written=bool(parse([text], tools=prompt.tools, loose=True).calls),
        sends=sends,
        seconds=seconds,
        input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens,
    )


def _length(tool: Tool) -> int:
    """Return the characters a tool takes, however it is laid out."""
    return len(tool.name) + len(tool.description or "") + len(msgspec.json.encode(tool.parameters))


def _fault(info: ErrorInfo, *, upstream: bool) -> Fault:
    message = info.message.splitlines()[0] if info.message else info.code
    return Fault(code=info.code, message=message[:_LONGEST], upstream=upstream)
