"""What one run tells of itself: its tools and its end, in one trace with its turns. Nothing while nobody listens."""

import sys
from typing import Any

from mustcall.engine.tooling.outcomes import ExecutedCall
from mustcall.telemetry.context import TraceContext, continued, inside
from mustcall.telemetry.events import RunEnded, ToolEnded
from mustcall.telemetry.stream import EventStream
from mustcall.upstream.retry import Clock

__all__ = ["RunTelling"]


class RunTelling:
    """Tells of one run, in the trace of whoever started it."""

    def __init__(self, events: EventStream, clock: Clock, upstream: str, model: str) -> None:
        self._events = events
        self._clock = clock
        self._upstream = upstream
        self._model = model
        self._began = clock.monotonic()
        self.trace = _begun() if events.listening else None

    def turn(self) -> TraceContext | None:
        """Return the span of a turn that begins."""
        return None if self.trace is None else inside(self.trace)

    def tool(self, executed: ExecutedCall) -> None:
        """Tell that a call is over."""
        if not self._events.listening:
            return
        own = self.turn()
        told = ToolEnded(
            at=self._clock.now(),
            upstream=self._upstream,
            model=self._model,
            class_=str(executed.status),
            tool=executed.name,
            call_id=executed.call.id,
            seconds=executed.seconds,
            step=executed.step,
            tries=executed.tries,
            trace="" if own is None else own.header,
            parent="" if own is None else own.parent,
        )
        self._events.emit(told)

    def ended(self, stopped: str, steps: int) -> None:
        """Tell that the run is over."""
        if not self._events.listening:
            return
        told = RunEnded(
            at=self._clock.now(),
            upstream=self._upstream,
            model=self._model,
            class_=stopped,
            seconds=self._clock.monotonic() - self._began,
            steps=steps,
            trace="" if self.trace is None else self.trace.header,
            parent="" if self.trace is None else self.trace.parent,
        )
        self._events.emit(told)


def _begun() -> TraceContext:
    """Return the span of a run: inside the caller's, where the program traces by OpenTelemetry itself."""
    api: Any = sys.modules.get("opentelemetry.trace")
    given = None if api is None else api.get_current_span().get_span_context()
    if given is None or not given.is_valid:
        return continued({})
    parent = f"00-{given.trace_id:032x}-{given.span_id:016x}-{int(given.trace_flags) & 1:02x}"
    return continued({"traceparent": parent})
