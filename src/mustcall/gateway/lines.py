"""What the log says of a request, from what is known when it is over."""

from time import time

from mustcall.engine.records import Progress
from mustcall.telemetry.requests import RequestLine

__all__ = ["line_of"]


def line_of(route: str, request_id: str, progress: Progress, *, status: int, seconds: float, error: str) -> RequestLine:
    """Return the line of a request. Status 0 is a client that went away before its answer began."""
    record = progress.record
    if record is None:
        return RequestLine(
            at=time(),
            request_id=request_id,
            route=route,
            status=status,
            seconds=seconds,
            model=progress.model,
            upstream=progress.upstream,
            error=error,
        )
    usage = record.usage
    return RequestLine(
        at=time(),
        request_id=request_id,
        route=route,
        status=status,
        seconds=seconds,
        outcome=record.outcome or "passed",
        model=progress.model,
        upstream=progress.upstream,
        calls=record.calls,
        verdicts=tuple([attempt.verdict or attempt.error or "none" for attempt in record.attempts]),
        force=record.force,
        input_tokens=0 if usage is None else usage.input_tokens,
        output_tokens=0 if usage is None else usage.output_tokens,
        adaptations=tuple(dict.fromkeys([str(entry.kind) for entry in record.adaptations])),
        error=error,
    )
