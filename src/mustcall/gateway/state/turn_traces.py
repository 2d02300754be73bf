"""A finished turn as the ledger keeps it: what the hot path hands over, and what is made of it in the writer's thread.

Made for every turn of a gateway with a ledger, so it reads each property once.
"""

import re

import msgspec

from mustcall.core.errors import MustcallError
from mustcall.core.memo import kept
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.parts import Reasoning, Refusal, Text, ToolCall
from mustcall.core.reply import Reply, Usage
from mustcall.engine.records import AttemptRecord, TurnProgress, TurnRecord
from mustcall.gateway.replies import error_body
from mustcall.gateway.state.conversation_state import tenant_of_key
from mustcall.gateway.state.raw_replies import Tap, raw_replies
from mustcall.gateway.state.whole_replies import in_one_piece
from mustcall.ledger import AttemptTrace, RetryTrace, TurnTrace
from mustcall.wire.registry import codec_for

__all__ = ["TurnEnd", "client_of", "describe", "said", "weight_of"]

#: A program's name in its `User-Agent`; `OpenAI/Python 2.1` has two words of it, `claude-cli/2.0` one.
_PRODUCT = re.compile(r"[A-Za-z][\w.+-]*(?:/[A-Za-z][\w.-]*)?", re.ASCII)
_LONGEST_CLIENT = 40
#: What is said of a turn that made no record, and of an attempt without usage.
_NO_RECORD = TurnRecord(protocol="")
_NO_USAGE = Usage()


class TurnEnd(msgspec.Struct, frozen=True, gc=False):
    """What the hot path hands over of a finished turn; everything else is worked out when it is written."""

    id: str
    at: float
    seconds: float
    wire: Wire
    status: int
    progress: TurnProgress
    #: The caller's key, for a turn that does not know its tenant. It is digested before anything is written.
    key: str | None
    #: Whether requests and replies are kept; then `request` and `reply` are the caller's.
    contents: bool
    request: bytes
    reply: tuple[bytes, ...]
    #: What came from the upstream, call by call.
    taps: tuple[Tap, ...] = ()
    #: The caller's own name for itself, and the error it got.
    agent: str = ""
    failure: MustcallError | None = None


def weight_of(end: TurnEnd) -> int:
    """Return the bytes that a turn holds until it is written, about."""
    record = end.progress.record
    sent = sum(len(attempt.body) for attempt in record.attempts) if record is not None else 0
    return sent + len(end.request) + sum(map(len, end.reply))


def said(reply: Reply) -> bytes:
    """Return what a reply says, as JSON."""
    parts: list[JsonObject] = []
    for part in reply.parts:
        match part:
            case Text(text=text):
                parts.append({"text": text})
            case Refusal(text=text):
                parts.append({"refusal": text})
            case Reasoning(text=text, summary=summary):
                parts.append({"reasoning": text or "\n\n".join(summary)})
            case ToolCall(name=name, arguments_json=arguments):
                parts.append({"call": name, "arguments": arguments})
            case _:
                parts.append({"other": type(part).__name__})
    return msgspec.json.encode({"finish": str(reply.finish), "parts": parts})


@kept(most=64, most_bytes=None)
def client_of(agent: str) -> str:
    """Return the program of a `User-Agent`: its first product, without a version. Clients are few and come often."""
    found = _PRODUCT.match(agent)
    return found[0][:_LONGEST_CLIENT] if found else ""


def describe(end: TurnEnd, *, digests: bool = True, joins: bool = False) -> TurnTrace:
    """Return the trace of a finished turn; `digests` of what was sent cost a pass over it.

    `joins` makes a stream one piece, so that what is masked in it is found wherever the stream was cut.
    """
    progress, failure, contents = end.progress, end.failure, end.contents
    record = progress.record or _NO_RECORD
    attempts = record.attempts
    reply = b"".join(end.reply)
    if contents and failure is not None and not reply:
        reply = error_body(failure, codec_for(end.wire), end.id)
    if joins:
        reply = in_one_piece(reply, end.wire, int(end.at))
    traces = [
        _attempt(number, attempt, attempts[0].started, contents=contents, digest=digests)
        for number, attempt in enumerate(attempts, 1)
    ]
    if end.taps:
        raws = raw_replies(end.taps, [attempt.sends for attempt in attempts])
        traces = [msgspec.structs.replace(trace, raw=raw) for trace, raw in zip(traces, raws, strict=True)]
    usage, cost = record.usage or _NO_USAGE, record.cost
    return TurnTrace(
        id=end.id,
        at=end.at,
        wire=str(end.wire),
        model=progress.model,
        upstream=progress.upstream,
        protocol=record.protocol,
        force=record.force,
        outcome=progress.outcome or None,
        status=end.status,
        seconds=end.seconds,
        tenant=progress.tenant or tenant_of_key(end.key),
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        adaptations=tuple([f"{entry.kind}:{entry.subject}" for entry in record.adaptations]),
        attempts=tuple(traces),
        request=end.request,
        reply=reply,
        session=progress.session,
        client=client_of(end.agent),
        error=type(failure).code if failure is not None else record.cause,
        cost_usd=cost.cost_usd,
        estimated=cost.estimated,
    )


def _attempt(number: int, attempt: AttemptRecord, began: float, *, contents: bool, digest: bool) -> AttemptTrace:
    usage, remedy = attempt.usage or _NO_USAGE, attempt.remedy
    return AttemptTrace(
        number=number,
        rung=str(attempt.rung.kind),
        verdict=attempt.word or None,
        remedy=str(remedy) if remedy is not None else None,
        digest=attempt.digest if digest else attempt.sent,
        seconds=attempt.seconds,
        sends=attempt.sends,
        error=attempt.error,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        tool=attempt.tool,
        problem=attempt.problem,
        request=attempt.body if contents else b"",
        reply=said(attempt.reply) if contents and attempt.reply is not None else b"",
        begun=attempt.started - began,
        retries=tuple([RetryTrace(one.why, one.seconds, one.wait) for one in attempt.retries]),
    )
