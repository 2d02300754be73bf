"""Shares and tests: Wilson's interval of a rate, McNemar's exact test of two paired ones. Pure."""

import math
from collections.abc import Sequence

import msgspec

__all__ = ["Share", "mcnemar", "quantile", "share_of", "wilson"]

#: The two-sided 95 % point of the normal distribution.
_Z = 1.959963984540054


def wilson(hits: int, of: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share: honest for few trials and at 0 and 100 %."""
    if of == 0:
        return 0.0, 1.0
    rate, square = hits / of, _Z * _Z
    middle = (rate + square / (2 * of)) / (1 + square / of)
    reach = _Z / (1 + square / of) * math.sqrt(rate * (1 - rate) / of + square / (4 * of * of))
    # At the ends the interval ends there, too; rounding must not say otherwise.
    return (0.0 if hits == 0 else middle - reach), (1.0 if hits == of else middle + reach)


class Share(msgspec.Struct, frozen=True):
    """So many of so many, with the 95 % interval of the rate behind them."""

    hits: int
    of: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        """The share as a number from 0 to 1; 0 of nothing is 0."""
        return self.hits / self.of if self.of else 0.0


def share_of(hits: int, of: int) -> Share:
    """Return a share with its interval."""
    return Share(hits, of, *wilson(hits, of))


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the exact two-sided p of two paired shares: the chance of a split as uneven, were both equally good."""
    of, fewer = only_first + only_second, min(only_first, only_second)
    below = sum(math.comb(of, count) for count in range(fewer + 1))
    return min(1.0, 2 * below / 2**of)


def quantile(values: Sequence[float], part: float) -> float:
    """Return the smallest value that so large a part of them does not exceed (nearest rank); 0 of nothing is 0."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)] if values else 0.0
