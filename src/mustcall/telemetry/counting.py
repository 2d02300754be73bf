"""Counts, worked out from events: what the metrics are made of. Adding to a dictionary is all that a request pays.

Labels come from closed sets, from the operator's names for upstreams, and from at most `MOST_MODELS` names of models:
one gets a series of its own once an upstream has answered to it, the others count as `other`.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable

from mustcall.core.verdict import Verdict
from mustcall.telemetry.events import (
    REPAIRS,
    BreakerChanged,
    BudgetTripped,
    Event,
    FactLearnt,
    TurnEnded,
)

__all__ = ["BOUNDS", "MOST_MODELS", "OTHER", "Counts", "ModelNames"]

#: Upper bounds of the buckets of all times, in seconds: a cached answer to a long reasoning turn.
BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
#: Names of models with series of their own, and the longest of them.
MOST_MODELS = 100
OTHER = "other"
_LONGEST = 100
#: Verdicts under which an upstream may not even have known the model.
_UNKNOWN = frozenset({"", Verdict.REJECTED, Verdict.UNAVAILABLE})
_STATES = {"closed": 0.0, "half_open": 1.0, "open": 2.0}

Key = tuple[str, ...]


class ModelNames:
    """Which models have series of their own: those the operator names, and the first others that are answered.

    `claim` asks all processes of a gateway for one more: it returns the names that all have by now.
    """

    def __init__(
        self,
        configured: Iterable[str] = (),
        *,
        most: int = MOST_MODELS,
        claim: Callable[[str, int], set[str]] | None = None,
    ) -> None:
        self._known = set(configured)
        self._most = most
        self._claim = claim
        self._others: set[str] = set()

    def label(self, event: TurnEnded) -> str:
        """Return what a turn's model is called in labels."""
        model = event.model
        if model in self._known or model in self._others:
            return model
        if len(self._others) >= self._most or not model or len(model) > _LONGEST or not _is_answered(event):
            return OTHER
        self._others |= {model} if self._claim is None else self._claim(model, self._most)
        return model if model in self._others else OTHER


def _is_answered(event: TurnEnded) -> bool:
    if not event.attempts:  # passed through
        return 200 <= event.status < 300
    return any(attempt.verdict not in _UNKNOWN for attempt in event.attempts)


class Counts:
    """What happened since it was last asked, by family and label values."""

    def __init__(self, models: ModelNames) -> None:
        self._models = models
        self.added: dict[Key, float] = {}
        #: For each family and labels: how many in each bucket, and the sum.
        self.observed: dict[Key, list[float]] = {}
        #: The state of each breaker that ever changed.
        self.breakers: dict[tuple[str, str], float] = {}

    def taken(self) -> tuple[dict[Key, float], dict[Key, list[float]]]:
        """Return what was counted, and begin anew."""
        taken = self.added, self.observed
        self.added, self.observed = {}, {}
        return taken

    def add(self, *key: str, by: float = 1) -> None:
        """Count one more of a family and labels."""
        self.added[key] = self.added.get(key, 0) + by

    def take(self, event: Event) -> None:
        """Count an event."""
        match event:
            case TurnEnded():
                self._request(event)
                if event.upstream and event.class_:
                    self._turn(event)
            case BudgetTripped():
                self.add("budget_trips", event.class_, "refused" if event.enforced else "reported")
            case BreakerChanged():
                self.add("breaker_changes", event.upstream, event.failure, event.class_)
                self.breakers[event.upstream, event.failure] = _STATES[event.class_]
            case FactLearnt():
                self.add("facts_learnt", event.upstream, event.class_.partition(":")[0])
            case _:
                pass

    def _request(self, event: TurnEnded) -> None:
        self.add("requests", event.route, str(event.status or "gone"))
        self._observe(event.seconds, "request_duration", event.route)
        if event.error:
            self.add("errors", event.error)

    def _turn(self, event: TurnEnded) -> None:
        upstream, model, add = event.upstream, self._models.label(event), self.add
        add("turns", upstream, model, event.class_)
        if event.force != "none":
            add("forced_turns", upstream, model, event.force)
        add("upstream_calls", upstream, model, by=event.calls)
        if event.calls > 1:
            add("extra_calls", upstream, model, by=event.calls - 1)
        for attempt in event.attempts:
            add("attempts", upstream, model, attempt.verdict or "none")
            self._observe(attempt.seconds, "attempt_duration", upstream)
            if attempt.first_byte:
                self._observe(attempt.first_byte, "first_byte", upstream)
        if event.held is not None:
            self._observe(event.held, "held", upstream)
        add("tokens", upstream, model, "input", by=event.input_tokens)
        add("tokens", upstream, model, "output", by=event.output_tokens)
        if event.cost_usd:
            add("cost_usd", upstream, model, by=event.cost_usd)
        for entry in event.adaptations:
            if entry.kind in REPAIRS:
                add("repairs", upstream, str(entry.kind))

    def _observe(self, seconds: float, *key: str) -> None:
        buckets = self.observed.get(key)
        if buckets is None:
            buckets = self.observed[key] = [0.0] * (len(BOUNDS) + 2)
        buckets[bisect_left(BOUNDS, seconds)] += 1
        buckets[-1] += seconds
