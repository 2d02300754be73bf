"""The strict JSON reader agrees with a full parser on what is JSON, however the text is cut."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.dialects.events import Reason
from mustcall.dialects.reading.jsontext import MAX_DEPTH, read_string, read_value, read_wrapped_object
from mustcall.dialects.reading.reader import NotACall, Parse, Reader


def drive(make: Callable[[Reader], Parse[Any]], pieces: list[str]) -> tuple[Any, str]:
    """Run a parser over pieces; return its result (or the fault's reason) and what it left unread."""
    reader = Reader()
    parse = make(reader)
    rest = list(pieces)
    while True:
        try:
            next(parse)
        except StopIteration as stop:
            return stop.value, reader.buffer[reader.position :] + "".join(rest)
        except NotACall as fault:
            return fault.reason, reader.buffer[reader.position :] + "".join(rest)
        reader.settle()
        if rest:
            reader.push(rest.pop(0))
        else:
            reader.closed = True


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(value=json_values, ascii_only=st.booleans(), indent=st.sampled_from([None, 1]))
def test_valid_json_is_read_to_its_end(value: Any, ascii_only: bool, indent: int | None) -> None:
    """Whatever a JSON writer writes is read exactly to its end, whole and by character."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    for pieces in ([text + " x"], [*text, " x"]):
        result, rest = drive(read_value, pieces)
        assert result is None
        assert rest.strip() == "x"


@settings(max_examples=300, deadline=None)
@given(text=st.text(alphabet='{}[]",:\\ub0123e+-.truefalsn \n', max_size=16))
def test_agrees_with_a_full_parser(text: str) -> None:
    """What is accepted as a whole is JSON for the standard parser, and the other way round."""
    whole, rest = drive(read_value, [text])
    by_character, rest_by_character = drive(read_value, list(text))
    assert (whole, rest) == (by_character, rest_by_character)
    accepted = whole is None and not rest.strip(" \n")
    try:
        json.loads(text, parse_constant=_refuse, object_pairs_hook=_unique)
        valid = not any(
            0xD800 <= ord(character) <= 0xDFFF for character in json.dumps(json.loads(text), ensure_ascii=False)
        )
    except ValueError:
        valid = False
    assert accepted == valid


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError
    return dict(pairs)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "a": 2}', Reason.DUPLICATE_KEY),
        ('{"a": NaN}', Reason.BAD_JSON),
        ("[Infinity]", Reason.BAD_JSON),
        ("[1,]", Reason.BAD_JSON),
        ('{"a": 1,}', Reason.BAD_JSON),
        ("{'a': 1}", Reason.BAD_JSON),
        ("[01]", Reason.BAD_JSON),
        ('["\\x41"]', Reason.BAD_JSON),
        ('["\\udc00"]', Reason.BAD_JSON),
        ('["\\ud83dx"]', Reason.BAD_JSON),
        ('["\\ud83d\\u0041"]', Reason.BAD_JSON),
        ('["a\tb"]', Reason.BAD_JSON),
        ("[" + "1" * 1025 + "]", Reason.BAD_JSON),
        ("[" * (MAX_DEPTH + 1), Reason.TOO_DEEP),
        ('["abc', Reason.TRUNCATED),
        ('["\\ud83d', Reason.TRUNCATED),
        ("[1, 2", Reason.TRUNCATED),
        ("[tru", Reason.TRUNCATED),
        ("", Reason.TRUNCATED),
    ],
)
def test_refusals(text: str, reason: Reason) -> None:
    """Rule 107: what is not one valid JSON text is refused with its reason, at the same place however it is cut."""
    whole, rest = drive(read_value, [text])
    assert whole is reason
    assert drive(read_value, list(text)) == (reason, rest)


def test_surrogate_pairs_split_anywhere() -> None:
    """A surrogate pair written as two escapes is one character, wherever it is cut."""
    text = '"a\\ud83d\\ude00b"'
    for place in range(len(text)):
        assert drive(read_string, [text[:place], text[place:]]) == ("a😀b", "")


@pytest.mark.parametrize(
    ("text", "result", "written"),
    [
        ('"{\\"a\\": 1}" x', None, '{"a": 1}'),
        ('" {\\"a\\": \\"\\\\u00e9\\"} " x', None, ' {"a": "\\u00e9"}'),
        ('"[1]" x', Reason.NOT_OBJECT, ""),
        ('"{} {}" x', Reason.NOT_OBJECT, "{}"),
        ('"{" x', Reason.BAD_JSON, "{"),
        ('"{bad} and more" x', Reason.BAD_JSON, "{"),
    ],
)
def test_wrapped_objects(text: str, result: Reason | None, written: str) -> None:
    """Rule 60: a JSON string that holds an object is unwrapped once; a fault inside is told at the string's end."""
    for pieces in ([text], list(text)):
        out: list[str] = []
        got, rest = drive(partial(read_wrapped_object, write=out.append), pieces)
        assert (got, rest.strip()) == (result, "x")
        assert "".join(out) == written
