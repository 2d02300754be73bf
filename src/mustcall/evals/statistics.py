"""Shares and tests: Wilson's interval of a rate, McNemar's exact test of two paired ones. Pure."""

import math
from collections.abc import Sequence

from mustcall.core.shares import Share, share_of, wilson

__all__ = ["Share", "mcnemar", "quantile", "share_of", "wilson"]


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the exact two-sided p of two paired shares: the chance of a split as uneven, were both equally good."""
    of, fewer = only_first + only_second, min(only_first, only_second)
    below = sum(math.comb(of, count) for count in range(fewer + 1))
    return min(1.0, 2 * below / 2**of)


def quantile(values: Sequence[float], part: float) -> float:
    """Return the smallest value that so large a part of them does not exceed (nearest rank); 0 of nothing is 0."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)] if values else 0.0
