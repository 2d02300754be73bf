"""Each row of the table of repairs on arguments of any content: the value that was meant, nothing else, at linear cost.

A row that is added to the table needs a fault here.
"""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.origin import JsonObject
from mustcall.core.tools import Tool
from mustcall.policy.schema.arguments import Checked, check_arguments
from mustcall.policy.schema.repairs import TABLE, Stage
from support.counting import counted_lines

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "days": {"type": "integer"},
        "direct": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "city": {"type": "string"},
    },
    "required": ["city"],
    "additionalProperties": False,
}
EASY: JsonObject = {**SCHEMA, "required": []}
SALVAGED = {row.name for row in TABLE if row.stage is Stage.SALVAGE}

#: Text that is written alike in any quotes.
plain = st.text(
    st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="'\"\\\u2028\u2029\u0085"), max_size=20
)
#: Arguments that fit.
arguments: st.SearchStrategy[JsonObject] = st.fixed_dictionaries(
    {"days": st.integers(), "direct": st.booleans(), "tags": st.lists(plain, max_size=3), "city": plain}
)


def write(value: object) -> str:
    """Write JSON with every character as it is."""
    return json.dumps(value, ensure_ascii=False)


def _without(value: JsonObject, name: str) -> JsonObject:
    return {key: item for key, item in value.items() if key != name}


def _python(value: JsonObject) -> str:
    return write(value).replace('"direct": true', '"direct": True').replace('"direct": false', '"direct": False')


def _bare(value: JsonObject) -> str:
    return "{" + ", ".join(f"{key}: {write(item)}" for key, item in value.items()) + "}"


def _multiline(value: JsonObject) -> str:
    return write({**value, "city": f"{value['city']}@@"}).replace("@@", "\n\t")


#: How each row's fault is made; the second of a pair is what is meant where it is not the value itself. A number that
#: ends a text may have been cut, so a text stands before a missing bracket.
FAULTS: dict[str, Callable[[JsonObject], str | tuple[str, JsonObject]]] = {
    "snapshots": lambda value: write({"city": value["city"]}) + write({"city": value["city"], **value}),
    "fence": lambda value: f"```json\n{write(value)}\n```",
    "trailing_comma": lambda value: write(value)[:-1] + ",}",
    "comment": lambda value: write(value)[:-1] + " /* , } */ // ]\n}",
    "single_quotes": lambda value: write(value).replace('"', "'"),
    "bare_key": _bare,
    "control_character": lambda value: (_multiline(value), {**value, "city": f"{value['city']}\n\t"}),
    "python_constant": _python,
    "wrapper": lambda value: write({"arguments": value}),
    "tool_name_key": lambda value: write({"plan": value}),
    "empty": lambda value: (" " * len(write(value)), {}),
    "json_string": lambda value: write(write(value)),
    "key_spelling": lambda value: write({**_without(value, "city"), "CITY": value["city"]}),
    "string_as_type": lambda value: write({**value, "days": str(value["days"])}),
    "list_of_one": lambda value: write({**value, "city": [value["city"]]}),
    "null_left_out": lambda value: (write({**value, "days": None}), _without(value, "days")),
    "undeclared_dropped": lambda value: write({"mood": {"of": ["day"]}, **value}),
    "brackets_closed": lambda value: write({**_without(value, "city"), "city": value["city"]})[:-1],
}
rows = pytest.mark.parametrize("row", [row.name for row in TABLE if row.written])


def spoil(row: str, value: JsonObject) -> tuple[str, JsonObject]:
    """Return what a model writes, and what it means."""
    made = FAULTS[row](value)
    return made if isinstance(made, tuple) else (made, value)


def check(row: str, text: str) -> Checked:
    """Check as the judge does; of a row that loses something, what it would deliver."""
    tool = Tool(name="plan", parameters=EASY if row == "empty" else SCHEMA)
    checked = check_arguments(tool, text, null_is_absent=True)
    if row in SALVAGED:
        assert not checked.valid
        assert checked.arguments == text
        assert checked.salvage is not None
        return checked.salvage
    return checked


def test_every_row_has_its_fault() -> None:
    """Rule 141: the faults are those of the table."""
    assert list(FAULTS) == [row.name for row in TABLE if row.written]


@rows
@given(value=arguments)
def test_a_row_delivers_what_was_meant(row: str, value: JsonObject) -> None:
    """Rules 107, 131, 141: no value changes, none is invented, and only this row was needed."""
    text, meant = spoil(row, value)
    checked = check(row, text)
    assert checked.valid
    assert json.loads(checked.arguments) == meant
    assert {change.repair for change in checked.changes} == {row}


@rows
@given(value=arguments)
def test_what_is_delivered_needs_no_repair(row: str, value: JsonObject) -> None:
    """Rule 141: a repair is made once: its result is JSON that fits, and is never changed again."""
    once = check(row, spoil(row, value)[0]).arguments
    assert check_arguments(Tool(name="plan", parameters=EASY), once) == Checked(arguments=once)


@rows
def test_a_row_is_linear(row: str) -> None:
    """Rules 68, 141: four times the arguments take about four times the work, up to a megabyte."""
    work: list[int] = []
    for size in (250_000, 1_000_000):
        words = ["a, {b} [c]: d" * 20] * (size // 540)
        value: JsonObject = {"days": 1, "direct": True, "tags": words, "city": "x" * (size // 2)}
        text, meant = spoil(row, value)
        with counted_lines() as lines:
            checked = check(row, text)
        assert json.loads(checked.arguments) == meant
        work.append(lines.run)
    assert work[1] <= 5 * work[0]
