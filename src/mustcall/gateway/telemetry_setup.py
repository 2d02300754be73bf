"""What one gateway tells of its work: its stream of events, and who reads it: the log of requests, metrics, traces."""

import asyncio
import os
from collections.abc import Callable, Mapping
from time import time
from typing import TYPE_CHECKING

import msgspec

from mustcall.core.origin import Wire
from mustcall.engine.records import TurnProgress
from mustcall.engine.turn_events import turn_ended
from mustcall.gateway.config.settings import Settings
from mustcall.gateway.connections.hosts import is_local
from mustcall.gateway.lines import line_of
from mustcall.telemetry.events import Event, TurnEnded
from mustcall.telemetry.requests import RequestLog
from mustcall.telemetry.stream import EventStream
from mustcall.telemetry.tracing import start_tracing

if TYPE_CHECKING:
    from mustcall.telemetry.prometheus import Gauges, Metrics

__all__ = ["CONTENT_TYPE", "GatewayState", "Telling", "serves_metrics"]

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
#: Seconds between two times that a process of several hands its counts over.
_EVERY = 0.5
#: Seconds that a collector gets for what waits when the gateway stops.
_LAST = 2.0


class GatewayState(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway is like at a moment."""

    settings: Settings
    in_flight: int = 0
    caches: Mapping[str, int] = {}
    dropped: Mapping[str, int] = {}


def serves_metrics(settings: Settings) -> bool:
    """Tell whether there is a page of metrics: not for everybody unless the operator says so."""
    access = settings.server.metrics
    return access == "open" or (access == "key" and (bool(settings.client_keys) or is_local(settings.server.host)))


class Telling:
    """The readers of one gateway's events."""

    def __init__(self, settings: Settings, requests: RequestLog | None, state: Callable[[], GatewayState]) -> None:
        self.events = EventStream()
        self._requests = requests
        self._state = state
        self._started = time()
        self._timer: asyncio.TimerHandle | None = None
        self._metrics: Metrics | None = None
        if serves_metrics(settings):
            self._count(settings)
        if requests is not None:
            self.events.listen(self._log)
        self._tracing = start_tracing(self.events, os.environ)

    def open(self) -> None:
        """Begin what goes on beside the requests."""
        if self._metrics is not None and self._metrics.is_shared:
            self._timer = asyncio.get_running_loop().call_later(_EVERY, self._tick)

    def begin(self, progress: TurnProgress, headers: Mapping[str, str], body: bytes) -> None:
        """Take note of a turn that begins: the trace it belongs to, and what is asked where that is told."""
        tracing = self._tracing
        if tracing is not None:
            progress.trace = tracing.context(headers)
            if tracing.contents:
                progress.asked = body

    def ended(
        self,
        progress: TurnProgress,
        request_id: str,
        wire: Wire,
        *,
        route: str,
        status: int,
        seconds: float,
        error: str,
    ) -> None:
        """Tell that a request is over."""
        if self.events.listening:
            ended = turn_ended(
                progress,
                at=time(),
                request_id=request_id,
                wire=wire,
                route=route,
                status=status,
                seconds=seconds,
                error=error,
            )
            self.events.emit(ended)

    def reload(self, settings: Settings | None) -> None:
        """Count a reload of the configuration, None if it was refused; a new one may want metrics."""
        if settings is not None and self._metrics is None and serves_metrics(settings):
            self._count(settings)
        if self._metrics is not None:
            self._metrics.reload(None if settings is None else time())

    def page(self) -> bytes:
        """Return the page of `/metrics`."""
        assert self._metrics is not None, "only those who are served one ask"
        return self._metrics.page(self._gauges())

    async def close(self) -> None:
        """Tell what has not been told."""
        if self._timer is not None:
            self._timer.cancel()
        if self._metrics is not None and self._metrics.is_shared:
            self._metrics.update(self._gauges())
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close, _LAST)
        if self._requests is not None:
            await self._requests.close()

    def _count(self, settings: Settings) -> None:
        from mustcall.telemetry.prometheus import Metrics  # noqa: PLC0415  only where there are metrics

        named = [route.model for route in settings.routes if not any(sign in route.model for sign in "*?[")]
        named += [endpoint.model for endpoint in settings.endpoints if endpoint.model]
        self._metrics = Metrics(self._started, named)
        self.events.listen(self._metrics.counts.take)

    def _tick(self) -> None:
        assert self._metrics is not None, "there is no timer without metrics"
        self._metrics.update(self._gauges())
        self._timer = asyncio.get_running_loop().call_later(_EVERY, self._tick)

    def _gauges(self) -> "Gauges":
        from mustcall.telemetry.prometheus import Gauges  # noqa: PLC0415  it is there already

        state = self._state()
        dropped = {**state.dropped, "listener": self.events.failed}
        if self._tracing is not None:
            dropped["otel"] = self._tracing.dropped
        if self._requests is not None:
            dropped["log"] = self._requests.dropped
        return Gauges(
            in_flight=state.in_flight,
            limit=state.settings.server.max_concurrency,
            caches=state.caches,
            caps=_caps(state.settings),
            dropped=dropped,
        )

    def _log(self, event: Event) -> None:
        if self._requests is not None and isinstance(event, TurnEnded):
            self._requests.put(line_of(event))


def _caps(settings: Settings) -> dict[str, float]:
    budget = settings.operator.budget
    if budget is None:
        return {}
    caps = {name: float(value) for name, value in msgspec.structs.asdict(budget.caps).items() if value}
    return {**caps, "turn_cost_usd": budget.turn.cost_usd} if budget.turn.cost_usd else caps
