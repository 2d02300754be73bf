"""The search for a smaller candidate that still fails: pure, so that it can be tested without an upstream.

Everything is a generator that yields a candidate for each upstream call it wants, and is sent the verdict. Inside a
phase a sequential test (`evidence.py`) decides with as few calls as the rate of the failure allows. What a phase ends
with counts only if `NEEDED` of `TRIALS` calls in a row bring the verdict that is looked for; if it does not, the phase
is done again from the last request that counted, with a test that expects noise. No more calls are asked for than the
budget has, those of the last confirmation included.

The search keeps what is needed by bisection: the shortest prefix that fails ends with something needed. For an oracle
that is deterministic and monotone (what fails, fails with more in it too) the result is 1-minimal, with about
k · log2(n) candidates for k needed units of n.
"""

from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from typing import Generic, TypeVar

import msgspec

from mustcall.replay.evidence import Evidence, Tally, is_noise

__all__ = [
    "CONFIRMED",
    "CONFIRMING",
    "LEAST_CALLS",
    "NEEDED",
    "TRIALS",
    "CallBudget",
    "FoundReduction",
    "Reducer",
    "ReductionPhase",
    "Spent",
]

K = TypeVar("K")

#: A request counts if so many of so many calls in a row bring the verdict.
NEEDED, TRIALS = 3, 5
#: The result is asked for so often, and is confirmed if so many bring the verdict.
CONFIRMED, CONFIRMING = 8, 10
#: So many calls are made for that if the first `TRIALS` bring the verdict at all.
_MOST_TRIALS = 3 * TRIALS
#: The fewest calls a search can be made with: the original, one candidate and its trials, the confirmation.
LEAST_CALLS = _MOST_TRIALS + 1 + TRIALS + CONFIRMING
#: How often the structure is gone through again while it still gets smaller.
_MOST_ROUNDS = 6
#: How often a phase is begun again after it was led astray by a failure that came by chance.
_MOST_PASSES = 3


class Spent(Exception):
    """The calls of the search are used up."""


