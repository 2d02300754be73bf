"""Text that is almost JSON is read where it has one reading, and only there."""

import json
import re
from typing import Any, cast
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.policy.schema import leniency
from mustcall.policy.schema.leniency import Relaxed, relax
from mustcall.policy.schema.subschemas import MAX_DEPTH
from mustcall.policy.schema.validation import Unreadable, read_json


@pytest.mark.parametrize(
    ("text", "value", "repairs"),
    [
        ('{"a": 1,}', {"a": 1}, ["trailing_comma"]),
        ('{"a": [1, 2, ], }', {"a": [1, 2]}, ["trailing_comma"]),
        ('{"a": 1 // one\n}', {"a": 1}, ["comment"]),
        ('# first\n{"a": 1, /* "b": 2, */ "c": 3} // last', {"a": 1, "c": 3}, ["comment"]),
        ('{"url": "http://x/#y /* z */"}', {"url": "http://x/#y /* z */"}, []),
        ("{'a': 'it\\'s \"so\"'}", {"a": 'it\'s "so"'}, ["single_quotes"]),
        ('{"a": "it\\\'s"}', {"a": "it's"}, ["single_quotes"]),
        ('{a: 1, $b_2: 2, content-type: "x"}', {"a": 1, "$b_2": 2, "content-type": "x"}, ["bare_key"]),
        ('{"a": "x\ny\tz\x01"}', {"a": "x\ny\tz\x01"}, ["control_character"]),
        ("{'a': 'x\ny'}", {"a": "x\ny"}, ["single_quotes", "control_character"]),
        (
            '{"a": True, "b": False, "c": None, "d": true}',
            {"a": True, "b": False, "c": None, "d": True},
            ["python_constant"],
        ),
        ('```json\n{"a": 1}\n```', {"a": 1}, ["fence"]),
        ('  ```\n{"a": "```"}```\n', {"a": "```"}, ["fence"]),
        ('`{"a": 1}`', {"a": 1}, ["fence"]),
        ('```json\n{"a": 1}', {"a": 1}, ["fence"]),
        ('~~~\n{"a": 1}\n~~~', {"a": 1}, ["fence"]),
        ("{}", {}, []),
        ('{"n": -1.50e+3, "i": 12345678901234567890}', {"n": -1500.0, "i": 12345678901234567890}, []),
    ],
)
def test_one_reading(text: str, value: Any, repairs: list[str]) -> None:
    """Rule 141: each leniency alone and with others gives the value, and is named."""
    relaxed = relax(text)
    assert relaxed is not None
    assert json.loads(relaxed.text) == value
    assert (list(relaxed.repairs), relaxed.added) == (repairs, "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nope",
        "{city: Rome}",
        '{"a": undefined}',
        '{"a": NaN}',
        '{"a": 1 "b": 2}',
        '{"a": 1,, "b": 2}',
        '{,"a": 1}',
        "[,]",
        '{"a" 1}',
        '{"a": }',
        '{"a": 01}',
        '{"a": +1}',
        '{"a": .5}',
        "{'a': 'it's'}",
        '{"a": 1} and more',
        '{"a": 1}{"b": 2}',
        '{"a": 1}}',
        '{"a": [1}',
        '{"a": "x\\\ny"}',
        "1",
        '"x"',
        "true",
        'city="Rome"',
        '{"a": "b" "c"}',
        '{1: "a"}',
        '/* {"a": 1}',
    ],
)
def test_no_reading_or_two(text: str) -> None:
    """Rules 107, 141: what could mean something else, or nothing, is left alone."""
    assert relax(text) is None


@pytest.mark.parametrize("text", ['{"re": "\\d+"}', "{'a': '\\x41'}", '{"a": 1, "a": 2,}', '{"a": "\\ud800",}'])
def test_the_strict_reader_has_the_last_word(text: str) -> None:
    """Rules 60, 141: escapes that JSON does not know and fields that stand twice stay unreadable."""
    relaxed = relax(text)
    assert relaxed is None or _is_unreadable(relaxed.text)


def _is_unreadable(text: str) -> bool:
    try:
        read_json(text)
    except Unreadable:
        return True
    return False


@pytest.mark.parametrize(
    ("text", "added"),
    [
        ('{"a": "x"', "}"),
        ('{"a": {"b": [true', "]}}"),
        ('{"a": [1, 2 ', "]}"),
        ("{'a': 'x'", "}"),
        ('```json\n{"a": "x"\n```', "}"),
    ],
)
def test_missing_brackets_are_named_apart(text: str, added: str) -> None:
    """Rule 141: they are no reading, but can be added where every value is whole."""
    relaxed = relax(text)
    assert relaxed is not None
    assert relaxed.added == added
    json.loads(relaxed.text)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "x',
        '{"a": 1',
        '{"a": 1.',
        '{"a": "x",',
        '{"a"',
        '{"a":',
        "{",
        '{"a": tru',
        '{"a": "x" // b, "c": 2}',
        '{"a": "x" # }\n',
    ],
)
def test_what_may_have_been_cut_is_not_closed(text: str) -> None:
    """Rules 123, 141: a string or number cut in the middle is never completed, nor what a comment may have closed."""
    relaxed = relax(text)
    assert relaxed is None


