"""Reading JSON strictly, and saying what does not fit without repeating it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.origin import JsonObject
from mustcall.policy.schema.validation import (
    Problem,
    Unreadable,
    describe_problems,
    problems_in,
    read_documents,
    read_json,
    schema_fault,
    validator_for,
    write_json,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def checks_all(schema: JsonObject) -> bool:
    """Tell whether values can be held against all of a schema."""
    checker = validator_for(schema)
    return checker is not None and checker.whole


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "nope",
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1, "a": 1}',
        '{"a": {"b": 1, "\\u0062": 2}}',
        '"\\ud800"',
        '{"\\udfff": 1}',
        '"\ud83d"',
        "[" * 101 + "]" * 101,
        "[" * 200_000,
        "1e401",
        "1e99999999999999999999",
        "1" * 5000,
        '"a\nb"',
        "{} {}",
        '{"a": 1,}',
        "{'a': 1}",
        "{}" * 20_000,
    ],
)
def test_unsound_text_is_refused(text: str) -> None:
    """Rule 107: what two readers could read differently, or none at all, is not JSON here."""
    with pytest.raises(Unreadable):
        read_json(text)


@pytest.mark.parametrize("text", ['{"a": "x', '{"a": [1', "[", '"abc', '{"a": "b\\', '{"a": tru', '{"a": 1}{"b'])
def test_cut_text_is_called_truncated(text: str) -> None:
    """Rule 123: an open string or bracket at the end is a truncation."""
    with pytest.raises(Unreadable) as caught:
        read_json(text)
    assert caught.value.truncated


@pytest.mark.parametrize("text", ["", "nope", '{"a": }', '{"a": "["', '{"a": "\\"}', "}", '{"a": "{"} x'])
def test_broken_text_is_told_from_cut_text(text: str) -> None:
    """Rule 123: brackets inside strings do not count, and balanced nonsense is not a truncation."""
    with pytest.raises(Unreadable) as caught:
        read_json(text)
    assert caught.value.truncated is (text in ('{"a": "["', '{"a": "\\"}'))


@given(json_values)
def test_sound_text_reads_as_itself(value: Any) -> None:
    """Rule 131: reading and writing loses nothing."""
    text = json.dumps(value)
    assert json.loads(write_json(read_json(text))) == value
    assert [document.text for document in read_documents(f" {text}\n")] == [text]


def test_numbers_are_written_as_they_were_read() -> None:
    """Rule 131: no digit is lost on the way through."""
    text = '{"a":0.10,"b":123456789012345678901234567890,"c":3.14159265358979323846264338327950288,"d":1.0}'
    assert write_json(read_json(text)) == text


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """Rule 60: no text raises anything else."""
    try:
        documents = read_documents(text)
    except Unreadable:
        return
    assert [read_json(document.text) for document in documents] == [document.value for document in documents]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"properties": {"a": {"$ref": "file:///etc/hostname"}}},
        {"$ref": "other.json"},
        {"type": "str"},
        {"properties": {"a": {"pattern": "("}}},
        {"properties": {"\ud800": {}}},
        {"enum": [object()]},
    ],
)
def test_what_cannot_be_compiled_refuses_nothing(schema: JsonObject) -> None:
    """Rule 130: a bad schema is not an error, and nothing is ever fetched for one."""
    assert not checks_all(schema)
    assert problems_in(schema, {}) == ()
    assert problems_in(schema, {"a": 5}) == ()


def test_references_are_never_followed_out_of_the_document(tmp_path: Path) -> None:
    """Rule 130: a schema that lies on this machine, ready to be read, is not read."""
    other = tmp_path / "other.json"
    other.write_text('{"type": "string"}')
    schema: JsonObject = {"properties": {"a": {"$ref": other.as_uri()}}}
    assert not checks_all(schema)
    assert problems_in(schema, {"a": 5}) == ()


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": "https://example.com/unknown", "type": "object"},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
        {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1, "exclusiveMinimum": True}}},
    ],
)
def test_old_and_unknown_dialects_are_compiled(schema: JsonObject) -> None:
    """Rule 130: an unknown `$schema` and draft 4 are understood."""
    assert schema_fault(schema) is None


def test_nullable_admits_null() -> None:
    """Rule 90: OpenAPI's `nullable` is understood as tools mean it."""
    schema: JsonObject = {"properties": {"a": {"type": "string", "nullable": True}, "b": {"type": "string"}}}
    assert problems_in(schema, {"a": None}) == ()
    assert problems_in(schema, {"a": 1, "b": None}) != ()


