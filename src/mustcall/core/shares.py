"""A share of so many trials, with Wilson's interval of the rate behind it. Pure."""

import math

import msgspec

__all__ = ["Share", "share_of", "wilson"]

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
