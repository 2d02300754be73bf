"""The metrics of a gateway by the official client of Prometheus, for one process or for several that share a directory.

Requests count in `telemetry.counting`; what was counted is added here when the page is asked for and, with several
processes, once in a while. Importing this imports the client; nobody does who has no metrics.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any, Literal, cast

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from mustcall.telemetry.counting import BOUNDS, Counts, ModelNames
from mustcall.telemetry.sharing import SharedDirectory, shared_directory

__all__ = ["CONTENT_TYPE", "COUNTERS", "GAUGES", "HISTOGRAMS", "Gauges", "Metrics", "markdown"]

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

disable_created_metrics()

#: By the name in `Counts`: the exported name, the labels, and what it says.
COUNTERS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "requests": (
        "mustcall_requests_total",
        ("route", "status"),
        "Requests by route and HTTP status; `gone`: the client disconnected before the answer started.",
    ),
    "turns": (
        "mustcall_turns_total",
        ("upstream", "model", "outcome"),
        "Turns by outcome; `passed`: forwarded without a verdict; `gone`: the client disconnected before.",
    ),
    "forced_turns": (
        "mustcall_forced_turns_total",
        ("upstream", "model", "force"),
        "Turns in which a tool was demanded: `met`, `unmet` or `dropped`.",
    ),
    "attempts": (
        "mustcall_attempts_total",
        ("upstream", "model", "verdict"),
        "Attempts by verdict; `none`: ended before a verdict.",
    ),
    "upstream_calls": (
        "mustcall_upstream_calls_total",
        ("upstream", "model"),
        "Upstream calls, including retries.",
    ),
    "extra_calls": (
        "mustcall_extra_calls_total",
        ("upstream", "model"),
        "Upstream calls beyond the first of their turn.",
    ),
    "repairs": ("mustcall_repairs_total", ("upstream", "kind"), "Changes to requests and replies by kind."),
    "tokens": (
        "mustcall_tokens_total",
        ("upstream", "model", "direction"),
        "Tokens that upstreams reported, all attempts.",
    ),
    "cost_usd": (
        "mustcall_cost_usd_total",
        ("upstream", "model"),
        "Cost of all attempts in US dollars, as far as prices are known.",
    ),
    "budget_trips": (
        "mustcall_budget_trips_total",
        ("cap", "action"),
        "Reached caps; `refused`: the call was refused, `reported`: it was only reported.",
    ),
    "breaker_changes": (
        "mustcall_breaker_changes_total",
        ("upstream", "failure", "state"),
        "Changes of circuit breakers, by their new state.",
    ),
    "facts_learnt": (
        "mustcall_facts_learnt_total",
        ("upstream", "field"),
        "Facts about models that were learnt from turns.",
    ),
    "probes": ("mustcall_probes_total", ("upstream", "result"), "Background probes: `measured` or `failed`."),
    "probe_requests": ("mustcall_probe_requests_total", ("upstream",), "Upstream requests of background probes."),
    "drifts": (
        "mustcall_drifts_total",
        ("upstream", "cell", "change"),
        "Guarantees whose probe result changed; `worse`: it held before.",
    ),
    "errors": (
        "mustcall_errors_total",
        ("code",),
        "Errors sent to callers, by code; `upstream_rejected`: errors of the upstream.",
    ),
    "dropped": (
        "mustcall_telemetry_dropped_total",
        ("reader",),
        "Log lines, traces and events that were not written because the reader was slow or failed.",
    ),
    "config_reloads": (
        "mustcall_config_reloads_total",
        ("result",),
        "Reloads of the configuration (SIGHUP).",
    ),
}
HISTOGRAMS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "request_duration": ("mustcall_request_duration_seconds", ("route",), "Time to the end of the answer."),
    "attempt_duration": (
        "mustcall_attempt_duration_seconds",
        ("upstream",),
        "Time of one attempt until its verdict.",
    ),
    "first_byte": (
        "mustcall_first_byte_seconds",
        ("upstream",),
        "Time until the first byte of the upstream's answer.",
    ),
    "held": (
        "mustcall_held_seconds",
        ("upstream",),
        "Streams: time from the upstream's first byte to the caller's first byte, including further attempts.",
    ),
}
_Mode = Literal["livemax", "livemin", "livesum"]
#: With how several processes are put together.
GAUGES: dict[str, tuple[str, tuple[str, ...], str, _Mode]] = {
    "info": ("mustcall_info", ("version",), "The running version.", "livemax"),
    "start": ("mustcall_start_time_seconds", (), "Start time of the oldest process, Unix time.", "livemin"),
    "in_flight": ("mustcall_requests_in_flight", (), "Requests in progress.", "livesum"),
    "limit": (
        "mustcall_requests_in_flight_limit",
        (),
        "max_concurrency of all processes; further requests get 503.",
        "livesum",
    ),
    "breaker": (
        "mustcall_breaker_state",
        ("upstream", "failure"),
        "Circuit breakers by class of failure: 0 closed, 1 half-open, 2 open.",
        "livemax",
    ),
    "cap": ("mustcall_budget_cap", ("cap",), "The configured caps of a session and of a turn.", "livemax"),
    "cache": ("mustcall_cache_entries", ("cache",), "Entries of caches in memory, by cache.", "livesum"),
    "loaded": (
        "mustcall_config_loaded_time_seconds",
        (),
        "Time when the configuration was read, Unix time; the oldest of several processes.",
        "livemin",
    ),
}


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """What is so at a moment."""

    in_flight: int
    limit: int
    caches: Mapping[str, int] = {}
    caps: Mapping[str, float] = {}
    #: How much was dropped since the start, by reader.
    dropped: Mapping[str, int] = {}


class _Buckets(Histogram):
    """A histogram that many observations are added to at once."""

    def add(self, counts: Sequence[float], total: float) -> None:
        self._sum.inc(total)
        buckets = cast("list[Any]", self._buckets)
        for bucket, count in zip(buckets, counts, strict=True):
            if count:
                bucket.inc(count)


@cache
def _own_version() -> str:
    """Return the version that runs: read once, because parsing the package's metadata takes milliseconds."""
    return version("mustcall")


