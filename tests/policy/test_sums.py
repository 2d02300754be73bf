"""Sums that a message asks for: every way people put them, and nothing that only looks like one."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import ToolError
from mustcall.policy.words.numerals import Token, tokens_of
from mustcall.policy.words.sums import sums_in
from mustcall.toolkit.builtin.arithmetic import compute
from mustcall.toolkit.builtin.numbers import show_number


@pytest.mark.parametrize(
    ("message", "expression", "value"),
    [
        ("What is 17.5% of 3421?", "17.5% of 3421", "598.675"),
        ("square root of 144", "sqrt(144)", "12"),
        ("What\u2019s the square root of 144?", "sqrt(144)", "12"),
        ("what's 15 percent of 80", "15% of 80", "12"),
        ("add 17 and 25", "17 + 25", "42"),
        ("12 times 13", "12 * 13", "156"),
        ("half of 90", "90 / 2", "45"),
        ("2 to the power of 10", "2 ** 10", "1024"),
        ("what is 2 to the 10th power", "2 ** 10", "1024"),
        ("what is 2 raised to 10", "2 ** 10", "1024"),
        ("how much is 3/4 of 200", "3 / 4 * 200", "150"),
        ("sum of 3, 4 and 5", "3 + 4 + 5", "12"),
        ("average of 2 4 6", "mean(2, 4, 6)", "4"),
        ("What is 17 * 23?", "17 * 23", "391"),
        ("17*23", "17 * 23", "391"),
        ("2+2=?", "2 + 2", "4"),
        ("What is 17 \u2212 4?", "17 - 4", "13"),
        ("17 \u2013 4 = ?", "17 - 4", "13"),
        ("what does 2 + 2 equal?", "2 + 2", "4"),
        ("what is two plus two?", "2 + 2", "4"),
        ("What is twenty-one times three", "21 * 3", "63"),
        ("what is one hundred and five minus five", "105 - 5", "100"),
        ("What is 2.5 million divided by 2?", "2500000 / 2", "1250000"),
        ("Can you tell me what 15% of 80 is?", "15% of 80", "12"),
        ("Hi! What is 12 x 13?", "12 * 13", "156"),
        ("I have a bill. What is 15% of $80?", "15% of 80", "12"),
        ("Compute: (2 + 3) * 4", "(2 + 3) * 4", "20"),
        ("Calculate 24/7", "24 / 7", "3.42857142857143"),
        ("Use the calculator to work out 5*7", "5 * 7", "35"),
        ("What do you get if you multiply 6 by 7?", "6 * 7", "42"),
        ("5!", "5!", "120"),
        ("What is 5 factorial?", "5!", "120"),
        ("What is 7 squared plus 1?", "7 ** 2 + 1", "50"),
        ("what is 20% off 50?", "50 * (1 - 20%)", "40"),
        ("increase 80 by 15%", "80 * (1 + 15%)", "92"),
        ("What percent of 80 is 12?", "12 / 80 * 100", "15"),
        ("12 is what percent of 80?", "12 / 80 * 100", "15"),
        ("what percentage is 12 of 80", "12 / 80 * 100", "15"),
        ("subtract 5 from 20", "20 - 5", "15"),
        ("divide 100 by 4", "100 / 4", "25"),
        ("What is the cube root of 27?", "cbrt(27)", "3"),
        ("two thirds of 90", "2 / 3 * 90", "60"),
        ("a third of 90", "90 / 3", "30"),
        ("half of the sum of 4 and 6", "(4 + 6) / 2", "5"),
        ("What is the difference between 10 and 3?", "10 - 3", "7"),
        ("what is the remainder of 17 divided by 5", "17 % 5", "2"),
        ("remainder when 17 is divided by 5", "17 % 5", "2"),
        ("17 mod 5", "17 % 5", "2"),
        ("What is 3,421 + 1,000?", "3421 + 1000", "4421"),
        ("What is 17,5% of 200?", "17.5% of 200", "35"),
        ("What is \u00bd of 90?", "90 / 2", "45"),
        ("twice 45", "2 * 45", "90"),
        ("How much is 10 / 4 rounded to 1 decimal place?", "round(10 / 4, 1)", "2.5"),
        ("square root of (9 + 16)", "sqrt(9 + 16)", "5"),
        ("What is 15% of 80 plus 5?", "15% of 80 + 5", "17"),
    ],
)
def test_sums_people_ask_for(message: str, expression: str, value: str) -> None:
    """Rule 12: a sum in figures or words is found in what people write around it, and computed."""
    assert sums_in(message) == (expression,)
    assert show_number(compute(expression)) == value


@pytest.mark.parametrize(
    "message",
    [
        "half an hour later",
        "24/7",
        "What is 24/7?",
        "Are you open 24/7?",
        "What happened on 9/11?",
        "What is 50/50?",
        "page 3 of 10",
        "3 of 10",
        "2024-05-06",
        "What is 2024-05-06?",
        "12/25/2024",
        "What is 1.2.3?",
        "Python 3.12.1",
        "version 2.0 of 3",
        "at 14:30",
        "The ratio is 16:9",
        "555-1234",
        "call 555-1234",
        "5-10",
        "section 2-3",
        "3/4",
        "4x4",
        "What is a 4x4?",
        "1920x1080",
        "3 times a week",
        "I read it three times",
        "I have 3 apples and 4 pears.",
        "What is 42?",
        "-5",
        "50%",
        "What is half of my salary?",
        "add 2 and 3 to the list",
        "take five",
        "double trouble",
        "between 3 and 5",
        "one and a half",
        "second of two",
        "What is 80 plus 15%?",
        "What is the sum of 3 4 5 divided by 2?",
        "What is the average temperature?",
        "what is C++ 17",
        "Hello!",
        "",
        "?!",
    ],
)
def test_what_only_looks_like_a_sum(message: str) -> None:
    """Rule 15: dates, versions, ranges, sayings and counts fire nothing, nor does what has two readings."""
    assert sums_in(message) == ()


def test_several_sums() -> None:
    """Rule 12: each sentence is read by itself, and the same sum is found once."""
    assert sums_in("What is 2+2? And what is 3 times 4? 2 + 2 = ?") == ("2 + 2", "3 * 4")


NUMBERS = st.integers(0, 999).map(str) | st.decimals(0, 999, places=2).map(str)


@st.composite
def spoken(draw: st.DrawFn) -> tuple[str, Fraction]:
    """A sum of two numbers in one of the ways people say it, and its value."""
    left, right = draw(NUMBERS), draw(NUMBERS)
    a, b = Fraction(left), Fraction(right)
    ways = [
        (f"{left} plus {right}", a + b),
        (f"add {left} and {right}", a + b),
        (f"the sum of {left} and {right}", a + b),
        (f"{left} minus {right}", a - b),
        (f"subtract {right} from {left}", a - b),
        (f"the difference between {left} and {right}", a - b),
        (f"{left} times {right}", a * b),
        (f"multiply {left} by {right}", a * b),
        (f"{left}% of {right}", a * b / 100),
        (f"{left} percent of {right}", a * b / 100),
        (f"half of {left} plus {right}", a / 2 + b),
        (f"three quarters of {left}", a * 3 / 4),
        (f"the average of {left} and {right}", (a + b) / 2),
        (f"{left} squared minus {right}", a * a - b),
    ]
    return draw(st.sampled_from(ways))


FRAMES = st.sampled_from(
    ["{}", "What is {}?", "what's {}", "Please calculate {}.", "How much is {}?", "Hi, tell me {}"]
)


@given(spoken(), FRAMES)
def test_what_is_read_is_what_was_said(said: tuple[str, Fraction], frame: str) -> None:
    """Rule 12: any numbers, any way to say it, any frame: the expression comes to the value that was meant."""
    words, value = said
    (expression,) = sums_in(frame.format(words))
    assert compute(expression) == value


WORDS = st.sampled_from(
    """
    what is the sum of and half a third percent % off square root 3 4.5 10 24/7 - + * / ( ) ! plus minus times by add
    multiply divide to power raised is average , twice rounded decimal places remainder two hundred ?
    """.split()  # noqa: SIM905  words read better so
)


def fault(expression: str) -> str:
    """Why the calculator has no value for an expression; empty if it has one."""
    try:
        compute(expression)
    except ToolError as error:
        return error.message
    return ""


@given(st.lists(WORDS, max_size=14).map(" ".join))
def test_any_words_are_a_sum_or_nothing(message: str) -> None:
    """Rule 16: whatever is written, what is found can be read by the calculator, and nothing is raised."""
    unread = ("expected", "too early", "not known", "not part", "takes")
    for expression in sums_in(message):
        assert not any(word in fault(expression) for word in unread)


@given(st.text(max_size=80))
def test_any_text_is_read(message: str) -> None:
    """Rule 16: no text raises."""
    assert isinstance(sums_in(message), tuple)


@pytest.mark.parametrize(
    "text",
    ["half of " * 500 + "2", "(" * 290 + "1", "1+" * 149 + "1", "one hundred and " * 18, "what is " * 37 + "1+1"],
)
def test_long_sentences(text: str) -> None:
    """Rule 16: deep and long ones end in a sum or in nothing."""
    assert len(sums_in(text)) <= 1


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("twenty one", ["21"]),
        ("two hundred and five thousand and six", ["205006"]),
        ("a hundred", ["100"]),
        ("three and four", ["3", "4"]),
        ("one two", ["1", "2"]),
        ("two million three thousand", ["2003000"]),
        ("1,234,567.5", ["1234567.5"]),
        ("1.5 thousand", ["1500"]),
    ],
)
def test_numbers_in_words(text: str, numbers: list[str]) -> None:
    """Rule 12: number words are read as far as they belong together."""
    assert [token.text for token in tokens_of(text) or () if token.kind == "number"] == numbers


@pytest.mark.parametrize("number", ["two thousand three thousand", "five thousand two million"])
def test_numbers_that_do_not_belong_together(number: str) -> None:
    """Rule 15: a scale that is not smaller than the one before it makes no number, and the sentence no sum."""
    assert sums_in(f"What is {number} plus 1?") == ()


def test_what_has_no_tokens() -> None:
    """Rule 15: a sentence with anything but numbers, words and signs of arithmetic is none."""
    assert tokens_of("at 14:30") is None
    assert tokens_of("2 apples") == [Token("number", "2"), Token("word", "apples")]
