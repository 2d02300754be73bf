"""Arguments are delivered as written, mended without loss, or refused with the field named."""

import json
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.origin import JsonObject
from mustcall.core.parts import CallKind
from mustcall.core.tools import Tool
from mustcall.policy.schema.arguments import Checked, RepairMade, check_arguments, describe_problems, object_schema
from mustcall.policy.schema.validation import Problem, read_documents, read_plain, validator_for

TRIP: JsonObject = {
    "type": "object",
    "required": ["city"],
    "additionalProperties": False,
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "price": {"type": "number"},
        "direct": {"type": "boolean"},
        "note": {"type": ["string", "null"]},
        "max_stops": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "integer"}},
        "hotel": {"$ref": "#/$defs/Hotel"},
        "level": {"enum": [1, 2, 3]},
    },
    "$defs": {
        "Hotel": {
            "type": "object",
            "properties": {"starCount": {"type": "integer"}, "name": {"type": "string"}},
            "required": ["name"],
        }
    },
}
OPTIONAL: JsonObject = {"type": "object", "properties": {"limit": {"type": "integer"}}}


def check(arguments: str, schema: JsonObject | None = TRIP, *, strict: bool | None = None) -> Checked:
    """Check the arguments of a tool with this schema."""
    return check_arguments(Tool(name="plan", parameters=schema, strict=strict), arguments)


def words(checked: Checked) -> tuple[str, ...]:
    """What was changed, in words."""
    return tuple(change.words for change in checked.changes)


@pytest.mark.parametrize(
    "text",
    [
        '{"city": "Rome"}',
        ' {"city":"Rome","days":3}\n',
        '{"city": "5", "note": null, "max_stops": null, "price": 1.50, "level": 2}',
        '{"city": "Rome", "hotel": {"name": "A", "starCount": 4}, "tags": [1, 2]}',
        '{"city": "\\u00e9", "days": 3.0}',
    ],
)
def test_valid_arguments_are_delivered_as_written(text: str) -> None:
    """Rule 90: what fits is the model's own text, character for character."""
    assert check(text) == Checked(arguments=text)


@pytest.mark.parametrize(
    ("written", "delivered", "change"),
    [
        ('{"city": "Rome", "days": "3"}', {"city": "Rome", "days": 3}, "days: a string read as integer"),
        ('{"city": "Rome", "days": " -3 "}', {"city": "Rome", "days": -3}, "days: a string read as integer"),
        ('{"city": "Rome", "days": "3.0"}', {"city": "Rome", "days": 3.0}, "days: a string read as number"),
        ('{"city": "Rome", "price": "9.5"}', {"city": "Rome", "price": 9.5}, "price: a string read as number"),
        ('{"city": "Rome", "price": "9"}', {"city": "Rome", "price": 9}, "price: a string read as integer"),
        ('{"city": "Rome", "direct": "True"}', {"city": "Rome", "direct": True}, "direct: a string read as boolean"),
        (
            '{"city": "Rome", "max_stops": "null"}',
            {"city": "Rome", "max_stops": None},
            "max_stops: a string read as null",
        ),
        ('{"city": "Rome", "max_stops": "2"}', {"city": "Rome", "max_stops": 2}, "max_stops: a string read as integer"),
        ('{"city": "Rome", "tags": "[1, 2]"}', {"city": "Rome", "tags": [1, 2]}, "tags: a string read as array"),
        ('{"city": "Rome", "tags": [1, "2"]}', {"city": "Rome", "tags": [1, 2]}, "tags[1]: a string read as integer"),
        ('{"city": "Rome", "level": "2"}', {"city": "Rome", "level": 2}, "level: a string read as integer"),
        (
            '{"city": "Rome", "hotel": "{\\"name\\": \\"A\\"}"}',
            {"city": "Rome", "hotel": {"name": "A"}},
            "hotel: a string read as object",
        ),
    ],
)
def test_a_string_that_says_the_declared_type_becomes_it(written: str, delivered: Any, change: str) -> None:
    """Rule 131: a string that parses to the declared type, each reported."""
    checked = check(written)
    assert json.loads(checked.arguments) == delivered
    assert words(checked) == (change,)
    assert checked.valid


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ('{"city": 5}', Problem("city", "string")),
        ('{"city": "Rome", "days": "three"}', Problem("days", "integer")),
        ('{"city": "Rome", "days": "3.5"}', Problem("days", "integer")),
        ('{"city": "Rome", "days": ""}', Problem("days", "integer")),
        ('{"city": "Rome", "days": "0x10"}', Problem("days", "integer")),
        ('{"city": "Rome", "days": "٣"}', Problem("days", "integer")),
        ('{"city": "Rome", "days": true}', Problem("days", "integer")),
        ('{"city": "Rome", "direct": 1}', Problem("direct", "boolean")),
        ('{"city": "Rome", "direct": "yes"}', Problem("direct", "boolean")),
        ('{"city": "Rome", "tags": "1, 2"}', Problem("tags", "array")),
        ('{"city": "Rome", "tags": "[1"}', Problem("tags", "array")),
        ('{"city": "Rome", "tags": "{}"}', Problem("tags", "array")),
        ('{"city": "Rome", "tags": 1}', Problem("tags", "array")),
        ('{"city": "Rome", "days": null}', Problem("days", "integer")),
        ('{"city": "Rome", "level": "4"}', Problem("level", "one of 1, 2, 3")),
        ('{"city": "Rome", "hotel": {"starCount": "x", "name": "A"}}', Problem("hotel.starCount", "integer")),
    ],
)
def test_all_else_is_a_problem(written: str, problem: Problem) -> None:
    """Rule 131: what could lose meaning is a validation error, and the text stays as it was."""
    assert check(written) == Checked(arguments=written, problems=(problem,))


