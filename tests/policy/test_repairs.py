"""The table of repairs is what happens: each row, its order, and what no row does."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationKind
from mustcall.core.origin import JsonObject
from mustcall.core.tools import Tool
from mustcall.policy.schema.arguments import Checked, check_arguments
from mustcall.policy.schema.repairs import KINDS, TABLE, Repair, Stage, markdown

CITY: JsonObject = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "direct": {"type": "boolean"},
        "hotel": {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
            "additionalProperties": False,
        },
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city"],
    "additionalProperties": False,
}


def check(arguments: str, schema: JsonObject | None = CITY) -> Checked:
    """Check arguments as the judge does."""
    return check_arguments(Tool(name="plan", parameters=schema), arguments, null_is_absent=True)


def repairs(checked: Checked | None) -> list[str]:
    """The rows that were used."""
    assert checked is not None
    return [change.repair for change in checked.changes]


@pytest.mark.parametrize("row", [row for row in TABLE if row.written], ids=lambda row: row.name)
def test_each_row_does_what_it_says(row: Repair) -> None:
    """Rules 106, 107, 131, 141: the example is delivered as the table has it, by that row and no other."""
    schema = {**CITY, "required": list[str]()} if row.name == "empty" else CITY
    checked = check(row.written, schema)
    if row.stage is Stage.SALVAGE:
        assert not checked.valid
        assert checked.salvage is not None
        checked = checked.salvage
    assert checked.valid
    assert checked.arguments == row.delivered
    assert repairs(checked) == [row.name]


def test_the_table_is_in_order() -> None:
    """Rule 141: reading, coercion, one retry, salvage, error; each name once, each reported by its stage's kind."""
    stages = [row.stage for row in TABLE]
    assert stages == sorted(stages)
    assert set(stages) == set(Stage)
    assert len({row.name for row in TABLE}) == len(TABLE)
    assert {row.name for row in TABLE} - KINDS.keys() == {"retry", "bad_arguments"}
    assert set(KINDS.values()) == {
        AdaptationKind.ARGUMENTS_READ,
        AdaptationKind.ARGUMENTS_COERCED,
        AdaptationKind.ARGUMENTS_SALVAGED,
    }
    assert all(f"`{row.name}`" in markdown() for row in TABLE)


@pytest.mark.parametrize(
    ("written", "delivered", "used"),
    [
        (
            "{'City': ['Rome'], days: '3',}",
            {"city": "Rome", "days": 3},
            {"single_quotes", "bare_key", "trailing_comma"},
        ),
        ('```\n{"arguments": {"city": "Rome"}}\n```', {"city": "Rome"}, {"fence", "wrapper"}),
        ('{"arguments": "{\\"city\\": \\"Rome\\"}"}', {"city": "Rome"}, {"wrapper"}),
        ('{"name": "plan", "arguments": {"city": "Rome"}}', {"city": "Rome"}, {"wrapper"}),
        ('{"name": "plan", "parameters": {"city": "Rome"}}', {"city": "Rome"}, {"wrapper"}),
        ('{"Plan": {"city": "Rome"}}', {"city": "Rome"}, {"tool_name_key"}),
        ('{"city": "Rome", "tags": "[\'a\', \'b\']"}', {"city": "Rome", "tags": ["a", "b"]}, {"string_as_type"}),
        ('{"city": "Rome", "days": [3]}', {"city": "Rome", "days": 3}, {"list_of_one"}),
        ('{"city": "Rome", "direct": [true]}', {"city": "Rome", "direct": True}, {"list_of_one"}),
        ('{"city": "Rome", "hotel": {"name": ["A"]}}', {"city": "Rome", "hotel": {"name": "A"}}, {"list_of_one"}),
    ],
)
def test_rows_apply_together(written: str, delivered: Any, used: set[str]) -> None:
    """Rule 141: what needs several loss-free repairs gets them all, and each is named."""
    checked = check(written)
    assert checked.valid
    assert json.loads(checked.arguments) == delivered
    assert used <= set(repairs(checked))


@pytest.mark.parametrize(
    "written",
    [
        '{"city": ["Rome", "Oslo"]}',
        '{"city": []}',
        '{"city": [["Rome"]]}',
        '{"city": "Rome", "days": [true]}',
        '{"city": "Rome", "days": ["x"]}',
        '{"city": "Rome", "days": [3.5]}',
        '{"arguments": {"town": "Rome"}}',
        '{"arguments": {"city": "Rome"}, "parameters": {"city": "Oslo"}}',
        '{"name": "other", "arguments": {"city": "Rome"}}',
        '{"other": {"city": "Rome"}}',
        '{"arguments": {"city": "Ro}',
        '{"city": "Rome"',
    ],
)
def test_what_would_be_a_guess_is_not_made(written: str) -> None:
    """Rules 107, 131, 141: several items, another type, another tool's name, a cut string: all stay problems."""
    checked = check(written)
    assert not checked.valid
    assert checked.arguments == written


