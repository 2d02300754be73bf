"""Whether turns are traced by OpenTelemetry: by its own variables, and only with the extra `otel`.

Nothing of OpenTelemetry is imported unless a variable asks for it. What cannot be imported or set up is said in one
line of the log, and requests go on without it.
"""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Protocol

from mustcall.telemetry.context import TraceContext
from mustcall.telemetry.logs import log_of
from mustcall.telemetry.stream import PROCESS, EventStream

__all__ = ["Signals", "Tracing", "start_tracing", "traced", "wanted_signals"]

_log = log_of("mustcall.otel")

Signals = frozenset[str]
#: Seconds that a collector gets for what waits at the end of a program.
_LAST = 2.0
_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


class Tracing(Protocol):
    """What traces one stream of events."""

    @property
    def contents(self) -> bool:
        """Whether contents are wanted too."""
        ...

    @property
    def dropped(self) -> int:
        """Events that were not exported because this was too slow, and spans that no collector took."""
        ...

    def context(self, headers: Mapping[str, str]) -> TraceContext:
        """Return the span of a turn that begins, in the trace that its request names."""
        ...

    def close(self, patience: float) -> None:
        """Export what waits, and end; it takes no longer than this."""
        ...


def wanted_signals(environment: Mapping[str, str]) -> Signals:
    """Return which signals (`traces`, `metrics`) the variables of OpenTelemetry ask for by OTLP."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return frozenset()
    wanted: set[str] = set()
    for signal in ("traces", "metrics"):
        exporters = environment.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip().lower()
        address = environment.get(_ENDPOINT) or environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
        if "otlp" in exporters.split(",") or (address and not exporters):
            wanted.add(signal)
    return frozenset(wanted)


def start_tracing(events: EventStream, environment: Mapping[str, str]) -> Tracing | None:
    """Begin to export a stream's turns if that is asked for; None if it is not, or cannot be."""
    signals = wanted_signals(environment)
    if not signals:
        return None
    try:
        from mustcall.telemetry.otel import OtlpTracing  # noqa: PLC0415  an extra, and only where it is asked for

        return OtlpTracing(events, environment, signals)
    except ImportError:
        _log.warning("tracing is off: OTEL_* is set but the SDK is missing; pip install 'mustcall[otel]'")
    except Exception as error:  # noqa: BLE001  what the SDK makes of variables it cannot read
        _log.warning("tracing is off: %s", error)
    return None


@contextmanager
def traced(environment: Mapping[str, str] | None = None) -> Generator[None]:
    """Export what agents of this program do meanwhile, if the variables of OpenTelemetry ask for it."""
    tracing = start_tracing(PROCESS, os.environ if environment is None else environment)
    try:
        yield
    finally:
        if tracing is not None:
            tracing.close(_LAST)
