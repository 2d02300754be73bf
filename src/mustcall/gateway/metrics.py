"""What the gateway counts, in the text format of Prometheus: requests, turns, attempts, tokens, errors, reloads.

Labels come from closed sets (routes, statuses, verdicts, outcomes, the operator's names for upstreams), never from a
request, so that no caller can make the number of series grow. Counts are of one process and start at 0 with it.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import Literal

from mustcall.telemetry.events import Event, TurnEnded

__all__ = ["CONTENT_TYPE", "Metrics", "MetricsAccess"]

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

#: Who may read `/metrics`: whoever may call (`key`), everybody (`open`), nobody (`off`).
MetricsAccess = Literal["key", "open", "off"]

#: Upper bounds of the duration buckets, in seconds: a cached answer to a long reasoning turn.
_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)

_Labels = tuple[tuple[str, str], ...]
_Sample = tuple[str, _Labels, float]
_Family = tuple[str, str, str, Iterable[_Sample]]


class Metrics:
    """The counts of one gateway process."""

    def __init__(self, started: float) -> None:
        self._started = started
        self._loaded = started
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, list[int]] = {}
        self._seconds_sum: Counter[str] = Counter()
        self._turns: Counter[tuple[str, str]] = Counter()
        self._forced: Counter[tuple[str, str]] = Counter()
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._calls: Counter[str] = Counter()
        self._tokens: Counter[tuple[str, str]] = Counter()
        self._errors: Counter[str] = Counter()
        self._reloads: Counter[str] = Counter({"ok": 0, "failed": 0})

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a finished request. Status 0 is a client that went away before its answer began."""
        self._requests[route, status] += 1
        buckets = self._seconds.get(route)
        if buckets is None:
            buckets = self._seconds[route] = [0] * (len(_BOUNDS) + 1)
        buckets[bisect_left(_BOUNDS, seconds)] += 1
        self._seconds_sum[route] += seconds  # pyright: ignore[reportArgumentType]  a Counter of seconds

    def take(self, event: Event) -> None:
        """Count a request that is over: its turn and attempts too, if it came as far as an upstream."""
        if not isinstance(event, TurnEnded):
            return
        self.request(event.route, event.status, event.seconds)
        if event.error:
            self._errors[event.error] += 1
        upstream = event.upstream
        if not upstream or not event.class_:
            return
        self._turns[upstream, event.class_] += 1
        if event.force != "none":
            self._forced[upstream, event.force] += 1
        self._calls[upstream] += event.calls
        for attempt in event.attempts:
            self._attempts[upstream, attempt.verdict or "none"] += 1
        self._tokens[upstream, "input"] += event.input_tokens
        self._tokens[upstream, "output"] += event.output_tokens

    def reload(self, at: float | None) -> None:
        """Count a reload of the configuration: when it was taken over, None if it was refused."""
        self._reloads["ok" if at is not None else "failed"] += 1
        if at is not None:
            self._loaded = at

    def text(self, *, in_flight: int, limit: int) -> bytes:
        """Return the page of `/metrics`."""
        lines: list[str] = []
        for name, kind, told, samples in self._families(in_flight, limit):
            lines += (f"# HELP {name} {told}", f"# TYPE {name} {kind}")
            lines += (f"{sample}{_braces(labels)} {_number(value)}" for sample, labels, value in samples)
        return ("\n".join(lines) + "\n").encode()

    def _families(self, in_flight: int, limit: int) -> Iterator[_Family]:
        """Yield every family: name, kind, what it is, samples. A family without samples is still named."""

        def one(name: str, told: str, value: float, labels: _Labels = ()) -> _Family:
            return name, "gauge", told, [(name, labels, value)]

        def many(
            name: str, told: str, names: tuple[str, ...], counts: Iterable[tuple[tuple[str, ...], float]]
        ) -> _Family:
            return name, "counter", told, [(name, tuple(zip(names, key, strict=True)), n) for key, n in counts]

        yield one("mustcall_info", "The version that runs.", 1, (("version", version("mustcall")),))
        yield one("mustcall_start_time_seconds", "When the process started, Unix time.", self._started)
        yield one("mustcall_requests_in_flight", "Requests being worked on.", in_flight)
        yield one("mustcall_requests_in_flight_limit", "max_concurrency: one more request gets 503.", limit)
        statuses = (((route, str(status or "gone")), n) for (route, status), n in self._requests.items())
        told = "Requests by route and HTTP status; `gone`: the client left before the answer began."
        yield many("mustcall_requests_total", told, ("route", "status"), statuses)
        yield "mustcall_request_duration_seconds", "histogram", "Time to the end of the answer.", self._durations()
        told = "Turns by upstream and outcome; `passed`: forwarded without a verdict."
        yield many("mustcall_turns_total", told, ("upstream", "outcome"), self._turns.items())
        told = "Turns in which a tool was demanded: `met`, `unmet` or `dropped`."
        yield many("mustcall_forced_turns_total", told, ("upstream", "force"), self._forced.items())
        told = "Attempts by upstream and verdict; `none`: ended before a verdict."
        yield many("mustcall_attempts_total", told, ("upstream", "verdict"), self._attempts.items())
        calls = (((upstream,), n) for upstream, n in self._calls.items())
        yield many("mustcall_upstream_calls_total", "Upstream calls, retries included.", ("upstream",), calls)
        told = "Tokens that upstreams reported, all attempts."
        yield many("mustcall_tokens_total", told, ("upstream", "direction"), self._tokens.items())
        errors = (((code,), n) for code, n in self._errors.items())
        yield many("mustcall_errors_total", "Errors of the gateway by code.", ("code",), errors)
        reloads = (((result,), n) for result, n in self._reloads.items())
        yield many("mustcall_config_reloads_total", "Reloads of the configuration (SIGHUP).", ("result",), reloads)
        told = "When the configuration in force was read, Unix time."
        yield one("mustcall_config_loaded_time_seconds", told, self._loaded)

    def _durations(self) -> Iterator[_Sample]:
        name = "mustcall_request_duration_seconds"
        for route, buckets in self._seconds.items():
            total = 0
            for bound, n in zip((*(f"{bound:g}" for bound in _BOUNDS), "+Inf"), buckets, strict=True):
                total += n
                yield f"{name}_bucket", (("route", route), ("le", bound)), total
            yield f"{name}_sum", (("route", route),), self._seconds_sum[route]
            yield f"{name}_count", (("route", route),), total


def _braces(labels: _Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(value)