def test_what_was_mended_and_what_was_not() -> None:
    """Rule 131: with one field beyond mending nothing is changed, and only that field is named."""
    written = '{"city": "Rome", "days": "3", "price": "cheap"}'
    assert check(written) == Checked(arguments=written, problems=(Problem("price", "number"),))


def test_digits_survive_mending() -> None:
    """Rule 131: a change in one field changes no other."""
    written = '{"city":"Rome","days":"12345678901234567890123","price":0.1000000000000000055511151231257827}'
    assert check(written).arguments == written.replace('"12345678901234567890123"', "12345678901234567890123")


@pytest.mark.parametrize("written", ["", "  \n", "null", '""', '" "'])
def test_empty_arguments_are_an_object_when_nothing_is_required(written: str) -> None:
    """Rule 107, 131: empty arguments are `{}` where that is valid, and the change is reported."""
    for schema in (OPTIONAL, None):
        checked = check(written, schema)
        assert checked == Checked(arguments="{}", changes=(RepairMade("empty", "empty arguments read as {}"),))


@pytest.mark.parametrize("written", ["", "null", '""'])
def test_empty_arguments_are_a_problem_when_something_is_required(written: str) -> None:
    """Rule 107: `{}` is never invented."""
    expected = Checked(arguments=written, problems=(Problem("city", "string, required"),))
    assert check(written) == expected
    assert not check(written, {"required": ["a"], "type": "str"}).valid


def test_an_empty_object_is_valid_when_nothing_is_required() -> None:
    """Rule 107: `{}` from the model is a whole call."""
    assert check("{}", OPTIONAL) == Checked(arguments="{}")
    assert check("{}").problems == (Problem("city", "string, required"),)


@pytest.mark.parametrize(
    "written", ["nope", "{city: Rome}", "undefined", '{"limit": }', "0", "false", "[]", "[{}]", '"x"']
)
def test_unparseable_arguments_are_never_empty_ones(written: str) -> None:
    """Rule 107, 60: what is not an object is a problem, whatever the schema asks for."""
    for schema in (OPTIONAL, None):
        checked = check(written, schema)
        assert checked.arguments == written
        assert len(checked.problems) == 1
        assert not checked.truncated