class CallBudget:
    """Counts calls. Some of them are kept: for the trials of the last candidate, and for the confirmation."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.made = 0

    def take(self, *, kept: int) -> None:
        """Count one call; raise `Spent` if no more than those that are kept are left."""
        if self.made >= self.most - kept:
            raise Spent
        self.made += 1


class ReductionPhase(msgspec.Struct, Generic[K], frozen=True):
    """One way to make candidates smaller: how many units one has, and what is left of it if only some are kept.

    `keep` returns None for what is no request any more. `again` says that the phase is worth repeating once others
    have made the candidate smaller.
    """

    name: str
    count: Callable[[K], int]
    keep: Callable[[K, Sequence[int]], K | None]
    again: bool = False


class FoundReduction(msgspec.Struct, Generic[K], frozen=True, kw_only=True):
    """What a search found. `verdict` is empty where the original did not fail.

    `original` is how many of so many calls the original failed in; `confirmed` is the same of the result. `spent` says
    that the search stopped at its budget.
    """

    result: K
    verdict: str
    original: tuple[int, int]
    confirmed: tuple[int, int] = (0, 0)
    calls: int = 0
    candidates: int = 0
    spent: bool = False

    @property
    def is_confirmed(self) -> bool:
        """Whether the result fails reliably."""
        return self.confirmed[0] >= CONFIRMED


class Reducer(Generic[K]):
    """Finds a smaller candidate. `best` is the smallest that counted so far: what is left if asking is stopped."""

    def __init__(self, most_calls: int, healthy: Callable[[str], bool], *, wanted: str = "") -> None:
        self.budget = CallBudget(most_calls)
        self.candidates = 0
        self.best: K | None = None
        self.verdict = wanted
        self.original = (0, 0)
        self._healthy = healthy
        self._evidence = Evidence()
        #: Whether a candidate failed that turned out not to fail reliably.
        self._noisy = False
        #: The smallest candidate of the phase at work and the calls it was found with, until its trials are made.
        self._smaller: tuple[K, Tally] | None = None

    def run(
        self, start: K, phases: Sequence[ReductionPhase[K]], *, finish: Callable[[K], K] | None = None
    ) -> Generator[K, str, FoundReduction[K]]:
        """Search and confirm; `finish` makes what is written of the result, and that is what is confirmed."""
        if not (yield from self._original(start)):
            return self._found(start, (0, 0), spent=False)
        self.best = start
        spent = False
        try:
            yield from self._search(phases)
        except Spent:
            spent = True
            yield from self._last_trials()
        result = self.best if finish is None else finish(self.best)
        hits = 0
        for _ in range(CONFIRMING):
            self.budget.take(kept=0)
            hits += (yield result) == self.verdict
        return self._found(result, (hits, CONFIRMING), spent=spent)

    def _found(self, result: K, confirmed: tuple[int, int], *, spent: bool) -> FoundReduction[K]:
        return FoundReduction(
            result=result,
            verdict=self.verdict if self.best is not None else "",
            original=self.original,
            confirmed=confirmed,
            calls=self.budget.made,
            candidates=self.candidates,
            spent=spent,
        )

    def _original(self, start: K) -> Generator[K, str, bool]:
        """Settle which verdict is looked for: the first bad one that comes often enough; tell whether there is one."""
        if (verdict := (yield from self._trials(start, Tally(), kept=CONFIRMING))) is None:
            return False
        self.verdict = verdict
        return True

    def _search(self, phases: Sequence[ReductionPhase[K]]) -> Generator[K, str, None]:
        """Go through the phases; the structure again and again while it gets smaller, then the details."""
        repeated = [phase for phase in phases if phase.again]
        in_vain = 0
        for _ in range(_MOST_ROUNDS):
            smaller = False
            for phase in repeated:
                smaller = (yield from self._reduce(phase)) or smaller
            in_vain = 0 if smaller else in_vain + 1
            # What fails only now and then may have been thought needed by chance: it is looked at once more.
            if in_vain > bool(self._evidence.seen.misses):
                break
        for phase in phases:
            if not phase.again:
                yield from self._reduce(phase)

    def _reduce(self, phase: ReductionPhase[K]) -> Generator[K, str, bool]:
        """Make the best candidate smaller by one phase; tell whether that went."""
        seen: dict[tuple[int, ...], Tally] = {}
        for _ in range(_MOST_PASSES):
            consistent = yield from self._bisect(phase, seen)
            if self._smaller is None:
                return False
            candidate, tally = self._smaller
            if consistent and (yield from self._trials(candidate, tally, kept=TRIALS + CONFIRMING)) is not None:
                self.best, self._smaller = candidate, None
                return True
            self._smaller = None
            self._noisy = True
        return False

    def _bisect(self, phase: ReductionPhase[K], seen: dict[tuple[int, ...], Tally]) -> Generator[K, str, bool]:
        """Find what of the best candidate is needed; leave the smallest one that failed in `_smaller`.

        `seen` has the calls of each candidate by the units that are kept: those of an earlier pass count again. Tell
        whether it went well: one that failed by chance leads to units of which each seems to be needed.
        """
        start = self.best
        assert start is not None, "the original failed"
        needed: list[int] = []
        pool = list(range(phase.count(start)))

        def fails(units: Sequence[int]) -> Generator[K, str, bool]:
            kept = tuple(sorted(units))
            candidate = phase.keep(start, kept)
            if candidate is None:
                return False
            tally = seen.setdefault(kept, Tally())
            if not (yield from self._fails(candidate, tally)):
                return False
            self._smaller = candidate, tally
            return True

        while pool:
            if (yield from fails(needed)):
                return True
            if self._smaller is not None and not (yield from self._holds(*self._smaller)):
                return False
            low, high = 0, len(pool)
            while high - low > 1:
                middle = (low + high) // 2
                if (yield from fails([*needed, *pool[:middle]])):
                    high = middle
                else:
                    low = middle
            needed.append(pool[high - 1])
            pool = pool[: high - 1]
        return True

    def _fails(self, candidate: K, tally: Tally) -> Generator[K, str, bool]:
        """Ask until the evidence decides whether a candidate has the failure."""
        self.candidates += 1
        fails = yield from self._decide(candidate, tally, noisy=self._noisy)
        if fails:
            self._evidence.learn(tally)
        return fails

    def _holds(self, candidate: K, tally: Tally) -> Generator[K, str, bool]:
        """Ask again for one that failed: whether that was more than chance."""
        return (yield from self._decide(candidate, tally, noisy=True))

    def _decide(self, candidate: K, tally: Tally, *, noisy: bool) -> Generator[K, str, bool]:
        while (decided := self._evidence.says(tally, noisy=noisy)) is None:
            self.budget.take(kept=TRIALS + CONFIRMING)
            tally.add(hit=(yield candidate) == self.verdict)
        return decided

    def _trials(
        self, candidate: K, tally: Tally, *, kept: int, most: int = _MOST_TRIALS
    ) -> Generator[K, str, str | None]:
        """Ask until it is decided whether a request counts; return the verdict it counts with.

        `tally` has the calls it was found with. They do not make it count, but may be a reason to go on asking.
        """
        window: deque[str] = deque(maxlen=TRIALS)
        seen: Counter[str] = Counter()
        for asked in range(1, most + 1):
            self.budget.take(kept=kept)
            verdict = yield candidate
            bad = verdict == self.verdict if self.verdict else not self._healthy(verdict)
            window.append(verdict if bad else "")
            seen[verdict] += bad
            hits = max(seen.values())
            own = Tally(hits, asked - hits)
            if self.best is None:
                self.original = (hits, asked)
            if bad and window.count(verdict) >= NEEDED:
                self._evidence.learn(own)
                return verdict
            if is_noise(own + tally):
                break
        return None

    def _last_trials(self) -> Generator[K, str, None]:
        """Keep what the phase at work had found when the calls were used up, if it counts."""
        if self._smaller is None:
            return
        candidate, tally = self._smaller
        if (yield from self._trials(candidate, tally, kept=CONFIRMING, most=TRIALS)) is not None:
            self.best = candidate