json_objects = st.dictionaries(
    st.text(max_size=6),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


class _Writer:
    """Writes a value as careless models do; `draw` decides about each liberty."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def _coin(self) -> bool:
        return self._draw(st.booleans())

    def gap(self) -> str:
        return self._draw(st.sampled_from(["", " ", "\n", "/* , } ' */", '// ] " x\n', "# {\n"]))

    def string(self, text: str) -> str:
        if self._coin():
            escaped = json.dumps(text, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("'", "\\'")
            return f"'{escaped}'"
        written = json.dumps(text, ensure_ascii=False)
        return written.replace("\\n", "\n").replace("\\t", "\t") if "\\\\" not in written and self._coin() else written

    def value(self, value: Any) -> str:
        match value:
            case str():
                return self.string(value)
            case bool() | None:
                return str(value) if self._coin() else json.dumps(value)
            case dict():
                pairs = cast("dict[str, Any]", value).items()
                return self._bracketed(
                    "{", [f"{self.key(k)}{self.gap()}:{self.gap()}{self.value(v)}" for k, v in pairs], "}"
                )
            case list():
                return self._bracketed("[", [self.value(item) for item in cast("list[Any]", value)], "]")
            case _:
                return json.dumps(value)

    def key(self, key: str) -> str:
        bare = re.fullmatch(r"[A-Za-z_$][A-Za-z0-9_$]*", key) is not None
        return key if bare and self._coin() else self.string(key)

    def _bracketed(self, opener: str, items: list[str], closer: str) -> str:
        comma = "," if items and self._coin() else ""
        gaps = [f"{self.gap()}{item}{self.gap()}" for item in items]
        return f"{opener}{self.gap()}{','.join(gaps)}{comma}{self.gap()}{closer}"


@given(json_objects, st.data())
def test_whatever_liberties_are_taken_the_value_is_the_same(value: dict[str, Any], data: Any) -> None:
    """Rule 141: any mixture of leniencies is read as the value that was meant: none is changed, none invented."""
    written = _Writer(data.draw).value(value)
    relaxed = relax(f"```json\n{written}\n```" if data.draw(st.booleans()) else written)
    assert relaxed is not None
    assert relaxed.added == ""
    assert json.loads(relaxed.text) == value


@given(json_objects)
def test_json_stays_what_it_says(value: dict[str, Any]) -> None:
    """Rule 141: what is JSON already needs no repair, and every number and string is written as it was."""
    text = json.dumps(value)
    compact = json.dumps(value, separators=(",", ":"))
    assert relax(text) == Relaxed(compact, ())


@given(json_objects, st.data())
def test_no_cut_invents_a_value(value: dict[str, Any], data: Any) -> None:
    """Rules 107, 141: of a text that was cut, each value that comes out is one that was written whole."""
    written = _Writer(data.draw).value(value)
    relaxed = relax(written[: data.draw(st.integers(0, len(written)))])
    if relaxed is not None:
        assert _is_part(json.loads(relaxed.text), value)


def _is_part(part: Any, whole: Any) -> bool:
    if isinstance(part, dict) and isinstance(whole, dict):
        fields, others = cast("dict[str, Any]", part), cast("dict[str, Any]", whole)
        return all(key in others and _is_part(item, others[key]) for key, item in fields.items())
    if isinstance(part, list) and isinstance(whole, list):
        items, more = cast("list[Any]", part), cast("list[Any]", whole)
        return len(items) <= len(more) and all(map(_is_part, items, more))
    one, other = cast("object", part), cast("object", whole)
    return type(one) is type(other) and one == other


@given(st.text(alphabet="{}[]:,'\"\\/*#`~ \n\tabTrue01.-eN$_", max_size=60))
def test_no_text_raises(text: str) -> None:
    """Rule 141: whatever is written, it is read or left alone; what is read is one JSON value."""
    relaxed = relax(text)
    if relaxed is not None and not _is_unreadable(relaxed.text):
        assert isinstance(json.loads(relaxed.text), (dict, list))


class _Counting:
    """A pattern that counts the characters it looked at: those it matched, and once those it could not."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self.work = 0

    def match(self, text: str, position: int) -> re.Match[str] | None:
        found = self._pattern.match(text, position)
        self.work += (found.end() if found is not None else len(text)) - position
        return found


@pytest.mark.parametrize(
    "unit",
    ["\"a\": 'x', ", "/* x */", "// x\n", '"', "'", "\\", "[", "{'a':", "[1,],", "`", "/*", "#", "a-", "1", "\n"],
)
def test_work_is_linear(unit: str) -> None:
    """Rules 68, 141: a megabyte of anything is looked at once, whatever it is."""
    text = "{" + unit * (1_000_000 // len(unit))
    counting = _Counting(leniency._TOKEN)
    with patch.object(leniency, "_TOKEN", counting):
        relax(text)
    assert counting.work <= len(text)


def test_what_nests_too_deep_is_not_read_to_its_end() -> None:
    """Rules 68, 141: the strict reader refuses what nests deeper than its bound: nothing behind that is looked at."""
    allowed = "[" * (MAX_DEPTH - 1) + "1,"
    assert relax(allowed + "]" * (MAX_DEPTH - 1)) is not None
    assert relax("[" + allowed + "]" * MAX_DEPTH) is not None
    counting = _Counting(leniency._TOKEN)
    with patch.object(leniency, "_TOKEN", counting):
        assert relax("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)) is None
    assert counting.work == MAX_DEPTH + 1
