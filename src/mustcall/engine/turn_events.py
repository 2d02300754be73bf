"""A finished turn as an event, worked out from its record: log lines, metrics, spans and the page all read this one."""

import msgspec

from mustcall.core.errors import UpstreamRejected
from mustcall.core.reply import Usage
from mustcall.engine.records import AttemptRecord, TurnProgress
from mustcall.telemetry.events import AttemptEnd, Contents, TurnEnded

__all__ = ["turn_ended"]

_NOTHING = Usage()


def turn_ended(
    progress: TurnProgress,
    *,
    at: float,
    request_id: str,
    wire: str,
    route: str = "",
    status: int = 0,
    seconds: float = 0.0,
    error: str = "",
) -> TurnEnded:
    """Return the event of a request that is over."""
    record, trace = progress.record, progress.trace
    if record is None:
        return TurnEnded(
            at=at,
            request_id=request_id,
            session=progress.session,
            upstream=progress.upstream,
            model=progress.model,
            wire=wire,
            class_=progress.outcome,
            route=route,
            status=status,
            seconds=seconds,
            error=error or (UpstreamRejected.code if status >= 400 else ""),  # its words were passed on
            trace="" if trace is None else trace.header,
            parent="" if trace is None else trace.parent,
        )
    attempts = record.attempts
    cost = record.cost
    if len(attempts) == 1:  # most turns
        only = attempts[0]
        ends, usage, calls = (_attempt(only, only.started),), only.usage or _NOTHING, only.sends
    else:
        began = attempts[0].started if attempts else 0.0
        ends = tuple([_attempt(attempt, began) for attempt in attempts])
        usage, calls = record.usage or _NOTHING, record.calls
    # Built for every turn, so by position, which is four times as fast; what only traces say is added where they are.
    ended = TurnEnded(
        at,
        request_id,
        progress.session,
        progress.upstream,
        progress.model,
        wire,
        len(attempts),
        progress.outcome or "passed",
        route,
        status,
        seconds,
        None if progress.spoke is None else _held(progress.spoke, attempts),
        record.protocol,
        record.force,
        error or record.cause,
        ends,
        record.adaptations,
        calls,
        usage.input_tokens,
        usage.output_tokens,
        cost.cost_usd,
        cost.estimated,
    )
    if trace is None:
        return ended
    reply = attempts[-1].reply if attempts else None
    return msgspec.structs.replace(
        ended,
        sent_model=record.model,
        place=record.place,
        sent_wire=record.wire,
        finish="" if reply is None else str(reply.finish),
        trace=trace.header,
        parent=trace.parent,
        contents=None if progress.asked is None else Contents(request=progress.asked, reply=reply),
    )


def _attempt(attempt: AttemptRecord, began: float) -> AttemptEnd:
    usage = attempt.usage or _NOTHING
    return AttemptEnd(
        attempt.started - began,
        attempt.seconds,
        attempt.first_byte,
        attempt.rung.kind,
        attempt.word,
        attempt.remedy or "",
        attempt.sends,
        attempt.error or "",
        attempt.tool,
        usage.input_tokens,
        usage.output_tokens,
    )


def _held(spoke: float, attempts: list[AttemptRecord]) -> float | None:
    """Return how long a stream was held after the upstream had begun to answer, further attempts included."""
    if not attempts:
        return None
    first = attempts[0]
    return max(0.0, spoke - first.started - first.first_byte)
