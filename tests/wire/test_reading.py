"""Reading JSON from outside: paths in errors, and what happens at JSON's edges."""

import json
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import InvalidRequest, UpstreamGarbage
from mustcall.wire.reading import (
    ShapeError,
    as_list,
    as_object,
    as_str,
    at,
    decode_json,
    each,
    list_field,
    maybe_object,
    opt_bool,
    opt_float,
    opt_int,
    opt_list,
    opt_object,
    opt_str,
    reading_reply,
    reading_request,
    rest,
    str_field,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12345678901234567890123", 12345678901234567890123),
        ("-12345678901234567890123", -12345678901234567890123),
        ("18446744073709551616", 2**64),
        ("-9223372036854775809", -(2**63) - 1),
        ("1.0", 1.0),
        ("1E2", 100.0),
        ("0.1", 0.1),
        ("1e-7", 1e-7),
        ('"\\u0000\\ud83d\\ude00"', "\x00\U0001f600"),
        ('{"a": 1, "a": 2}', {"a": 2}),
    ],
)
def test_edge_values_survive_a_rebuild(text: str, value: object) -> None:
    """Identity law: big integers, floats and escapes are written as they were read; of double keys the last counts."""
    read = decode_json(text.encode())
    assert read == value
    assert type(read) is type(value)
    assert json.loads(msgspec.json.encode(read)) == value


def test_sign_of_zero_survives() -> None:
    """Identity law: `-0.0` stays negative."""
    assert msgspec.json.encode(decode_json(b"[-0.0]")) == b"[-0.0]"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{} {}",
        b"\xef\xbb\xbf{}",
        b"NaN",
        b"Infinity",
        b"1e400",
        b"-1e400",
        b"1" * 5000,
        b"1" * 400 + b".0",
        b'"\\ud800"',
        b'"\\ud800 and more text"',
        b'"\\udc00\\ud800"',
        b'{"\\ud800": 1}',
        b'"\xed\xa0\x80"',
        b'"\xff"',
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    ],
    ids=lambda body: repr(body[:24]),
)
def test_what_cannot_be_kept_is_refused(body: bytes) -> None:
    """Identity law: numbers out of range, lone surrogates and bad UTF-8 are refused, never altered."""
    with pytest.raises(ShapeError):
        decode_json(body)


def test_every_nesting_that_is_read_can_be_written_from_deeper() -> None:
    """Design 2.8: no `RecursionError` when a value is written from further down the stack than it was read."""

    def write(value: object, frames: int) -> bytes:
        return write(value, frames - 1) if frames else msgspec.json.encode(value)

    accepted = 0
    for depth in range(500, sys.getrecursionlimit() + 50, 10):
        body = b'{"a":' * depth + b'"' + b"x" * 1024 + b'"' + b"}" * depth
        try:
            value = decode_json(body)
        except ShapeError:
            continue
        accepted += 1
        assert write(value, 80) == body
    assert accepted > 0


@given(st.binary(max_size=40))
def test_any_bytes_are_json_or_a_shape_error(body: bytes) -> None:
    """Hostile bytes raise only our errors."""
    try:
        value = decode_json(body)
    except ShapeError:
        return
    assert json.loads(body.decode()) == value


def test_path_of_a_wrong_value() -> None:
    """Must show: a wrong value is named by its path and shown."""

    def read(value: Any) -> str:
        with at("function"):
            return str_field(as_object(value), "name")

    with pytest.raises(InvalidRequest) as raised, reading_request():
        each([{"name": "a"}, {"name": 5}], read, "tools")
    assert raised.value.message == "`tools[1].function.name` must be a string, got the number 5"
    assert raised.value.param == "tools[1].function.name"


def test_nested_lists_in_a_path() -> None:
    """An element of an element is written without a dot between brackets."""
    with pytest.raises(ShapeError, match=r"`content\[0\]\[1\]` must be a string, got null"), at("content"):
        each([["a", None]], lambda inner: each(inner, as_str))


def test_missing_field() -> None:
    """A missing field is said to be required."""
    with pytest.raises(ShapeError, match="`model` is required"):
        str_field({}, "model")
    with pytest.raises(ShapeError, match="`messages` is required"):
        list_field({}, "messages")


def test_upstreams_fault() -> None:
    """In a reply the same error is the upstream's."""
    words = "the upstream's reply cannot be read: the body must be an object"
    with pytest.raises(UpstreamGarbage, match=words), reading_reply():
        as_object([])


_Reader = Callable[[dict[str, Any], str], Any]
_READERS: list[tuple[_Reader, list[Any], list[Any]]] = [
    (opt_str, ["", "a", None], [1, True, [], {}]),
    (opt_int, [0, -1, 2.0, None, 10**30], [1.5, True, "1", [], {}]),
    (opt_float, [0, 1.5, None], [True, "1", [], {}]),
    (opt_bool, [True, False, None], [0, "true", [], {}]),
    (opt_object, [{}, {"a": 1}, None], [[], "a", 1, True]),
    (opt_list, [[], [1], None], [{}, "a", 1, True]),
]


@pytest.mark.parametrize(("read", "good", "bad"), _READERS)
def test_optional_fields(read: _Reader, good: list[Any], bad: list[Any]) -> None:
    """Each reader takes its type or null, says absent as None, and refuses everything else by name."""
    assert read({}, "k") is None
    for value in good:
        assert read({"k": value}, "k") == value
    for value in bad:
        with pytest.raises(ShapeError, match=r"`k` must be "):
            read({"k": value}, "k")


@pytest.mark.parametrize(
    ("read", "wrong", "words"),
    [
        (as_object, [], "an object, got an array"),
        (as_list, {}, "an array, got an object"),
        (as_str, True, "a string, got the boolean true"),
        (as_str, 1.5, "a string, got the number 1.5"),
        (as_list, "x" * 100, "an array, got the string '" + "x" * 40 + "'"),
    ],
)
def test_wrong_values_are_shown_short(read: Callable[[Any], Any], wrong: object, words: str) -> None:
    """A wrong value is described in a few words, long ones cut."""
    with pytest.raises(ShapeError) as raised:
        read(wrong)
    assert str(raised.value) == f"the body must be {words}"


def test_huge_number_is_shown_short() -> None:
    """A number of any length gives a message, not an error of its own."""
    with pytest.raises(ShapeError) as raised:
        as_str(10**300)
    assert len(str(raised.value)) < 100


def test_rest_and_maybe() -> None:
    """Unknown fields are what the codec has no word for; anything but an object is no object."""
    assert rest({"a": 1, "b": 2}, frozenset({"a"})) == {"b": 2}
    assert rest({"a": 1}, frozenset({"a"})) == {}
    assert maybe_object({"a": 1}) == {"a": 1}
    assert maybe_object([]) is None
