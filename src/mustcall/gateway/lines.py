"""What the log says of a request, from the event that it is over."""

from mustcall.telemetry.events import TurnEnded
from mustcall.telemetry.requests import RequestLine

__all__ = ["line_of"]


def line_of(ended: TurnEnded) -> RequestLine:
    """Return the line of a request."""
    attempts, adaptations = ended.attempts, ended.adaptations
    # Built for every request, so by position.
    return RequestLine(
        ended.at,
        ended.request_id,
        ended.route,
        ended.status,
        ended.seconds,
        ended.class_,
        ended.model,
        ended.upstream,
        ended.calls,
        tuple([attempt.verdict or attempt.error or "none" for attempt in attempts]),
        ended.force,
        ended.input_tokens,
        ended.output_tokens,
        tuple(dict.fromkeys([str(entry.kind) for entry in adaptations])) if adaptations else (),
        ended.error,
    )
