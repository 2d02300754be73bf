"""What the log says of a request, from the event that it is over."""

from mustcall.telemetry.events import TurnEnded
from mustcall.telemetry.requests import RequestLine

__all__ = ["line_of"]


def line_of(ended: TurnEnded) -> RequestLine:
    """Return the line of a request."""
    return RequestLine(
        at=ended.at,
        request_id=ended.request_id,
        route=ended.route,
        status=ended.status,
        seconds=ended.seconds,
        outcome=ended.class_,
        model=ended.model,
        upstream=ended.upstream,
        calls=ended.calls,
        verdicts=tuple([attempt.verdict or attempt.error or "none" for attempt in ended.attempts]),
        force=ended.force,
        input_tokens=ended.input_tokens,
        output_tokens=ended.output_tokens,
        adaptations=tuple(dict.fromkeys([str(entry.kind) for entry in ended.adaptations])),
        error=ended.error,
    )
