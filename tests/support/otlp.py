"""A receiver of OTLP over HTTP in this process: what was exported, decoded by the official protocol package."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Receiver:
    """`with Receiver() as receiver:` and export to `receiver.url`."""

    def __init__(self, status: int = 200) -> None:
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            """Takes what is posted."""

            def do_POST(self) -> None:  # the name that http.server calls
                """Take one export."""
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.path == "/v1/traces":
                    receiver.traces.append(ExportTraceServiceRequest.FromString(body))
                elif self.path == "/v1/metrics":
                    receiver.metrics.append(ExportMetricsServiceRequest.FromString(body))
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name it is called with
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def spans(self) -> list[Any]:
        """All spans that were exported."""
        return [
            span
            for export in self.traces
            for resource in export.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def points(self, name: str) -> list[Any]:
        """The data points of a metric in the last export that has it."""
        for export in reversed(self.metrics):
            for resource in export.resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        if metric.name == name:
                            return list(metric.histogram.data_points)
        return []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def attributes(one: Any) -> dict[str, Any]:
    """The attributes of a span or a data point."""
    found: dict[str, Any] = {}
    for entry in one.attributes:
        kind = entry.value.WhichOneof("value")
        value = getattr(entry.value, kind)
        found[entry.key] = [each.string_value for each in value.values] if kind == "array_value" else value
    return found