def test_a_list_that_is_allowed_stays_one() -> None:
    """Rules 107, 131: where a list is among the declared types, one that is too short is a problem, not its item."""
    tags: JsonObject = {"type": ["array", "string"], "minItems": 2}
    checked = check('{"tags": ["a"]}', {"type": "object", "properties": {"tags": tags}})
    assert not checked.valid
    assert checked.salvage is None


def test_a_declared_field_is_no_wrapper() -> None:
    """Rule 141: a tool that has a field `arguments`, or one like its own name, means it."""
    schema: JsonObject = {
        "type": "object",
        "properties": {"arguments": {"type": "array"}, "city": {"type": "string"}},
        "required": ["city"],
    }
    assert not check('{"arguments": {"city": "Rome"}}', schema).valid
    own: JsonObject = {"type": "object", "properties": {"plan": {"type": "string"}, "city": {}}, "required": ["city"]}
    assert not check('{"plan": {"city": "Rome"}}', own).valid


def test_what_fits_is_not_unwrapped() -> None:
    """Rule 141: under an open schema that requires nothing a wrapper is data like any other."""
    written = '{"arguments": {"city": "Rome"}}'
    assert check(written, {"type": "object", "properties": {"city": {}}}) == Checked(arguments=written)


@pytest.mark.parametrize(
    ("written", "delivered", "used"),
    [
        ('{"city": "Rome", "x": 1, "hotel": {"name": "A", "y": 2}}', {"city": "Rome", "hotel": {"name": "A"}}, 2),
        ('{"city": "Rome", "x": 1, "days": "3"}', {"city": "Rome", "days": 3}, 2),
        ('{"arguments": {"city": "Rome", "x": 1}}', {"city": "Rome"}, 2),
        ('{"city": "Rome", "x": 1, "tags": ["a"]', {"city": "Rome", "tags": ["a"]}, 2),
        ('{"city": "Rome", "hotel": {"name": "A"', {"city": "Rome", "hotel": {"name": "A"}}, 1),
    ],
)
def test_salvage(written: str, delivered: Any, used: int) -> None:
    """Rule 141: undeclared fields go at every level, brackets come at the end, loss-free repairs beside them."""
    checked = check(written)
    assert not checked.valid
    assert checked.salvage is not None
    assert json.loads(checked.salvage.arguments) == delivered
    assert len(checked.salvage.changes) == used


@pytest.mark.parametrize(
    ("written", "schema"),
    [
        ('{"x": 1}', CITY),
        ('{"city": 5, "x": 1}', CITY),
        ('{"days": 3, "hotel": {"name": "A"}', CITY),
        ('{"city": "Rome", "hotel": {', CITY),
        ('{"city": "Rome", "hotel": {"na', CITY),
        ('{"city": "Rome"', {"type": "object", "properties": {"city": {"type": "wrong"}}, "required": ["city"]}),
        ('{"city": 5}', {**CITY, "additionalProperties": {"type": "string"}}),
    ],
)
def test_nothing_to_salvage(written: str, schema: JsonObject) -> None:
    """Rule 141: a required field that is missing, a wrong type, a cut string, a schema nobody can check."""
    assert check(written, schema).salvage is None


values: st.SearchStrategy[JsonObject] = st.fixed_dictionaries(
    {"city": st.text()},
    optional={
        "days": st.integers(),
        "direct": st.booleans(),
        "hotel": st.fixed_dictionaries({"name": st.text()}),
        "tags": st.lists(st.text(), max_size=3),
    },
)


@given(values, st.sampled_from([None, 1]), st.booleans())
def test_what_fits_is_never_changed(value: JsonObject, indent: int | None, ascii_only: bool) -> None:
    """Rules 90, 141: valid JSON that fits its schema is delivered character for character, with no word about it."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert check(text) == Checked(arguments=text)


@given(values, st.data())
def test_a_cut_is_never_more_than_was_written(value: JsonObject, data: Any) -> None:
    """Rules 107, 123, 141: cut anywhere, arguments are no call; a salvage holds only what was written whole."""
    text = json.dumps(value)
    checked = check(text[: data.draw(st.integers(1, len(text) - 1))])
    assert not checked.valid
    if checked.salvage is not None:
        left = json.loads(checked.salvage.arguments)
        assert left["city"] == value["city"]
        for key, item in left.items():
            assert item == (value[key][: len(item)] if key == "tags" else value[key])


@given(values, st.dictionaries(st.text(max_size=4).map("x{}".format), st.integers(), min_size=1, max_size=3))
def test_dropping_leaves_the_rest_alone(value: JsonObject, more: JsonObject) -> None:
    """Rule 141: whatever is added to arguments that fit, what is left without it are those arguments."""
    checked = check(json.dumps({**more, **value}))
    assert not checked.valid
    assert checked.salvage is not None
    assert json.loads(checked.salvage.arguments) == value
    assert set(repairs(checked.salvage)) == {"undeclared_dropped"}
