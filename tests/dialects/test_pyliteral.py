"""The Python-literal reader says in JSON what the literal says, and evaluates nothing."""

import ast
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.dialects.events import Reason
from mustcall.dialects.reading.pyliteral import read_literal
from mustcall.dialects.reading.reader import NotACall, Reader


def translate(pieces: list[str]) -> str | Reason:
    """Return the JSON for a literal that is followed by a comma, or why it is refused."""
    reader = Reader()
    out: list[str] = []
    parse = read_literal(reader, out.append)
    for piece in [*pieces, ","]:
        reader.push(piece)
        try:
            next(parse)
        except StopIteration:
            return "".join(out)
        except NotACall as fault:
            return fault.reason
        reader.settle()
    reader.closed = True
    try:
        next(parse)
    except StopIteration:
        return "".join(out)
    except NotACall as fault:
        return fault.reason
    return Reason.TRUNCATED


literals = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None)
@given(value=literals)
def test_what_python_writes(value: Any) -> None:
    """Whatever Python writes as a literal reads as the same value, whole and by character."""
    text = repr(value)
    result = translate([text])
    assert not isinstance(result, Reason)
    assert json.loads(result) == value
    assert translate(list(text)) == result


@pytest.mark.parametrize(
    "text",
    [
        "'a' \"b\" '''c'''",
        '"""x"y""z"""',
        "r'a\\n'",
        "u'é'",
        "'\\x41\\101\\0\\u00e9\\U0001F600\\\n!'",
        "(1, 2,)",
        "()",
        "[1, [2, (3,)],]",
        "{'a': {'b': 1}, \"c\": None,}",
        "1_000",
        "0x1F",
        "-0b11",
        "+7",
        ".5",
        "1.",
        "-1.5e-3",
        "00",
        "''",
    ],
)
def test_agrees_with_python(text: str) -> None:
    """Every spelling Python takes gives the value Python gives."""
    value = ast.literal_eval(text)
    for pieces in ([text], list(text)):
        result = translate(pieces)
        assert not isinstance(result, Reason)
        assert json.loads(result) == json.loads(json.dumps(value))


@pytest.mark.parametrize(
    ("text", "said"), [("true", "true"), ("null", "null"), (r"'\q'", r'"\\q"'), ("'\\ud83d\\ude00'", '"😀"')]
)
def test_json_habits(text: str, said: str) -> None:
    """JSON's spellings of constants and surrogate pairs are understood."""
    assert translate([text]) == said


@pytest.mark.parametrize(
    "text",
    [
        *("b'x'", "f'{x}'", "{1, 2}", "{1: 2}", "(1)", "007", "1j", "x", "f(1)", "[1 2]", "[,]", "'\\N{DASH}'"),
        *("'\\ud800'", "'a\nb'", "__import__('os')", "Truex", "--1", "1__0", "0x", "nan", "'\\uD83Dx'"),
        *("'\\udc00'", "'\\U0000d83d'", "'\\U00110000'"),  # no characters: half of a pair, and beyond the last one
    ],
)
def test_refusals(text: str) -> None:
    """Rule 57: what is no literal, or no JSON value, is refused and never run."""
    for pieces in ([text], list(text)):
        assert translate(pieces) in (Reason.BAD_LITERAL, Reason.TRUNCATED)


@pytest.mark.parametrize(("text", "said"), [("1 + 1", "1"), ("None.x", "null"), ("'a' % b", '"a"')])
def test_operators_are_left_unread(text: str, said: str) -> None:
    """Only the literal is taken; an operator behind it is for whoever reads on to refuse."""
    assert translate([text]) == said


def test_duplicate_keys() -> None:
    """A dict with the same key twice is refused."""
    assert translate(["{'a': 1, \"a\": 2}"]) is Reason.DUPLICATE_KEY


def test_depth_is_bounded() -> None:
    """Very deep nesting is refused, not followed."""
    assert translate(["[" * 1000]) is Reason.TOO_DEEP