@pytest.mark.parametrize("cut", range(1, len('{"city": "Rome", "tags": [1, 2], "hotel": {"name": "A"}}')))
def test_a_cut_call_is_truncated_at_every_character(cut: int) -> None:
    """Rule 123: whatever is cut off is truncated, never delivered."""
    whole = '{"city": "Rome", "tags": [1, 2], "hotel": {"name": "A"}}'
    checked = check(whole[:cut])
    assert checked.truncated
    assert not checked.valid
    assert check(whole).valid


def test_a_json_string_is_unwrapped_once() -> None:
    """Rule 60, 131: a JSON-string object is unwrapped once, and once only."""
    inner = '{"city": "Rome"}'
    once = json.dumps(inner)
    unwrapped = RepairMade("json_string", "a JSON string that holds the object was unwrapped")
    assert check(once) == Checked(arguments=inner, changes=(unwrapped,))
    assert not check(json.dumps(once)).valid
    assert check(json.dumps('{"city": "Ro')).truncated
    assert not check(json.dumps("[1]")).valid
    assert not check(json.dumps("{}{}"), OPTIONAL).valid


@pytest.mark.parametrize(
    ("written", "delivered"),
    [
        ('{"City": "Rome"}', {"city": "Rome"}),
        ('{"city": "Rome", "maxStops": 2}', {"city": "Rome", "max_stops": 2}),
        ('{"city": "Rome", "max-stops": "2"}', {"city": "Rome", "max_stops": 2}),
        (
            '{"city": "Rome", "hotel": {"Name": "A", "star_count": 4}}',
            {"city": "Rome", "hotel": {"name": "A", "starCount": 4}},
        ),
    ],
)
def test_keys_in_other_case_or_separators_are_meant(written: str, delivered: Any) -> None:
    """Rule 106: a key that differs only in case or separators is the schema's, at every level."""
    checked = check(written)
    assert json.loads(checked.arguments) == delivered
    assert checked.changes
    assert checked.valid


@pytest.mark.parametrize(
    ("written", "schema"),
    [
        ('{"userId": 1}', {"properties": {"user_id": {}, "user-id": {}}, "additionalProperties": False}),
        ('{"a_b": 1, "A-B": 2}', {"properties": {"ab": {}}, "additionalProperties": False}),
        ('{"ab": 1, "A_B": 2}', {"properties": {"ab": {}}, "additionalProperties": False}),
    ],
)
def test_ambiguous_keys_are_not_mended(written: str, schema: JsonObject) -> None:
    """Rule 106: exact matches win, ambiguity means no repair."""
    checked = check(written, schema)
    assert checked.arguments == written
    assert not checked.valid


def test_a_misspelt_key_is_mended_even_where_others_are_allowed() -> None:
    """Rule 106: an open schema would take the key, and the tool would not see it."""
    schema: JsonObject = {"type": "object", "properties": {"filePath": {"type": "string"}}}
    assert json.loads(check('{"file_path": "x"}', schema).arguments) == {"filePath": "x"}
    assert check('{"file_path": 5}', schema) == Checked(arguments='{"file_path": 5}')
    assert check('{"other": 5}', schema) == Checked(arguments='{"other": 5}')


def test_two_spellings_of_one_key_are_not_chosen_between() -> None:
    """Rule 106: where two written keys could mean one field, both stay as they are."""
    text = '{"a_b": 1, "A-B": 2}'
    assert check(text, {"properties": {"ab": {}}}) == Checked(arguments=text)


def test_keys_of_a_map_are_data() -> None:
    """Rule 106: where any key is allowed and typed, a key is not a misspelling."""
    schema: JsonObject = {"properties": {"ab": {"type": "string"}}, "additionalProperties": {"type": "string"}}
    assert check('{"A_B": "x"}', schema) == Checked(arguments='{"A_B": "x"}')


