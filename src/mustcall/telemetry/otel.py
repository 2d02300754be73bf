"""Turns as spans and metrics of OpenTelemetry, by its conventions for generative AI, sent by OTLP over HTTP.

A turn is one span `chat {model}` with a child for each attempt; a tool of an agent is `execute_tool {name}`. Spans are
made when a turn is over, in a thread of their own, from its event: a request pays for a queue and nothing else. Their
ids were given out before (`telemetry.context`), because upstreams were told them.

Names are those of version 1.36 of the conventions; `OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental` asks for
the newer ones. Contents are exported only if `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` asks for them.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from urllib.parse import urlsplit

from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.util.types import AttributeValue

from mustcall.core.errors import UpstreamRejected
from mustcall.telemetry.context import TraceContext, child_id, continued
from mustcall.telemetry.counting import ModelNames
from mustcall.telemetry.events import AttemptEnd, RunEnded, ToolEnded, TurnEnded
from mustcall.telemetry.logs import log_of
from mustcall.telemetry.messages import input_messages, output_messages
from mustcall.telemetry.stream import EventStream
from mustcall.telemetry.tracing import Signals

__all__ = ["OtlpTracing"]

_log = log_of("mustcall.otel")

_OPT_IN, _LATEST = "OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental"
_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
#: The words by which contents are asked for on spans.
_CAPTURED = frozenset({"true", "span_only", "span_and_event"})
#: Names that changed with version 1.37 of the conventions: before, after.
_NAMES = {
    "provider": ("gen_ai.system", "gen_ai.provider.name"),
    "input": ("gen_ai.prompt", "gen_ai.input.messages"),
    "output": ("gen_ai.completion", "gen_ai.output.messages"),
}
#: The conventions' words for providers, by the host that is called; others go by the protocol that is spoken.
_PROVIDERS = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral_ai",
    "api.x.ai": "x_ai",
    "generativelanguage.googleapis.com": "gcp.gemini",
}
#: Buckets that the conventions advise: seconds doubling from 0.01, tokens by fours.
_SECONDS = tuple(0.01 * 2**power for power in range(14))
_TOKENS = tuple(float(4**power) for power in range(14))
_MOST = 2048
#: Seconds after which the thread looks whether it is to end.
_LOOK = 1.0
#: Seconds between two turns: a thread that goes on without a pause keeps the event loop waiting for milliseconds.
_BREATH = 0.0002

Attributes = dict[str, AttributeValue]


class _Ids(IdGenerator):
    """Gives the ids that were planned; only one thread makes spans."""

    def __init__(self) -> None:
        self.trace_id = self.span_id = 0

    def plan(self, trace_id: str, span_id: str) -> None:
        self.trace_id, self.span_id = int(trace_id, 16), int(span_id, 16)

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class _Exporter(OTLPSpanExporter):
    """Counts the spans that no collector took."""

    lost = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans; only one thread does."""
        result = SpanExportResult.FAILURE
        try:
            result = super().export(spans)
        finally:
            if result is not SpanExportResult.SUCCESS:
                self.lost += len(spans)
        return result


