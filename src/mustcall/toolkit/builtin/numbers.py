"""Numbers as the calculator knows them: exact fractions where possible, floats where not, bounded either way.

Every operation checks its size before it is done: a number has at most 4,096 bits on either side of its fraction bar.
What has no value, or none of bearable size, is a `ToolError`. How an expression is read is decided by `arithmetic`.
"""

import math
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Final, NamedTuple, NoReturn

from mustcall.core.errors import ToolError

__all__ = [
    "CONSTANTS",
    "FUNCTIONS",
    "MathFunction",
    "Number",
    "apply_operator",
    "bounded",
    "read_number",
    "show_number",
]

_MOST_BITS: Final = 4096
_MOST_ARGUMENTS: Final = 100
_LARGEST_FACTORIAL: Final = 400
_SIGNIFICANT: Final = 15

Number = Fraction | float

CONSTANTS: Mapping[str, float] = MappingProxyType({"pi": math.pi, "e": math.e, "tau": math.tau})


def show_number(value: Number) -> str:
    """Write a number for people: exact where its digits end soon, to 15 significant digits otherwise."""
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) < 10**_SIGNIFICANT
        return str(int(value)) if whole else f"{value:.{_SIGNIFICANT}g}"
    if value.denominator == 1:
        return str(value.numerator)
    digits = _decimal_digits(value.denominator)
    if digits is not None and digits <= _SIGNIFICANT:
        sign = "-" if value < 0 else ""
        whole, rest = divmod(abs(value.numerator) * 10**digits // value.denominator, 10**digits)
        return f"{sign}{whole}.{rest:0{digits}d}"
    context = Context(prec=_SIGNIFICANT)
    rounded = context.divide(Decimal(value.numerator), Decimal(value.denominator))
    return f"{rounded:.{_SIGNIFICANT}g}"


def _decimal_digits(denominator: int) -> int | None:
    """Return how many decimal digits 1/denominator has; None if they never end."""
    twos = fives = 0
    while denominator % 2 == 0:
        denominator, twos = denominator // 2, twos + 1
    while denominator % 5 == 0:
        denominator, fives = denominator // 5, fives + 1
    return max(twos, fives) if denominator == 1 else None


# --- bounded arithmetic ---------------------------------------------------------------------------------------------


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def bounded(value: Number) -> Number:
    """Return a result if it is a number of bearable size."""
    if isinstance(value, Fraction):
        if _bits(value) > _MOST_BITS:
            _too_large()
        return value
    if math.isnan(value) or math.isinf(value):
        _too_large()
    return value


def _too_large() -> NoReturn:
    raise ToolError(f"the result is out of range: numbers of more than {_MOST_BITS} bits are not computed")


def _add(left: Number, right: Number) -> Number:
    return left + right


def _subtract(left: Number, right: Number) -> Number:
    return left - right


def _multiply(left: Number, right: Number) -> Number:
    return left * right


def _divide(left: Number, right: Number) -> Number:
    return left / _divisor(right)


def _floor_divide(left: Number, right: Number) -> Number:
    return Fraction(math.floor(left / _divisor(right)))


def _modulo(left: Number, right: Number) -> Number:
    return left % _divisor(right)


def _divisor(value: Number) -> Number:
    if value == 0:
        raise ToolError("division by zero has no value")
    return value


def _power(base: Number, exponent: Number) -> Number:
    if base == 0 and exponent < 0:
        raise ToolError("division by zero has no value")
    if isinstance(exponent, Fraction) and exponent.denominator == 1:
        times = abs(exponent.numerator)
        if isinstance(base, Fraction):
            if abs(base) in (0, 1):
                times = min(times, 2 + times % 2)
            elif (_bits(base) - 1) * times > _MOST_BITS:
                _too_large()
            raised = base**times
            return raised if exponent >= 0 else 1 / raised
        return base ** int(math.copysign(times, exponent)) if times < 2**31 else base ** float(exponent)
    if base < 0:
        raise ToolError("a negative number has no real power with a fraction as exponent")
    return float(base) ** float(exponent)


_BINARY: Mapping[str, Callable[[Number, Number], Number]] = MappingProxyType(
    {
        "+": _add,
        "-": _subtract,
        "*": _multiply,
        "/": _divide,
        "//": _floor_divide,
        "%": _modulo,
        "**": _power,
    }
)


def apply_operator(operator: str, left: Number, right: Number) -> Number:
    """Return what an operator makes of two numbers, of bearable size."""
    try:
        return bounded(_BINARY[operator](left, right))
    except OverflowError:
        _too_large()


# --- functions ------------------------------------------------------------------------------------------------------


def _square_root(value: Number) -> Number:
    if value < 0:
        raise ToolError("a negative number has no real square root")
    if isinstance(value, Fraction):
        top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
        if top * top == value.numerator and bottom * bottom == value.denominator:
            return Fraction(top, bottom)
    return math.sqrt(value)


def _cube_root(value: Number) -> Number:
    root = math.cbrt(value)
    whole = Fraction(round(root))
    return whole if whole**3 == value else root


def _factorial(value: Number) -> Number:
    if value < 0 or value != int(value) or value > _LARGEST_FACTORIAL:
        raise ToolError(f"a factorial needs a whole number from 0 to {_LARGEST_FACTORIAL}, got {show_number(value)}")
    return Fraction(math.factorial(int(value)))


def _logarithm(value: Number, base: Number | None = None) -> Number:
    if value <= 0 or (base is not None and (base <= 0 or base == 1)):
        raise ToolError("a logarithm needs a number above 0, and a base above 0 that is not 1")
    natural = _natural(value)
    return natural if base is None else natural / _natural(base)


def _logarithm_to(base: int) -> Callable[[Number], Number]:
    def apply(value: Number) -> Number:
        return _logarithm(value, Fraction(base))

    return apply


def _absolute(value: Number) -> Number:
    return abs(value)


def _natural(value: Number) -> float:
    """Return the natural logarithm, also of what no float can hold."""
    if isinstance(value, Fraction):
        return math.log(value.numerator) - math.log(value.denominator)
    return math.log(value)


def _round(value: Number, digits: Number = Fraction(0)) -> Number:
    if digits != int(digits) or abs(digits) > 100:
        raise ToolError(f"round needs a whole number of digits up to 100, got {show_number(digits)}")
    places = int(digits)
    if places <= 0:
        return Fraction(round(Fraction(value), places))
    return round(Fraction(value), places)


def _whole(name: str) -> Callable[[Number], Number]:
    rounders: dict[str, Callable[[Number], int]] = {"floor": math.floor, "ceil": math.ceil, "trunc": math.trunc}
    return lambda value: Fraction(rounders[name](value))


def _real(function: Callable[[float], float]) -> Callable[[Number], Number]:
    """Return a function of the mathematics library as one of numbers."""

    def apply(value: Number) -> Number:
        try:
            return function(float(value))
        except ValueError:
            raise ToolError(f"{function.__name__} has no value at {show_number(value)}") from None

    return apply


def _largest(*values: Number) -> Number:
    return max(values)


def _smallest(*values: Number) -> Number:
    return min(values)


def _sum(*values: Number) -> Number:
    total: Number = Fraction(0)
    for value in values:
        total = bounded(total + value)
    return total


def _mean(*values: Number) -> Number:
    return _sum(*values) / len(values)


class MathFunction(NamedTuple):
    """A function and how many arguments it takes."""

    run: Callable[..., Number]
    least: int = 1
    most: int = 1

    def apply(self, arguments: list[Number]) -> Number:
        """Return the function's value, of bearable size."""
        try:
            return bounded(self.run(*arguments))
        except OverflowError:
            _too_large()


FUNCTIONS: Mapping[str, MathFunction] = MappingProxyType(
    {
        "sqrt": MathFunction(_square_root),
        "cbrt": MathFunction(_cube_root),
        "abs": MathFunction(_absolute),
        "round": MathFunction(_round, 1, 2),
        "floor": MathFunction(_whole("floor")),
        "ceil": MathFunction(_whole("ceil")),
        "trunc": MathFunction(_whole("trunc")),
        "factorial": MathFunction(_factorial),
        "pow": MathFunction(_power, 2, 2),
        "mod": MathFunction(_modulo, 2, 2),
        "min": MathFunction(_smallest, 1, _MOST_ARGUMENTS),
        "max": MathFunction(_largest, 1, _MOST_ARGUMENTS),
        "sum": MathFunction(_sum, 1, _MOST_ARGUMENTS),
        "mean": MathFunction(_mean, 1, _MOST_ARGUMENTS),
        "log": MathFunction(_logarithm, 1, 2),
        "ln": MathFunction(_logarithm),
        "log10": MathFunction(_logarithm_to(10)),
        "log2": MathFunction(_logarithm_to(2)),
        "exp": MathFunction(_real(math.exp)),
        "sin": MathFunction(_real(math.sin)),
        "cos": MathFunction(_real(math.cos)),
        "tan": MathFunction(_real(math.tan)),
        "asin": MathFunction(_real(math.asin)),
        "acos": MathFunction(_real(math.acos)),
        "atan": MathFunction(_real(math.atan)),
        "radians": MathFunction(_real(math.radians)),
        "degrees": MathFunction(_real(math.degrees)),
    }
)


def read_number(text: str) -> Number:
    """Read a literal exactly, unless its exponent makes it too large to hold."""
    _, _, exponent = text.lower().partition("e")
    if exponent and (len(exponent) > 5 or abs(int(exponent)) > 1000):
        _too_large()
    return bounded(Fraction(text))