class Metrics:
    """The metrics of one process; with a shared directory, the page is that of all processes."""

    def __init__(
        self, started: float, models: Sequence[str] = (), shared: SharedDirectory | None = None, *, alone: bool = False
    ) -> None:
        self._shared = shared = None if alone else shared or shared_directory()
        self._registry = registry = CollectorRegistry()
        self.counts = Counts(ModelNames(models, claim=None if shared is None else shared.claim))
        self._counters = {
            key: Counter(name.removesuffix("_total"), told, labels, registry=registry)
            for key, (name, labels, told) in COUNTERS.items()
        }
        self._histograms = {
            key: _Buckets(name, told, labels, registry=registry, buckets=BOUNDS)
            for key, (name, labels, told) in HISTOGRAMS.items()
        }
        self._gauges = {
            key: Gauge(name, told, labels, registry=registry, multiprocess_mode=mode)
            for key, (name, labels, told, mode) in GAUGES.items()
        }
        self._dropped: dict[str, int] = {}
        self._gauges["info"].labels(_own_version()).set(1)
        self._gauges["start"].set(started)
        self._gauges["loaded"].set(started)
        for result in ("ok", "failed"):
            self._counters["config_reloads"].labels(result)

    @property
    def is_shared(self) -> bool:
        """Whether several processes are counted together: each then has to `update` now and then."""
        return self._shared is not None

    def reload(self, at: float | None) -> None:
        """Count a reload of the configuration: when it was taken over, None if it was refused."""
        self.counts.add("config_reloads", "ok" if at is not None else "failed")
        if at is not None:
            self._gauges["loaded"].set(at)

    def update(self, now: Gauges) -> None:
        """Take over what was counted since the last time."""
        added, observed = self.counts.taken()
        for (family, *labels), count in added.items():
            self._counters[family].labels(*labels).inc(count)
        for (family, *labels), (*counts, total) in observed.items():
            child: _Buckets = self._histograms[family].labels(*labels)
            child.add(counts, total)
        gauges = self._gauges
        gauges["in_flight"].set(now.in_flight)
        gauges["limit"].set(now.limit)
        for labels, state in list(self.counts.breakers.items()):
            gauges["breaker"].labels(*labels).set(state)
        for name, values in (("cache", now.caches), ("cap", now.caps)):
            for label, value in values.items():
                gauges[name].labels(label).set(value)
        for reader, total in now.dropped.items():
            self._counters["dropped"].labels(reader).inc(max(0, total - self._dropped.get(reader, 0)))
            self._dropped[reader] = total

    def page(self, now: Gauges) -> bytes:
        """Return the page of `/metrics`."""
        self.update(now)
        if self._shared is None:
            return generate_latest(self._registry)
        together = CollectorRegistry()
        MultiProcessCollector(together, str(self._shared.path))
        with self._shared.read():
            return generate_latest(together)


def markdown() -> str:
    """Return the families as a table for the docs."""
    families = [(name, "gauge", labels, told) for name, labels, told, _ in GAUGES.values()]
    families += [(name, "counter", labels, told) for name, labels, told in COUNTERS.values()]
    families += [(name, "histogram", labels, told) for name, labels, told in HISTOGRAMS.values()]
    lines = ["| metric | type | labels | what |", "|---|---|---|---|"]
    for name, kind, labels, told in families:
        named = ", ".join(f"`{label}`" for label in labels)
        lines.append(f"| `{name}` | {kind} | {f'{named} ' if named else ''}| {told} |")
    return "\n".join(lines) + "\n"