@pytest.mark.parametrize(
    ("written", "delivered"),
    [
        ('{"city":"Rome"}{"city":"Rome"}', '{"city":"Rome"}'),
        ('{"city":"Rome"}\n{"city":"Rome","days":3}', '{"city":"Rome","days":3}'),
        ('{}{"city": "Rome"}', '{"city": "Rome"}'),
        (
            '{"city":"Rome","hotel":{"name":"A"}}{"city":"Rome","hotel":{"name":"A","starCount":1}}',
            '{"city":"Rome","hotel":{"name":"A","starCount":1}}',
        ),
    ],
)
def test_overlapping_snapshots_yield_the_last(written: str, delivered: str) -> None:
    """Rule 106: complete objects that each repeat or extend the one before are one call."""
    checked = check(written)
    assert checked.arguments == delivered
    assert words(checked) == ("the last of 2 snapshots of the arguments was taken",)
    assert checked.valid


@pytest.mark.parametrize(
    "written",
    [
        '{"city":"Rome"}{"city":"Oslo"}',
        '{"city":"Rome","days":1}{"city":"Rome"}',
        '{"city":"R"}{"city":"Rome"}',
        '{"city":"Rome","days":1}{"city":"Rome","days":true}',
        '{"city":"Rome","tags":[1]}{"city":"Rome","tags":[1,2]}',
        '{"city":"Rome"}[]',
    ],
)
def test_unrelated_objects_are_a_problem(written: str) -> None:
    """Rule 106: which of two different calls was meant is not guessed."""
    checked = check(written)
    assert checked.arguments == written
    assert not checked.valid
    assert not checked.truncated


def test_equal_looking_values_of_two_types_are_not_snapshots() -> None:
    """Rule 106: `1`, `1.0` and `true` are three values."""
    assert not check('{"a": 1}{"a": true}', None).valid
    assert not check('{"a": 1}{"a": 1.0}', None).valid
    assert check('{"a": 1}{"a": 1}', None).valid


def test_a_cut_snapshot_is_truncated() -> None:
    """Rule 123: a complete object followed by half a one is a cut stream."""
    assert check('{"city":"Rome"}{"city":"Rome","da').truncated


def test_nulls_of_a_strict_tool_are_left_out() -> None:
    """Rule 130: a strict schema makes a model write null for what it leaves out, and the caller never sees it."""
    written = '{"city":"Rome","days":null,"note":null,"hotel":{"name":"A","starCount":null}}'
    checked = check(written, strict=True)
    assert json.loads(checked.arguments) == {"city": "Rome", "note": None, "hotel": {"name": "A"}}
    assert words(checked) == (
        "days: a null left out of an optional field",
        "hotel.starCount: a null left out of an optional field",
    )
    assert not check(written).valid
    assert not check('{"city": null}', strict=True).valid
    assert check_arguments(Tool(name="plan", parameters=TRIP), written, null_is_absent=True).valid


def test_unions_are_mended_only_where_one_branch_can_be_meant() -> None:
    """Rule 131: among several objects nothing is guessed."""
    one: JsonObject = {
        "properties": {"at": {"anyOf": [{"type": "null"}, {"properties": {"day": {"type": "integer"}}}]}}
    }
    assert json.loads(check('{"at": {"Day": "3"}}', one).arguments) == {"at": {"day": 3}}
    closed: JsonObject = {"properties": {"day": {"type": "integer"}}, "additionalProperties": False}
    other: JsonObject = {"properties": {"hour": {"type": "integer"}}, "additionalProperties": False}
    assert not check('{"at": {"day": "3"}}', {"properties": {"at": {"oneOf": [closed, other]}}}).valid


def test_custom_tools_take_any_text() -> None:
    """Rule 90: free text is not JSON and needs none."""
    tool = Tool(name="shell", kind=CallKind.CUSTOM, parameters=TRIP)
    for text in ("", "ls -la", '{"cut'):
        assert check_arguments(tool, text) == Checked(arguments=text)


def test_a_tool_without_a_schema_takes_any_object() -> None:
    """Rule 90: no schema, no demand but an object."""
    assert check('{"a": [1]}', None) == Checked(arguments='{"a": [1]}')


