"""The calculator: exact, bounded, and never anything but arithmetic."""

import ast
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import ToolError
from mustcall.toolkit.builtin.arithmetic import LONGEST, compute
from mustcall.toolkit.builtin.numbers import Number, show_number


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("2 + 3 * 4", "14"),
        ("(2 + 3) * 4", "20"),
        ("0.1 + 0.2", "0.3"),
        ("1/3", "0.333333333333333"),
        ("-2**2", "-4"),
        ("2**-1", "0.5"),
        ("2^3^2", "512"),
        ("7 // 2", "3"),
        ("-7 % 3", "2"),
        ("15% of 80", "12"),
        ("50%", "0.5"),
        ("5!", "120"),
        ("\u221a16", "4"),
        ("3 \u00d7 4 \u00f7 2 \u2212 1", "5"),
        ("sqrt(2)", "1.4142135623731"),
        ("round(2.675, 2)", "2.68"),
        ("round(1234, -2)", "1200"),
        ("log(8, 2)", "3"),
        ("max(1, 2.5, 2)", "2.5"),
        ("mean(1, 2, 3, 4)", "2.5"),
        ("cos(0) + sin(0)", "1"),
        ("1e3 + .5 + 2.", "1002.5"),
        ("2**200", str(2**200)),
        ("0.5**4000", "7.58607870346738e-1205"),
        ("1**99999999999999", "1"),
        ("(-1)**99999999999999", "-1"),
        ("PI - pi", "0"),
    ],
)
def test_values(expression: str, shown: str) -> None:
    """What people and models write comes to what it should."""
    assert show_number(compute(expression)) == shown


@pytest.mark.parametrize(
    ("expression", "word"),
    [
        ("", "empty"),
        ("2 +", "ends too early"),
        ("(1", "ends too early"),
        ("2 3", "operator"),
        (")", "not expected"),
        ("1,000", "comma"),
        ("1/0", "zero"),
        ("5 % 0", "zero"),
        ("0**-1", "zero"),
        ("sqrt(-1)", "square root"),
        ("(-8)**0.5", "negative"),
        ("log(0)", "logarithm"),
        ("asin(2)", "asin"),
        ("sqrt", "brackets"),
        ("sqrt(1, 2)", "takes 1"),
        ("max()", "takes 1 to"),
        ("nope(1)", "nope"),
        ("__import__('os')", "not part of arithmetic"),
        ("().__class__", "not part of arithmetic"),
        ("9**9**9", "out of range"),
        ("9**9**9**9", "out of range"),
        ("(10**1000)**(10**1000)", "out of range"),
        ("1e99999999", "out of range"),
        ("exp(1000)", "out of range"),
        ("1e300*1e300*pi", "out of range"),
        ("999999999!", "factorial"),
        ("3.5!", "factorial"),
        ("400!!", "factorial"),
        ("round(1, 1e6)", "digits"),
        ("1" * (LONGEST + 1), "characters"),
        ("(" * 60 + "1" + ")" * 60, "nests"),
        ("2**" * 80 + "1", "nests"),
        ("\u221a" * 80 + "1", "nests"),
    ],
)
def test_what_cannot_be_computed_is_said(expression: str, word: str) -> None:
    """Nonsense, code and numbers beyond bearing are refused with a sentence, at once."""
    with pytest.raises(ToolError, match=word):
        compute(expression)


def reference(expression: str) -> Fraction:
    """Python's own reading of the expression, over fractions."""

    def value(node: ast.expr) -> Fraction:
        match node:
            case ast.Constant(value=int() as number):
                return Fraction(number)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.BinOp(left=left, op=sign, right=right):
                return combine(sign, value(left), value(right))
            case _:
                raise AssertionError(ast.dump(node))

    return value(ast.parse(expression, mode="eval").body)


def combine(sign: ast.operator, left: Fraction, right: Fraction) -> Fraction:
    """Python's own meaning of an operator."""
    match sign:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            return left / right
        case ast.FloorDiv():
            return Fraction(left // right)
        case ast.Mod():
            return left % right
        case _:
            raise AssertionError(sign)


EXPRESSIONS = st.recursive(
    st.integers(0, 999).map(str),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//"]), inner).map("".join),
        st.tuples(inner, inner).map("{0[0]} % ({0[1]})".format),
        inner.map("({})".format),
        inner.map("-{}".format),
    ),
    max_leaves=25,
)


def outcome(expression: str) -> Number | str:
    """The value, or the sentence that says why there is none."""
    try:
        return compute(expression)
    except ToolError as fault:
        return fault.message


@given(EXPRESSIONS)
def test_reads_as_python_does(expression: str) -> None:
    """Precedence, brackets and signs mean what they mean in Python, to the last digit."""
    found = outcome(expression)
    try:
        expected = reference(expression)
    except ZeroDivisionError:
        assert isinstance(found, str)
        return
    beyond = isinstance(found, str) and any(word in found for word in ("out of range", "nests", "characters"))
    assert beyond or found == expected


@given(st.text(st.sampled_from("0123456789.+-*/%^!(), eqrtsin\u221a\u00d7"), max_size=200))
def test_any_text_is_a_number_or_a_fault(text: str) -> None:
    """Whatever is written, the answer is a number of bearable size or a `ToolError`: nothing else, and at once."""
    found = outcome(text)
    assert len(found if isinstance(found, str) else show_number(found)) < 1400


@given(st.text(max_size=60))
def test_no_text_escapes(text: str) -> None:
    """Any text at all, too."""
    assert outcome(text) != ""


@given(st.fractions(-(10**12), 10**12, max_denominator=10**6))
def test_shown_numbers_are_close(value: Fraction) -> None:
    """What is shown is the value, to 15 digits."""
    assert abs(Fraction(show_number(value)) - value) <= abs(value) / 10**14