class OtlpTracing:
    """Exports one stream's turns. The SDK reads where to from its own variables."""

    def __init__(self, events: EventStream, environment: Mapping[str, str], signals: Signals) -> None:
        self.contents = environment.get(_CAPTURE, "").strip().lower() in _CAPTURED
        latest = _LATEST in [word.strip() for word in environment.get(_OPT_IN, "").split(",")]
        self._names = {key: names[latest] for key, names in _NAMES.items()}
        self._models = ModelNames()
        self._ids = _Ids()
        given = environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
        named = environment.get("OTEL_SERVICE_NAME") or "service.name=" in given
        own: Attributes = {} if named else {"service.name": "mustcall"}
        resource = Resource.create({"service.version": version("mustcall"), **own})
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self._traces = "traces" in signals
        self._exporter = _Exporter() if self._traces else None
        if self._exporter is not None:
            self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("mustcall", version("mustcall"))
        readers = [PeriodicExportingMetricReader(OTLPMetricExporter())] if "metrics" in signals else []
        self._meters = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        meter = self._meters.get_meter("mustcall", version("mustcall"))
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="Time of one turn.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Tokens of one turn, all attempts.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self._subscription = events.subscribe(_MOST, whole=True)
        self._leaving = False
        self._thread = threading.Thread(target=self._work, name="mustcall-otel", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Events that were not exported because this was too slow, and spans that no collector took."""
        return self._subscription.dropped + (0 if self._exporter is None else self._exporter.lost)

    def context(self, headers: Mapping[str, str]) -> TraceContext:
        """Return the span of a turn that begins; whether it is sampled is the SDK's sampler's decision."""
        given = continued(headers)
        parent = _context(given.parent)
        decided = self._provider.sampler.should_sample(parent, int(given.trace_id, 16), "chat")
        sampled = self._traces and decided.decision.is_sampled()
        return TraceContext(given.trace_id, given.span_id, given.parent, given.state, sampled=sampled)

    def close(self, patience: float) -> None:
        """Export what waits, and end; what takes longer is left to a thread that nobody waits for."""
        self._leaving = True
        self._subscription.close()
        self._thread.join(patience)
        ending = threading.Thread(target=self._end, name="mustcall-otel-end", daemon=True)
        ending.start()
        ending.join(patience)

    def _end(self) -> None:
        for provider in (self._provider, self._meters):
            try:
                provider.shutdown()
            except Exception as error:  # noqa: BLE001  the SDK's own; there is nobody left to serve
                _log.debug("flushing spans failed: %s", error)

    def _work(self) -> None:
        while True:
            events = self._subscription.take(_LOOK)
            for event in events:
                try:
                    match event:
                        case TurnEnded(upstream=upstream) if upstream:
                            self._turn(event)
                        case ToolEnded():
                            self._tool(event)
                        case RunEnded():
                            self._run(event)
                        case _:
                            pass
                except Exception as error:  # noqa: BLE001  one turn that cannot be told must not end the telling
                    _log.debug("exporting a turn failed: %s", error)
                if not self._leaving:
                    time.sleep(_BREATH)
            if self._leaving and not events:
                return

    # --- turns -------------------------------------------------------------------------------------------------------

    def _turn(self, event: TurnEnded) -> None:
        self._measure(event)
        own = _span_context(event.trace)
        if own is None or not own.trace_flags.sampled:
            return
        end = int(event.at * 1e9)
        start = end - int(event.seconds * 1e9)
        self._ids.plan(event.trace[3:35], event.trace[36:52])
        span = self._tracer.start_span(
            f"chat {event.model}",
            _context(event.parent),
            SpanKind.CLIENT,
            attributes=self._attributes(event),
            start_time=start,
        )
        inside = api.set_span_in_context(span, Context())
        for number, attempt in enumerate(event.attempts, 1):
            began = min(end, start + int(attempt.after * 1e9))
            self._ids.plan(event.trace[3:35], child_id(event.trace[36:52], number))
            child = self._tracer.start_span(
                f"attempt {number}",
                inside,
                SpanKind.CLIENT,
                attributes=_attempt_attributes(number, attempt),
                start_time=began,
            )
            if attempt.error:
                child.set_status(Status(StatusCode.ERROR, attempt.error))
            child.end(min(end, began + int(attempt.seconds * 1e9)))
        if event.class_ == "failure" or event.error:
            span.set_status(Status(StatusCode.ERROR, _error_type(event)))
        span.end(end)

    def _attributes(self, event: TurnEnded) -> Attributes:
        attributes: Attributes = {
            "gen_ai.operation.name": "chat",
            self._names["provider"]: _provider(event),
            "gen_ai.request.model": event.model,
            "gen_ai.usage.input_tokens": event.input_tokens,
            "gen_ai.usage.output_tokens": event.output_tokens,
            "mustcall.request_id": event.request_id,
            "mustcall.upstream": event.upstream,
            "mustcall.wire": str(event.wire),
            "mustcall.protocol": event.protocol,
            "mustcall.outcome": event.class_,
            "mustcall.force": event.force,
            "mustcall.calls": event.calls,
            "mustcall.cost_usd": event.cost_usd,
        }
        if event.sent_model:
            attributes["gen_ai.response.model"] = event.sent_model
        if event.finish:
            attributes["gen_ai.response.finish_reasons"] = (event.finish,)
        if event.session:
            attributes["gen_ai.conversation.id"] = event.session
        if event.adaptations:
            attributes["mustcall.adaptations"] = tuple(f"{one.kind}:{one.subject}" for one in event.adaptations)
        if event.class_ == "failure" or event.error:
            attributes["error.type"] = _error_type(event)
        attributes |= _server(event.place)
        if event.contents is not None and self.contents:
            attributes[self._names["input"]] = input_messages(event.wire, event.contents.request)
            if event.contents.reply is not None:
                attributes[self._names["output"]] = output_messages(event.contents.reply)
        return attributes

    def _measure(self, event: TurnEnded) -> None:
        attributes: Attributes = {
            "gen_ai.operation.name": "chat",
            self._names["provider"]: _provider(event),
            "gen_ai.request.model": self._models.label(event),
            **_server(event.place),
        }
        for kind, tokens in (("input", event.input_tokens), ("output", event.output_tokens)):
            if tokens:
                self._tokens.record(tokens, {**attributes, "gen_ai.token.type": kind})
        if event.class_ == "failure" or event.error:
            attributes["error.type"] = _error_type(event)
        self._duration.record(event.seconds, attributes)

    # --- agents -------------------------------------------------------------------------------------------------------

    def _run(self, event: RunEnded) -> None:
        attributes: Attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.request.model": event.model,
            "mustcall.upstream": event.upstream,
            "mustcall.stopped": event.class_,
            "mustcall.steps": event.steps,
        }
        self._inside("invoke_agent", event, attributes, "failed" if event.class_ == "failed" else "")

    def _tool(self, event: ToolEnded) -> None:
        attributes: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": event.tool,
            "gen_ai.tool.call.id": event.call_id,
            "gen_ai.tool.type": "function",
            "mustcall.status": event.class_,
            "mustcall.tries": event.tries,
        }
        self._inside(f"execute_tool {event.tool}", event, attributes, "" if event.class_ == "ok" else event.class_)

    def _inside(self, name: str, event: ToolEnded | RunEnded, attributes: Attributes, error: str) -> None:
        """Export a span of an agent."""
        own = _span_context(event.trace)
        if own is None or not own.trace_flags.sampled:
            return
        end = int(event.at * 1e9)
        self._ids.plan(event.trace[3:35], event.trace[36:52])
        span = self._tracer.start_span(
            name,
            _context(event.parent),
            SpanKind.INTERNAL,
            attributes={**attributes, "error.type": error} if error else attributes,
            start_time=end - int(event.seconds * 1e9),
        )
        if error:
            span.set_status(Status(StatusCode.ERROR, error))
        span.end(end)


def _attempt_attributes(number: int, attempt: AttemptEnd) -> Attributes:
    attributes: Attributes = {
        "mustcall.attempt": number,
        "mustcall.verdict": str(attempt.verdict) or "none",
        "mustcall.remedy": str(attempt.remedy) or "none",
        "mustcall.rung": str(attempt.rung),
        "mustcall.sends": attempt.sends,
        "mustcall.first_byte_seconds": attempt.first_byte,
        "gen_ai.usage.input_tokens": attempt.input_tokens,
        "gen_ai.usage.output_tokens": attempt.output_tokens,
    }
    if attempt.tool:
        attributes["gen_ai.tool.name"] = attempt.tool
    if attempt.error:
        attributes["error.type"] = attempt.error
    return attributes


def _error_type(event: TurnEnded) -> str:
    last = event.attempts[-1] if event.attempts else None
    if last is not None and last.error and event.error == UpstreamRejected.code:
        return last.error  # the upstream's own word says more
    return event.error or (last is not None and (last.error or str(last.verdict))) or "failure"


def _provider(event: TurnEnded) -> str:
    host = urlsplit(event.place).hostname or ""
    return _PROVIDERS.get(host) or ("anthropic" if (event.sent_wire or event.wire) == "messages" else "openai")


def _server(place: str) -> Attributes:
    parts = urlsplit(place)
    if not parts.hostname:
        return {}
    return {"server.address": parts.hostname, "server.port": parts.port or (80 if parts.scheme == "http" else 443)}


def _span_context(written: str) -> SpanContext | None:
    """Return what a `traceparent` says; it was checked when it was read."""
    if not written:
        return None
    _, trace_id, span_id, flags = written.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))


def _context(parent: str) -> Context:
    given = _span_context(parent)
    return Context() if given is None else api.set_span_in_context(NonRecordingSpan(given), Context())
