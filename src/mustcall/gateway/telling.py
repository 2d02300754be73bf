"""What one gateway tells of its work: its stream of events, and who reads it: the log of requests and the metrics."""

from collections.abc import Mapping
from time import time

from mustcall.core.origin import Wire
from mustcall.engine.records import Progress
from mustcall.engine.telling import turn_ended
from mustcall.gateway.lines import line_of
from mustcall.gateway.metrics import CONTENT_TYPE, Metrics
from mustcall.gateway.settings import Settings
from mustcall.telemetry.events import Event, TurnEnded
from mustcall.telemetry.requests import RequestLog
from mustcall.telemetry.stream import EventStream

__all__ = ["CONTENT_TYPE", "Telling"]


class Telling:
    """The readers of one gateway's events."""

    def __init__(self, settings: Settings, requests: RequestLog | None) -> None:
        self.events = EventStream()
        self._requests = requests
        self._metrics = Metrics(time())
        if settings.server.metrics != "off":
            self.events.listen(self._metrics.take)
        if requests is not None:
            self.events.listen(self._log)

    def begin(self, progress: Progress, headers: Mapping[str, str], body: bytes) -> None:
        """Take note of a turn that begins."""

    def ended(
        self,
        progress: Progress,
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

    def reload(self, at: float | None) -> None:
        """Count a reload of the configuration: when it was taken over, None if it was refused."""
        self._metrics.reload(at)

    def page(self, *, in_flight: int, limit: int) -> bytes:
        """Return the page of `/metrics`."""
        return self._metrics.text(in_flight=in_flight, limit=limit)

    async def close(self) -> None:
        """Tell what has not been told."""
        if self._requests is not None:
            await self._requests.close()

    def _log(self, event: Event) -> None:
        if self._requests is not None and isinstance(event, TurnEnded):
            self._requests.put(line_of(event))
