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
    EndpointDrifted,
    EndpointMeasured,
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
#: Route, status, error, upstream, model, outcome, force.
_Kind = tuple[str, int, str, str, str, str, str]


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


class _Cell:
    """Turns of one kind: all that their labels are made of is the same. What differs is added up."""

    __slots__ = (
        "attempts",
        "calls",
        "cost",
        "extra",
        "first",
        "held",
        "read",
        "seconds",
        "turns",
        "verdicts",
        "written",
    )

    def __init__(self) -> None:
        self.turns = self.calls = self.extra = self.read = self.written = 0
        self.cost = 0.0
        self.verdicts: dict[str, int] = {}
        self.seconds, self.attempts, self.first, self.held = _empty(), _empty(), _empty(), _empty()


class Counts:
    """What happened since it was last asked, by family and label values.

    A turn adds to one cell, found by one lookup; the families are made of the cells when somebody asks.
    """

    def __init__(self, models: ModelNames) -> None:
        self._models = models
        self._added: dict[Key, float] = {}
        self._cells: dict[_Kind, _Cell] = {}
        #: The state of each breaker that ever changed.
        self.breakers: dict[tuple[str, str], float] = {}

    def taken(self) -> tuple[dict[Key, float], dict[Key, list[float]]]:
        """Return what was counted, and begin anew: counts, and for each time how many in each bucket, and the sum."""
        added, cells = self._added, self._cells
        self._added, self._cells = {}, {}
        observed: dict[Key, list[float]] = {}
        for key, cell in cells.items():
            _spread(key, cell, added, observed)
        return added, observed

    def add(self, *key: str, by: float = 1) -> None:
        """Count one more of a family and labels."""
        self._added[key] = self._added.get(key, 0) + by

    def take(self, event: Event) -> None:
        """Count an event."""
        if isinstance(event, TurnEnded):
            self._turn(event)
            return
        match event:
            case BudgetTripped():
                self.add("budget_trips", event.class_, "refused" if event.enforced else "reported")
            case BreakerChanged():
                self.add("breaker_changes", event.upstream, event.failure, event.class_)
                self.breakers[event.upstream, event.failure] = _STATES[event.class_]
            case EndpointMeasured():
                self.add("probes", event.upstream, event.class_)
                self.add("probe_requests", event.upstream, by=event.requests)
            case EndpointDrifted():
                self.add("drifts", event.upstream, event.class_, "worse" if event.worse else "other")
            case FactLearnt():
                self.add("facts_learnt", event.upstream, event.class_.partition(":")[0])
            case _:
                pass

    def _turn(self, event: TurnEnded) -> None:
        upstream = event.upstream if event.class_ else ""
        model = self._models.label(event) if upstream else ""
        key = (event.route, event.status, event.error, upstream, model, event.class_, event.force)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = _Cell()
        cell.turns += 1
        seconds, buckets = event.seconds, cell.seconds
        buckets[bisect_left(BOUNDS, seconds)] += 1  # as `_observe`, which would be a call for each turn
        buckets[-1] += seconds
        if not upstream:
            return
        calls = event.calls
        cell.calls += calls
        if calls > 1:
            cell.extra += calls - 1
        cell.read += event.input_tokens
        cell.written += event.output_tokens
        cell.cost += event.cost_usd
        verdicts = cell.verdicts
        for attempt in event.attempts:
            verdict = attempt.verdict
            verdicts[verdict] = verdicts.get(verdict, 0) + 1
            seconds, buckets = attempt.seconds, cell.attempts
            buckets[bisect_left(BOUNDS, seconds)] += 1
            buckets[-1] += seconds
            if attempt.first_byte:
                _observe(cell.first, attempt.first_byte)
        if event.held is not None:
            _observe(cell.held, event.held)
        if event.adaptations:
            for entry in event.adaptations:
                if entry.kind in REPAIRS:
                    self.add("repairs", upstream, str(entry.kind))


def _empty() -> list[float]:
    return [0.0] * (len(BOUNDS) + 2)


def _observe(buckets: list[float], seconds: float) -> None:
    buckets[bisect_left(BOUNDS, seconds)] += 1
    buckets[-1] += seconds


def _spread(key: _Kind, cell: _Cell, added: dict[Key, float], observed: dict[Key, list[float]]) -> None:
    """Add what turns of one kind came to to the families."""
    route, status, error, upstream, model, outcome, force = key

    def add(by: float, *labels: str) -> None:
        added[labels] = added.get(labels, 0) + by

    def observe(seen: list[float], *labels: str) -> None:
        if any(seen[:-1]):
            known = observed.get(labels)
            observed[labels] = seen if known is None else [one + more for one, more in zip(known, seen, strict=True)]

    add(cell.turns, "requests", route, str(status) if status else "gone")
    observe(cell.seconds, "request_duration", route)
    if error:
        add(cell.turns, "errors", error)
    if not upstream:
        return
    add(cell.turns, "turns", upstream, model, outcome)
    if force != "none":
        add(cell.turns, "forced_turns", upstream, model, force)
    for verdict, count in cell.verdicts.items():
        add(count, "attempts", upstream, model, verdict or "none")
    add(cell.calls, "upstream_calls", upstream, model)
    if cell.extra:
        add(cell.extra, "extra_calls", upstream, model)
    add(cell.read, "tokens", upstream, model, "input")
    add(cell.written, "tokens", upstream, model, "output")
    if cell.cost:
        add(cell.cost, "cost_usd", upstream, model)
    observe(cell.attempts, "attempt_duration", upstream)
    observe(cell.first, "first_byte", upstream)
    observe(cell.held, "held", upstream)
