"""When enough calls were made to say that a candidate has the failure: a sequential probability ratio test. Pure.

The test compares two rates. A candidate that still has the cause fails as often as those that were seen to have it. One
that has lost it fails at the rate of noise. Each call moves the log of the ratio of both likelihoods; the first bound
that is passed decides. One failure is enough to see the cause. To say that it is gone takes three calls for a failure
that always comes, and six for one that comes six times of ten.

Noise is assumed to be rare until a smaller request that was found by it is seen not to fail reliably.
"""

import math

import msgspec

__all__ = ["Evidence", "Tally", "is_noise"]

#: Chance of taking a candidate without the cause for one with it. What was taken is tested again.
_WRONGLY_KEPT = 0.05
#: Chance of missing a candidate with the cause. What was missed costs a unit too many, and a round to find it.
_WRONGLY_DROPPED = 0.008
#: The rate at which candidates without the cause fail, and its share of the failure's own rate where there is noise.
_RARE, _NOISY = 0.02, 0.25
#: The rates that are assumed of the failure: a request that fails more rarely does not count.
_LEAST, _MOST = 0.6, 0.95
#: So many calls the assumption weighs against those that were seen.
_PRIOR = 5


class Tally(msgspec.Struct):
    """Calls of one candidate: those that failed in the way that is looked for, and the others."""

    hits: int = 0
    misses: int = 0

    def add(self, *, hit: bool) -> None:
        """Count one call."""
        if hit:
            self.hits += 1
        else:
            self.misses += 1

    def __add__(self, other: "Tally") -> "Tally":
        """Return both together."""
        return Tally(self.hits + other.hits, self.misses + other.misses)


class Evidence:
    """The rate at which the failure comes, as seen so far, and what it says about a candidate."""

    def __init__(self) -> None:
        self.seen = Tally()

    def learn(self, tally: Tally) -> None:
        """Add the calls of a request that was found to have the failure."""
        self.seen += tally

    @property
    def rate(self) -> float:
        """The rate at which a request with the cause fails; before anything was seen, that of one that just counts."""
        seen = self.seen
        return min(_MOST, max(_LEAST, (seen.hits + _LEAST * _PRIOR) / (seen.hits + seen.misses + _PRIOR)))

    def says(self, tally: Tally, *, noisy: bool) -> bool | None:
        """Return whether a candidate with these calls has the failure; None while more calls are needed."""
        return _decided(tally, self.rate, self.rate * _NOISY if noisy else _RARE)


def is_noise(tally: Tally) -> bool:
    """Whether these calls are too few failures even for a request that just counts."""
    return _decided(tally, _LEAST, _LEAST * _NOISY) is False


def _decided(tally: Tally, rate: float, noise: float) -> bool | None:
    ratio = tally.hits * math.log(rate / noise) + tally.misses * math.log((1 - rate) / (1 - noise))
    if ratio >= math.log((1 - _WRONGLY_DROPPED) / _WRONGLY_KEPT):
        return True
    return False if ratio <= math.log(_WRONGLY_DROPPED / (1 - _WRONGLY_KEPT)) else None
