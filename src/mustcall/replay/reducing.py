"""The search for a smaller candidate that still fails: pure, so that it can be tested without an upstream.

Everything is a generator that yields a candidate for each upstream call it wants, and is sent the verdict. A candidate
counts if `NEEDED` of at most `TRIALS` calls bring the verdict that is looked for; asking stops as soon as that is
decided. One that brought it, but too rarely, is tried once more: a failure that comes and goes is missed less often.
No more calls are asked for than the budget has, those of the last confirmation included.

The search keeps what is needed by bisection: the shortest prefix that fails ends with something needed. For an oracle
that is deterministic and monotone (what fails, fails with more in it too) the result is 1-minimal, with about
k · log2(n) candidates for k needed units of n.
"""

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Generic, TypeVar

import msgspec

__all__ = ["CONFIRMED", "CONFIRMING", "LEAST_CALLS", "NEEDED", "TRIALS", "Budget", "Found", "Phase", "Reducer", "Spent"]

K = TypeVar("K")

#: A candidate counts if so many of so many calls bring the verdict.
NEEDED, TRIALS = 3, 5
#: The result is asked for so often, and is confirmed if so many bring the verdict.
CONFIRMED, CONFIRMING = 8, 10
#: So many rounds of trials the original gets as long as it fails at all.
_ORIGINAL = 3
#: The fewest calls a search can be made with: the original, one candidate, the confirmation.
LEAST_CALLS = _ORIGINAL * TRIALS + NEEDED + CONFIRMING
#: How often the structure is gone through again while it still gets smaller.
_MOST_ROUNDS = 6


class Spent(Exception):
    """The calls of the search are used up."""


class Budget:
    """Counts calls. `kept` of them are for the confirmation."""

    def __init__(self, most: int, kept: int = CONFIRMING) -> None:
        self.most = most
        self.kept = kept
        self.made = 0

    def take(self) -> None:
        """Count one call of the search; raise `Spent` if there is none left."""
        if self.made >= self.most - self.kept:
            raise Spent
        self.made += 1

    def take_kept(self) -> bool:
        """Count one call of the confirmation; tell whether there was one left."""
        if self.made >= self.most:
            return False
        self.made += 1
        return True


class Phase(msgspec.Struct, Generic[K], frozen=True):
    """One way to make candidates smaller: how many units one has, and what is left of it if only some are kept.

    `keep` returns None for what is no request any more. `again` says that the phase is worth repeating once others
    have made the candidate smaller.
    """

    name: str
    count: Callable[[K], int]
    keep: Callable[[K, Sequence[int]], K | None]
    again: bool = False


class Found(msgspec.Struct, Generic[K], frozen=True, kw_only=True):
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
        self.budget = Budget(most_calls)
        self.candidates = 0
        self.best: K | None = None
        self.verdict = wanted
        self.original = (0, 0)
        self._healthy = healthy
        #: Whether one and the same candidate was seen to fail and not to fail.
        self._wavers = False

    def run(
        self, start: K, phases: Sequence[Phase[K]], *, finish: Callable[[K], K] | None = None
    ) -> Generator[K, str, Found[K]]:
        """Search and confirm; `finish` makes what is written of the result, and that is what is confirmed."""
        if not (yield from self._original(start)):
            return self._found(start, (0, 0), spent=False)
        self.best = start
        spent = False
        try:
            yield from self._search(phases)
        except Spent:
            spent = True
        result = self.best if finish is None else finish(self.best)
        hits = asked = 0
        while asked < CONFIRMING and self.budget.take_kept():
            asked += 1
            hits += (yield result) == self.verdict
        return self._found(result, (hits, asked), spent=spent)

    def _found(self, result: K, confirmed: tuple[int, int], *, spent: bool) -> Found[K]:
        return Found(
            result=result,
            verdict=self.verdict if self.best is not None else "",
            original=self.original,
            confirmed=confirmed,
            calls=self.budget.made,
            candidates=self.candidates,
            spent=spent,
        )

    def _original(self, start: K) -> Generator[K, str, bool]:
        """Ask the original, again if it fails too rarely; tell whether it counts."""
        for _ in range(_ORIGINAL):
            if (yield from self._settle(start)):
                return True
            if not self.original[0]:
                return False
        return False

    def _settle(self, start: K) -> Generator[K, str, bool]:
        """Settle which verdict is looked for: the first bad one that comes often enough."""
        seen: Counter[str] = Counter()
        before = self.original
        for asked in range(1, TRIALS + 1):
            self.budget.take()
            verdict = yield start
            if verdict == self.verdict if self.verdict else not self._healthy(verdict):
                seen[verdict] += 1
            most = max(seen.values(), default=0)
            self.original = (before[0] + most, before[1] + asked)
            if most >= NEEDED:
                self.verdict = max(seen, key=lambda one: seen[one])
                return True
            if most + TRIALS - asked < NEEDED:
                return False
        return False

    def _search(self, phases: Sequence[Phase[K]]) -> Generator[K, str, None]:
        """Go through the phases; the structure again and again while it gets smaller, then the details."""
        repeated = [phase for phase in phases if phase.again]
        in_vain = 0
        for _ in range(_MOST_ROUNDS):
            smaller = False
            for phase in repeated:
                smaller = (yield from self._reduce(phase)) or smaller
            in_vain = 0 if smaller else in_vain + 1
            # What fails only now and then may have been thought needed by chance: it is looked at once more.
            if in_vain > self._wavers:
                break
        for phase in phases:
            if not phase.again:
                yield from self._reduce(phase)

    def _reduce(self, phase: Phase[K]) -> Generator[K, str, bool]:
        """Make the best candidate smaller by one phase; tell whether that went."""
        start = self.best
        assert start is not None, "the original failed"
        before = phase.count(start)
        needed: list[int] = []
        pool = list(range(before))

        def counts(kept: Sequence[int]) -> Generator[K, str, bool]:
            candidate = phase.keep(start, sorted(kept))
            if candidate is None:
                return False
            if not (yield from self._counts(candidate)):
                return False
            self.best = candidate
            return True

        while pool:
            if (yield from counts(needed)):
                pool = []
                break
            low, high = 0, len(pool)
            while high - low > 1:
                middle = (low + high) // 2
                if (yield from counts([*needed, *pool[:middle]])):
                    high = middle
                else:
                    low = middle
            needed.append(pool[high - 1])
            pool = pool[: high - 1]
        return len(needed) < before

    def _counts(self, candidate: K) -> Generator[K, str, bool]:
        self.candidates += 1
        hits = yield from self._trial(candidate)
        if 0 < hits < NEEDED:
            hits = yield from self._trial(candidate)
        return hits >= NEEDED

    def _trial(self, candidate: K) -> Generator[K, str, int]:
        """Ask until it is decided whether a candidate counts; return how often it brought the verdict."""
        hits = asked = 0
        for asked in range(1, TRIALS + 1):
            self.budget.take()
            hits += (yield candidate) == self.verdict
            if hits >= NEEDED or hits + TRIALS - asked < NEEDED:
                break
        self._wavers = self._wavers or 0 < hits < asked
        return hits