@pytest.mark.parametrize(
    "schema",
    [{"type": "str"}, {"properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}}, {"$ref": "#/nope"}, {"properties": []}],
)
def test_a_bad_schema_is_reported_and_fails_nothing(schema: JsonObject) -> None:
    """Rule 130: of a schema with faults the rest is checked; where nothing is left, that they are an object."""
    assert check('{"a": 1}', schema) == Checked(arguments='{"a": 1}', unchecked=True)
    assert not check("[1]", schema).valid
    assert check('{"a', schema).truncated


def test_a_tool_that_takes_no_object_takes_one_field() -> None:
    """Rule 60: arguments are an object on every wire, so another value stands in a field of one."""
    schema: JsonObject = {
        "$ref": "#/definitions/Ids",
        "definitions": {"Ids": {"type": "array", "items": {"type": "integer"}}},
    }
    assert check('{"value": [1]}', schema) == Checked(arguments='{"value": [1]}')
    assert json.loads(check('{"value": "[1]"}', schema).arguments) == {"value": [1]}
    assert not check('{"value": ["x"]}', schema).valid
    assert not check("[1]", schema).valid
    assert object_schema(TRIP) is TRIP
    assert object_schema({}) == {}


@pytest.mark.parametrize(
    "text",
    [
        '{"city": NaN}',
        '{"city": "Rome", "city": "Oslo"}',
        '{"city": "\\ud800"}',
        '{"city": "\ud800"}',
        '{"city": "Rome", "days": 1e999999999}',
        '{"city": "Rome", "days": "1e999999999"}',
        '{"city": "Rome", "days": ' + "9" * 100_000 + "}",
        '{"city": "Rome", "days": "' + "9" * 100_000 + '"}',
        '{"city": ' * 500 + "1" + "}" * 500,
        "[" * 1_000_000,
        '{"city": "Rome", "tags": "' + "[" * 5_000 + "]" * 5_000 + '"}',
        '{"city":"Rome"}' * 3 + '{"city":"Oslo"}',
    ],
)
def test_hostile_arguments_are_problems(text: str) -> None:
    """Rule 60: duplicate keys, numbers and depth beyond reason are problems, never exceptions."""
    checked = check(text)
    assert checked.problems
    assert checked.arguments == text


def test_many_changes_are_counted() -> None:
    """Rule 131: every change is made and reported, a thousand of them in a few words."""
    checked = check('{"city": "Rome", "tags": [' + ", ".join(['"7"'] * 1000) + "]}")
    assert json.loads(checked.arguments)["tags"] == [7] * 1000
    assert len(checked.changes) == 21
    assert words(checked)[-1] == "and 980 more"


def test_strings_in_strings_do_not_nest_without_end() -> None:
    """Rule 68: a recursive schema and nested JSON strings stay within bounds."""
    schema: JsonObject = {"type": "object", "properties": {"c": {"$ref": "#"}}}
    value = "{}"
    for _ in range(12):
        value = json.dumps({"c": value})
    checked = check(value, schema)
    assert checked.valid
    assert len(checked.changes) == 12


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["3", "true", "[1]", "{}", '{"name": "A"}', "null", "2.5"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*TRIP["properties"], "City", "maxStops", "name", "star-count", "x"]), inner, max_size=5
        )
    ),
    max_leaves=12,
)


@given(
    st.text() | json_values.map(json.dumps), st.sampled_from([TRIP, OPTIONAL, None, {"type": "array"}, {"type": "x"}])
)
def test_every_text_is_delivered_valid_or_refused_unchanged(text: str, schema: JsonObject | None) -> None:
    """Rule 90: what is delivered fits the caller's schema, what does not is not touched, and nothing raises."""
    checked = check(text, schema)
    if not checked.valid:
        assert checked.arguments == text
        assert checked.changes == ()
        assert describe_problems(checked.problems)
        return
    assert isinstance(json.loads(checked.arguments), dict)
    assert (checked.arguments == text) or checked.changes
    checker = None if schema is None else validator_for(schema)
    if checker is not None:  # its schema is the one without faults
        validator = validator_for(object_schema(checker.schema))
        assert validator is None or validator.is_valid(json.loads(checked.arguments))