def test_the_same_schema_is_compiled_once() -> None:
    """Rule 90: equal schemas share one validator, whoever made them."""
    text = '{"type": "object", "properties": {"once": {"type": "string"}}}'
    assert validator_for(json.loads(text)) is validator_for(json.loads(text))


PLAN: JsonObject = {
    "type": "object",
    "required": ["city"],
    "additionalProperties": False,
    "properties": {
        "city": {"type": "string", "minLength": 2},
        "unit": {"enum": ["c", "f"]},
        "days": {"type": ["integer", "null"], "minimum": 1},
        "legs": {"type": "array", "items": {"type": "object", "properties": {"km": {"type": "number"}}}, "maxItems": 2},
        "any": {"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"x": {"type": "boolean"}}}]},
        "free": {"type": "object", "additionalProperties": {"type": "integer"}},
        "code": {"type": "string", "pattern": "^[a-z]+$"},
    },
}


MISFITS: list[tuple[Any, str, str]] = [
    ({}, "city", "string, required"),
    ({"city": 5}, "city", "string"),
    ({"city": "x"}, "city", "at least 2 characters"),
    ({"city": "Rome", "unit": "k"}, "unit", 'one of "c", "f"'),
    ({"city": "Rome", "days": "x"}, "days", "integer or null"),
    ({"city": "Rome", "days": 0}, "days", "at least 1"),
    ({"city": "Rome", "legs": [{}, {"km": "x"}]}, "legs[1].km", "number"),
    ({"city": "Rome", "legs": [{}, {}, {}]}, "legs", "at most 2 items"),
    ({"city": "Rome", "any": "x"}, "any", "integer or object"),
    ({"city": "Rome", "any": {"x": 1}}, "any.x", "boolean"),
    ({"city": "Rome", "free": {"SECRET": "x"}}, "free.*", "integer"),
    ({"city": "Rome", "SECRET": 1}, "", "no fields but city, unit, days, legs, any, free, code"),
    ({"city": "Rome", "code": "SECRET"}, "code", "text that matches ^[a-z]+$"),
]


@pytest.mark.parametrize(("value", "path", "expected"), MISFITS)
def test_problems_name_the_field_and_what_it_takes(value: Any, path: str, expected: str) -> None:
    """Rule 90: one problem says where and what was expected."""
    assert problems_in(PLAN, value) == (Problem(path, expected),)


@given(json_values)
def test_problems_never_repeat_what_was_written(value: Any) -> None:
    """Rule 69: the words about a bad value hold nothing of it."""
    marked = {"SECRET_KEY": value, "city": ["SECRET"], "unit": "SECRET", "free": {"SECRET": "SECRET"}, "any": "SECRET"}
    problems = problems_in(PLAN, marked)
    assert problems
    assert "SECRET" not in describe_problems(problems)


def test_five_problems_are_told_in_one_line() -> None:
    """Rule 84: at most five problems are put into words, and the rest is counted."""
    problems = tuple(Problem(f"f{number}", "string") for number in range(7))
    assert describe_problems(problems) == "f0: string; f1: string; f2: string; f3: string; f4: string; and 2 more"
    assert describe_problems((Problem("", "a JSON object"),)) == "top level: a JSON object"
    assert describe_problems(()) == ""


def test_words_from_the_schema_stay_one_short_line() -> None:
    """Rule 110: a schema's own long or broken words do not spill into the reminder."""
    schema: JsonObject = {"properties": {"a": {"enum": ["x\ny" * 200]}}}
    told = describe_problems(problems_in(schema, {"a": 1}))
    assert "\n" not in told
    assert len(told) < 220


def test_problems_of_a_huge_value_are_bounded() -> None:
    """Rule 68: a hundred thousand wrong items are twenty problems."""
    schema: JsonObject = {"properties": {"a": {"type": "array", "items": {"type": "string"}}}}
    assert len(problems_in(schema, {"a": list(range(100_000))})) == 20


def test_catastrophic_patterns_end() -> None:
    """Rule 68: a pattern that backtracks without end is a problem, not a hang."""
    schema: JsonObject = {"properties": {"a": {"type": "string", "pattern": "^(?=(a+)+$)(a|aa)+\\1b"}}}
    assert problems_in(schema, {"a": "a" * 5_000})


def test_the_validator_is_loaded_only_when_needed() -> None:
    """`import mustcall` and the policy modules do not pay for the schema library."""
    modules = "mustcall, mustcall.policy.request.json_call, mustcall.policy.schema.tool_schemas"
    code = f"import sys, {modules}; print('jsonschema_rs' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert result.stdout.strip() == "False"
