"""Values of sums, written as expressions: how tightly each binds, and brackets where they are needed."""

from typing import NamedTuple

__all__ = ["SumValue", "bracketed", "joined", "percent_of", "powered"]


class SumValue(NamedTuple):
    """A piece of an expression. `level`: 0 a sum, 1 a product, 2 a power, 3 whole by itself."""

    text: str
    level: int = 3
    #: Whether something is computed in it.
    computes: bool = False
    #: Whether `of` may follow: a percentage or a fraction.
    share: bool = False


def bracketed(value: SumValue, level: int) -> str:
    """Return a piece as an operand that binds at least this strongly."""
    return value.text if value.level >= level else f"({value.text})"


def joined(values: list[SumValue], sign: str, level: int) -> SumValue:
    """Return values joined by an operator; what stands behind the first binds more strongly than it."""
    if len(values) == 1:
        return values[0]
    first, *others = values
    texts = [bracketed(first, level), *(bracketed(value, level + 1) for value in others)]
    return SumValue(sign.join(texts), level, computes=True)


def powered(base: SumValue, power: SumValue) -> SumValue:
    """Return a power."""
    return SumValue(f"{bracketed(base, 3)} ** {bracketed(power, 2)}", 2, computes=True)


def percent_of(part: SumValue, whole: SumValue) -> SumValue:
    """Return what percentage of a whole a part is."""
    return SumValue(f"{bracketed(part, 1)} / {bracketed(whole, 2)} * 100", 1, computes=True)