@given(json_values.map(json.dumps))
def test_checking_again_changes_nothing(text: str) -> None:
    """Rule 131: what was mended needs no mending."""
    once = check(text)
    if once.valid:
        assert check(once.arguments) == Checked(arguments=once.arguments)


_EASY = [
    *(
        '{"city":"Oslo"',
        ',"days":3',
        ',"days": 3.0',
        ',"price":1e400',
        ',"price":1e999',
        ',"note":null',
        ',"city":"Rome"',
    ),
    *(',"City" : "x"', ',"note":"a:b"', ',"note":"[x]"', ',"direct":true', ',"direct":NaN', ',"tags":[1]', ',"x":{}'),
    *(',"tags":[1,2]', ',"tags":[]', ',"tags":[["a"]]', ',"tags":["a:b"]', ',"tags":[1.50,true]', "[", "]"),
    *(',"note":"{x}"', ',"note":"\ud800"', ',"note":"é{"', ',"tags":[{}]'),
    *(',"days":123456789012345678901234567890', ',"days":-0', ',"note":"\x01"', ',"note":"\\n\\/"', ',"days":1E2'),
    *("}", " ", "{", '"', "\\u0041", "\\ud800", "é", "\n", ","),
]


@given(st.lists(st.sampled_from(_EASY), max_size=8).map("".join), st.booleans())
def test_the_easy_way_is_the_whole_way(text: str, strict: bool) -> None:
    """What is seen at once to be valid is what a whole look finds valid; it never finds more."""
    quick = [check(one, strict=strict) for one in (text, text + "}")]
    with patch("mustcall.policy.schema.arguments.read_plain", return_value=None):
        assert quick == [check(one, strict=strict) for one in (text, text + "}")]


@given(st.lists(st.sampled_from(_EASY), max_size=8).map("".join))
def test_what_is_read_easily_is_read_right(text: str) -> None:
    """Rule 107: the easy reader gives what the strict one gives, or leaves it alone."""
    for one in (text, text + "}"):
        value = read_plain(one)
        if value is not None:
            assert [document.value for document in read_documents(one)] == [value]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"p": {"pattern": "("}}, "required": ["p"]}}},
        {"allOf": [{"required": ["p"]}], "properties": {"p": {"type": "any"}}},
        {"minProperties": 1, "properties": {"p": {"type": "any"}}},
        {"properties": {"p": {"type": "any"}}},
        {"anyOf": [{"required": ["p"]}], "properties": {"p": {"enum": ["x" * 100 + str(n) for n in range(1_500)]}}},
    ],
)
@pytest.mark.parametrize("written", ["", "null", " ", '""'])
def test_empty_arguments_are_no_object_where_not_all_can_be_checked(schema: JsonObject, written: str) -> None:
    """Rule 107: `{}` is not invented where nobody can say that nothing is required."""
    assert not check(written, schema).valid


def test_a_faulty_part_leaves_the_rest_of_the_checks() -> None:
    """Rules 130, 131: what fits the rest is delivered and reported, coerced as usual, or refused."""
    schema: JsonObject = {
        "type": "object",
        "properties": {"at": {"type": "any"}, "days": {"type": "integer"}},
        "required": ["days"],
        "additionalProperties": False,
    }
    assert check('{"days": 2, "at": [1]}', schema) == Checked(arguments='{"days": 2, "at": [1]}', unchecked=True)
    mended = check('{"days": "2"}', schema)
    assert (mended.arguments, mended.unchecked) == ('{"days":2}', True)
    assert not check('{"days": "x"}', schema).valid
    assert not check("{}", schema).valid
    salvage = check('{"days": 2, "zz": 1}', schema).salvage
    assert salvage is not None
    assert (salvage.arguments, salvage.unchecked) == ('{"days":2}', True)
